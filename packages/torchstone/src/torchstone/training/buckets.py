"""Padding of batches to a few sizes, so that a few programs are enough for batches of any size.

Padding repeats the last row, so padded rows are finite if that row is. Their losses are left out of the
result, so they add nothing to the gradients. :mod:`.rows` checks that padding does not affect other rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, get_args

import torch

from ..backend.layouts import inverse, memory_order
from ..errors import TrainingError
from .numbers import Number

Tensor = torch.Tensor
Reduction = Literal["mean", "sum"]
"""How the losses of the rows become one loss."""


def checked(buckets: Iterable[int] | None, reduction: str) -> tuple[int, ...]:
    """Return the numbers of rows that batches are padded to, sorted; an empty tuple means no padding."""
    if reduction not in get_args(Reduction):
        raise TrainingError(
            f"reduction={reduction!r} is unknown", hint=f"use one of {', '.join(get_args(Reduction))}"
        )
    if buckets is None:
        return ()
    sizes = list(buckets) if isinstance(buckets, Iterable) else buckets
    if not isinstance(sizes, list) or not sizes or any(type(size) is not int or size < 1 for size in sizes):
        raise TrainingError(
            f"buckets={sizes!r} are not numbers of rows", hint="give positive integers, as in buckets=(8, 32)"
        )
    return tuple(sorted({*sizes}))


def has_rows(leaf: Any) -> bool:
    """Whether a leaf of a batch is a tensor with a first dimension."""
    return isinstance(leaf, Tensor) and leaf.dim() > 0


def not_of_rows(losses: Tensor) -> TrainingError:
    """Return the error for losses that do not have the batch's rows in their first dimension."""
    return TrainingError(
        f"with buckets, loss_fn returns the losses of all rows, not {list(losses.shape)}",
        hint='ask the loss for reduction="none"; the reduction of compile_step comes after it',
    )


def padded(leaves: Sequence[Any], buckets: Sequence[int]) -> tuple[list[Any], int]:
    """Pad a batch to the smallest bucket that holds it; return its leaves, and the number of its own rows.

    A batch of one row is not padded, because code may treat a dimension of size 1 differently.
    """
    counts = [leaf.shape[0] for leaf in leaves if has_rows(leaf)]
    if not counts or min(counts) != max(counts) or not counts[0]:
        raise TrainingError(
            f"with buckets, each tensor of a batch has the batch's rows in its first dimension; "
            f"these have {', '.join(map(str, counts)) or 'none'}",
            hint="give what belongs to no row as 0-d tensors or numbers, or as buffers of the model",
        )
    count = counts[0]
    if count > buckets[-1]:
        raise TrainingError(
            f"the batch has {count} rows, and the largest bucket {buckets[-1]}",
            hint="add a larger bucket, or split the batch and call accumulate()",
        )
    size = 1 if count == 1 else next(size for size in buckets if size >= count)
    return [_padded(leaf, size) if has_rows(leaf) else leaf for leaf in leaves], count


def _padded(leaf: Tensor, size: int) -> Tensor:
    count, one = leaf.shape[0], leaf.detach()
    if count == size:
        return leaf
    axes = memory_order(one) or tuple(range(one.dim()))
    shape = (size, *one.shape[1:])
    made = one.new_empty([shape[axis] for axis in axes]).permute(inverse(axes))
    made[:count], made[count:] = one, one[-1]
    return made.requires_grad_(leaf.requires_grad)


def reduced(losses: Tensor, rows: Number, size: int, reduction: str) -> Tensor:
    """Return the sum or mean of the losses of the first ``rows`` of ``size`` rows, in a trace."""
    if not losses.dim():
        raise not_of_rows(losses)
    count, each = rows.node.tensor, losses.shape[0] // size
    own = torch.arange(losses.shape[0], dtype=torch.float64) < count * each
    kept = torch.where(own.view(-1, *[1] * (losses.dim() - 1)), losses, torch.zeros_like(losses))
    total = kept.sum(dtype=torch.promote_types(losses.dtype, torch.float32))
    if reduction == "mean":
        total = total / (count * (losses.numel() // size)).to(total.dtype)
    return total.to(losses.dtype)


def with_loss(result: Any, loss: Tensor) -> Any:
    """Return the result of ``loss_fn`` with ``loss`` in place of the losses of the rows."""
    if isinstance(result, Mapping):
        return {**result, "loss": loss}
    if isinstance(result, tuple) and hasattr(result, "_fields"):
        return type(result)(loss, *result[1:])
    return type(result)([loss, *result[1:]]) if isinstance(result, (tuple, list)) else loss
