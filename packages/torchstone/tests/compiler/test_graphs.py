"""Passes over FX graphs."""

from __future__ import annotations

import torch
from torch.fx.experimental.proxy_tensor import make_fx

import torchstone
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


def test_as_strided_of_a_view_reads_the_memory_around_it() -> None:
    def function(x: torch.Tensor, z: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x + 1
        return (
            x.t().as_strided((2, 3), (1, 4)),
            x[1:].as_strided((2, 2), (4, 1)),
            x[:, 1:].as_strided((2, 2), (4, 1), 0),
            x.view(-1)[3:].as_strided((3,), (2,)),
            y[:, 2].as_strided((3, 2), (4, 1)),
            torch.as_strided_copy(y[2], (2, 2), (4, 2), 1),
            torch.view_as_real(z).as_strided((2,), (2,), 0),
        )

    args = (torch.arange(12.0).reshape(3, 4), torch.randn(3, dtype=torch.complex64))
    torch.testing.assert_close(torchstone.export(function, args)(*args), function(*args))
