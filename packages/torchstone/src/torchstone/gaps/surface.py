"""Finding PyTorch's public names, with one record for each. :mod:`.readers` reads their signatures.

The definition of public is that of the test of public bindings in ``torch/testing/_internal``: the names in
``__all__`` or, if a module has none, the names without a leading underscore whose object was defined in the
module or in a public module below it.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import types
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..errors import GapsError
from .readers import is_overridable, read
from .signatures import Signature

SCOPE = (
    "torch",
    "torch.Tensor",
    "torch.nn.Module",
    "torch.nn.functional",
    "torch.nn.modules.*",
    "torch.optim",
    "torch.autograd",
    "torch.autograd.graph",
    "torch.nn.parallel",
    "torch.accelerator",
    "torch.cuda",
    "torch.cuda.comm",
    "torch.mps",
    "torch.distributed",
)
"""The namespaces that the redirection covers."""

DEFAULT = (
    *SCOPE,
    "torch.amp",
    "torch.fft",
    "torch.linalg",
    "torch.special",
    "torch.utils.data",
)
"""The namespaces that are read by default."""

WHOLE = ("torch.**",)
"""The pattern for every public module that can be imported here."""

_NOT_IMPORTED = ("torch.testing", "torch.utils.benchmark.examples", "torch.utils.bottleneck.__main__")
"""Tests, examples and scripts: importing them runs something."""
OPEN_CLASSES = ("torch.Tensor", "torch.nn.Module")
"""Classes that count as namespaces: every public member is an API, including inherited ones."""
_REPEATS = "torch.nn.modules."
"""The prefix of modules that offer the same classes as ``torch.nn.modules`` itself."""
_LEGACY = type(torch.FloatTensor)
"""The type of the legacy tensor types, which repeat every method of ``torch.Tensor``."""


@dataclass(frozen=True, slots=True)
class Api:
    """One public name; ``home`` is where its object was defined, which tells moves from removals."""

    name: str
    kind: str
    """``class``, ``function``, ``method``, ``property``, ``module`` or ``value``."""
    home: str = ""
    signatures: tuple[Signature, ...] = ()
    origin: str = "none"

    @property
    def namespace(self) -> str:
        return self.name.rpartition(".")[0]

    @property
    def leaf(self) -> str:
        return self.name.rpartition(".")[2]

    def parameters(self) -> frozenset[str]:
        """Return the names of all parameters of all overloads."""
        return frozenset(one.name for signature in self.signatures for one in signature.parameters)


@dataclass(frozen=True)
class Surface:
    """The public APIs of some namespaces, by name; ``unreadable`` says why a module could not be imported."""

    apis: dict[str, Api]
    unreadable: dict[str, str]
    namespaces: frozenset[str]
    """The modules and classes whose public names were all read."""


def read_surface(namespaces: Sequence[str] = DEFAULT) -> Surface:
    """Return the public names of ``namespaces``: modules, classes, ``package.*`` or ``package.**``.

    ``package.*`` includes the package's own modules, and ``package.**`` those of its subpackages, too.

    Raises :class:`GapsError` for a namespace that does not exist. A namespace that is not PyTorch's is
    refused as well, because the APIs that are compared are also called.
    """
    foreign = [name for name in namespaces if not _is_pytorch(name)]
    if foreign:
        raise GapsError(
            f"{foreign[0]} is not a namespace of PyTorch",
            hint="name torch or a module in it, such as torch.fft",
        )
    apis: dict[str, Api] = {}
    unreadable: dict[str, str] = {}
    names = list(dict.fromkeys(_expand(namespaces)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated names warn when they are accessed
        for name in names:
            try:
                scope = _load(name)
            except (Exception, SystemExit) as error:  # importing a module may run anything
                if name in namespaces:
                    raise GapsError(
                        f"there is no namespace {name}: {first_line(error)}",
                        hint="name a module or class, as in torch.nn.functional",
                    ) from error
                unreadable[name] = first_line(error)
                continue
            for api in _apis(name, scope):
                apis.setdefault(api.name, api)
    classes = {api.name for api in apis.values() if api.kind == "class"} - set(OPEN_CLASSES)
    return Surface(dict(sorted(apis.items())), unreadable, frozenset({*names, *classes} - unreadable.keys()))


def first_line(error: BaseException) -> str:
    """Return the exception's type and the first line of its message."""
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


def without_aliases(apis: Iterable[Api]) -> list[Api]:
    """Return ``apis`` without the longer names of classes that ``torch.nn.modules`` offers repeatedly."""
    chosen = {
        f"{found.__module__}.{found.__qualname__}": name for name in OPEN_CLASSES for found in [_load(name)]
    }
    listed = sorted(apis, key=lambda api: (len(api.name), api.name))
    for api in listed:
        if api.kind == "class" and api.home and api.name.startswith(_REPEATS):
            chosen.setdefault(api.home, api.name)
    homes = {api.name: api.home for api in listed}

    def kept(api: Api) -> bool:
        names = (api.name, api.namespace)
        return all(chosen.get(homes.get(name, ""), name) == name for name in names)

    return sorted(filter(kept, listed), key=lambda api: api.name)


