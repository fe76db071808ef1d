"""Shrinks tensors to the smallest shapes and simplest values that still fail, and writes them as code.

Not here: the call that fails on them.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Sequence

import torch

from ...running.shrink import smaller_sizes
from .samples import resized

Tensor = torch.Tensor

_WRITTEN_OUT = 256
"""The largest number of elements of a tensor that is written out as numbers."""


def smallest(
    tensors: Sequence[Tensor], still_fails: Callable[[Sequence[Tensor]], bool]
) -> tuple[Tensor, ...]:
    """Replace the tensors greedily by smaller and simpler ones that still fail; return the last ones."""
    search = _Search(tuple(tensors), still_fails)
    while any(search.accept(one) for one in search.smaller()):
        pass
    for place in range(len(search.best)):
        search.simplify(place)
    return search.best


class _Search:
    """A search that holds the best tensors so far."""

    def __init__(self, best: tuple[Tensor, ...], still_fails: Callable[[Sequence[Tensor]], bool]) -> None:
        self.best, self._still_fails = best, still_fails

    def accept(self, tensors: Sequence[Tensor]) -> bool:
        if not self._still_fails(tensors):
            return False
        self.best = tuple(tensors)
        return True

    def smaller(self) -> Iterator[Sequence[Tensor]]:
        """Yield smaller tensors: each size reduced in all its dimensions, then single dimensions reduced."""
        tensors = self.best
        dims = [(place, dim) for place, one in enumerate(tensors) for dim in range(one.dim())]
        sizes = sorted({tensors[place].shape[dim] for place, dim in dims} - {0, 1}, reverse=True)
        together = [[(p, d) for p, d in dims if tensors[p].shape[d] == size] for size in sizes]
        for chosen in (*together, *([one] for one in dims)):
            place, dim = chosen[0]
            for size in smaller_sizes(tensors[place].shape[dim]):
                yield resized(tensors, chosen, size)

    def simplify(self, place: int) -> None:
        """Set elements of one tensor to 0, or else to 1, in smaller and smaller pieces."""
        size = piece = self.best[place].numel()
        while piece:
            for start in range(0, size, piece):
                part = self.best[place].reshape(-1)[start : start + piece]
                if not (bool((part == 0).all()) or bool((part == 1).all())):
                    any(self.accept(self._with(place, start, piece, number)) for number in (0, 1))
            piece //= 2

    def _with(self, place: int, start: int, piece: int, number: int) -> Sequence[Tensor]:
        changed = self.best[place].clone()
        flat = changed.reshape(-1)
        flat[start : start + piece] = number
        tensors = list(self.best)
        tensors[place] = flat.reshape(changed.shape)
        return tensors


def literal(tensor: Tensor) -> str:
    """Return a Python expression for ``tensor`` with its dtype, shape, strides and values."""
    dense = tensor.detach().contiguous()
    if dense.numel() <= _WRITTEN_OUT:
        values = f"torch.tensor({dense.reshape(-1).tolist()!r}, dtype={tensor.dtype})"
    else:
        data = base64.b64encode(dense.reshape(-1).view(torch.uint8).numpy().tobytes()).decode()
        values = f"torch.frombuffer(bytearray(base64.b64decode({data!r})), dtype={tensor.dtype})"
    values += f".reshape({list(tensor.shape)!r})"
    if tensor.is_contiguous():
        return values
    form = f"{list(tensor.shape)!r}, {list(tensor.stride())!r}, dtype={tensor.dtype}"
    return f"torch.empty_strided({form}).copy_({values})"
