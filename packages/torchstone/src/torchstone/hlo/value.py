"""Values, shapes and constants: the vocabulary of every other ``hlo`` module.

A :class:`Value` is an SSA value with its dtype and its shape. Symbolic dimensions
(:mod:`.dimensions`) become ``?`` in the MLIR type; :func:`dim_scalar` turns one
into an SSA scalar computed from the function's own arguments.

No broadcasting and no promotion happen here; a Python number next to a value
becomes a constant of that value's shape and dtype.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from operator import and_, or_
from typing import Any

import numpy

from ..dtypes import BOOL, FLOAT8_E8M0FNU, FLOAT64, INT64, DType
from ..errors import LoweringBug, UnsupportedShape
from ._mlir import ir, stablehlo
from .cancellation import may_cancel
from .dimensions import Dim, Shape, assume_same_shape, dim_key, is_static, product
from .sizes import require_addressable

Number = bool | int | float | complex


class Scope(threading.local):
    """The context of the code under construction (one per thread)."""

    def __init__(self) -> None:
        self.module: Any = None
        self.symbols: list[dict[Any, Value]] = []


scope = Scope()


class Value:
    """An SSA value: ``ir`` (the MLIR value), ``shape``, ``dtype``."""

    __slots__ = ("dtype", "ir", "shape")

    def __init__(self, ir_value: Any, shape: Sequence[Dim], dtype: DType) -> None:
        require_addressable(shape, dtype)
        self.ir = ir_value
        self.shape: Shape = tuple(shape)
        self.dtype = dtype

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def numel(self) -> Dim:
        return product(self.shape)

    def __repr__(self) -> str:
        return f"Value({type_text(self.shape, self.dtype)})"

    def __add__(self, other: Value | Number) -> Value:
        if isinstance(other, Value) and self.dtype.is_floating and may_cancel(self.ir, other.ir, added=True):
            return _exact_difference(self, -other)
        return binary(stablehlo.add, self, other)

    def __radd__(self, other: Number) -> Value:
        return binary(stablehlo.add, other, self)

    def __sub__(self, other: Value | Number) -> Value:
        if isinstance(other, Value) and self.dtype.is_floating and may_cancel(self.ir, other.ir):
            return _exact_difference(self, other)
        return binary(stablehlo.subtract, self, other)

    def __rsub__(self, other: Number) -> Value:
        return binary(stablehlo.subtract, other, self)

    def __mul__(self, other: Value | Number) -> Value:
        return binary(stablehlo.multiply, self, other)

    def __rmul__(self, other: Number) -> Value:
        return binary(stablehlo.multiply, other, self)

    def __truediv__(self, other: Value | Number) -> Value:
        return binary(stablehlo.divide, self, other)

    def __rtruediv__(self, other: Number) -> Value:
        return binary(stablehlo.divide, other, self)

    def __and__(self, other: Value | Number) -> Value:
        return binary(stablehlo.and_, self, other)

    def __or__(self, other: Value | Number) -> Value:
        return binary(stablehlo.or_, self, other)

    def __xor__(self, other: Value | Number) -> Value:
        return binary(stablehlo.xor, self, other)

    def __invert__(self) -> Value:
        return unary(stablehlo.not_, self)

    def __neg__(self) -> Value:
        return unary(stablehlo.negate, self)

    def __lt__(self, other: Value | Number) -> Value:
        return compare("LT", self, other)

    def __le__(self, other: Value | Number) -> Value:
        return compare("LE", self, other)

    def __gt__(self, other: Value | Number) -> Value:
        return compare("GT", self, other)

    def __ge__(self, other: Value | Number) -> Value:
        return compare("GE", self, other)


# Types ------------------------------------------------------------------------


def type_text(shape: Sequence[Dim], dtype: DType) -> str:
    """Return the MLIR type as text, such as ``tensor<?x8xf32>`` with one symbolic dimension."""
    dims = "".join(f"{dim if isinstance(dim, int) else '?'}x" for dim in shape)
    return f"tensor<{dims}{dtype.mlir}>"


def element_type(dtype: DType) -> Any:
    return _once(dtype, lambda: ir.Type.parse(dtype.mlir))


def _once(key: Any, make: Callable[[], Any]) -> Any:
    """Return ``make()``, cached in the module under construction, because graphs repeat a lot."""
    if scope.module is None:
        return make()
    made = scope.module.made
    if key not in made:
        made[key] = make()
    return made[key]


def tensor_type(shape: Sequence[Dim], dtype: DType) -> Any:
    dynamic = ir.ShapedType.get_dynamic_size()
    sizes = [dim if isinstance(dim, int) else dynamic for dim in shape]
    return ir.RankedTensorType.get(sizes, element_type(dtype))


def wrap(ir_value: Any, shape: Sequence[Dim], dtype: DType) -> Value:
    return Value(ir_value, shape, dtype)


# Constants -----------------------------------------------------------------


def constant(array: Any, dtype: DType) -> Value:
    """A constant of a NumPy array (or nested lists) in ``dtype``."""
    data = numpy.asarray(array)
    data = data.astype(dtype.numpy) if data.dtype != dtype.numpy else data
    return Value(
        stablehlo.constant(_dense(numpy.ascontiguousarray(data), data.shape, dtype)), data.shape, dtype
    )


def scalar(number: Number, dtype: DType) -> Value:
    """A 0-d constant; integers wrap into ``dtype`` as PyTorch's casts do."""
    return full((), number, dtype)


