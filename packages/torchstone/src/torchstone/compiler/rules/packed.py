"""Capture rules for packed sequences, whose number of rows depends on the lengths.

Packed data gets as many rows as the padded sequence has steps in all its
members: the rows that PyTorch's has come first, zeros after them.
"""

from __future__ import annotations

from typing import Any

import torch

from .registry import StandIn, capture_rule

Tensor = torch.Tensor


class BatchSizes(StandIn):
    """How many sequences reach each step, int64 ``[steps]``; ``batch`` is the number of sequences."""

    kind = "packed"
    dtype, device = torch.int64, torch.device("cpu")

    def __init__(self, sizes: Tensor, batch: int) -> None:
        self.sizes, self.batch = sizes, batch

    def __getitem__(self, step: int) -> Any:
        return self.batch if step == 0 else self.sizes[step]

    def size(self, dim: int | None = None) -> Any:
        return self.sizes.shape if dim is None else self.sizes.shape[dim]

    def to(self, *_: Any, **__: Any) -> BatchSizes:
        return self

    def parts(self) -> Tensor:
        """What a program returns."""
        return self.sizes

    def rows(self) -> tuple[Tensor, Tensor]:
        """For each step and sequence whether it is there, and its row (behind the last, if not)."""
        steps = self.sizes.shape[0]
        member = torch.arange(self.batch)
        there = member < self.sizes[:, None]
        first = self.sizes.cumsum(0) - self.sizes
        return there, torch.where(there, first[:, None] + member, steps * self.batch)


@capture_rule(torch._pack_padded_sequence)
def pack_padded_sequence(input: Tensor, lengths: Tensor, batch_first: bool) -> tuple[Tensor, BatchSizes]:
    """Rows of all sequences step by step; ``lengths`` are in descending order."""
    x = input.transpose(0, 1) if batch_first else input
    steps, batch = x.shape[:2]
    sizes = BatchSizes((torch.arange(steps)[:, None] < lengths).sum(1), batch)
    _, rows = sizes.rows()
    room = x.new_zeros((steps * batch + 1, *x.shape[2:]))
    return room.index_copy(0, rows.flatten(), x.flatten(0, 1))[:-1], sizes


@capture_rule(torch._pad_packed_sequence)
def pad_packed_sequence(
    data: Tensor, batch_sizes: Any, batch_first: bool, padding_value: float, total_length: int
) -> tuple[Tensor, Tensor]:
    """The padded sequences and their lengths."""
    if not isinstance(batch_sizes, BatchSizes):
        return NotImplemented
    there, rows = batch_sizes.rows()
    found = data[rows.clamp(max=data.shape[0] - 1)]
    padded = torch.where(there.reshape(*there.shape, *[1] * (found.ndim - 2)), found, padding_value)
    longer = total_length - padded.shape[0]
    if longer > 0:
        padded = torch.cat([padded, padded.new_full((longer, *padded.shape[1:]), padding_value)])
    return padded.transpose(0, 1) if batch_first else padded, there.sum(0)


def _network(original: Any) -> None:
    def network(data: Any, batch_sizes: Any, *rest: Any, **options: Any) -> Any:
        if not isinstance(batch_sizes, BatchSizes):
            return NotImplemented
        return original(data, batch_sizes.sizes, *rest, **options)

    capture_rule(original)(network)


for _original in (torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu):
    _network(_original)
