"""Resampling to another size: nearest, linear, cubic and antialiased, and the gradients.

Each computes weighted sums of a few elements, one axis after another. Positions
and weights are computed when the program is built (``interpolation``), or by the
program if a size is symbolic. Antialiased resampling, resampling of bytes, gradients,
and sizes that result from a fractional factor need static sizes.

Not here: sampling at run-time positions (``grid_sample``); pixel shuffling,
which is a reshape.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy
import torch

from ... import hlo
from ...dtypes import EVERY, FLOAT32, FLOAT64, FLOATING, INT32, UINT8, DType
from ...hlo import Value
from ...torch_internals.operators import namespace
from .. import interpolation, symbolic_resampling
from ..common import static_size
from ..promotion import opmath
from ..registry import Spec, aten_overloads, lowers
from ..symbolic_resampling import SymbolicTaps
from ..taps import Taps

aten = namespace("aten")

WIDE = frozenset({FLOAT32, FLOAT64})
Rule = Callable[[int, int, float | None, Any], Taps]
"""Maps input size, output size, scale factor and real type to taps."""
SymbolicRule = Callable[[hlo.Dim, hlo.Dim, float | None, DType], SymbolicTaps]
"""Maps sizes, of which at least one is symbolic, scale factor and real dtype to symbolic taps."""


def _resampled(
    x: Value,
    output_size: Sequence[hlo.Dim],
    scales: Sequence[float | None],
    rule: Rule,
    symbolic: SymbolicRule | None = None,
) -> Value:
    """Resample each axis by ``rule``, or by ``symbolic`` (if given) where a size is symbolic."""
    result = hlo.convert(x, opmath(x.dtype))
    for axis, count, scale in zip(_axes(x, scales), output_size, scales, strict=True):
        size, real = x.shape[axis], FLOAT64 if x.dtype is FLOAT64 else FLOAT32
        if symbolic is None or hlo.is_static((size, count)) or _rounds(count):
            result = _taps(rule, size, count, scale, x.dtype).apply(result, axis)
        else:
            result = symbolic(size, count, scale, real).apply(result, axis)
    return hlo.convert(result, x.dtype)


def _rounds(count: hlo.Dim) -> bool:
    """Whether a symbolic size is rounded from a real number, which programs cannot compute."""
    return "ToFloat" in str(count)


def _resampled_backward(
    grad: Value, input_size: Sequence[int], scales: Sequence[float | None], rule: Rule
) -> Value:
    result = hlo.convert(grad, opmath(grad.dtype))
    for axis, scale in zip(_axes(grad, scales), scales, strict=True):
        taps = _taps(rule, input_size[axis], grad.shape[axis], scale, grad.dtype)
        result = taps.adjoint(int(input_size[axis])).apply(result, axis)
    return hlo.convert(result, grad.dtype)


def _resampled_bytes(
    x: Value, output_size: Sequence[int], scales: Sequence[float | None], rule: Rule
) -> Value:
    """Weighted resampling of uint8 in fixed-point arithmetic, last axis first, as in PyTorch's kernels."""
    result = hlo.convert(x, INT32)
    for axis, count, scale in reversed(list(zip(_axes(x, scales), output_size, scales, strict=True))):
        taps, bits = _taps(rule, x.shape[axis], count, scale, FLOAT64).fixed_point()
        total = taps.apply(result, axis) + (1 << (bits - 1))
        result = hlo.clamp(0, hlo.shift_right_arithmetic(total, bits), 255)
    return hlo.convert(result, UINT8)


def _axes(x: Value, scales: Sequence[float | None]) -> range:
    """Return the resampled axes, which are the last ones."""
    return range(x.rank - len(scales), x.rank)


def _taps(rule: Rule, size: hlo.Dim, count: hlo.Dim, scale: float | None, dtype: DType) -> Taps:
    size, count = static_size(size, "resampling"), static_size(count, "resampling")
    return rule(size, count, scale, numpy.float64 if dtype is FLOAT64 else numpy.float32)


def _copying(rule: Rule) -> Rule:
    """Return the rule of kernels that copy an axis if its size does not change, whatever its scale."""

    def copying(size: int, count: int, scale: float | None, real: Any) -> Taps:
        return interpolation.copied(count, real) if size == count else rule(size, count, scale, real)

    return copying


# Nearest -----------------------------------------------------------------------------


