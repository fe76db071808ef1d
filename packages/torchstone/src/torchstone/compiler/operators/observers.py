"""The operator of fake quantization and its observer, which quantization-aware training calls."""

from __future__ import annotations

import torch

from ...lowering import decomposes
from ...torch_internals.operators import namespace
from ...torch_internals.tensors import check

aten = namespace("aten")

_SMALLEST_SCALE = 6.1e-5
_SCALE_OF_ZEROS = 0.1


@decomposes(aten._fused_moving_avg_obs_fq_helper_functional.default)
def fused_moving_average_observer(
    self: torch.Tensor,
    observer_on: torch.Tensor,
    fake_quant_on: torch.Tensor,
    running_min: torch.Tensor,
    running_max: torch.Tensor,
    scale: torch.Tensor,
    zero_point: torch.Tensor,
    averaging_const: float,
    quant_min: int,
    quant_max: int,
    ch_axis: int,
    per_row_fake_quant: bool = False,
    symmetric_quant: bool = False,
) -> tuple[torch.Tensor, ...]:
    """Move the range toward that of ``self``, compute scale and zero point from it, and round ``self``.

    Returns the result, a mask of the elements within the range, and the new ``running_min``,
    ``running_max``, ``scale``, and ``zero_point``. If ``observer_on`` is 0, the range does not change. If
    ``fake_quant_on`` is 0, ``self``, scale and zero point do not change. With ``per_row_fake_quant``, each
    index along axis 0 has its own range.
    """
    rows = self.shape[0] if per_row_fake_quant else 1
    check(
        running_min.numel() == rows,
        lambda: (
            f"the observer has {running_min.numel()} minimums for {rows} ranges: run the model in eager "
            "PyTorch once, which gives its observers their sizes"
        ),
    )
    observes, quantizes = (one.reshape(()).to(torch.int32) != 0 for one in (observer_on, fake_quant_on))
    found = torch.aminmax(self.flatten(1), dim=1) if per_row_fake_quant else torch.aminmax(self)
    low, high = (
        torch.where(observes, _moved(before, now.reshape(before.shape), averaging_const), before)
        for before, now in zip((running_min, running_max), found, strict=True)
    )
    made = _parameters(low, high, quant_min, quant_max, symmetric_quant)
    scale, zero_point = (
        torch.where(quantizes, new.reshape(old.shape).to(old.dtype), old)
        for new, old in zip(made, (scale, zero_point), strict=True)
    )
    if per_row_fake_quant:
        rounded, inside = aten.fake_quantize_per_channel_affine_cachemask(
            self, scale, zero_point, 0, quant_min, quant_max
        )
    else:
        rounded, inside = aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams(
            self, scale, zero_point, torch.ones_like(zero_point), quant_min, quant_max
        )
    return torch.where(quantizes, rounded, self), inside | ~quantizes, low, high, scale, zero_point


def _moved(before: torch.Tensor, now: torch.Tensor, share: float) -> torch.Tensor:
    return torch.where(before.isinf(), now, before + share * (now - before))


def _parameters(
    low: torch.Tensor, high: torch.Tensor, quant_min: int, quant_max: int, symmetric: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return scale and zero point, in float64, of a grid that contains 0 and covers a range."""
    low, high = low.double(), high.double()
    steps = quant_max - quant_min
    half, both_sides = steps // 2, (low < 0) & (high > 0)
    if symmetric:
        widest = torch.maximum((low / -(half + 1)).abs(), (high / half).abs())
        low = torch.where(both_sides, (-(half + 1) * widest).float(), low).double()
        high = torch.where(both_sides, (half * widest).float(), high).double()
    low, high = low.clamp(max=0), high.clamp(min=0)
    scale = (high - low) / steps
    scale = torch.where((scale.float() == 0) | (1 / scale.float()).isinf(), _SCALE_OF_ZEROS, scale)
    widened = scale < _SMALLEST_SCALE
    factor = torch.where(widened, _SMALLEST_SCALE / scale, 1.0)
    low, high, scale = low * factor, high * factor, torch.where(widened, _SMALLEST_SCALE, scale)
    by_low, by_high = quant_min - low / scale, quant_max - high / scale
    low_error, high_error = (low / scale).abs() + abs(quant_min), (high / scale).abs() + abs(quant_max)
    zero = torch.where(low_error < high_error, by_low, by_high)
    if symmetric:
        zero = torch.where(both_sides, (quant_min + quant_max) / 2, zero)
    return scale, zero.clamp(quant_min, quant_max).round()