def full(shape: Sequence[Dim], number: Number | Dim, dtype: DType) -> Value:
    """A value of ``shape`` filled with one Python number (a constant) or with a symbolic dimension."""
    if hasattr(number, "node"):
        zero_d = stablehlo.convert(tensor_type((), dtype), dim_scalar(number).ir)
    elif is_static(shape):
        return Value(stablehlo.constant(_splat(number, tuple(shape), dtype)), shape, dtype)
    else:
        zero_d = stablehlo.constant(_splat(number, (), dtype))
    target = tensor_type(shape, dtype)
    return Value(
        stablehlo.dynamic_broadcast_in_dim(target, zero_d, shape_operand(shape).ir, []), shape, dtype
    )


def full_like(value: Value, number: Number) -> Value:
    return full(value.shape, number, value.dtype)


def zeros_like(value: Value) -> Value:
    return full(value.shape, 0, value.dtype)


def _element(number: Number, dtype: DType) -> Any:
    if dtype.is_integer and isinstance(number, int) and not isinstance(number, bool):
        number &= (1 << dtype.bits) - 1
        if dtype.kind == "int" and number >> (dtype.bits - 1):
            number -= 1 << dtype.bits
    if isinstance(number, complex) and not dtype.is_complex:
        number = number.real
    if dtype.is_bool:
        number = bool(number)
    if dtype is FLOAT8_E8M0FNU and number == 0:
        number = 2.0**-127  # this dtype has no zero; PyTorch uses its smallest value
    with numpy.errstate(over="ignore", invalid="ignore"):
        return numpy.asarray(number).astype(dtype.numpy)


def _splat(number: Number, shape: tuple[int, ...], dtype: DType) -> Any:
    key = (type(number), repr(number), shape, dtype)  # repr and type, because 0.0 == -0.0 and True == 1
    return _once(key, lambda: _new_splat(_element(number, dtype), shape, dtype))


def _new_splat(element: Any, shape: tuple[int, ...], dtype: DType) -> Any:
    target = ir.RankedTensorType.get(shape, element_type(dtype))
    if dtype.is_bool:
        return ir.DenseElementsAttr.get_splat(target, ir.BoolAttr.get(bool(element)))
    if dtype.is_integer:
        if int(element) >= 1 << 63:  # the bindings accept only int64
            return ir.Attribute.parse(f"dense<{int(element)}> : {type_text(shape, dtype)}")
        return ir.DenseElementsAttr.get_splat(target, ir.IntegerAttr.get(element_type(dtype), int(element)))
    if dtype.is_complex:
        return _dense(numpy.full(shape, element), shape, dtype)
    return ir.DenseElementsAttr.get_splat(target, ir.FloatAttr.get(element_type(dtype), float(element)))


def _dense(data: Any, shape: Sequence[int], dtype: DType) -> Any:
    if dtype.is_bool:
        return ir.DenseElementsAttr.get(data, type=ir.IntegerType.get_signless(1), shape=list(shape))
    if dtype.bits < 8:
        text = numpy.array2string(data.astype(numpy.int64), separator=",", threshold=data.size + 1)
        return ir.Attribute.parse(f"dense<{text if data.size else ''}> : {type_text(shape, dtype)}")
    kind = element_type(dtype)
    if data.dtype.name.startswith(("bfloat16", "float8")):
        data = data.view(numpy.uint16 if dtype.bits == 16 else numpy.uint8)
    return ir.DenseElementsAttr.get(data, type=kind, shape=list(shape))


