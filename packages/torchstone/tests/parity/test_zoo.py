"""Every model of the inventory: its artifact and its gradients against eager PyTorch.

``make test`` runs some of each family, ``make conformance`` all.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from stratified import stratified

from torchstone.errors import EngineError
from torchstone.parity import inventory, zoo
from torchstone.parity.alike import tensors
from torchstone.parity.compilation import compiled
from torchstone.parity.examples import check_backward, check_forward, check_fresh
from torchstone.parity.model import load_model
from torchstone.parity.subject import Subject

MODELS = list(zoo.INVENTORY.values())
TRAINED = [model for model in MODELS if model.make().trains]
SHARE = 10
"""In each family, `make test` runs one of this many models."""

IN_DOUBLE = frozenset({"fft"})
"""Families that run on the reference interpreter in float64 only: it has no FFT of 32-bit values."""


def some(models: list[zoo.ZooModel]) -> list[zoo.ZooModel]:
    """Return one in ``SHARE`` of each family, and all trained models that need a capture rule."""
    chosen = stratified(models, SHARE, name=lambda one: one.name, stratum=lambda one: one.family)
    return [one for one in models if one in chosen or (one.make().ruled and one in TRAINED)]


def third_of_each_family() -> list[zoo.ZooModel]:
    return stratified(MODELS, 3, name=lambda one: one.name, stratum=lambda one: one.family)


def named(models: list[zoo.ZooModel]) -> list[object]:
    return [pytest.param(model, id=f"{model.family}-{model.name}") for model in models]


def agree(comparisons: list[object]) -> None:
    assert comparisons
    wrong = [c.describe() for c in comparisons if not c.passed]  # type: ignore[attr-defined]
    assert not wrong, "\n".join(wrong)


def test_the_zoo_is_the_inventory() -> None:
    listed = [(entry.family, entry.name) for entry in inventory.models()]
    assert sorted((model.family, model.name) for model in MODELS) == sorted(listed)
    assert len(listed) == 162
    assert all(model.documentation for model in MODELS)


def test_a_model_has_a_name_for_commands() -> None:
    loaded = load_model("lstm_cell")
    assert isinstance(loaded.model, torch.nn.LSTMCell)
    assert len(loaded.args) == 2


def test_a_model_is_the_same_at_every_call() -> None:
    before = torch.random.get_rng_state()
    for name in ("attention", "sparse", "loss"):
        model = next(model for model in MODELS if model.family == name)
        first, again = model.make(), model.make()
        for one, other in zip(tensors(first.args), tensors(again.args), strict=True):
            assert torch.equal(one, other)
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.sampled(6)
@pytest.mark.parametrize("model", named(some(MODELS)))
def test_forward(model: zoo.ZooModel) -> None:
    agree(check_forward(model.make()))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("model", named(some(TRAINED)))
def test_backward(model: zoo.ZooModel) -> None:
    agree(check_backward(model.make()))


@pytest.mark.conformance
@pytest.mark.parametrize("model", named(MODELS))
def test_forward_all(model: zoo.ZooModel) -> None:
    agree(check_forward(model.make()))


@pytest.mark.conformance
@pytest.mark.parametrize("model", named(TRAINED))
def test_backward_all(model: zoo.ZooModel) -> None:
    agree(check_backward(model.make()))


@pytest.mark.conformance
@pytest.mark.parametrize("family", sorted({model.family for model in MODELS}))
def test_a_fresh_process(family: str) -> None:
    found = check_fresh([model for model in MODELS if model.family == family])
    for comparisons in found.values():
        agree(comparisons)  # type: ignore[arg-type]


@pytest.mark.conformance
@pytest.mark.parametrize("model", named(third_of_each_family()))
def test_the_reference_interpreter(model: zoo.ZooModel) -> None:
    example = model.make()
    if model.family in IN_DOUBLE:
        wide = Subject(example.model, example.args, {}).doubled()
        example = replace(example, model=wide.model, args=wide.args)
    agree(check_forward(example, engine="reference"))


def test_what_runs_on_the_interpreter_in_double_does_not_in_single_precision() -> None:
    with pytest.raises(EngineError, match=r"stablehlo\.fft of 32-bit values"):
        check_forward(zoo.INVENTORY["rfft"].make(), engine="reference")


DROPPED = 0.1
"""The dropout probability of the models with dropout."""


def test_dropout_of_an_embedding() -> None:
    model, (tokens,) = zoo.INVENTORY["embedding_with_dropout"]()
    assert isinstance(model, torch.nn.Module)
    model.train()
    table = model[0].weight  # type: ignore[index]
    function = compiled(model)
    torch.manual_seed(1)
    many = tokens.repeat(60, 1)
    result = function(many)
    dropped = (result == 0).double().mean().item()
    assert dropped == pytest.approx(DROPPED, abs=0.02)
    torch.testing.assert_close(result[result != 0], (table[many] / (1 - DROPPED))[result != 0])
    (gradient,) = torch.autograd.grad(result.sum(), table)
    expected = torch.zeros_like(table)
    expected.index_add_(0, many.flatten(), ((result != 0) / (1 - DROPPED)).flatten(0, 1))
    torch.testing.assert_close(gradient, expected)
    assert not torch.equal(result, function(many))


@pytest.mark.parametrize("name", ["sdpa_dropout", "mha_dropout"])
def test_dropout_of_attention(name: str) -> None:
    model, args = zoo.INVENTORY[name]()
    assert isinstance(model, torch.nn.Module)
    expected = tensors(model(*args))[0]
    function = compiled(model.train())
    torch.manual_seed(1)
    runs = torch.stack([tensors(function(*args))[0].detach() for _ in range(400)])
    assert not torch.equal(runs[0], runs[1])
    # The mean over runs is the result without dropout, within five standard errors nearly everywhere.
    error = (runs.mean(0) - expected).abs() / (runs.std(0) / len(runs) ** 0.5 + 1e-6)
    assert (error < 5).float().mean() > 0.99
