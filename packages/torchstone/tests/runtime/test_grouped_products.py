"""Products with repeated keys are computed without the repetitions on XLA's CPU."""

from __future__ import annotations

import numpy
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from cpu_modules import rewritten
from torchstone import export, hlo
from torchstone.compiler.program import build_program
from torchstone.runtime.pjrt import PjrtEngine

BATCH, HEADS, GROUP, ROWS, KEYS, WIDTH = 2, 3, 4, 5, 7, 8
QUERY, KEY = f"{BATCH}x{HEADS * GROUP}x{ROWS}x{WIDTH}", f"{BATCH}x{HEADS}x{KEYS}x{WIDTH}"
SCORES = f"{BATCH}x{HEADS * GROUP}x{ROWS}x{KEYS}"
WIDE, REPEATED = f"{BATCH}x{HEADS}x{GROUP}x{KEYS}x{WIDTH}", f"{BATCH}x{HEADS * GROUP}x{KEYS}x{WIDTH}"
REPEAT = f"""
%w = stablehlo.broadcast_in_dim %k, dims = [0, 1, 3, 4] : (tensor<{KEY}xf32>) -> tensor<{WIDE}xf32>
%r = stablehlo.reshape %w : (tensor<{WIDE}xf32>) -> tensor<{REPEATED}xf32>"""


def product(keys: str, body: str, type_: str, contracting: int, *, rows_first: bool = True) -> str:
    """Return StableHLO for the scores of queries and ``keys``, which ``body`` computes."""
    left, right = (f"%q {QUERY} 3", f"{keys} {type_} {contracting}")
    if not rows_first:
        left, right = right, left
    (a, of_a, over_a), (b, of_b, over_b) = left.split(), right.split()
    result = SCORES if rows_first else f"{BATCH}x{HEADS * GROUP}x{KEYS}x{ROWS}"
    return f"""func.func @main(%q: tensor<{QUERY}xf32>, %k: tensor<{KEY}xf32>) -> tensor<{result}xf32> {{
{body}
%y = stablehlo.dot_general {a}, {b},
  batching_dims = [0, 1] x [0, 1],
  contracting_dims = [{over_a}] x [{over_b}],
  precision = [HIGHEST, HIGHEST] : (tensor<{of_a}xf32>, tensor<{of_b}xf32>) -> tensor<{result}xf32>
return %y : tensor<{result}xf32> }}"""


def operands() -> tuple[numpy.ndarray, numpy.ndarray]:
    rng = numpy.random.default_rng(0)
    query = rng.standard_normal((BATCH, HEADS * GROUP, ROWS, WIDTH), dtype=numpy.float32)
    return query, rng.standard_normal((BATCH, HEADS, KEYS, WIDTH), dtype=numpy.float32)


TURNED = f"{BATCH}x{HEADS * GROUP}x{WIDTH}x{KEYS}"
TURN = f"""{REPEAT}
%t = stablehlo.transpose %r, dims = [0, 1, 3, 2] : (tensor<{REPEATED}xf32>) -> tensor<{TURNED}xf32>"""
ROUND = f"""{REPEAT}
%b = stablehlo.convert %r : (tensor<{REPEATED}xf32>) -> tensor<{REPEATED}xbf16>
%f = stablehlo.convert %b : (tensor<{REPEATED}xbf16>) -> tensor<{REPEATED}xf32>"""


@pytest.mark.parametrize(
    "module",
    [
        product("%r", REPEAT, REPEATED, 3),
        product("%t", TURN, TURNED, 2),
        product("%f", ROUND, REPEATED, 3),
    ],
    ids=["keys", "transposed", "rounded"],
)
def test_repeated_keys_become_rows_of_one_product(module: str) -> None:
    text = rewritten(module)
    assert f"tensor<{BATCH}x{HEADS}x{GROUP}x{ROWS}x{KEYS}xf32>" in text
    assert "precision = [HIGHEST, HIGHEST]" in text
    query, key = operands()
    if "bf16" in module:
        key = torch.tensor(key).bfloat16().float().numpy()
    expected = query @ key.repeat(GROUP, axis=1).swapaxes(2, 3)
    found = PjrtEngine().compile(module)(*operands())[0].to_numpy()
    numpy.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