def _is_small_plane(output_size: Sequence[hlo.Dim]) -> bool:
    """True if the CPU uses its kernel for small planes (UpSampleKernel.cpp), which relies on sizes."""
    height_and_width = [size for size in output_size if isinstance(size, int)]
    return len(output_size) == len(height_and_width) == 2 and sum(height_and_width) <= 128


def _refuses_contradicted_layout(arguments: Mapping[str, Any]) -> str | None:
    """Refuse scales that contradict the sizes of channels-last tensors: their kernels use only sizes."""
    x, output_size = arguments["self"], arguments["output_size"]
    scales = [scale for name, scale in arguments.items() if name.startswith("scales")]
    channels_last = torch.channels_last if len(output_size) == 2 else torch.channels_last_3d
    if _is_small_plane(output_size) or x.is_contiguous() or x.shape[1] <= 3:
        return None
    for size, count, scale in zip(x.shape[2:], output_size, scales, strict=True):
        contradicts = scale is not None and scale > 0 and scale != count / size
        if contradicts and count in (size, 2 * size) and x.is_contiguous(memory_format=channels_last):
            return f"its scales {scales} contradict the output size, and its channels lie last: give None"
    return None


def _lowers_nearest(name: str, exact: bool) -> None:
    """Register the overloads named ``name`` for one, two and three axes, and their gradients."""

    def rule(size: int, count: int, scale: float | None, _: Any) -> Taps:
        return interpolation.nearest(size, count, scale, exact=exact)

    def symbolic(size: hlo.Dim, count: hlo.Dim, scale: float | None, _: DType) -> SymbolicTaps:
        return symbolic_resampling.nearest(size, count, scale, exact=exact)

    def by_size(size: int, count: int, scale: float | None, real: Any) -> Taps:
        """Ignore the scale of an axis whose size stays or doubles, like ``nearest_idx`` of UpSample.h."""
        return rule(size, count, None if count in (size, 2 * size) else scale, real)

    backward_rule = rule if exact else by_size
    refuses = None if exact else _refuses_contradicted_layout

    def plane_rule(output_size: Sequence[hlo.Dim]) -> Rule:
        return by_size if _is_small_plane(output_size) and not exact else rule

    @lowers(getattr(aten, f"{name}1d").default, dtypes=FLOATING | {UINT8})
    def nearest1d(self: Value, output_size: Sequence[int], scales: float | None = None) -> Value:
        """The nearest element along the last axis."""
        return _resampled(self, output_size, [scales], rule, symbolic)

    @lowers(getattr(aten, f"{name}2d").default, dtypes=FLOATING | {UINT8}, refuses=refuses)
    def nearest2d(
        self: Value, output_size: Sequence[int], scales_h: float | None = None, scales_w: float | None = None
    ) -> Value:
        """The nearest element of the plane."""
        return _resampled(self, output_size, [scales_h, scales_w], plane_rule(output_size), symbolic)

    @lowers(getattr(aten, f"{name}3d").default, dtypes=FLOATING | {UINT8}, refuses=refuses)
    def nearest3d(
        self: Value,
        output_size: Sequence[int],
        scales_d: float | None = None,
        scales_h: float | None = None,
        scales_w: float | None = None,
    ) -> Value:
        """The nearest element of the volume."""
        return _resampled(self, output_size, [scales_d, scales_h, scales_w], rule, symbolic)

    @lowers(getattr(aten, f"{name}1d_backward").default, dtypes=FLOATING, ignores=("output_size",))
    def nearest1d_backward(
        grad_output: Value, input_size: Sequence[int], scales: float | None = None
    ) -> Value:
        """Add each element's gradient to the element that it was taken from."""
        return _resampled_backward(grad_output, input_size, [scales], backward_rule)

    @lowers(getattr(aten, f"{name}2d_backward").default, dtypes=FLOATING, ignores=("output_size",))
    def nearest2d_backward(
        grad_output: Value,
        input_size: Sequence[int],
        scales_h: float | None = None,
        scales_w: float | None = None,
    ) -> Value:
        """Add each element's gradient to the element that it was taken from."""
        return _resampled_backward(grad_output, input_size, [scales_h, scales_w], backward_rule)

    @lowers(getattr(aten, f"{name}3d_backward").default, dtypes=FLOATING, ignores=("output_size",))
    def nearest3d_backward(
        grad_output: Value,
        input_size: Sequence[int],
        scales_d: float | None = None,
        scales_h: float | None = None,
        scales_w: float | None = None,
    ) -> Value:
        """Add each element's gradient to the element that it was taken from."""
        return _resampled_backward(grad_output, input_size, [scales_d, scales_h, scales_w], backward_rule)

    overloads = [getattr(aten, f"{name}{rank}d").vec for rank in (1, 2, 3)]

    @lowers(*overloads, dtypes=FLOATING | {UINT8}, ignores=("output_size",))  # the result's shape has it
    def nearest_vec(input: Value, scale_factors: Sequence[float] | None, out: Spec) -> Value:
        """The nearest element along every axis after the second."""
        scales: Sequence[float | None] = scale_factors or [None] * (input.rank - 2)
        return _resampled(input, out.shape[2:], scales, plane_rule(out.shape[2:]), symbolic)