def resolve(name: str) -> Any:
    """Return the object with a dotted name. Raises AttributeError or ImportError if there is none."""
    return _load(name)


def _load(name: str) -> Any:
    """Return a module, or a member of a module or class."""
    module, rest = name, list[str]()
    while True:
        try:
            value = importlib.import_module(module)
            break
        except ModuleNotFoundError as error:
            if error.name is None or not (module + ".").startswith(error.name + ".") or "." not in module:
                raise
            module, _, last = module.rpartition(".")
            rest.insert(0, last)
    for part in rest:
        value = inspect.getattr_static(value, part) if isinstance(value, type) else getattr(value, part)
    return value


def _expand(namespaces: Iterable[str]) -> Iterator[str]:
    """Yield the namespaces, and for those with a star also the modules that the star stands for."""
    for pattern in namespaces:
        base, star, deep = pattern.partition(".*")
        yield base
        if star:
            yield from _modules(base, deep == "*")
            yield from (name for name in OPEN_CLASSES if deep and name.startswith(f"{base}."))


def _modules(base: str, deep: bool) -> Iterator[str]:
    try:
        package = importlib.import_module(base)
    except Exception:  # noqa: BLE001 -- reported when the namespace itself is read
        return
    for found in sorted(
        pkgutil.iter_modules(getattr(package, "__path__", ()), f"{base}."), key=lambda one: one.name
    ):
        if found.name.rpartition(".")[2].startswith("_") or found.name.startswith(_NOT_IMPORTED):
            continue
        yield found.name
        if deep and found.ispkg:
            yield from _modules(found.name, deep)


def _apis(name: str, scope: Any) -> Iterator[Api]:
    members = (
        _class_members(scope, name in OPEN_CLASSES) if isinstance(scope, type) else _module_members(scope)
    )
    for leaf, value in members:
        api = _api(f"{name}.{leaf}", value, scope if isinstance(scope, type) else None)
        yield api
        if api.kind == "class" and api.name not in OPEN_CLASSES and not isinstance(value, _LEGACY):
            for member, inner in _class_members(value, everything=False):
                yield _api(f"{api.name}.{member}", inner, value)


def _module_members(module: types.ModuleType) -> list[tuple[str, Any]]:
    declared = getattr(module, "__all__", None)
    names = dir(module) if declared is None else declared
    found = []
    for name in sorted(set(names)):
        try:
            value = getattr(module, name)
        except Exception:  # noqa: BLE001 -- a lazy attribute that fails here is no API here
            continue
        if declared is not None or _is_own(module.__name__, name, value):
            found.append((name, value))
    return found


def _is_own(module: str, name: str, value: Any) -> bool:
    """Whether a name is public in a module without ``__all__``."""
    home = getattr(value, "__module__", None)
    if name.startswith("_") or not isinstance(home, str):
        return False
    if isinstance(value, types.BuiltinFunctionType) and is_overridable(value):
        return True
    return (home + ".").startswith(module + ".") and "._" not in home


def _class_members(owner: type, everything: bool) -> list[tuple[str, Any]]:
    """Return the public members of a class (``everything``: inherited ones, too), without foreign ones."""
    names = dir(owner) if everything else vars(owner)
    return [
        (name, value)
        for name in sorted(names)
        if not name.startswith("_") and not isinstance(owner.__dict__.get(name), types.ModuleType)
        for value in [inspect.getattr_static(owner, name)]
        if not _is_foreign(value)
    ]


_ADD_MEMBERS = frozenset({"transformers"})
"""Packages that add members to PyTorch's classes. Members that replace PyTorch's are still compared."""


def _is_foreign(value: Any) -> bool:
    """Whether another package has added this member, as transformers does to ``torch.nn.Module``."""
    if isinstance(value, property):
        value = value.fget
    elif isinstance(value, staticmethod | classmethod):
        value = value.__func__
    home = getattr(value, "__module__", None)
    return isinstance(home, str) and home.partition(".")[0] in _ADD_MEMBERS


def _is_pytorch(module: str) -> bool:
    return module.partition(".")[0] == "torch"


def _api(name: str, value: Any, owner: type | None) -> Api:
    kind = _kind(value, owner is not None)
    if isinstance(value, staticmethod | classmethod):
        value = value.__get__(None, object)
    overloads, origin = read(value, name, owner) if kind in ("class", "function", "method") else ((), "none")
    return Api(name, kind, "" if kind == "value" else _home(value), overloads, origin)


def _kind(value: Any, in_class: bool) -> str:
    if isinstance(value, type):
        return "class"
    if isinstance(value, types.ModuleType):
        return "module"
    if in_class and isinstance(value, property | types.GetSetDescriptorType | types.MemberDescriptorType):
        return "property"
    if callable(value) or isinstance(value, staticmethod | classmethod):
        return "method" if in_class else "function"
    return "value"


def _home(value: Any) -> str:
    if isinstance(value, types.ModuleType):
        return value.__name__
    module, qualified = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(qualified, str) or "pybind11_" in qualified:
        return ""
    return f"{module}.{qualified}"
