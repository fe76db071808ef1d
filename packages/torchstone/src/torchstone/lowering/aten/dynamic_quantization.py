"""Dynamic quantization: a linear layer that quantizes its input by its minimum and maximum.

The schema is in :mod:`..own`. Step sizes and rounding follow PyTorch's
x86 kernels (``quant_utils.h``, FBGEMM's ``QuantizeAvx2``), so the integers are equal.
Not here: layers between quantized tensors (``quantization``), dynamic quantization in
exported graphs (``exported_quantization``).
"""

from __future__ import annotations

import numpy

from ... import hlo
from ...dtypes import EVERY, FLOAT32, FLOAT64, INT32
from ...hlo import Value
from ..composites import composed
from ..own import own
from ..registry import Spec, lowers

_SMALLEST = float(numpy.float32(6.1e-5))
"""The smallest scale; it replaces any smaller one (``SMALL_SCALE_THRESHOLD``)."""


def _extremes(x: Value) -> tuple[Value, Value]:
    """Return the minimum and the maximum of the elements and zero, as 0-d float64."""
    axes = list(range(x.rank))
    low, high = hlo.minimum(hlo.reduce_min(x, axes), 0.0), hlo.maximum(hlo.reduce_max(x, axes), 0.0)
    return hlo.convert(low, FLOAT64), hlo.convert(high, FLOAT64)


def _narrow(x: Value) -> Value:
    """Round to the precision of float32, but keep float64 as the dtype."""
    return hlo.convert(hlo.convert(x, FLOAT32), FLOAT64)


def _parameters(x: Value, top: int) -> tuple[Value, Value]:
    """Return the scale and zero point (0-d float64) that map the range of ``x`` and zero to ``[0, top]``."""
    low, high = _extremes(x)
    scale = (high - low) / float(top)
    single = hlo.convert(scale, FLOAT32)
    without = hlo.eq(single, 0.0) | ~hlo.is_finite(1.0 / single)
    scale = hlo.select(without, 0.1, scale)
    small = scale < _SMALLEST
    wide, factor = _SMALLEST * top, _narrow(_SMALLEST / _narrow(scale))
    low_of_small = hlo.select(hlo.eq(high, 0.0), -wide, low * factor)
    high_of_small = hlo.select(hlo.eq(low, 0.0), wide, high * factor)
    low = hlo.select(small, hlo.select(hlo.eq(low, 0.0), low, _narrow(low_of_small)), low)
    high = hlo.select(small, hlo.select(hlo.eq(high, 0.0), high, _narrow(high_of_small)), high)
    scale = hlo.select(small, _SMALLEST, scale)
    below, above = -low / scale, high / scale  # in units of the scale
    zero = hlo.select(-below < top - above, below, top - above)
    return scale, hlo.round_nearest_even(hlo.clamp(0.0, zero, float(top)))


@lowers(
    own.quantized_linear_dynamic.default,
    dtypes=frozenset({FLOAT32}),
    gaps=dict.fromkeys(EVERY - {FLOAT32}, "PyTorch quantizes float32"),
)
def quantized_linear_dynamic(
    self: Value,
    weight: Value,
    weight_scale: list[float],
    weight_zero_point: list[int],
    bias: Value | None,
    relu: bool,
    reduce_range: bool,
    out: Spec,
) -> list[Value | None]:
    """``self @ weight.T + bias`` (and its ReLU) with ``self`` in 8 bits, or 7 if ``reduce_range``."""

    def kernel(x: Value, weight: Value, bias: Value | None) -> Value:
        scale, zero = _parameters(x, 127 if reduce_range else 255)
        step = hlo.convert(scale, FLOAT32)
        # Product and sum are rounded once, as in a fused multiply-add: the product is exact in float64.
        inverse = hlo.convert(1.0 / step, FLOAT64)
        shifted = hlo.convert(x, FLOAT64) * hlo.broadcast_to(inverse, x.shape)
        near = hlo.convert(shifted + hlo.broadcast_to(zero, x.shape), FLOAT32)
        steps = hlo.clamp(0.0, hlo.round_nearest_even(near), 255.0)
        left = hlo.convert(steps - hlo.broadcast_to(hlo.convert(zero, FLOAT32), x.shape), INT32)
        right = hlo.convert(weight, INT32)
        if any(weight_zero_point):
            right = right - _rows(weight_zero_point, right)
        total = hlo.convert(hlo.dot_general(left, right, contract=([x.rank - 1], [1])), FLOAT32)
        scales = hlo.constant([float(numpy.float32(each)) for each in weight_scale], FLOAT32)
        factor = hlo.broadcast_to(scales, (weight.shape[0],)) * hlo.broadcast_to(step, (weight.shape[0],))
        last = [x.rank - 1]
        made = hlo.convert(total, FLOAT64) * hlo.broadcast_in_dim(
            hlo.convert(factor, FLOAT64), total.shape, last
        )
        if bias is not None:
            made = made + hlo.broadcast_in_dim(hlo.convert(bias, FLOAT64), made.shape, last)
        made = hlo.convert(made, FLOAT32)
        return hlo.maximum(made, 0.0) if relu else made

    attributes: dict[str, hlo.Attribute] = {
        "weight_scale": weight_scale,
        "weight_zero_point": weight_zero_point,
        "relu": relu,
        "reduce_range": reduce_range,
    }
    return composed("quantized_linear_dynamic", [self, weight, bias], kernel, out, attributes)


def _rows(zero_point: list[int], like: Value) -> Value:
    """Broadcast zero points to ``like``: one for each row, or one for all rows."""
    if len(zero_point) == 1:
        return hlo.full_like(like, zero_point[0])
    return hlo.broadcast_in_dim(hlo.constant(zero_point, INT32), like.shape, [0])