_lowers_nearest("upsample_nearest", exact=False)
_lowers_nearest("_upsample_nearest_exact", exact=True)


# Weighted ----------------------------------------------------------------------------


def _aligned(kernel: Callable[..., Taps], align_corners: bool) -> Rule:
    def rule(size: int, count: int, scale: float | None, real: Any) -> Taps:
        return kernel(size, count, align_corners, scale, real)

    return rule


_SYMBOLIC: Mapping[Any, Callable[..., SymbolicTaps]] = {
    interpolation.linear: symbolic_resampling.linear,
    interpolation.cubic: symbolic_resampling.cubic,
}


def _aligned_symbolic(kernel: Callable[..., Taps], align_corners: bool) -> SymbolicRule | None:
    found = _SYMBOLIC.get(kernel)
    if found is None:
        return None

    def rule(size: hlo.Dim, count: hlo.Dim, scale: float | None, dtype: DType) -> SymbolicTaps:
        return found(size, count, align_corners, scale, dtype)

    return rule


@lowers(aten.upsample_linear1d.default, dtypes=FLOATING)
def upsample_linear1d(
    self: Value, output_size: Sequence[int], align_corners: bool, scales: float | None = None
) -> Value:
    """Linear interpolation along the last axis."""
    return _weighted(interpolation.linear, self, output_size, align_corners, [scales], antialiased=False)


@lowers(aten.upsample_linear1d_backward.default, dtypes=FLOATING, ignores=("output_size",))
def upsample_linear1d_backward(
    grad_output: Value, input_size: Sequence[int], align_corners: bool, scales: float | None = None
) -> Value:
    """The gradient of :func:`upsample_linear1d`."""
    return _resampled_backward(
        grad_output, input_size, [scales], _aligned(interpolation.linear, align_corners)
    )


@lowers(aten.upsample_trilinear3d.default, dtypes=FLOATING)
def upsample_trilinear3d(
    self: Value,
    output_size: Sequence[int],
    align_corners: bool,
    scales_d: float | None = None,
    scales_h: float | None = None,
    scales_w: float | None = None,
) -> Value:
    """Linear interpolation along the last three axes."""
    scales = [scales_d, scales_h, scales_w]
    return _weighted(interpolation.linear, self, output_size, align_corners, scales, antialiased=False)


@lowers(aten.upsample_trilinear3d_backward.default, dtypes=FLOATING, ignores=("output_size",))
def upsample_trilinear3d_backward(
    grad_output: Value,
    input_size: Sequence[int],
    align_corners: bool,
    scales_d: float | None = None,
    scales_h: float | None = None,
    scales_w: float | None = None,
) -> Value:
    """The gradient of :func:`upsample_trilinear3d`."""
    scales = [scales_d, scales_h, scales_w]
    return _resampled_backward(grad_output, input_size, scales, _aligned(interpolation.linear, align_corners))


def _weighted_rule(kernel: Callable[..., Taps], align_corners: bool, copies: bool) -> Rule:
    rule = _aligned(kernel, align_corners)
    return _copying(rule) if copies else rule


def _weighted(
    kernel: Callable[..., Taps],
    x: Value,
    output_size: Sequence[hlo.Dim],
    align_corners: bool,
    scales: Sequence[float | None],
    antialiased: bool,
) -> Value:
    rule = _weighted_rule(kernel, align_corners, antialiased or x.dtype is UINT8)
    if x.dtype is UINT8:
        return _resampled_bytes(x, output_size, scales, rule)
    return _resampled(x, output_size, scales, rule, _aligned_symbolic(kernel, align_corners))


