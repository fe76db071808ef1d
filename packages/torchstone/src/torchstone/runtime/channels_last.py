"""Layout assignment for XLA's CPU compiler: values between convolutions lie in memory with channels last.

XLA's CPU convolutions take ``(n, *spatial, c)``. Inputs and results in any other layout are transposed,
for each convolution separately. Here a module's convolutions are rewritten to that layout, and the
transposes are moved. A value that comes from a convolution gets a second form with channels last, and the
operations that read it (elementwise operations, reductions, padding, slices, windows, concatenations) are
rewritten to read that form. Transposes remain only where a value enters or leaves such a region.

Values keep all their bits, except where the order of a summation changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from . import _composites, _jaxlib

ir, stablehlo = _jaxlib.ir, _jaxlib.stablehlo

_ELEMENTWISE = frozenset(
    """
    stablehlo.abs stablehlo.add stablehlo.and stablehlo.atan2 stablehlo.bitcast_convert
    stablehlo.cbrt stablehlo.ceil stablehlo.clamp stablehlo.compare stablehlo.convert
    stablehlo.cosine stablehlo.divide stablehlo.exponential stablehlo.exponential_minus_one
    stablehlo.floor stablehlo.is_finite stablehlo.log stablehlo.log_plus_one stablehlo.logistic
    stablehlo.maximum stablehlo.minimum stablehlo.multiply stablehlo.negate stablehlo.not
    stablehlo.optimization_barrier stablehlo.or stablehlo.power stablehlo.remainder
    stablehlo.round_nearest_afz stablehlo.round_nearest_even stablehlo.rsqrt stablehlo.select
    stablehlo.shift_left stablehlo.shift_right_arithmetic stablehlo.shift_right_logical
    stablehlo.sign stablehlo.sine stablehlo.sqrt stablehlo.subtract stablehlo.tan stablehlo.tanh
    stablehlo.xor chlo.acos chlo.acosh chlo.asin chlo.asinh chlo.atan chlo.atanh chlo.cosh chlo.erf
    chlo.erf_inv chlo.erfc chlo.lgamma chlo.sinh
    """.split()  # noqa: SIM905 - a list would take a line for each
)


def assign(module: Any) -> None:
    """Rewrite the convolutions of a parsed module, and the operations around them, to channels last."""
    _composites.inline_composites(module)
    _composites.restore_chlo(module)
    _composites.fold_reshapes(module)
    _Assignment().run(_jaxlib.main_function(module).entry_block)


def last(rank: int) -> list[int]:
    """Return the permutation that moves the channels, axis 1, to the end."""
    return [0, *range(2, rank), 1]


class _Assignment:
    """One walk over a block.

    ``forms`` maps a value to the same value with channels last. ``free`` maps a value to the
    operation that makes it, if that operation could make it with channels last at no cost.
    """

    def __init__(self) -> None:
        self.forms: dict[Any, Any] = {}
        self.free: dict[Any, Any] = {}
        self.rules: Mapping[str, Callable[[Any], bool]] = {
            "stablehlo.convolution": self._convolution,
            "stablehlo.transpose": self._transpose,
            "stablehlo.reduce": self._reduce,
            "stablehlo.reduce_window": self._windows,
            "stablehlo.select_and_scatter": self._windows,
            "stablehlo.pad": self._pad,
            "stablehlo.slice": self._slice,
            "stablehlo.reverse": self._reverse,
            "stablehlo.concatenate": self._concatenate,
            "stablehlo.broadcast_in_dim": self._broadcast,
            "stablehlo.reshape": self._reshape,
        }

    def run(self, block: Any) -> None:
        for op in list(block.operations):
            if self._is_free(op):
                self.free[op.operation.results[0]] = op
                continue
            rule = self.rule(op)
            if rule is None:
                continue
            with ir.InsertionPoint(op), op.location:
                rule(op)  # replaced operations are erased below, so that no new value gets their address
        for op in reversed(list(block.operations)):
            unused = all(not list(result.uses) for result in op.operation.results)
            if unused and op.operation.results and op.operation.name.startswith("stablehlo."):
                op.operation.erase()

    def rule(self, op: Any) -> Any:
        name = op.operation.name
        return self._elementwise if name in _ELEMENTWISE else self.rules.get(name)

    # Forms of values ------------------------------------------------------------------

    def arranged(self, value: Any, order: Sequence[int]) -> Any:
        """Return ``value`` with its axes in ``order``, made from its form with channels last if it exists."""
        form = self.forms.get(value)
        if form is not None:
            place = last(len(order))
            value, order = form, [place.index(axis) for axis in order]
        return _transposed(value, order)

    def form(self, value: Any) -> Any:
        """Return ``value`` with channels last: made that way if that costs nothing, else transposed."""
        if value not in self.forms:
            op = self.free.get(value)
            if op is None:
                self.forms[value] = self.arranged(value, last(_rank(value)))
            else:
                with ir.InsertionPoint(op), op.location:
                    self.forms[value] = self._leaf(op) or self._rewritten(op)
        return self.forms[value]

    def _rewritten(self, op: Any) -> Any:
        for operand in op.operands:
            if _rank(operand):
                self.form(operand)
        self.rule(op)(op)
        return self.forms[op.operation.results[0]]

    def _leaf(self, op: Any) -> Any:
        """Return a splat constant, an iota or a broadcast made directly with channels last; else None."""
        type_ = _moved_type(op.operation.results[0].type)
        place = last(ir.RankedTensorType(type_).rank)
        match op.operation.name:
            case "stablehlo.constant":
                number = ir.DenseElementsAttr(op.attributes["value"]).get_splat_value()
                return stablehlo.ConstantOp(ir.DenseElementsAttr.get_splat(type_, number)).result
            case "stablehlo.iota":
                axis = ir.IntegerAttr(op.attributes["iota_dimension"]).value
                return stablehlo.IotaOp(type_, place.index(axis)).result
            case "stablehlo.broadcast_in_dim":
                dims = [place.index(axis) for axis in op.attributes["broadcast_dimensions"]]
                return stablehlo.BroadcastInDimOp(type_, op.operands[0], dims).result
        return None

    def _is_free(self, op: Any) -> bool:
        """Whether the result has at least three axes and takes no more work with channels last."""
        name = op.operation.name
        if len(op.operation.results) != 1 or _rank(op.operation.results[0]) < 3:
            return False
        if name == "stablehlo.constant":
            if isinstance(op.operation.results[0].type.element_type, ir.ComplexType):
                return False  # MLIR's Python API cannot read its value
            return bool(ir.DenseElementsAttr(op.attributes["value"]).is_splat)
        if name == "stablehlo.broadcast_in_dim":
            return len(op.attributes["broadcast_dimensions"]) < 2
        if name in _ELEMENTWISE or name in ("stablehlo.slice", "stablehlo.pad"):
            return all(value in self.free or not _rank(value) for value in op.operands)
        return bool(name == "stablehlo.iota")

    def known(self, values: Sequence[Any]) -> bool:
        return any(value in self.forms for value in values)

    def finish(self, op: Any, results: Sequence[Any]) -> bool:
        """Replace the operation's results by ``results``, which have channels last; return True."""
        for old, new in zip(op.operation.results, results, strict=True):
            place = last(_rank(old))
            restored = _transposed(new, [place.index(axis) for axis in range(len(place))])
            self.forms[restored] = self.forms[old] = new
            old.replace_all_uses_with(restored)
        return True

    # Rules: each returns whether it replaced its operation ------------------------------

    def _convolution(self, op: Any) -> bool:
        numbers = stablehlo.ConvDimensionNumbers(op.attributes["dimension_numbers"])
        spatial = len(numbers.input_spatial_dimensions)
        x_order = [
            numbers.input_batch_dimension,
            *numbers.input_spatial_dimensions,
            numbers.input_feature_dimension,
        ]
        k_order = [
            *numbers.kernel_spatial_dimensions,
            numbers.kernel_input_feature_dimension,
            numbers.kernel_output_feature_dimension,
        ]
        y_order = [
            numbers.output_batch_dimension,
            *numbers.output_spatial_dimensions,
            numbers.output_feature_dimension,
        ]
        result = op.operation.results[0]
        middle = list(range(1, spatial + 1))
        attributes = {
            "dimension_numbers": stablehlo.ConvDimensionNumbers.get(
                0, spatial + 1, middle, spatial, spatial + 1, list(range(spatial)), 0, spatial + 1, middle
            )
        }
        type_ = _permuted_type(result.type, y_order)
        x = self.arranged(op.operands[0], x_order)
        if _is_pointwise(op, [_shape(op.operands[1])[axis] for axis in k_order[:-2]]):
            made = _product(op, x, k_order[-2:], type_)
        else:
            (made,) = _again(op, [x, self.arranged(op.operands[1], k_order)], attributes, [type_])
        if y_order == last(spatial + 2):
            return self.finish(op, [made])
        restored = _transposed(made, [y_order.index(axis) for axis in range(spatial + 2)])
        result.replace_all_uses_with(restored)
        return True

    def _transpose(self, op: Any) -> bool:
        source, order = op.operands[0], list(op.attributes["permutation"])
        if source in self.forms:
            op.operation.results[0].replace_all_uses_with(self.arranged(source, order))
            return True
        place = last(len(order))
        if len(order) == 4 and order == [place.index(axis) for axis in range(4)]:
            self.forms[op.operation.results[0]] = source  # the source has channels last already
        return False

    def _elementwise(self, op: Any) -> bool:
        operands, results = list(op.operands), list(op.operation.results)
        shapes = [_shape(value) for value in operands if _rank(value)]
        if not self.known(operands) or len(results) != 1 or any(s != _shape(results[0]) for s in shapes):
            return False
        moved = [self.form(value) if _rank(value) else value for value in operands]
        return self.finish(op, _again(op, moved, {}, [_moved_type(op.operation.results[0].type)]))

    def _reduce(self, op: Any) -> bool:
        count = len(op.operands) // 2
        values = list(op.operands)[:count]
        if not self.known(values):
            return False
        rank = _rank(values[0])
        place = last(rank)
        gone = set(op.attributes["dimensions"])
        kept = [axis for axis in place if axis not in gone]
        if kept != sorted(kept) and kept != _kept_last(kept):
            return False
        dims = sorted(place.index(axis) for axis in gone)
        operands = [*map(self.form, values), *list(op.operands)[count:]]
        types = [_permuted_type(r.type, [sorted(kept).index(a) for a in kept]) for r in op.operation.results]
        made = _again(op, operands, {"dimensions": ir.DenseI64ArrayAttr.get(dims)}, types)
        if kept == sorted(kept):
            for old, new in zip(op.operation.results, made, strict=True):
                old.replace_all_uses_with(new)
            return True
        return self.finish(op, made)

    def _windows(self, op: Any) -> bool:
        scatter = op.operation.name.endswith("scatter")
        count = 2 if scatter else len(op.operands) // 2
        values = list(op.operands)[:count]
        if not self.known(values):
            return False
        place = last(_rank(values[0]))
        attributes: dict[str, Any] = {}
        for name in ("window_dimensions", "window_strides", "base_dilations", "window_dilations"):
            if name in op.attributes:
                attributes[name] = _array(op.attributes[name], place)
        if "padding" in op.attributes:
            flat = list(ir.DenseIntElementsAttr(op.attributes["padding"]))
            pairs = [number for axis in place for number in flat[2 * axis : 2 * axis + 2]]
            attributes["padding"] = _jaxlib.integers(pairs, (len(place), 2))
        operands = [*map(self.form, values), *list(op.operands)[count:]]
        types = [_moved_type(result.type) for result in op.operation.results]
        return self.finish(op, _again(op, operands, attributes, types))

    def _per_axis(self, op: Any, names: Sequence[str]) -> bool:
        source = op.operands[0]
        if source not in self.forms:
            return False
        attributes = {name: _array(op.attributes[name], last(_rank(source))) for name in names}
        operands = [self.form(source), *list(op.operands)[1:]]
        return self.finish(op, _again(op, operands, attributes, [_moved_type(op.operation.results[0].type)]))

    def _pad(self, op: Any) -> bool:
        return self._per_axis(op, ("edge_padding_low", "edge_padding_high", "interior_padding"))

    def _slice(self, op: Any) -> bool:
        return self._per_axis(op, ("start_indices", "limit_indices", "strides"))

    def _reverse(self, op: Any) -> bool:
        source = op.operands[0]
        if source not in self.forms:
            return False
        place = last(_rank(source))
        dims = ir.DenseI64ArrayAttr.get(sorted(place.index(d) for d in op.attributes["dimensions"]))
        made = _again(op, [self.form(source)], {"dimensions": dims}, [_moved_type(source.type)])
        return self.finish(op, made)

    def _concatenate(self, op: Any) -> bool:
        values = list(op.operands)
        if not self.known(values):
            return False
        axis = last(_rank(values[0])).index(ir.IntegerAttr(op.attributes["dimension"]).value)
        number = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), axis)
        types = [_moved_type(op.operation.results[0].type)]
        return self.finish(op, _again(op, [*map(self.form, values)], {"dimension": number}, types))

    def _broadcast(self, op: Any) -> bool:
        """Rewrite the broadcast of a value that has a form, if batch and channels stay axes 0 and 1."""
        source, result = op.operands[0], op.operation.results[0]
        dims = list(op.attributes["broadcast_dimensions"])
        if source not in self.forms or dims[:2] != [0, 1] or dims != sorted(dims):
            return False
        place, axes = last(_rank(result)), last(len(dims))
        moved = ir.DenseI64ArrayAttr.get([place.index(dims[axis]) for axis in axes])
        made = _again(op, [self.form(source)], {"broadcast_dimensions": moved}, [_moved_type(result.type)])
        return self.finish(op, made)

    def _reshape(self, op: Any) -> bool:
        """Rewrite the reshape of a value that has a form, if batch and channels keep their sizes."""
        source, result = op.operands[0], op.operation.results[0]
        before, after = _shape(source), _shape(result)
        if source not in self.forms or len(after) < 3 or before[:2] != after[:2]:
            return False
        return self.finish(op, _again(op, [self.form(source)], {}, [_moved_type(result.type)]))