TILED = f"{BATCH}x{GROUP}x{HEADS}x{KEYS}x{WIDTH}"
TILE = f"""
%w = stablehlo.broadcast_in_dim %k, dims = [0, 2, 3, 4] : (tensor<{KEY}xf32>) -> tensor<{TILED}xf32>
%r = stablehlo.reshape %w : (tensor<{TILED}xf32>) -> tensor<{REPEATED}xf32>"""


@pytest.mark.parametrize(
    ("module", "order"),
    [
        (product("%r", TILE, REPEATED, 3), "tiled"),
        (product("%r", REPEAT, REPEATED, 3, rows_first=False), "keys first"),
    ],
    ids=["tiled", "keys first"],
)
def test_other_products_stay(module: str, order: str) -> None:
    """Other products: repeated heads in another order, or repetitions on the left side."""
    assert f"-> tensor<{BATCH}x{HEADS}x{GROUP}x{ROWS}" not in rewritten(module)
    query, key = operands()
    repeated = numpy.tile(key, (1, GROUP, 1, 1)) if order == "tiled" else key.repeat(GROUP, axis=1)
    expected = query @ repeated.swapaxes(2, 3)
    found = PjrtEngine().compile(module)(query, key)[0].to_numpy()
    if order == "keys first":
        found = found.swapaxes(2, 3)
    numpy.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_a_broadcast_that_also_transposes_stays() -> None:
    turned = f"{HEADS}x{BATCH}x{KEYS}x{WIDTH}"
    module = product("%r", REPEAT.replace("[0, 1, 3, 4]", "[1, 0, 3, 4]"), REPEATED, 3).replace(KEY, turned)
    query, key = operands()
    found = PjrtEngine().compile(module)(query, key.swapaxes(0, 1).copy())[0].to_numpy()
    expected = query @ key.repeat(GROUP, axis=1).swapaxes(2, 3)
    numpy.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


class Attention(nn.Module):
    """Attention that repeats key heads for the queries of their group, as transformers does."""

    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        key, value = (self.repeated(x) for x in (key, value))
        return F.scaled_dot_product_attention(query, key, value, is_causal=True)

    def repeated(self, x: torch.Tensor) -> torch.Tensor:
        batch, heads, rows, width = x.shape
        wide = x[:, :, None].expand(batch, heads, GROUP, rows, width)
        return wide.reshape(batch, heads * GROUP, rows, width)


class ByHand(Attention):
    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        key, value = (self.repeated(x) for x in (key, value))
        return (query @ key.transpose(2, 3)).softmax(-1) @ value


@pytest.mark.parametrize("model", [Attention(), ByHand()], ids=["fused", "by hand"])
def test_attention_and_its_gradients(model: nn.Module) -> None:
    torch.manual_seed(0)
    query = torch.randn(BATCH, HEADS * GROUP, KEYS, WIDTH, requires_grad=True)
    key, value = (torch.randn(BATCH, HEADS, KEYS, WIDTH, requires_grad=True) for _ in range(2))
    inputs = (query, key, value)
    expected = model(*inputs)
    module = build_program(model, inputs).module.serialize(hlo.resolve_version("current"))
    products = [line for line in rewritten(module).splitlines() if "dot_general" in line]
    assert [f"-> tensor<{BATCH}x{HEADS}x{GROUP}x" in line for line in products] == [True, True]
    torch.testing.assert_close(export(model, inputs)(*inputs), expected, rtol=1e-5, atol=1e-5)
    torch._dynamo.reset()
    found = torch.compile(model, backend="torchstone", fullgraph=True)(*inputs)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    weights = torch.randn_like(expected)
    torch.testing.assert_close(
        torch.autograd.grad((found * weights).sum(), inputs),
        torch.autograd.grad((expected * weights).sum(), inputs),
        rtol=1e-4,
        atol=1e-5,
    )