def _lowers_vec(name: str, kernel: Callable[..., Taps], dtypes: frozenset[DType], antialiased: bool) -> None:
    """Register the overload of ``name`` that takes all scale factors as one list."""

    def vec(input: Value, align_corners: bool, scale_factors: Sequence[float] | None, out: Spec) -> Value:
        """A weighted sum of neighbors along every axis after the second."""
        scales: Sequence[float | None] = scale_factors or [None] * (input.rank - 2)
        return _weighted(kernel, input, out.shape[2:], align_corners, scales, antialiased)

    lowers(*aten_overloads([f"{name}.vec"]), dtypes=dtypes, ignores=("output_size",))(vec)


_lowers_vec("upsample_linear1d", interpolation.linear, FLOATING, antialiased=False)
_lowers_vec("upsample_trilinear3d", interpolation.linear, FLOATING, antialiased=False)


def _without_kernel(dtypes: frozenset[DType]) -> dict[DType, str]:
    reason = "PyTorch has no kernel: it accepts such a tensor only if its size does not change"
    return dict.fromkeys(EVERY - dtypes, reason)


def _lowers_plane(
    name: str,
    kernel: Callable[..., Taps],
    dtypes: frozenset[DType],
    antialiased: bool,
    refuses: Callable[..., str | None] | None = None,
) -> None:
    """Register the weighted resampling of the last two axes named ``name``, and its gradient."""

    def plane(
        self: Value,
        output_size: Sequence[int],
        align_corners: bool,
        scales_h: float | None = None,
        scales_w: float | None = None,
    ) -> Value:
        """A weighted sum of neighbors along both axes of the plane."""
        return _weighted(kernel, self, output_size, align_corners, [scales_h, scales_w], antialiased)

    def plane_backward(
        grad_output: Value,
        input_size: Sequence[int],
        align_corners: bool,
        scales_h: float | None = None,
        scales_w: float | None = None,
    ) -> Value:
        """Add each element's gradient, by weight, to the elements that contributed to it."""
        copies = not antialiased and hlo.same_shape(input_size[2:], grad_output.shape[2:])
        rule = _weighted_rule(kernel, align_corners, copies)
        return _resampled_backward(grad_output, input_size, [scales_h, scales_w], rule)

    taken = dtypes | {UINT8}
    lowers(*aten_overloads([f"{name}.default"]), dtypes=taken, gaps=_without_kernel(taken), refuses=refuses)(
        plane
    )
    _lowers_vec(name, kernel, taken, antialiased)
    lowers(
        *aten_overloads([f"{name}_backward.default"]),
        dtypes=dtypes,
        gaps=_without_kernel(dtypes),
        ignores=("output_size",),
        refuses=refuses,
    )(plane_backward)


def _refuses_misses(filter_: interpolation.Filter) -> Callable[[Mapping[str, Any]], str | None]:
    def refuses(arguments: Mapping[str, Any]) -> str | None:
        """Refuse scales for which a result's filter lies beyond the input: kernels read memory after it."""
        is_forward = "self" in arguments
        x = arguments["self" if is_forward else "grad_output"]
        sizes = x.shape[2:] if is_forward else arguments["input_size"][2:]
        real = numpy.float64 if x.dtype == torch.float64 else numpy.float32
        for size, count, name in zip(sizes, arguments["output_size"], ("scales_h", "scales_w"), strict=True):
            scale = arguments[name]
            if scale is None or not hlo.is_static((size, count)) or (is_forward and size == count):
                continue
            if interpolation.misses(size, count, arguments["align_corners"], scale, real, filter_):
                return f"{name}={scale} leaves nothing of {size} elements for some of {count}: give None"
        return None

    return refuses


_lowers_plane("upsample_bilinear2d", interpolation.linear, FLOATING, antialiased=False)
_lowers_plane("upsample_bicubic2d", interpolation.cubic, FLOATING, antialiased=False)
for _filter in ("bilinear", "bicubic", "lanczos"):  # PyTorch 2.11 has no lanczos
    _shape = interpolation.FILTERS[_filter]
    _kernel = partial(interpolation.antialiased, filter_=_shape)
    _lowers_plane(
        f"_upsample_{_filter}2d_aa", _kernel, WIDE, antialiased=True, refuses=_refuses_misses(_shape)
    )
