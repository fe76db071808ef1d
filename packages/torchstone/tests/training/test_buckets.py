"""Batches padded to buckets: they train as without padding, in few programs, or are refused."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import torchstone
from torchstone.errors import TrainingError
from training_loops import assert_same_training, batches, eager_step, mlp

Tensor = torch.Tensor

by_row = partial(F.cross_entropy, reduction="none")


@pytest.mark.kept("mean-momentum")
@pytest.mark.parametrize("kind", ["momentum", "AdamW"])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_training_equals_training_without_padding(reduction: Any, kind: str) -> None:
    model = mlp()
    expected = copy.deepcopy(model)
    make: Any = torch.optim.AdamW if kind == "AdamW" else partial(torch.optim.SGD, momentum=0.9)
    optimizer, other = (make(one.parameters(), lr=0.01) for one in (model, expected))
    step = torchstone.compile_step(model, optimizer, by_row, buckets=(32, 8), reduction=reduction)
    loss_fn = partial(F.cross_entropy, reduction=reduction)
    for size in (8, 32, 2, 7, 8, 9, 31, 3):
        inputs, targets = next(batches(1, size))
        found = step(inputs, targets)
        torch.testing.assert_close(found, eager_step(expected, other, inputs, targets, loss_fn))
    assert_same_training(model, optimizer, expected, other)
    assert step.programs == 3  # the first makes the optimizer's state
    step(*next(batches(1, 1)))
    assert step.programs == 4  # a single row is not padded


class Transformer(nn.Module):
    """A model with attention, convolution, an evaluated and an instance norm, which all keep rows apart."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(11, 8)
        self.places = nn.Parameter(torch.randn(5, 8))
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.conv = nn.Conv1d(8, 8, 3, padding=1)
        self.norms = nn.ModuleList([nn.BatchNorm1d(8).eval(), nn.InstanceNorm1d(8, affine=True)])
        self.norms.append(nn.GroupNorm(2, 8))
        self.out = nn.Linear(8, 11)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.layer(self.embed(tokens) + self.places[: tokens.shape[1]])
        image = self.conv(hidden.transpose(1, 2))
        for norm in self.norms:
            image = norm(image)
        scores: Tensor = self.out(F.max_pool1d(image, 3, 1, 1).transpose(1, 2))
        return scores - scores.logsumexp(-1, keepdim=True)


@pytest.mark.conformance
def test_losses_of_tokens_and_what_else_comes_back() -> None:
    model = Transformer()
    expected = copy.deepcopy(model)
    optimizer, other = (torch.optim.SGD(one.parameters(), lr=0.1) for one in (model, expected))

    def losses(model: nn.Module, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        scores = model(batch["tokens"])
        found = F.nll_loss(scores.flatten(0, 1), batch["tokens"].flatten(), reduction="none")
        return {"loss": found, "best": scores.argmax(-1), "bias": model.out.bias.sum()}

    step = torchstone.compile_step(model, optimizer, losses, buckets=[6])
    for size in (6, 4, 2):
        batch = {"tokens": torch.randint(0, 11, (size, 5))}
        found = step(batch)
        wanted = losses(expected, batch)
        other.zero_grad()
        wanted["loss"].mean().backward()
        other.step()
        torch.testing.assert_close(found["loss"], wanted["loss"].mean())
        torch.testing.assert_close(found["best"], wanted["best"])
        torch.testing.assert_close(found["bias"], wanted["bias"])
    assert_same_training(model, optimizer, expected, other)
    assert step.programs == 1


def test_padding_is_as_finite_as_the_batch() -> None:
    """Padding rows with zeros would make the gradients NaN."""
    model = mlp()
    expected = copy.deepcopy(model)
    optimizer, other = (torch.optim.SGD(one.parameters(), lr=0.1) for one in (model, expected))

    def losses(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        return by_row(model(batch[0] / batch[0].norm(dim=1, keepdim=True)).div(batch[0][:, :1]), batch[1])

    step = torchstone.compile_step(model, optimizer, losses, buckets=[8], clip_norm=1.0)
    for number, batch in enumerate(batches(2, 5)):
        (step.accumulate if number == 0 else step)(batch)
        losses(expected, batch).mean().backward()
    torch.nn.utils.clip_grad_norm_(expected.parameters(), 1.0)
    other.step()
    assert_same_training(model, optimizer, expected, other)


def test_memory_order_is_kept() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(64, 3))
    step = torchstone.compile_step(model, torch.optim.SGD(model.parameters()), by_row, buckets=[4])
    for size in (4, 3):
        images = torch.randn(size, 3, 6, 6).to(memory_format=torch.channels_last)
        step(images, torch.randint(0, 3, (size,)))
    assert step.programs == 1


def batch_norm() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 3), nn.BatchNorm1d(3))


