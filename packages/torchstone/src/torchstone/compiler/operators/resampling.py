"""Keeps resampling operators from being expanded: PyTorch's expansions give other values than its kernels.

The expansions use each scale factor. Some kernels use the sizes instead for an axis that keeps its size or
doubles it. The expansions also round bytes differently.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from ...torch_internals.dispatch import python_kernels
from ...torch_internals.operators import namespace, schema_of
from ..graphs import bind_schema
from .declaring import AUTOGRAD, COMPOSITE, declare, declare_symbolic_shapes
from .mending import kept_whole

aten = namespace("aten")

Kernel = Callable[..., Any]

_NAMES = (
    *("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d", "upsample_bicubic2d"),
    *(f"{name}{rank}d" for name in ("upsample_nearest", "_upsample_nearest_exact") for rank in (1, 2, 3)),
)


def _by_size(overload: Any) -> dict[Any, Kernel]:
    """Return kernels for the overload that takes a size or factors; they call the one that takes a size."""
    present = python_kernels(overload)
    return {key: _calling_default(overload, present[key]) for key in (AUTOGRAD, COMPOSITE) if key in present}


def _calling_default(overload: Any, expansion: Kernel) -> Kernel:
    default = getattr(aten, schema_of(overload).name.removeprefix("aten::")).default

    def expanded(*args: Any, **kwargs: Any) -> Any:
        given = bind_schema(overload, args, kwargs)
        x, count, factors = given.pop("input"), given.pop("output_size"), given.pop("scale_factors")
        if (count is None) is (factors is None):
            return expansion(*args, **kwargs)  # raises PyTorch's error
        if count is None:
            count = [torch.sym_int(size * factor) for size, factor in zip(x.shape[2:], factors, strict=True)]
        return default(x, count, *given.values(), *(factors or [None] * len(count)))

    return expanded


for _name in _NAMES:
    _packet = getattr(aten, _name)
    declare(_packet.default, mended=partial(kept_whole, _packet.default))
    declare(_packet.vec, mended=partial(_by_size, _packet.vec))


_ANTIALIASED = ("_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa", "_upsample_lanczos2d_aa")


def _gradient(grad: torch.Tensor, output_size: Any, input_size: Any, *options: Any) -> torch.Tensor:
    del output_size, options
    last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(grad.dim())
    made = grad.new_empty(input_size)
    if last is None or grad.is_contiguous() or not grad.is_contiguous(memory_format=last):
        return made
    return made.contiguous(memory_format=last)


for _name in (*_NAMES, *_ANTIALIASED):
    _backward = getattr(getattr(aten, f"{_name}_backward"), "default", None)
    declare_symbolic_shapes(_backward, shapes=_gradient)
