"""Products of tokens with the experts of a mixture: decompositions of operators from ``transformers``.

``transformers`` calls these operators for dtypes that PyTorch's grouped product does not take in a compiled
function. In eager PyTorch, they read the number of tokens in each group, and multiply group by group.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from ...torch_internals.operators import OpOverload

Tensor = torch.Tensor


def expert_decompositions() -> dict[OpOverload, Callable[..., Any]]:
    """Return decompositions of the operators, if ``transformers`` has registered them in this process.

    The operators take rows that are sorted by group; ``offs`` holds the end of each group.
    """
    if "transformers.integrations.moe" not in sys.modules:
        return {}
    rules: dict[str, Callable[..., Any]] = {
        "grouped_mm_fallback": _product,
        "grouped_mm_fallback_backward": _gradients,
    }
    packets = [(getattr(torch.ops.transformers, name, None), rule) for name, rule in rules.items()]
    return {packet.default: rule for packet, rule in packets if packet is not None}


def _product(input: Tensor, weight: Tensor, offs: Tensor) -> Tensor:
    """Return ``input[i] @ weight[g]`` for each row ``i`` of group ``g``; zeros for rows of no group."""
    blocks = _Blocks.of(input.shape[0], offs)
    return blocks.joined(torch.bmm(blocks.split(input), weight[blocks.group]))


def _gradients(input: Tensor, weight: Tensor, offs: Tensor, grad_output: Tensor) -> tuple[Tensor, Tensor]:
    blocks = _Blocks.of(input.shape[0], offs)
    grads = blocks.split(grad_output)
    grad_input = blocks.joined(torch.bmm(grads, weight[blocks.group].mT))
    wide = torch.promote_types(weight.dtype, torch.float32)  # a group may be a sum of several parts
    parts = torch.bmm(blocks.split(input).mT.to(wide), grads.to(wide))
    grad_weight = torch.zeros_like(weight, dtype=wide).index_add(0, blocks.group, parts)
    return grad_input, grad_weight.to(weight.dtype)


class _Blocks(NamedTuple):
    """A division of rows into blocks of equal size, each with rows of one group, for any sizes of groups.

    A block is slightly larger than the average group. So there are at most twice as many blocks as groups,
    and their places are at most twice the rows plus the groups.
    """

    group: Tensor
    """The group of each block."""
    rows: Tensor
    """The row at each place of each block; the number of rows if the place is empty."""
    places: Tensor
    """The place of each row among the places of all blocks; the number of places for a row of no group."""

    @classmethod
    def of(cls, count: int, offs: Tensor) -> _Blocks:
        groups = offs.shape[0]
        size = count // groups + 1
        most = count // size + groups
        ends = offs.long()
        starts = torch.cat([ends.new_zeros(1), ends[:-1]])
        needed = (ends - starts + size - 1) // size
        last = needed.cumsum(0)
        first = last - needed

        block = torch.arange(most, device=offs.device)
        group = torch.searchsorted(last, block, right=True).clamp(max=groups - 1)
        rows = (starts[group] + (block - first[group]) * size)[:, None] + torch.arange(
            size, device=offs.device
        )
        rows = torch.where(rows < ends[group][:, None], rows, count)

        row = torch.arange(count, device=offs.device)
        own = torch.searchsorted(ends, row, right=True).clamp(max=groups - 1)
        within = row - starts[own]
        places = (first[own] + within // size) * size + within % size
        return cls(group, rows, torch.where(row < ends[-1], places, most * size))

    def split(self, values: Tensor) -> Tensor:
        """Return the rows of each block, with zeros in empty places."""
        return _with_zeros(values)[self.rows]

    def joined(self, blocks: Tensor) -> Tensor:
        """Return the rows in order again, which :meth:`split` has spread over blocks."""
        return _with_zeros(blocks.flatten(0, 1))[self.places]


def _with_zeros(values: Tensor) -> Tensor:
    return torch.cat([values, values.new_zeros(1, values.shape[1])])
