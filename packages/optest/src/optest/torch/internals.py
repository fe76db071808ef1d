"""The only module of optest that uses PyTorch's private names.

A name is looked up when it is first needed. If the installed PyTorch lacks it, the error gives the
version of PyTorch, the name, and the feature that needs it. Importing this module does not import PyTorch.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ..errors import BackendError, MissingExtra


def need_torch(name: str) -> None:
    """Raise :class:`MissingExtra` unless PyTorch can be imported."""
    if importlib.util.find_spec("torch") is None:
        raise MissingExtra(f"{name} needs PyTorch, which is not installed", extra="torch")


def internal(path: str, feature: str) -> Any:
    """Return the object at a path ``module:attribute``; ``feature`` says what needs it, for the error.

    Raises :class:`BackendError` if this PyTorch has no such module or attribute, and ModuleNotFoundError if a
    package that PyTorch imports there is not installed.
    """
    import torch

    module, _, attribute = path.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] != "torch":
            raise
        raise BackendError(
            f"PyTorch {torch.__version__} has no {path.replace(':', '.')}, which {feature} needs: {error}",
            "use a version of PyTorch that this optest was tested with",
        ) from error
    return found


_TREES = "taking the tensors out of a call's arguments"
_NAMES = {
    "TorchDispatchMode": (
        "torch.utils._python_dispatch:TorchDispatchMode",
        "recording overloads and moving results by roundings",
    ),
    "GraphBreak": ("torch._dynamo.exc:Unsupported", "telling graph breaks from errors"),
    "counters": ("torch._dynamo.utils:counters", "finding out what torch.compile left to eager PyTorch"),
    "tree_flatten": ("torch.utils._pytree:tree_flatten", _TREES),
    "tree_leaves": ("torch.utils._pytree:tree_leaves", _TREES),
    "tree_map_only": ("torch.utils._pytree:tree_map_only", _TREES),
    "tree_unflatten": ("torch.utils._pytree:tree_unflatten", _TREES),
}


def __getattr__(name: str) -> Any:
    """Return PyTorch's own object for a name imported from here, so that ``torch.compile`` recognizes it."""
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return internal(*_NAMES[name])


# Databases -------------------------------------------------------------------------------

_OPERATORS = "torch.testing._internal.common_methods_invocations"
_DATABASES = {
    "op_db": f"{_OPERATORS}:op_db",
    "python_ref_db": f"{_OPERATORS}:python_ref_db",
    "hop_db": "torch.testing._internal.hop_db:hop_db",
    "module_db": "torch.testing._internal.common_modules:module_db",
    "optim_db": "torch.testing._internal.common_optimizers:optim_db",
}


def database(name: str) -> list[Any]:
    """Return the database of ``torch.testing`` with this name."""
    found: list[Any] = internal(_DATABASES[name], f"the suite over {name}")
    return found


def leave_seeds_alone() -> None:
    """Make ``op_db`` call random operators directly.

    Otherwise it wraps them in a function that sets PyTorch's seed before every call. All answers would then
    be the same, and a random stream that does not advance would go unnoticed.
    """

    def plain(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    internal(f"{_OPERATORS}:wrapper_set_seed", "comparing random operators by their distribution")
    importlib.import_module(_OPERATORS).__dict__["wrapper_set_seed"] = plain


# Dispatch and tensors --------------------------------------------------------------------


@contextmanager
def overloads_seen() -> Iterator[set[str]]:
    """Collect the names of the overloads that are called inside the context."""
    mode: Any = internal(*_NAMES["TorchDispatchMode"])
    names: set[str] = set()

    class Seen(mode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            names.add(str(func))
            return func(*args, **(kwargs or {}))

    with Seen():
        yield names


def schemas_of(name: str) -> list[Any]:
    """Return the schemas of all overloads of the ATen operator ``name``; empty if ATen lacks it."""
    import torch

    packet = getattr(torch.ops.aten, name, None)
    return [] if packet is None else [getattr(packet, overload)._schema for overload in packet.overloads()]


def has_memory(tensor: Any) -> bool:
    """Whether a tensor has memory; the zero tensors that autograd creates have none."""
    zero: Callable[[Any], bool] = internal("torch:Tensor._is_zerotensor", "reading gradients")
    return not zero(tensor)