# Elementwise kernels shared by the operators above and the other modules ---------


def unary(operation: Any, x: Value) -> Value:
    return Value(operation(x.ir), x.shape, x.dtype)


def operands(a: Value | Number, b: Value | Number) -> tuple[Value, Value]:
    """Return two values of equal shape and dtype; a Python number takes the other's. Raises LoweringBug."""
    if not isinstance(a, Value):
        if not isinstance(b, Value):
            raise LoweringBug("a binary hlo operation needs at least one value")
        return full_like(b, a), b
    if not isinstance(b, Value):
        return a, full_like(a, b)
    require_same(a, b)
    return a, b


def require_same(a: Value, b: Value) -> None:
    """Raises :class:`LoweringBug` unless both values have the same shape and dtype."""
    if a.dtype is not b.dtype or not assume_same_shape(a.shape, b.shape):
        raise LoweringBug(f"hlo operands differ: {a!r} and {b!r} (broadcast and convert explicitly)")


def binary(operation: Any, a: Value | Number, b: Value | Number) -> Value:
    x, y = operands(a, b)
    return Value(operation(x.ir, y.ir), x.shape, x.dtype)


def _exact_difference(a: Value, b: Value) -> Value:
    """Return ``a − b``, which is exactly zero where both are equal and finite; see :mod:`.cancellation`."""
    none = binary(stablehlo.multiply, unary(stablehlo.abs, b), 0.0)  # NaN where b is infinite or NaN
    chosen = stablehlo.select(compare("EQ", a, b).ir, none.ir, binary(stablehlo.subtract, a, b).ir)
    return Value(chosen, a.shape, a.dtype)


def compare(direction: str, a: Value | Number, b: Value | Number) -> Value:
    """Elementwise comparison (``EQ NE LT LE GT GE``), IEEE for floats; returns bool."""
    x, y = operands(a, b)
    if x.dtype.is_floating or x.dtype.is_complex:
        kind = "FLOAT"
    else:
        kind = "UNSIGNED" if x.dtype.is_unsigned else "SIGNED"
    result = stablehlo.compare(
        x.ir,
        y.ir,
        stablehlo.ComparisonDirectionAttr.get(direction),
        compare_type=stablehlo.ComparisonTypeAttr.get(kind),
    )
    return Value(result, x.shape, BOOL)


# Symbolic dimensions as scalars ------------------------------------------------


@contextmanager
def bind_symbols(arguments: Sequence[Value]) -> Iterator[None]:
    """Make the dimensions of a function's arguments available to :func:`dim_scalar` inside the block."""
    table: dict[Any, Value] = {}
    for argument in arguments:
        for axis, dim in enumerate(argument.shape):
            if isinstance(dim, int) or dim_key(dim) in table:
                continue
            size = stablehlo.get_dimension_size(argument.ir, axis)
            wide = table[dim_key(dim)] = Value(stablehlo.convert(tensor_type((), INT64), size), (), INT64)
            symbol, scale, offset = _linear(dim_key(dim))
            table.setdefault(symbol, binary(stablehlo.divide, wide - offset, scale))
    scope.symbols.append(table)
    try:
        yield
    finally:
        scope.symbols.pop()


def dim_scalar(dim: Dim) -> Value:
    """Return a dimension as a 0-d int64 value, or a fraction of dimensions (``SymFloat``) as float64.

    Raises :class:`UnsupportedShape` for an unknown symbol.
    """
    key = dim_key(dim)
    if isinstance(key, int):
        return scalar(key, INT64)
    return _expression(key)


def condition_scalar(condition: Any) -> Value:
    """Return a ``SymBool`` as a 0-d bool; raise :class:`UnsupportedShape` for an unknown symbol."""
    return _condition(condition.node.expr)


_DIRECTIONS = {
    "Equality": "EQ",
    "Unequality": "NE",
    "StrictLessThan": "LT",
    "LessThan": "LE",
    "StrictGreaterThan": "GT",
    "GreaterThan": "GE",
}
"""Maps SymPy's classes of relations to StableHLO's comparison directions."""


def _condition(expression: Any) -> Value:
    name = type(expression).__name__
    if name in _DIRECTIONS:
        left, right = map(_expression, expression.args)
        return compare(_DIRECTIONS[name], left, right)
    parts = list(map(_condition, expression.args))
    match name:
        case "And":
            return reduce(and_, parts)
        case "Or":
            return reduce(or_, parts)
        case "Not":
            return ~parts[0]
    return scalar(bool(expression), BOOL)


