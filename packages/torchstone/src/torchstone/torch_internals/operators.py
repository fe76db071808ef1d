"""Operators: their classes, their schemas, and stand-ins for operators that this PyTorch lacks."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket

from .probing import Internal, missing

__all__ = [
    "HigherOrderOperator",
    "MissingOverload",
    "OpOverload",
    "OpOverloadPacket",
    "all_schemas",
    "functional_overloads",
    "namespace",
    "overload_name",
    "overload_of_custom_operator",
    "overloads_of",
    "python_implementation",
    "schema_of",
    "schemas_named",
]

_TRACES, _READS = "tracing through custom operators", "reading signatures of operators"
_custom_operators = Internal("torch._library.custom_ops.OPDEFS", _TRACES)
_library_kernels = Internal("torch.library._impls", _TRACES)
all_schemas = Internal("torch._C._jit_get_all_schemas", _READS)
schemas_named = Internal("torch._C._jit_get_schemas_for_operator", _READS)


def schema_of(operator: Any) -> Any:
    """Return the schema of an overload: its name, arguments and returns, and whether it writes."""
    return operator._schema


def overload_name(overload: OpOverload) -> str:
    """``Tensor`` for ``aten.add.Tensor``."""
    return overload._overloadname


def overloads_of(name: str) -> list[OpOverload]:
    """Return all overloads of an operator, whose name is given as in schemas: ``aten::add``."""
    space, operator = name.split("::")
    packet = getattr(getattr(torch.ops, space), operator, None)
    return [] if packet is None else [getattr(packet, overload) for overload in packet.overloads()]


@cache
def functional_overloads() -> tuple[OpOverload, ...]:
    """The overloads of ATen that write into none of their arguments."""
    found = []
    for schema in all_schemas():
        if schema.name.startswith("aten::") and not schema.is_mutable:
            packet = getattr(torch.ops.aten, schema.name.removeprefix("aten::"), None)
            overload = getattr(packet, schema.overload_name or "default", None)
            if isinstance(overload, OpOverload):  # some schemas belong to TorchScript only
                found.append(overload)
    return tuple(found)


def overload_of_custom_operator(function: Any) -> OpOverload:
    """The overload that ``torch.library.custom_op`` made of a function."""
    found: OpOverload = function._opoverload
    return found


def python_implementation(overload: OpOverload) -> Callable[..., Any] | None:
    """Return the Python function of an operator outside ATen, for any device or the CPU, or None.

    The operator may be one of PyTorch's primitives, come from ``torch.library.custom_op``, or have a kernel
    that was registered through a ``torch.library.Library``.
    """
    if hasattr(overload, "impl_aten"):
        found: Callable[..., Any] = overload.impl_aten
        return found
    definition = _custom_operators.get().get(overload.name())
    if definition is not None:
        return definition._backend_fns.get(None) or definition._backend_fns.get("cpu")
    for key in (torch._C.DispatchKey.CompositeExplicitAutograd, torch._C.DispatchKey.CPU):
        if overload.name().replace("::", "/") + f"/{key.name}" in _library_kernels.get():
            return partial(overload._op_dk, key)
    return None


class MissingOverload:
    """A stand-in, in tables, for an overload that this PyTorch lacks; no graph contains it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.py_kernels: dict[Any, Any] = {}
        self._dispatch_cache: dict[Any, Any] = {}

    def __str__(self) -> str:
        return self._name

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise missing(f"torch.ops.{self._name}", f"what calls {self._name}")


class Packet:
    """The overloads of one operator, used like PyTorch's own packet: called, or read as attributes.

    An overload that this PyTorch lacks is a :class:`MissingOverload`.
    """

    def __init__(self, name: str, theirs: Any) -> None:
        self._name, self._theirs = name, theirs

    def __getattr__(self, overload: str) -> Any:
        found = getattr(self._theirs, overload, None)
        if found is None:
            _refuse_protocols(overload)
            found = MissingOverload(f"{self._name}.{overload}")
        self.__dict__[overload] = found
        return found

    def overloads(self) -> list[str]:
        """Return the names of the overloads that this PyTorch has."""
        return [] if self._theirs is None else list(self._theirs.overloads())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return (self._theirs or self.default)(*args, **kwargs)

    def __eq__(self, other: object) -> bool:
        return other is self or (self._theirs is not None and other is self._theirs)

    def __hash__(self) -> int:
        return hash(self._theirs or self._name)


class Namespace:
    """A namespace such as ``torch.ops.aten``; an operator that this PyTorch lacks has no overloads in it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, operator: str) -> Packet:
        theirs = getattr(getattr(torch.ops, self._name), operator, None)
        if theirs is None:
            _refuse_protocols(operator)
        found = self.__dict__[operator] = Packet(f"{self._name}.{operator}", theirs)
        return found


def _refuse_protocols(name: str) -> None:
    """Raise ``AttributeError`` for Python's special methods, which ``copy`` and ``pickle`` look up."""
    if name.startswith("__"):
        raise AttributeError(name)


@cache
def namespace(name: str) -> Any:
    """Return the operators of ``torch.ops.<name>``, including stand-ins for those that this PyTorch lacks."""
    return Namespace(name)
