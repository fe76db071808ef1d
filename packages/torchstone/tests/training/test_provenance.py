"""The nodes of a traced step know their module, line and phase."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F

from torchstone.compiler.provenance import origin_of
from torchstone.torch_internals import pytree
from torchstone.torch_internals.operators import OpOverload
from torchstone.training.recipe import Recipe
from torchstone.training.state import State, split_numbers
from torchstone.training.trace import trace
from training_loops import batches, mlp


def traced(kind: str, *, lines: bool, penalty: bool = False) -> list[Any]:
    """The calls in the graph of a step of a small model."""

    def loss_fn(model: torch.nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        x = batch[0].detach().requires_grad_()
        loss = F.cross_entropy(model(x), batch[1])
        return torch.autograd.grad(loss, x, create_graph=True)[0].square().sum() if penalty else loss

    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    recipe = Recipe(model, optimizer, loss_fn)
    numbers, _ = split_numbers(optimizer)
    leaves, tree = pytree.tree_flatten((next(batches(1)),))
    found = trace(recipe, kind, State(recipe), numbers, leaves, tree, lines=lines)
    return [node for node in found.module.graph.nodes if isinstance(node.target, OpOverload)]


def modules_of(nodes: list[Any], name: str) -> set[str]:
    named = [node for node in nodes if node.target.overloadpacket.__name__ == name]
    assert named, {str(node.target) for node in nodes}
    return {[*node.meta["nn_module_stack"]][-1] for node in named}


def test_operators_belong_to_modules_and_derivatives_to_those_of_their_forward() -> None:
    nodes = traced("update", lines=False)
    assert modules_of(nodes, "addmm") == {"0", "2"}
    assert modules_of(nodes, "tanh") == modules_of(nodes, "tanh_backward") == {"1"}
    assert modules_of(nodes, "mm") == {"0", "2"}
    assert modules_of(nodes, "_log_softmax") == modules_of(nodes, "_log_softmax_backward_data") == {"(loss)"}
    assert modules_of(nodes, "nll_loss_backward") == {"(loss)"}
    assert "(optimizer)" in modules_of(nodes, "add")


def test_derivatives_of_derivatives_belong_to_modules_too() -> None:
    nodes = traced("accumulate", lines=False, penalty=True)
    assert sum("tanh_backward" in str(node.target) for node in nodes) > 1
    assert modules_of(nodes, "tanh_backward") == {"1"}
    assert not any("(optimizer)" in node.meta.get("nn_module_stack", {}) for node in nodes)


@pytest.mark.kept("add-optimizer-None", "tanh_backward-backward-1 (Tanh)")
@pytest.mark.parametrize(
    ("name", "phase", "module"),
    [
        ("tanh", "forward", "1 (Tanh)"),
        ("tanh_backward", "backward", "1 (Tanh)"),
        ("nll_loss_backward", "backward", None),
        ("add", "optimizer", None),
    ],
)
def test_lines_and_phases(name: str, phase: str, module: str | None) -> None:
    nodes = [node for node in traced("update", lines=True) if node.target.overloadpacket.__name__ == name]
    origins = [origin_of(node, "forward") for node in nodes]
    assert (phase, module) in {(one.phase, one.module) for one in origins}
    assert all(one.line for one in origins)