def through(function: Callable[[Tensor], Tensor]) -> Callable[[], nn.Module]:
    """A model that passes its batch through ``function``."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 3)
            self.table = nn.Parameter(torch.randn(64, 8))

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.layer(function(x))
            return out

    return Model


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (batch_norm, r"native_batch_norm\.default mixes its rows"),
        (through(lambda x: x - x.mean(0)), r"mean\.dim mixes its rows, .* at .*test_buckets\.py:\d+"),
        (through(lambda x: x.softmax(0)), r"_softmax\.default mixes"),
        (through(lambda x: x @ x.T @ x), "mixed in a tensor of shape"),
        (through(lambda x: x.flip(0)), r"flip\.default mixes"),
        (through(lambda x: x.roll(1, 0)), r"roll\.default mixes"),
        (through(lambda x: x.cumsum(0)), r"cumsum\.default mixes"),
        (through(lambda x: x.sort(0).values), r"sort\.default mixes"),
        (through(lambda x: x.sort(dim=0, stable=True).values), r"sort\.stable mixes"),
        (through(lambda x: x[torch.arange(x.shape[0])]), r"index\.Tensor mixes"),
        (through(lambda x: torch.cat([x, x])[::2]), r"cat\.default mixes"),
        (through(lambda x: x.repeat(2, 1)[::2]), r"repeat\.default mixes"),
        (through(lambda x: x.T.contiguous().view(x.shape[0], 8)), r"view\.default mixes"),
        (through(lambda x: x.view(2, -1, 8).transpose(0, 1).reshape(-1, 8)), "mixed in a tensor of shape"),
        (through(lambda x: x + torch.full_like(x, x.shape[0])), "full_like.default .*on their number"),
        (through(lambda x: x / x.shape[0]), r"div\.Tensor mixes its rows, or depends on their number"),
        (through(lambda x: x if x.shape[0] < 7 else -x), "looks at the number of its rows"),
        (through(lambda x: x * len(x)), "looks at the number of its rows"),
        (through(lambda x: x[x[:, 0] > 0]), "rows"),
        (through(lambda x: x.erfinv().cummax(1).values), r"nothing says whether aten\.cummax\.default"),
    ],
)
def test_models_that_mix_rows_are_refused(make: Callable[[], nn.Module], message: str) -> None:
    model = make()
    step = torchstone.compile_step(model, torch.optim.SGD(model.parameters()), by_row, buckets=[8])
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(TrainingError, match=message) as refused:
        step(torch.randn(8, 8), torch.randint(0, 3, (8,)))
    assert "leave buckets out" in str(refused.value)
    torch.testing.assert_close(model.state_dict(), before)


@pytest.mark.parametrize(
    ("buckets", "batch", "message"),
    [
        ([0], None, r"buckets=\[0\] are not numbers of rows"),
        ([], None, "give positive integers"),
        ([2.5], None, "are not numbers of rows"),
        ([8], (torch.randn(9, 8), torch.zeros(9).long()), "has 9 rows, and the largest bucket 8"),
        ([8], (torch.randn(4, 8), torch.zeros(5).long()), "these have 4, 5"),
        ([8], (torch.randn(0, 8), torch.zeros(0).long()), "these have 0, 0"),
        ([8], (torch.randn(()), torch.randn(())), "these have none"),
    ],
)
def test_bad_buckets_and_batches(buckets: Any, batch: Any, message: str) -> None:
    model = mlp()
    with pytest.raises(TrainingError, match=message):
        torchstone.compile_step(model, torch.optim.SGD(model.parameters()), by_row, buckets=buckets)(*batch)


def test_bad_losses() -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters())
    with pytest.raises(TrainingError, match="'none' is unknown"):
        torchstone.compile_step(model, optimizer, by_row, buckets=[8], reduction="none")  # type: ignore[arg-type]
    step = torchstone.compile_step(model, optimizer, F.cross_entropy, buckets=[8])
    with pytest.raises(TrainingError, match=r"nll_loss_forward\.default mixes its rows"):
        step(*next(batches(1, 8)))
    step = torchstone.compile_step(model, optimizer, lambda _, y: model[0].bias + y.sum(), buckets=[8])
    with pytest.raises(TrainingError, match=r"sum\.default mixes its rows"):
        step(*next(batches(1, 8)))
    step = torchstone.compile_step(model, optimizer, lambda *_: model[0].bias, buckets=[8])
    with pytest.raises(TrainingError, match=r"returns the losses of all rows, not \[16\]"):
        step(*next(batches(1, 8)))
