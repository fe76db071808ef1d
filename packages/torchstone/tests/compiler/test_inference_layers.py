"""Layers with attention in evaluation, for which PyTorch has one operator, and ``weight_norm``."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import nn

from torchstone.compiler.operators import inference_layers
from torchstone.errors import FallbackWarning

CAUSAL = torch.ones(3, 3, dtype=torch.bool).triu(1)
PADDING = torch.tensor([[False, True, False], [False, False, True]])


@pytest.mark.parametrize("average", [True, False])
@pytest.mark.parametrize("need", [True, False])
@pytest.mark.parametrize(
    ("mask", "kind"),
    [
        (None, None),
        (CAUSAL, 0),
        (PADDING, 1),
        (torch.ones(2, 3, dtype=torch.bool), 1),
        (CAUSAL.expand(2, 2, 3, 3), 2),
    ],
)
def test_attention_is_that_of_the_operator(mask: Any, kind: int | None, need: bool, average: bool) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 3, 8)
    weights = (torch.randn(24, 8), torch.randn(24), torch.randn(8, 8), torch.randn(8))
    arguments = (x, x.sin(), x.cos(), 8, 2, *weights, mask, need, average, kind)
    if kind == 0 or mask is None:  # with these masks, pass one tensor as query, key and value
        arguments = (x, x, x, *arguments[3:])
    expected = torch.ops.aten._native_multi_head_attention(*arguments)
    found = inference_layers.native_multi_head_attention(*arguments)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5, equal_nan=True)


@pytest.mark.kept("options0-masks0", "options1-masks1")
@pytest.mark.parametrize("masks", [{}, {"src_mask": CAUSAL}, {"src_key_padding_mask": PADDING}])
@pytest.mark.parametrize("options", [{}, {"activation": "gelu", "norm_first": True}])
def test_encoder_layers_compile_whole(options: dict[str, Any], masks: dict[str, Any]) -> None:
    torch.compiler.reset()
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, **options).eval()
    x = torch.randn(2, 3, 8)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error", FallbackWarning)
        found = torch.compile(layer, backend="torchstone")(x, **masks)
        torch.testing.assert_close(found, layer(x, **masks))


@pytest.mark.parametrize("dim", [0, 1])
def test_weight_norm_trains(dim: int) -> None:
    torch.compiler.reset()
    linear = nn.utils.parametrizations.weight_norm(nn.Linear(4, 3), dim=dim)
    x = torch.randn(2, 4)
    gradients = []
    for model in (linear, torch.compile(linear, backend="torchstone", options={"fallback": False})):
        linear.zero_grad()
        model(x).square().sum().backward()
        gradients.append([one.grad.clone() for one in linear.parameters()])
    for found, expected in zip(*reversed(gradients), strict=True):
        torch.testing.assert_close(found, expected)
