"""Models whose weights are split over ranks, forward and backward, against the whole models."""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from torch.fx.experimental.proxy_tensor import make_fx

import torchstone
from rank_programs import run, values, world


class Copied(torch.autograd.Function):
    """Passes the input to a part that each rank computes for itself; the backward sums the gradients."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: Any) -> torch.Tensor:
        ctx.group = group
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return funcol.all_reduce(gradient, "sum", ctx.group), None


class Summed(torch.autograd.Function):
    """Sums what the ranks have computed; the backward gives the sum's gradient to each."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: Any) -> torch.Tensor:
        return funcol.all_reduce(x, "sum", group)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradient, None


def attention(x: torch.Tensor, qkv: torch.Tensor, out: torch.Tensor, heads: int) -> torch.Tensor:
    """Causal attention of ``heads`` heads with a width of 4; ``qkv`` is ``[3, heads * 4, features]``."""
    query, key, value = (
        (x @ weight.t()).unflatten(-1, (heads, 4)).transpose(-3, -2) for weight in qkv.unbind()
    )
    allowed = torch.ones(x.shape[-2], x.shape[-2], dtype=torch.bool).tril()
    scores = (query @ key.transpose(-1, -2) / 2).masked_fill(~allowed, -torch.inf)
    mixed = torch.softmax(scores, -1) @ value
    return mixed.transpose(-3, -2).flatten(-2) @ out.t()


def block(x: torch.Tensor, weights: dict[str, torch.Tensor], heads: int, group: Any = None) -> torch.Tensor:
    """Compute attention and a multilayer perceptron, or this rank's part of both."""

    def copied(x: torch.Tensor) -> torch.Tensor:
        return x if group is None else Copied.apply(x, group)

    def summed(x: torch.Tensor) -> torch.Tensor:
        return x if group is None else Summed.apply(x, group)

    x = x + summed(attention(copied(x), weights["qkv"], weights["out"], heads))
    hidden = torch.nn.functional.gelu(copied(x) @ weights["up"].t())
    return x + summed(hidden @ weights["down"].t())


SPLIT = {"qkv": 1, "out": 1, "up": 0, "down": 1}
"""The dimension along which ranks split each weight."""


def gradients(
    x: torch.Tensor, weights: dict[str, torch.Tensor], heads: int, group: Any = None
) -> tuple[torch.Tensor, ...]:
    """Return the loss, and the gradients of the input and of the weights."""
    leaves = [one.detach().requires_grad_() for one in (x, *weights.values())]
    loss = block(leaves[0], dict(zip(weights, leaves[1:], strict=True)), heads, group).square().mean()
    return (loss.detach(), *torch.autograd.grad(loss, leaves))


def test_tensor_parallel_block_forward_and_backward() -> None:
    x = torch.randn(2, 5, 16)
    shapes = {"qkv": (3, 16, 16), "out": (16, 16), "up": (32, 16), "down": (16, 32)}
    weights = {name: torch.randn(shape) * 0.2 for name, shape in shapes.items()}
    split = {name: weight.chunk(4, SPLIT[name]) for name, weight in weights.items()}
    parts = [{name: part[rank].contiguous() for name, part in split.items()} for rank in range(4)]
    with world(4):
        forward = run(lambda x, weights: block(x, weights, 1, dist.group.WORLD), [x] * 4, parts)
        # torch.export alone cannot trace a derivative that uses a result of the forward pass
        joint = make_fx(lambda x, weights: gradients(x, weights, 1, dist.group.WORLD), tracing_mode="fake")(
            x, parts[0]
        )
        backward = run(joint, [x] * 4, parts)
    expected, (loss, of_x, *of_weights) = block(x, weights, 4), gradients(x, weights, 4)
    for rank in range(4):
        torch.testing.assert_close(forward[rank], expected)
        torch.testing.assert_close(backward[rank][:2], (loss, of_x))
        for name, found, whole in zip(weights, backward[rank][2:], of_weights, strict=True):
            torch.testing.assert_close(found, whole.chunk(4, SPLIT[name])[rank])


