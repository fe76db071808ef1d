"""Decomposes ``segment_reduce`` and its gradient into reductions over masked elements.

PyTorch has no decomposition. Here, each segment reduces all elements under a mask, which
a compiler fuses into one reduction. A loop would need one step per segment.
"""

from __future__ import annotations

from typing import Any

import torch

from ...lowering import decomposes
from ...torch_internals.operators import namespace
from ..assertions import require

Tensor = torch.Tensor
aten = namespace("aten")

_IDENTITY = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "max": -torch.inf, "min": torch.inf}


@decomposes(aten.segment_reduce.default)
def segment_reduce(
    data: Tensor,
    reduce: str,
    *,
    lengths: Tensor | None = None,
    indices: Tensor | None = None,
    offsets: Tensor | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: Any = None,
) -> Tensor:
    """Reduce each segment along ``axis``, the last axis of ``lengths`` or ``offsets``, to one element."""
    if lengths is not None:
        require(lambda: lengths >= 0, "lengths contains negative value!")
        if not unsafe:
            require(
                lambda: lengths.sum(-1) == data.shape[axis],
                "segment_reduce(): Expected all rows of lengths along axis to sum to"
                " data.size(lengths.dim()-1) when !unsafe.",
            )
    starts, ends = _bounds(lengths, offsets)
    inside = _inside(starts, ends, data, axis)
    identity = _IDENTITY[reduce]
    shown = torch.where(inside, data.unsqueeze(axis), identity)  # [..., segments, elements, ...]
    result = _reduced(shown, reduce, axis + 1)
    if initial is not None:
        result = _with_initial(result, reduce, initial)
    if reduce == "mean":
        sizes = _spread(ends - starts, result, axis)
        empty = torch.nan if initial is None else result
        result = torch.where(sizes > 0, result / sizes, empty)
    return result


@decomposes(aten._segment_reduce_backward.default)
def segment_reduce_backward(
    grad: Tensor,
    output: Tensor,
    data: Tensor,
    reduce: str,
    *,
    lengths: Tensor | None = None,
    offsets: Tensor | None = None,
    axis: int = 0,
    initial: Any = None,
) -> Tensor:
    """Return each element's share of its segment's gradient; elements tied for an extremum share equally."""
    starts, ends = _bounds(lengths, offsets)
    inside = _inside(starts, ends, data, axis)
    weight, result, element = grad.unsqueeze(axis + 1), output.unsqueeze(axis + 1), data.unsqueeze(axis)
    if reduce == "mean":
        weight = weight / _spread(ends - starts, grad, axis).unsqueeze(axis + 1)
    elif reduce in ("max", "min"):
        chosen = inside & ((element == result) | (element.isnan() & result.isnan()))
        weight = torch.where(chosen, weight / chosen.sum(axis + 1, keepdim=True), 0)
    elif reduce == "prod":
        weight = weight * _products_of_others(inside, data, axis, initial)
    return torch.where(inside, weight, 0).sum(axis).to(data.dtype)


def _bounds(lengths: Tensor | None, offsets: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return where segments start and end."""
    if offsets is not None:
        return offsets[..., :-1], offsets[..., 1:]
    assert lengths is not None
    ends = lengths.cumsum(-1)
    return ends - lengths, ends


def _inside(starts: Tensor, ends: Tensor, data: Tensor, axis: int) -> Tensor:
    """Return a mask of the elements in each segment: ``[..., segments, elements, 1, …]``."""
    places = torch.arange(data.shape[axis], device=data.device)
    inside = (places >= starts.unsqueeze(-1)) & (places < ends.unsqueeze(-1))
    return inside.reshape(*inside.shape, *[1] * (data.dim() - axis - 1))


def _spread(sizes: Tensor, result: Tensor, axis: int) -> Tensor:
    """Reshape the sizes of segments so that they broadcast to the result."""
    return sizes.reshape(*sizes.shape, *[1] * (result.dim() - axis - 1))


def _reduced(shown: Tensor, reduce: str, dim: int) -> Tensor:
    if reduce == "prod":
        return shown.prod(dim)
    if reduce in ("max", "min"):
        if not shown.shape[dim]:
            return shown.new_full([n for i, n in enumerate(shown.shape) if i != dim], _IDENTITY[reduce])
        return shown.amax(dim) if reduce == "max" else shown.amin(dim)
    return shown.sum(dim)


def _with_initial(result: Tensor, reduce: str, initial: Any) -> Tensor:
    if reduce == "prod":
        return result * initial
    if reduce == "max":
        return torch.maximum(result, torch.full_like(result, initial))
    if reduce == "min":
        return torch.minimum(result, torch.full_like(result, initial))
    return result + initial


def _products_of_others(inside: Tensor, data: Tensor, axis: int, initial: Any) -> Tensor:
    """Return, per segment and element, the product of the segment's other elements and the initial value."""
    count = data.shape[axis]
    others = ~torch.eye(count, dtype=torch.bool, device=data.device)
    others = others.reshape(count, count, *[1] * (data.dim() - axis - 1))
    # [..., segments, this element, other element, ...]
    shown = torch.where(inside.unsqueeze(axis + 1) & others, data.unsqueeze(axis).unsqueeze(axis), 1)
    return shown.prod(axis + 2) * (1 if initial is None else initial)
