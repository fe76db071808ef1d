"""Capture rules for packed sequences, whose number of rows depends on the lengths.

Here, packed data has a row for each step of each padded sequence (time · batch
rows). The rows of PyTorch's packed data come first, followed by zeros.
"""

from __future__ import annotations

from typing import Any

import torch

from ...lowering.own import own
from ...torch_internals import tensors
from ..assertions import require
from .registry import StandIn, capture_rule

Tensor = torch.Tensor


class BatchSizes(StandIn):
    """The number of sequences that reach each step, int64 ``[steps]``; ``batch`` is the number of all."""

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
        """Return the tensor that a program returns for this."""
        return self.sizes


@capture_rule(tensors.pack_padded_sequence, of=[own.pack_padded_sequence])
def pack_padded_sequence(input: Tensor, lengths: Tensor, batch_first: bool) -> tuple[Tensor, BatchSizes]:
    """Return the rows of all sequences, step by step; ``lengths`` must be in descending order."""
    require(lambda: lengths > 0, "Length of all samples has to be greater than 0")
    require(lambda: lengths[1:] <= lengths[:-1], "`lengths` array must be sorted in decreasing order")
    data, sizes = own.pack_padded_sequence(input, lengths, batch_first)
    return data, BatchSizes(sizes, input.shape[0 if batch_first else 1])


@capture_rule(tensors.pad_packed_sequence, of=[own.pad_packed_sequence])
def pad_packed_sequence(
    data: Tensor, batch_sizes: Any, batch_first: bool, padding_value: float, total_length: int
) -> tuple[Tensor, Tensor]:
    """Return the padded sequences and their lengths."""
    if not isinstance(batch_sizes, BatchSizes):
        return NotImplemented
    padded, lengths = own.pad_packed_sequence(
        data, batch_sizes.sizes, batch_sizes.batch, batch_first, padding_value, total_length
    )
    return padded, lengths


def _network(original: Any) -> None:
    def network(data: Any, batch_sizes: Any, *rest: Any, **options: Any) -> Any:
        if not isinstance(batch_sizes, BatchSizes):
            return NotImplemented
        return original(data, batch_sizes.sizes, *rest, **options)

    capture_rule(original)(network)


for _original in (torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu):
    _network(_original)