def test_pytorchs_own_derivatives() -> None:
    xs, ws = values(torch.float64, 2, 4, 6), [torch.randn(6, 6, dtype=torch.float64)] * 2

    def gathered(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        w = w.detach().requires_grad_()
        y = funcol.all_gather_tensor_autograd(x @ w, 0, dist.group.WORLD)
        z = funcol.reduce_scatter_tensor_autograd(y.square(), "sum", 0, dist.group.WORLD)
        loss = funcol.all_to_all_single_autograd(z, [2, 2], [2, 2], dist.group.WORLD).pow(3).sum()
        return torch.autograd.grad(loss, w)[0]

    with world(2):
        results = run(gathered, xs, ws)
    w = ws[0].clone().requires_grad_()
    # both ranks gather all rows; a rank keeps a sum over ranks of them, which is twice the square of a row
    loss = sum((2 * (x @ w).square()).pow(3).sum() for x in xs)
    (expected,) = torch.autograd.grad(loss, w)
    torch.testing.assert_close(sum(results), expected)


def test_dtensors_of_parallelize_module() -> None:
    from torch.distributed.tensor import Shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        SequenceParallel,
        parallelize_module,
    )

    linears = torch.nn.Linear(8, 16), torch.nn.Linear(16, 8)
    whole = torch.nn.Sequential(torch.nn.LayerNorm(8), linears[0], torch.nn.GELU(), linears[1])
    x = torch.randn(4, 8)
    plan = {
        "0": SequenceParallel(sequence_dim=0),
        "1": ColwiseParallel(input_layouts=Shard(0)),
        "3": RowwiseParallel(output_layouts=Shard(0)),
    }
    programs = []
    for rank in range(2):
        with world(2, rank=rank) as mesh:
            part = parallelize_module(copy.deepcopy(whole), mesh, plan, src_data_rank=None)
            programs.append(torchstone.export(part, (x[:2],)))
    ranks = torchstone.Ranks(programs)
    results = ranks([(x[:2],), (x[2:],)])
    with torch.no_grad():
        torch.testing.assert_close(torch.cat(results), whole(x))
    state = ranks.state(1)
    assert state.keys() == dict(whole.named_parameters()).keys()
    torch.testing.assert_close(torch.tensor(state["1.weight"]), whole[1].weight.detach()[8:])


class Split(torch.nn.Module):
    """Two linear layers, the first split by columns, the second by rows; without a group they are whole."""

    def __init__(self, up: torch.Tensor, down: torch.Tensor, group: Any = None) -> None:
        super().__init__()
        self.up, self.down = torch.nn.Parameter(up.clone()), torch.nn.Parameter(down.clone())
        self.group = group

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = torch.relu(x @ self.up) @ self.down
        return made if self.group is None else Summed.apply(made, self.group)


def test_a_training_step_of_a_tensor_parallel_model() -> None:
    up, down = torch.randn(6, 8), torch.randn(8, 3)
    batches = [(torch.randn(4, 6), torch.randn(4, 3)) for _ in range(3)]
    loss_fn = torch.nn.functional.mse_loss

    whole = Split(up, down)
    optimizer = torch.optim.AdamW(whole.parameters(), lr=0.1)
    losses = []
    for x, y in batches:
        loss = loss_fn(whole(x), y)
        losses.append(loss.detach())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    programs = []
    with world(2):
        for columns, its_rows in zip(up.chunk(2, 1), down.chunk(2), strict=True):
            part = Split(columns, its_rows, dist.group.WORLD)
            of_part = torch.optim.AdamW(part.parameters(), lr=0.1)
            programs.append(torchstone.export_step(part, of_part, loss_fn, batches[0]))
    ranks = torchstone.Ranks(programs)
    for batch, loss in zip(batches, losses, strict=True):
        torch.testing.assert_close(ranks([batch, batch]), [loss, loss])
    states = [ranks.state(rank) for rank in range(2)]
    for name, axis in (("up", 1), ("down", 0)):
        trained = torch.cat([torch.tensor(state[name]) for state in states], axis)
        torch.testing.assert_close(trained, whole.get_parameter(name).detach())
    assert states[0]["optimizer.state.up.exp_avg"].shape == (6, 4)