def _is_pointwise(op: Any, kernel: Sequence[int]) -> bool:
    """Whether a convolution computes each position of its result from the channels of one input position.

    ``kernel`` has the kernel's size along each spatial axis.
    """
    given = op.attributes
    groups = [ir.IntegerAttr(given[f"{kind}_group_count"]).value for kind in ("feature", "batch")]
    padding = ir.DenseIntElementsAttr(given["padding"]) if "padding" in given else ()
    return {*kernel, *groups, *given.get("lhs_dilation", ())} == {1} and not any(padding)


def _product(op: Any, x: Any, features: Sequence[int], type_: Any) -> Any:
    """Compute a pointwise convolution of ``x``, which has channels last, as a matrix product with the kernel.

    ``features`` are the kernel's axes for the input's and for the output's channels. The product reads the
    kernel in the layout that it has: XLA's CPU compiler transposes the kernel of a convolution in every call,
    but not that of a product.
    """
    shape, strides = _shape(x), list(op.attributes.get("window_strides", [1]))
    if set(strides) != {1}:
        x = stablehlo.slice(x, [0] * len(shape), shape, [1, *strides, 1])
    kernel = ir.RankedTensorType(op.operands[1].type)
    sizes = [kernel.shape[axis] for axis in sorted(features)]
    matrix = stablehlo.reshape(ir.RankedTensorType.get(sizes, kernel.element_type), op.operands[1])
    contracted = [len(shape) - 1], [sorted(features).index(features[0])]
    numbers = stablehlo.DotDimensionNumbers.get([], [], *contracted)
    precision = op.attributes.get("precision_config")
    return stablehlo.DotGeneralOp(type_, x, matrix, numbers, precision_config=precision).result


