"""What samples cannot show of attention: it stays whole, and its dropout."""

from __future__ import annotations

import torch
from torch.nn.functional import scaled_dot_product_attention

import torchstone


def test_attention_is_one_composite() -> None:
    q = torch.randn(1, 2, 3, 4)
    program = torchstone.export(scaled_dot_product_attention, (q, q, q))
    assert '"torchstone.scaled_dot_product_attention"' in program.mlir_text()


def test_dropout_in_attention_drops_weights_and_scales_the_rest() -> None:
    def weights(q: torch.Tensor, k: torch.Tensor, dropout: float) -> torch.Tensor:
        """The attention matrix itself: the values are unit vectors."""
        return scaled_dot_product_attention(q, k, torch.eye(16).expand(2, 4, 16, 16), dropout_p=dropout)

    torch.manual_seed(0)
    q, k = torch.randn(2, 4, 16, 8), torch.randn(2, 4, 16, 8)
    program = torchstone.export(lambda q, k: weights(q, k, 0.25), (q, k))
    dropped, plain = program(q, k), weights(q, k, 0.0)
    kept = dropped != 0
    torch.testing.assert_close(dropped[kept], plain[kept] / 0.75)
    assert 0.70 < kept.float().mean() < 0.80  # 2048 draws: the standard deviation is 0.01
    assert not torch.equal(program(q, k), dropped)
