"""StableHLO programs as plain Python data, for engines that run one operation after another.

Beside :mod:`._jaxlib` the only module of the runtime that imports MLIR; nothing of MLIR leaves it.
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

    Attributes are fields: ``op.permutation`` is a list, ``op.comparison_direction`` is ``"LT"``. Those of
    dimension numbers are the operation's own: ``op.lhs_batching_dimensions``. ``shape`` and ``dtype`` are
    those of the first result.
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
        """An attribute that may be left out."""
        return self.attributes.get(name, default)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.results[0][0]

    @property
    def dtype(self) -> numpy.dtype[Any]:
        return self.results[0][1]


@dataclass(frozen=True)
class Step:
    """An operation in its block: values are numbers, each of one value of the program."""

    operation: Operation
    operands: tuple[int, ...]
    results: tuple[int, ...]
    regions: tuple[Block, ...]


@dataclass(frozen=True)
class Block:
    """What runs one after another, from ``arguments`` to ``returned``."""

    arguments: tuple[int, ...]
    steps: tuple[Step, ...]
    returned: tuple[int, ...]


_INLINE_CHLO = "builtin.module(func.func(chlo-legalize-to-stablehlo))"


def read(bytecode: bytes) -> dict[str, Block]:
    """The functions of a module by name; composites name theirs in ``decomposition``, calls in ``callee``."""
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
    """What the specification says of attributes of windows that a program leaves out."""
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
    return (), numpy.dtype(object)  # tuples and tokens, for which no kernel is


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
    """Numbers, text, lists and arrays; a dictionary for dimension numbers; MLIR's text for the rest."""
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
    """Its elements. Of dtypes that NumPy lacks, and of complex numbers, MLIR gives Python the text only."""
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
    """A number as MLIR writes it: those that have no decimal form are their bits."""
    if text.startswith("0x"):
        return numpy.array(int(text, 16), f"u{dtype.itemsize}").view(dtype)
    return float(text)