def _kept_last(kept: Sequence[int]) -> list[int]:
    """Return the axes that a reduction keeps in channels-last order: batch, spatial axes, channels.

    The result is empty if the reduction does not keep both batch and channels.
    """
    return [0, *sorted(axis for axis in kept if axis > 1), 1] if {0, 1} <= set(kept) else []


def _again(
    op: Any, operands: Sequence[Any], attributes: Mapping[str, Any], types: Sequence[Any]
) -> list[Any]:
    """Copy an operation with other operands, attributes and result types; return the copy's results."""
    made = op.operation.clone()
    for position, operand in enumerate(operands):
        made.operands[position] = operand
    for name, value in attributes.items():
        made.attributes[name] = value
    for result, type_ in zip(made.results, types, strict=True):
        result.set_type(type_)
    return list(made.results)


def _transposed(value: Any, order: Sequence[int]) -> Any:
    return value if list(order) == sorted(order) else stablehlo.TransposeOp(value, list(order)).result


def _array(attribute: Any, place: Sequence[int]) -> Any:
    values = list(attribute)
    return ir.DenseI64ArrayAttr.get([values[axis] for axis in place])


def _shape(value: Any) -> list[int]:
    return list(ir.RankedTensorType(value.type).shape)


def _rank(value: Any) -> int:
    return int(ir.RankedTensorType(value.type).rank)


def _permuted_type(type_: Any, order: Sequence[int]) -> Any:
    ranked = ir.RankedTensorType(type_)
    return ir.RankedTensorType.get([ranked.shape[axis] for axis in order], ranked.element_type)


def _moved_type(type_: Any) -> Any:
    return _permuted_type(type_, last(ir.RankedTensorType(type_).rank))
