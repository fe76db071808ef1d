"""Reading the ``.pyi`` stubs that PyTorch ships, with griffe, for the signatures of C++ functions."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import MissingExtra
from .signatures import Parameter, Signature

if TYPE_CHECKING:
    import griffe

STUBS = {
    "torch": "_C/_VariableFunctions.pyi",
    "torch._C": "_C/__init__.pyi",
    "torch._C._nn": "_C/_nn.pyi",
    "torch._C._distributed_c10d": "_C/_distributed_c10d.pyi",
    "torch.nn.functional": "nn/functional.pyi",
}
"""Module, as in ``__module__`` of its objects → the stub that describes them."""


@cache
def _stub(module: str) -> griffe.Module | None:
    """Return the parsed stub of a module; None if PyTorch has none."""
    try:
        import griffe
    except ImportError as error:
        raise MissingExtra(
            "reading PyTorch's stubs needs griffe, which is not installed", extra="proof"
        ) from error
    specification = importlib.util.find_spec("torch")
    if module not in STUBS or specification is None or specification.origin is None:
        return None
    path = Path(specification.origin).parent / STUBS[module]
    if not path.exists():
        return None
    return griffe.visit(module, filepath=path, code=path.read_text("utf-8"))


def signatures(module: str, qualified: str) -> tuple[Signature, ...]:
    """Return the overloads of ``qualified`` (``add``, ``TensorBase.add``) in a module's stub, maybe none."""
    scope: Any = _stub(module)
    *owners, name = qualified.split(".")
    for owner in owners:
        scope = None if scope is None else scope.members.get(owner)
        if scope is None or scope.is_alias or not scope.is_class:
            return ()
    if scope is None:
        return ()
    return tuple(map(_signature, _functions(scope, name)))


def _functions(scope: Any, name: str) -> Iterator[Any]:
    found = scope.members.get(name)
    if found is not None and found.is_alias:
        return  # an import; the imported name is described in its own stub
    if found is not None and found.is_class:
        yield from _functions(found, "__init__")
    elif overloads := scope.overloads.get(name):
        yield from overloads
    elif found is not None and found.is_function:
        yield found


def _signature(function: Any) -> Signature:
    """Return the signature of one ``def`` in a stub: a method keeps its ``self``, a constructor does not."""
    parameters = [
        Parameter(
            one.name,
            str(one.kind.value),
            None if one.default is None or one.kind.value.startswith("variadic") else str(one.default),
            None if one.annotation is None else str(one.annotation),
        )
        for one in function.parameters
    ]
    constructor = function.name == "__init__"
    if constructor or "classmethod" in function.labels:
        parameters = parameters[1:]
    returns = None if function.returns is None or constructor else str(function.returns)
    return Signature(tuple(parameters), returns)
