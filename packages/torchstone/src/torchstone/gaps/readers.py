"""Reading signatures from the object itself, its stub, its operator's schema, or torch.overrides."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import torch
from torch import overrides

from ..torch_internals.operators import schemas_named
from . import stubs
from .signatures import Parameter, Signature, from_inspect

Read = tuple[tuple[Signature, ...], str]
"""The overloads, and their origin: inspect, stub, schema, overrides or none."""

_SCHEMA_NAMESPACES = {"torch.linalg": "linalg_", "torch.fft": "fft_", "torch.special": "special_"}
_OUT = Parameter("out", "keyword-only", "None", "Optional[Tensor]")
_NOTHING: Read = ((), "none")


def read(value: object, name: str, owner: type | None = None) -> Read:
    """Return the overloads of ``value``, whose public name is ``name``, and their origin.

    ``owner`` is the class in which a method was found. ``inspect`` comes first because it reads the object
    itself. If it fails or finds only ``(*args, **kwargs)``, the other sources follow, the most detailed
    first.
    """
    if not callable(value):
        return _NOTHING
    own = _inspected(value)
    if own is not None and not own.opaque:
        return (own,), "inspect"
    for origin, reader in _READERS:
        found = reader(value, name, owner)
        if found:
            return found, origin
    return _NOTHING if own is None else ((own,), "inspect")


def _inspected(value: Callable[..., Any]) -> Signature | None:
    try:
        return from_inspect(inspect.signature(value))
    except (TypeError, ValueError):
        return None


def _from_stub(value: object, name: str, owner: type | None) -> tuple[Signature, ...]:
    namespace, _, leaf = name.rpartition(".")
    if owner is torch.Tensor:
        return stubs.signatures("torch._C", f"TensorBase.{leaf}")
    qualified = str(getattr(value, "__qualname__", "")).removeprefix("_VariableFunctionsClass.")
    places = [(namespace, leaf), (str(getattr(value, "__module__", "")), qualified), ("torch._C", qualified)]
    if owner is not None:
        places.append((owner.__module__, f"{owner.__qualname__}.{leaf}"))
    for module, path in places:
        found = stubs.signatures(module, path)
        if found:
            return found
    return ()


def _from_schema(value: object, name: str, owner: type | None) -> tuple[Signature, ...]:
    namespace, _, leaf = name.rpartition(".")
    operator = _SCHEMA_NAMESPACES.get(namespace, "") + leaf
    in_aten = namespace in _SCHEMA_NAMESPACES or namespace in ("torch", "torch.Tensor", "torch.nn.functional")
    if not in_aten or not inspect.isroutine(value):
        return ()
    schemas = [
        one for one in schemas_named(f"aten::{operator}") if not _is_generated(operator, one.overload_name)
    ]
    return _as_called(schemas, method=namespace == "torch.Tensor")


def _is_generated(operator: str, overload: str) -> bool:
    """Whether an overload was generated for functionalization only; Python has no binding for those."""
    packet = getattr(torch.ops.aten, operator, None)
    found = getattr(packet, overload or "default", None)
    return found is not None and torch.Tag.generated in found.tags


def _of_schema(schema: Any, *, method: bool) -> Signature:
    """Return the signature of a schema as in Python's binding: ``self`` is ``input``, except in a method."""
    parameters = [
        Parameter(
            "input" if one.name == "self" and not method else one.name,
            "keyword-only" if one.kwarg_only else "positional or keyword",
            repr(one.default_value) if one.has_default_value() else None,
            str(one.type),
        )
        for one in schema.arguments
    ]
    returns = [str(one.type) for one in schema.returns]
    return Signature(tuple(parameters), returns[0] if len(returns) == 1 else f"({', '.join(returns)})")


def _as_called(schemas: Iterable[Any], *, method: bool) -> tuple[Signature, ...]:
    """Return the signatures that Python's binding offers for schemas.

    An overload and its out variant become one signature with ``out=None``. A method has no ``out``.
    """
    plain, out = list[Signature](), dict[tuple[Parameter, ...], Signature]()
    for schema in schemas:
        written = [one.name for one in schema.arguments if one.is_out]
        signature = _of_schema(schema, method=method)
        if not written:
            plain.append(signature)
        if method or not written:
            continue
        kept = tuple(one for one in signature.parameters if one.name not in written)
        out[kept] = Signature((*kept, _OUT), signature.returns)
    return tuple(dict.fromkeys(out.get(one.parameters, one) for one in plain))


def is_overridable(value: object) -> bool:
    """Whether ``__torch_function__`` sees ``value``; then it is public, whatever its ``__module__`` is."""
    try:
        return value in testing_overrides()
    except TypeError:  # unhashable
        return False


@cache
def testing_overrides() -> dict[Any, Callable[..., Any]]:
    return overrides.get_testing_overrides()


def _from_overrides(value: object, name: str, owner: type | None) -> tuple[Signature, ...]:
    found = _inspected(testing_overrides()[value]) if is_overridable(value) else None
    return () if found is None else (found,)


_READERS: tuple[tuple[str, Callable[[object, str, type | None], tuple[Signature, ...]]], ...] = (
    ("stub", _from_stub),
    ("schema", _from_schema),
    ("overrides", _from_overrides),
)
