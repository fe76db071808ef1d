"""Linear layers with 4-bit weights in the layouts of GPTQ and AWQ: eight codes in an int32."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import torchstone

ROWS, COLUMNS, GROUP = 64, 16, 32
"""The numbers of inputs and of outputs, and how many inputs share a scale and a zero point."""
SHIFTS = torch.arange(0, 32, 4, dtype=torch.int32)
INTERLEAVED = torch.tensor([0, 4, 1, 5, 2, 6, 3, 7])
"""The place that AWQ gives to the code of each of eight neighbors."""


def packed(codes: Tensor) -> Tensor:
    """Pack the last axis into int32 words of eight codes each."""
    parts = codes.unflatten(-1, (-1, 8)).long() << SHIFTS
    return parts.sum(-1).to(torch.int32)  # a set highest bit makes the word negative


def unpacked(words: Tensor) -> Tensor:
    return ((words.unsqueeze(-1) >> SHIFTS) & 15).flatten(-2)


class Linear(nn.Module):
    """Computes ``x @ weight``, with ``weight = (codes - zeros) * scales`` of shape ``[inputs, outputs]``."""

    def __init__(self, codes: Tensor, zeros: Tensor, scales: Tensor) -> None:
        super().__init__()
        self.register_buffer("qweight", self.stored(codes))
        self.register_buffer("qzeros", self.stored_zeros(zeros))
        self.register_buffer("scales", scales)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        codes, zeros = self.codes()
        whole = codes - zeros.repeat_interleave(GROUP, 0)
        return F.linear(x, (whole * self.scales.repeat_interleave(GROUP, 0)).T), whole

    stored: Callable[[Tensor], Tensor]
    stored_zeros: Callable[[Tensor], Tensor]
    codes: Callable[[], tuple[Tensor, Tensor]]


class GPTQ(Linear):
    """A layer in which neighbors along the inputs share a word, and zero points are stored minus one."""

    def stored(self, codes: Tensor) -> Tensor:
        return packed(codes.T).T.contiguous()

    def stored_zeros(self, zeros: Tensor) -> Tensor:
        return packed(zeros - 1)

    def codes(self) -> tuple[Tensor, Tensor]:
        return unpacked(self.qweight.T).T, unpacked(self.qzeros) + 1


class AWQ(Linear):
    """A layer in which neighbors along the outputs share a word, in an order of AWQ's own."""

    def stored(self, codes: Tensor) -> Tensor:
        return packed(codes.unflatten(-1, (-1, 8))[..., INTERLEAVED.argsort()].flatten(-2))

    stored_zeros = stored

    def codes(self) -> tuple[Tensor, Tensor]:
        weight, zeros = (
            unpacked(words).unflatten(-1, (-1, 8))[..., INTERLEAVED].flatten(-2)
            for words in (self.qweight, self.qzeros)
        )
        return weight, zeros


@pytest.mark.parametrize("layout", [GPTQ, AWQ])
def test_packed_weights(layout: type[Linear], tmp_path: Path) -> None:
    torch.manual_seed(0)
    codes = torch.randint(16, (ROWS, COLUMNS), dtype=torch.int32)
    zeros = torch.randint(1, 16, (ROWS // GROUP, COLUMNS), dtype=torch.int32)
    model = layout(codes, zeros, torch.rand(ROWS // GROUP, COLUMNS) * 0.1)
    x = torch.randn(3, ROWS)
    program = torchstone.load(torchstone.export(model, (x,)).save(tmp_path / "packed.stone"))
    found, whole = program(x)
    assert torch.equal(torch.as_tensor(whole), codes - zeros.repeat_interleave(GROUP, 0))
    torch.testing.assert_close(torch.as_tensor(found), model(x)[0])
    words = {spec.target: tuple(spec.shape) for spec in program.signature.inputs if spec.target}
    assert torch.Size(words["qweight"]).numel() == ROWS * COLUMNS // 8
