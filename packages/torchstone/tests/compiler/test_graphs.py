"""Passes over FX graphs."""

from __future__ import annotations

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from torchstone.compiler.graphs import settle_inplace_views
from torchstone.parity.operators import run_graph


def squeezed(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    made = x + 1
    before = made * 2
    alias = made.squeeze_(0)
    return before, made.t_() * 3, made.unsqueeze_(0), alias


def test_views_in_place_become_views() -> None:
    x = torch.randn(1, 2, 3)
    module = make_fx(squeezed, tracing_mode="fake")(x)
    targets = {str(node.target) for node in module.graph.nodes}
    assert {"aten.squeeze_.dim", "aten.t_.default", "aten.unsqueeze_.default"} <= targets
    settle_inplace_views(module)
    targets = {str(node.target) for node in module.graph.nodes}
    assert {"aten.squeeze.dim", "aten.t.default", "aten.unsqueeze.default"} <= targets
    assert not any("_." in target for target in targets)
    for found, expected in zip(module(x), squeezed(x), strict=True):
        torch.testing.assert_close(found, expected)


def test_vector_times_matrix_without_functionalization() -> None:
    """PyTorch's matmul of a vector squeezes its result in place."""
    vector, matrix = torch.randn(4), torch.randn(4, 3)
    module = make_fx(lambda a, b: [torch.matmul(a, b)], tracing_mode="fake")(vector, matrix)
    assert "aten.squeeze_.dim" in {str(node.target) for node in module.graph.nodes}
    (found,) = run_graph(module, [vector, matrix])
    torch.testing.assert_close(torch.from_numpy(found.copy()), vector @ matrix)
