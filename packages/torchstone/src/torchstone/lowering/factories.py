"""Typed factories: a regular operator is one line.

Each factory builds a lowering with the schema's parameter names around a kernel (a
function of values of one dtype) and registers it. 16-bit floats are computed in
float32, as in PyTorch's CPU kernels.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .. import hlo
from ..dtypes import STANDARD, DType
from ..hlo import Value
from ..torch_internals.operators import OpOverload, schema_of
from .checks import ValueRule
from .common import axes_of, cast
from .composites import composed_whole
from .promotion import broadcast, operands_of, opmath, result_dtype
from .registry import Spec, lowers

Kernel = Callable[..., Value]


def _register(
    overloads: Sequence[OpOverload],
    function: Callable[..., Any],
    kernel: Kernel,
    dtypes: frozenset[DType],
    gaps: Mapping[DType, str] | None,
    ignores: Sequence[str] = (),
    values: Sequence[ValueRule] = (),
) -> None:
    # Use the caller's family and source location in error messages, not this module's.
    function.__module__ = sys._getframe(2).f_globals["__name__"]
    function.__name__ = function.__qualname__ = str(overloads[0]).removeprefix("aten.")
    function.__doc__ = inspect.getdoc(kernel)
    lowers(*overloads, dtypes=dtypes, gaps=gaps, ignores=ignores, values=values)(function)


def lowers_unary(
    *overloads: OpOverload,
    kernel: Kernel,
    dtypes: frozenset[DType] = STANDARD,
    gaps: Mapping[DType, str] | None = None,
    composite: str | None = None,
) -> None:
    """``f(self)`` with a result of the operand's shape, computed in the result's (op-math) dtype.

    With ``composite``, the operator becomes the composite of that name.
    """

    def function(self: Value, out: Spec) -> Value:
        def computed(x: Value) -> Value:
            return cast(kernel(hlo.convert(x, opmath(out.dtype))), out.dtype)

        return computed(self) if composite is None else composed_whole(composite, [self], computed, out, {})

    _register(overloads, function, kernel, dtypes, gaps)


def lowers_predicate(
    *overloads: OpOverload,
    kernel: Kernel,
    dtypes: frozenset[DType] = STANDARD,
    gaps: Mapping[DType, str] | None = None,
) -> None:
    """``f(self)`` → bool, computed in the operand's own dtype."""

    def function(self: Value) -> Value:
        return kernel(self)

    _register(overloads, function, kernel, dtypes, gaps)


def lowers_binary(
    *overloads: OpOverload,
    kernel: Kernel,
    dtypes: frozenset[DType] = STANDARD,
    gaps: Mapping[DType, str] | None = None,
    values: Sequence[ValueRule] = (),
    unrounded: Sequence[int] = (),
) -> None:
    """``f(self, other)`` computed in the result's (op-math) dtype after broadcasting.

    Numbers and 0-d tensors among the operands ``unrounded`` are not rounded to 16-bit floats before.
    """

    def function(self: Any, other: Any, out: Spec) -> Value:
        x, y = operands_of((self, other), out.dtype, out.shape, unrounded)
        return cast(kernel(x, y), out.dtype)

    _register(overloads, function, kernel, dtypes, gaps, values=values)


def lowers_compare(
    *overloads: OpOverload,
    kernel: Kernel,
    dtypes: frozenset[DType] = STANDARD,
    gaps: Mapping[DType, str] | None = None,
) -> None:
    """``f(self, other)`` → bool, computed in the operands' promoted dtype after broadcasting."""

    def function(self: Any, other: Any, out: Spec) -> Value:
        x, y = broadcast((self, other), result_dtype(self, other), out.shape)
        return kernel(x, y)

    _register(overloads, function, kernel, dtypes, gaps)


def lowers_reduction(
    *overloads: OpOverload,
    kernel: Callable[[Value, Sequence[int]], Value],
    dtypes: frozenset[DType] = STANDARD,
    gaps: Mapping[DType, str] | None = None,
) -> None:
    """``f(self, dim, keepdim)`` or ``f(self)``: ``kernel(x, axes)`` in the result's (op-math) dtype.

    A missing ``dim``, ``None`` and ``[]`` mean all axes.
    """

    def whole(self: Value, out: Spec) -> Value:
        x = cast(self, opmath(out.dtype))
        return finish(kernel(x, axes_of(None, x.rank)), out)

    def along(self: Value, dim: Any, out: Spec) -> Value:
        x = cast(self, opmath(out.dtype))
        return finish(kernel(x, axes_of(dim, x.rank)), out)

    for overload in overloads:
        takes_dim = any(argument.name == "dim" for argument in schema_of(overload).arguments)
        # The shape and dtype of the result already reflect keepdim and dtype.
        _register([overload], along if takes_dim else whole, kernel, dtypes, gaps, ("keepdim", "dtype"))


def finish(result: Value, out: Spec) -> Value:
    """``result`` in the dtype of ``out`` and, for ``keepdim``, in its shape."""
    return hlo.reshape(cast(result, out.dtype), out.shape)
