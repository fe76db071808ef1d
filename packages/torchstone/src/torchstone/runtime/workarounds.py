"""Rewrites programs to avoid bugs of engines, as long as the installed version has the bug.

Every bug has a minimal program under ``tests/runtime/engine_bugs``, and a test that fails if
:attr:`Bug.present` is wrong: the installed version no longer has the bug, or is newer than ``last`` and still
has it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from . import _jaxlib

ir, stablehlo = _jaxlib.ir, _jaxlib.stablehlo


@dataclass(frozen=True)
class Bug:
    """A bug of an engine.

    ``last`` is the newest version of ``package`` that was seen to have it; later versions count as fixed.
    """

    name: str
    package: str
    last: str

    @property
    def present(self) -> bool:
        """Whether the installed version of the package has the bug."""
        return _numbers(version(self.package)) <= _numbers(self.last)


XLA_CPU_BASE_DILATION = Bug("xla_cpu_base_dilation", "jaxlib", "0.10.2")
"""https://github.com/openxla/xla/issues/48714"""

IREE_BOOLEAN_ADD = Bug("iree_boolean_add", "iree-base-compiler", "3.13.0")
IREE_EMPTY_PRODUCT = Bug("iree_empty_product", "iree-base-compiler", "3.13.0")
IREE_SORT_OF_SLICE = Bug("iree_sort_of_slice", "iree-base-compiler", "3.13.0")

BUGS = (XLA_CPU_BASE_DILATION, IREE_BOOLEAN_ADD, IREE_EMPTY_PRODUCT, IREE_SORT_OF_SLICE)
VERSION = 1
"""Part of the compilation cache's keys: increase it whenever the result of this module's rewrites changes."""


def for_xla_cpu(module: Any) -> None:
    """Rewrite the parts of a parsed module that the installed XLA gets wrong on the CPU."""
    if XLA_CPU_BASE_DILATION.present:
        for op in _jaxlib.operations(module, "stablehlo.reduce_window"):
            if _dropped_axes(op):
                _dilate_afterwards(op)


def for_iree(module: Any) -> None:
    """Rewrite the parts of a parsed module that the installed IREE gets wrong."""
    if IREE_BOOLEAN_ADD.present:
        for op in _jaxlib.operations(module, "stablehlo.add"):
            if str(op.result.type.element_type) == "i1":
                with ir.InsertionPoint(op), op.location:
                    op.result.replace_all_uses_with(stablehlo.OrOp(*op.operands).result)
                op.operation.erase()
    if IREE_EMPTY_PRODUCT.present:
        for op in _jaxlib.operations(module, "stablehlo.dot_general"):
            if 0 in op.lhs.type.shape and 0 not in op.result.type.shape:
                with ir.InsertionPoint(op), op.location:
                    op.result.replace_all_uses_with(_zeros(op.result.type))
                op.operation.erase()
    if IREE_SORT_OF_SLICE.present:
        for op in _jaxlib.operations(module, "stablehlo.sort"):
            for position, operand in enumerate(op.operands):
                if isinstance(operand, ir.OpResult) and operand.owner.name == "stablehlo.slice":
                    with ir.InsertionPoint(op), op.location:
                        op.operands[position] = stablehlo.OptimizationBarrierOp([operand]).results[0]


def _zeros(made: Any) -> Any:
    element = made.element_type
    if isinstance(element, ir.ComplexType):
        part = _zeros(ir.RankedTensorType.get(made.shape, element.element_type))
        return stablehlo.ComplexOp(part, part).result
    is_integer = isinstance(element, ir.IntegerType)
    zero = ir.IntegerAttr.get(element, 0) if is_integer else ir.FloatAttr.get(element, 0.0)
    return stablehlo.ConstantOp(ir.DenseElementsAttr.get_splat(made, zero)).result


def _dropped_axes(op: Any) -> list[int]:
    """Return the axes with base dilation along which the window has size 1 and stride 1."""
    window, stride, holes = (
        _axes(op, name) for name in ("window_dimensions", "window_strides", "base_dilations")
    )
    each = enumerate(zip(window, stride, holes, strict=True))
    return [axis for axis, (size, step, hole) in each if size == step == 1 < hole]


def _dilate_afterwards(op: Any) -> None:
    """Dilate and pad the results, instead of the operands, along the axes of :func:`_dropped_axes`.

    That is equivalent, because windows of size 1 do not combine elements along an axis. Padding the operands
    in a separate operation would not help: XLA merges such padding into the window, which has the bug again.
    """
    dropped, holes = _dropped_axes(op), _axes(op, "base_dilations")
    rank, count = len(holes), len(op.operands) // 2
    padding = [[0, 0] for _ in holes]
    if "padding" in op.attributes:
        flat = list(ir.DenseIntElementsAttr(op.attributes["padding"]))
        padding = [flat[2 * axis : 2 * axis + 2] for axis in range(rank)]
    low, high, interior = [0] * rank, [0] * rank, [0] * rank
    for axis in dropped:
        (low[axis], high[axis]), interior[axis] = padding[axis], holes[axis] - 1
        padding[axis], holes[axis] = [0, 0], 1
    op.attributes["base_dilations"] = ir.DenseI64ArrayAttr.get(holes)
    op.attributes["padding"] = _jaxlib.integers([side for pair in padding for side in pair], (rank, 2))
    amounts = [ir.DenseI64ArrayAttr.get(amount) for amount in (low, high, interior)]
    with ir.InsertionPoint(op), op.location:
        made = op.operation.clone()
        for position, result in enumerate(made.results):
            result.set_type(_with_sizes(result.type, op.operands[position].type, dropped))
            padded = stablehlo.PadOp(result, op.operands[count + position], *amounts).result
            op.operation.results[position].replace_all_uses_with(padded)
    op.operation.erase()


def _with_sizes(changed: Any, source: Any, axes: Sequence[int]) -> Any:
    """Return the type ``changed`` with the sizes of ``source`` along ``axes``."""
    sizes = [source.shape[axis] if axis in axes else size for axis, size in enumerate(changed.shape)]
    return ir.RankedTensorType.get(sizes, changed.element_type)


def _axes(op: Any, name: str) -> list[int]:
    """Return an attribute that has a number for each axis; without it, each is 1."""
    if name in op.attributes:
        return list(ir.DenseI64ArrayAttr(op.attributes[name]))
    return [1] * len(op.operands[0].type.shape)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", text)[:3]))