def resolvable(dim: Dim, arguments: Sequence[Value]) -> bool:
    """True if ``dim`` can be computed from the dimensions of ``arguments`` alone."""
    key = dim_key(dim)
    known = {dim_key(d) for argument in arguments for d in argument.shape if not isinstance(d, int)}
    known |= {_linear(key)[0] for key in known if not isinstance(key, int)}
    return isinstance(key, int) or key in known or all(symbol in known for symbol in key.free_symbols)


def _linear(expression: Any) -> tuple[Any, int, int]:
    """Split ``scale * symbol + offset`` into its three parts; any other expression counts as a symbol."""
    for symbol in expression.free_symbols:
        scale, offset = expression.coeff(symbol), expression.coeff(symbol, 0)
        if scale.is_Integer and offset.is_Integer and scale > 0 and scale * symbol + offset == expression:
            return symbol, int(scale), int(offset)
    return expression, 1, 0


_FRACTIONS = {
    "ToFloat": lambda number: number,
    "IntTrueDiv": stablehlo.divide,
    "FloatTrueDiv": stablehlo.divide,
    "FloatPow": stablehlo.power,
    "Pow": stablehlo.power,
}
"""PyTorch's functions of numbers whose results are fractions."""


def _converted(number: Value, dtype: DType) -> Value:
    return (
        number
        if number.dtype is dtype
        else Value(stablehlo.convert(tensor_type((), dtype), number.ir), (), dtype)
    )


def _alike(numbers: Sequence[Value]) -> list[Value]:
    """Convert all ``numbers`` to float64 if any of them is float64."""
    dtype = FLOAT64 if any(number.dtype is FLOAT64 for number in numbers) else INT64
    return [_converted(number, dtype) for number in numbers]


def _expression(expression: Any) -> Value:
    table = scope.symbols[-1] if scope.symbols else {}
    if expression in table:
        return table[expression]
    if expression.is_Integer:
        return scalar(int(expression), INT64)
    name = type(expression).__name__
    if name in ("Add", "Mul", "Max", "Min"):
        parts = _alike([_expression(part) for part in expression.args])
        combine = {
            "Add": stablehlo.add,
            "Mul": stablehlo.multiply,
            "Max": stablehlo.maximum,
            "Min": stablehlo.minimum,
        }[name]
        result = parts[0]
        for part in parts[1:]:
            result = binary(combine, result, part)
        return result
    if name == "Pow" and expression.args[1].is_Integer and int(expression.args[1]) >= 0:
        base, result = _expression(expression.args[0]), scalar(1, INT64)
        for _ in range(int(expression.args[1])):
            result = result * base
        return result
    if name in ("FloorDiv", "CleanDiv", "Mod", "PythonMod"):
        left, right = (_expression(part) for part in expression.args)
        if not expression.args[1].is_Integer:  # nothing is read from an empty axis, but XLA aborts at x / 0
            right = binary(stablehlo.maximum, right, 1)
        rest = binary(stablehlo.remainder, left, right)
        if not expression.args[0].is_nonnegative:  # Python's remainder has the sign of the divisor
            rest = binary(stablehlo.remainder, rest + right, right)
        return (left - rest) / right if name.endswith("Div") else rest
    if expression.is_Float or expression.is_Rational:
        return scalar(float(expression), FLOAT64)
    if name in _FRACTIONS:
        parts = [_converted(_expression(part), FLOAT64) for part in expression.args]
        return Value(_FRACTIONS[name](*(part.ir for part in parts)), (), FLOAT64)
    raise UnsupportedShape(
        f"{expression} cannot be computed from the inputs' shapes",
        hint="pass contiguous examples, or mark the sizes static: strides are not part of a program",
    )


def shape_operand(shape: Sequence[Dim]) -> Value:
    """A shape as a 1-d int64 value (for the ``dynamic_*`` operations)."""
    if is_static(shape):
        return constant(numpy.asarray(shape, dtype=numpy.int64), INT64)
    parts = [reshape_static(dim_scalar(dim), (1,)).ir for dim in shape]
    return Value(stablehlo.concatenate(parts, 0), (len(shape),), INT64)


def reshape_static(value: Value, shape: Sequence[int]) -> Value:
    return Value(stablehlo.reshape(tensor_type(shape, value.dtype), value.ir), shape, value.dtype)
