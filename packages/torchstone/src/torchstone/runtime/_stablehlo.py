"""StableHLO programs as plain Python data, for engines that run one operation after another.

This module imports MLIR, but nothing that it returns is an object of MLIR.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy
from jaxlib.mlir import ir, passmanager
from jaxlib.mlir.dialects import stablehlo
from numpy.typing import NDArray

from .. import dtypes
from . import _jaxlib


@dataclass(frozen=True)
class Operation:
    """One operation.

    Its attributes are fields: ``op.permutation`` is a list, ``op.comparison_direction`` is ``"LT"``. Fields
    of dimension numbers are fields of the operation itself: ``op.lhs_batching_dimensions``. ``shape`` and
    ``dtype`` are those of the first result.
    """

    name: str
    attributes: Mapping[str, Any]
    results: tuple[tuple[tuple[int, ...], numpy.dtype[Any]], ...]

    def __getattr__(self, name: str) -> Any:
        try:
            return self.attributes[name]
        except KeyError:
            raise AttributeError(f"stablehlo.{self.name} has no attribute {name!r} here") from None

    def get(self, name: str, default: Any = None) -> Any:
        """Return an attribute, or ``default`` if the operation does not have it."""
        return self.attributes.get(name, default)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.results[0][0]

    @property
    def dtype(self) -> numpy.dtype[Any]:
        return self.results[0][1]


@dataclass(frozen=True)
class Step:
    """An operation in its block; operands and results are numbers that identify values of the program."""

    operation: Operation
    operands: tuple[int, ...]
    results: tuple[int, ...]
    regions: tuple[Block, ...]


@dataclass(frozen=True)
class Block:
    """A sequence of steps that computes the values ``returned`` from ``arguments``."""

    arguments: tuple[int, ...]
    steps: tuple[Step, ...]
    returned: tuple[int, ...]


_INLINE_CHLO = "builtin.module(func.func(chlo-legalize-to-stablehlo))"


def read(bytecode: bytes) -> dict[str, Block]:
    """Read the functions of a module, by name.

    The attribute ``decomposition`` of a composite and ``callee`` of a call name the function that they run.
    """
    with _jaxlib.make_context() as context:
        module = _jaxlib.parse(bytecode, context)
        stablehlo.register_stablehlo_passes()
        passmanager.PassManager.parse(_INLINE_CHLO).run(module.operation)
        return {
            ir.StringAttr(one.attributes["sym_name"]).value: _Reader().block(one.regions[0].blocks[0])
            for one in module.body.operations
        }


@dataclass
class _Reader:
    numbers: dict[Any, int] = field(default_factory=dict)

    def block(self, block: Any) -> Block:
        arguments = self._of(block.arguments)
        *steps, last = (one.operation for one in block.operations)
        read_ = tuple(self._step(one) for one in steps)
        return Block(arguments, read_, self._of(last.operands))

    def _of(self, values: Any) -> tuple[int, ...]:
        return tuple(self.numbers.setdefault(one, len(self.numbers)) for one in values)

    def _step(self, op: Any) -> Step:
        attributes: dict[str, Any] = {}
        if op.name == "stablehlo.constant":
            attributes["value"] = _constant(op)
        for name in op.attributes:
            if name not in attributes:
                plain = _plain(op.attributes[name])
                attributes |= plain if isinstance(plain, dict) else {name: plain}
        attributes = _defaults(op.name.removeprefix("stablehlo."), attributes) | attributes
        forms = tuple(_form(one.type) for one in op.results)
        operation = Operation(op.name.removeprefix("stablehlo."), attributes, forms)
        operands = self._of(op.operands)
        regions = tuple(self.block(region.blocks[0]) for region in op.regions)
        return Step(operation, operands, self._of(op.results), regions)


def _defaults(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the specification's default values of attributes of windows, which a program may leave out."""
    if name == "convolution":
        count, dilations = len(given["input_spatial_dimensions"]), ("lhs_dilation", "rhs_dilation")
    elif name == "reduce_window":
        count, dilations = len(given["window_dimensions"]), ("base_dilations", "window_dilations")
    else:
        return {}
    found: dict[str, Any] = {one: [1] * count for one in ("window_strides", *dilations)}
    return found | {"padding": numpy.zeros((count, 2), numpy.int64), "window_reversal": [False] * count}


def _form(kind: Any) -> tuple[tuple[int, ...], numpy.dtype[Any]]:
    if isinstance(kind, ir.RankedTensorType):
        return tuple(kind.shape), _dtype(kind.element_type)
    return (), numpy.dtype(object)  # tuples and tokens, for which there is no kernel


def _dtype(element: Any) -> numpy.dtype[Any]:
    return dtypes.from_mlir(str(element)).numpy


_STRUCTURES = {
    "#stablehlo.dot<": stablehlo.DotDimensionNumbers,
    "#stablehlo.gather<": stablehlo.GatherDimensionNumbers,
    "#stablehlo.scatter<": stablehlo.ScatterDimensionNumbers,
    "#stablehlo.conv<": stablehlo.ConvDimensionNumbers,
}
_PLAIN: tuple[tuple[Any, Callable[[Any], Any]], ...] = (
    (ir.BoolAttr, lambda one: one.value),
    (ir.IntegerAttr, lambda one: one.value),
    (ir.StringAttr, lambda one: one.value),
    (ir.FlatSymbolRefAttr, lambda one: one.value),
    (ir.DenseI64ArrayAttr, list),
    (ir.DenseBoolArrayAttr, list),
    (ir.DenseElementsAttr, numpy.array),
    (ir.ArrayAttr, lambda one: [_plain(item) for item in one]),
)


def _plain(attribute: Any) -> Any:
    """Convert an attribute to plain Python data.

    The result is a number, text, a list or an array; dimension numbers become a dictionary, and any other
    attribute MLIR's text of it.
    """
    for kind, change in _PLAIN:
        if isinstance(attribute, kind):
            return change(attribute)
    text = str(attribute)
    for head, structure in _STRUCTURES.items():
        if text.startswith(head):
            found = structure(attribute)
            names = [name for name in vars(structure) if not name.startswith("_")]
            return {name: getattr(found, name) for name in names if not callable(getattr(found, name))}
    enumerated = re.fullmatch(r"#stablehlo<\w+ (\w+)>", text)
    return enumerated.group(1) if enumerated else text


def _constant(op: Any) -> NDArray[Any]:
    """Return the elements of a constant.

    For complex numbers and dtypes that NumPy lacks, MLIR's Python API gives only the text, which is parsed.
    """
    shape, dtype = _form(op.results[0].type)
    if dtype.kind != "c" and dtype.isbuiltin == 1:
        return numpy.array(op.attributes["value"], dtype)
    text = str(op)
    text = text[text.index("dense<") + len("dense<") : text.rindex("> : ")]
    if text.startswith('"'):
        return numpy.frombuffer(bytes.fromhex(text[3:-1]), dtype).reshape(shape)
    part = numpy.dtype(f"f{dtype.itemsize // 2}") if dtype.kind == "c" else dtype
    values = numpy.array([_number(one, part) for one in re.findall(r"[-+.\w]+", text)], part).view(dtype)
    return numpy.broadcast_to(values.reshape(shape if values.size == math.prod(shape) else ()), shape)


def _number(text: str, dtype: numpy.dtype[Any]) -> Any:
    """Parse a number as MLIR writes it: a number without a decimal form is written as its bits."""
    if text.startswith("0x"):
        return numpy.array(int(text, 16), f"u{dtype.itemsize}").view(dtype)
    return float(text)
