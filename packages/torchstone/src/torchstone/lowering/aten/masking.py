"""Masks: masked_fill, masked_scatter and its gradient.

Not here: ``where`` (``comparison``), ``index_put`` with a mask (``scattering``),
``masked_select`` (its size depends on data).
"""

from __future__ import annotations

from typing import Any

import torch

from ... import hlo
from ...dtypes import BOOL, COPYABLE, INT64
from ...hlo import Value
from ...torch_internals.operators import namespace
from ..checks import Arguments
from ..common import flatten, is_empty
from ..conditions import SELECTED, SOURCE
from ..promotion import as_value
from ..registry import Spec, lowers

aten = namespace("aten")


def ordinal(mask: Value) -> Value:
    """Count the elements that the bool mask selects before each element, in row-major order: int64, 1-d."""
    chosen = hlo.convert(flatten(mask), INT64)
    return hlo.associative_scan([chosen], 0, lambda a, b: a + b)[0] - chosen


@lowers(aten.masked_fill.Scalar, aten.masked_fill.Tensor, dtypes=COPYABLE)
def masked_fill(self: Value, mask: Value, value: Any, out: Spec) -> Value:
    """``value`` where ``mask`` holds, else ``self``."""
    filling = hlo.broadcast_to(as_value(value, out.dtype), out.shape)
    held = hlo.broadcast_to(hlo.convert(mask, BOOL), out.shape)
    return hlo.select(held, filling, hlo.broadcast_to(self, out.shape))


@lowers(aten.masked_scatter.default, dtypes=COPYABLE, values=[SOURCE])
def masked_scatter(self: Value, mask: Value, source: Value, out: Spec) -> Value:
    """Replace the n-th element that ``mask`` selects with element n of ``source``."""
    x, held = hlo.broadcast_to(self, out.shape), hlo.broadcast_to(mask, out.shape)
    if is_empty(out.shape) or is_empty(source.shape):
        return x
    chosen = hlo.take(flatten(source), ordinal(held), 0)
    return hlo.select(held, hlo.reshape(chosen, out.shape), x)


def _refuses_misfits(arguments: Arguments) -> str | None:
    """Refuse masks that do not fit the gradient, which PyTorch's shape function does not compare."""
    try:
        torch.broadcast_shapes(arguments["grad_output"].shape, arguments["mask"].shape)
    except RuntimeError as error:
        return str(error).partition("\n")[0]
    return None


@lowers(aten.masked_scatter_backward.default, dtypes=COPYABLE, values=[SELECTED], refuses=_refuses_misfits)
def masked_scatter_backward(grad_output: Value, mask: Value, sizes: list[hlo.Dim], out: Spec) -> Value:
    """The selected gradients at the front of a tensor of ``sizes``, followed by zeros."""
    shape = hlo.broadcast_shapes(grad_output.shape, mask.shape)
    if is_empty(sizes) or is_empty(shape):
        return hlo.full(sizes, 0, out.dtype)
    grad, held = (hlo.broadcast_to(x, shape) for x in (grad_output, mask))
    zeros = flatten(hlo.full(sizes, 0, out.dtype))
    # Scatter drops updates at one past the last position.
    nowhere = hlo.broadcast_in_dim(hlo.dim_scalar(zeros.numel), (held.numel,), [])
    where = hlo.select(flatten(held), ordinal(held), nowhere)
    packed = hlo.put(zeros, where, flatten(grad), 0, lambda _, new: new)
    return hlo.reshape(packed, sizes)
