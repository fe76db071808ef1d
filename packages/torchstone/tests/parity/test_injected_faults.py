"""Parity notices wrong and missing terms of a realistic size in all that it compares, in both precisions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import nn

from torchstone import hlo
from torchstone.lowering import load
from torchstone.parity import steps, verify
from torchstone.parity.faults import Fault
from torchstone.parity.faults.broken import in_place
from torchstone.parity.model import Model
from torchstone.parity.subject import Subject
from torchstone.parity.verification import DType, Verification


class Attention(nn.Module):
    """A transformer layer."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(32), nn.LayerNorm(32)
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)
        self.wide, self.narrow = nn.Linear(32, 64), nn.Linear(64, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = self.qkv(self.before(x)).chunk(3, -1)
        q, k, v = (one.unflatten(-1, (4, 8)).transpose(1, 2) for one in parts)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v)
        x = x + self.out(mixed.transpose(1, 2).flatten(-2))
        return x + self.narrow(nn.functional.gelu(self.wide(self.between(x))))


def attention() -> Model:
    torch.manual_seed(0)
    return Model("attention", Attention(), (torch.randn(4, 16, 32),))


def convolutions() -> Model:
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(800, 10)]
    return Model("convolutions", nn.Sequential(*layers), (torch.randn(8, 3, 12, 12),))


FORWARD = {"artifact", "compiled"}
TRAINED = {"loss", "gradient", "update", "optimizer's"}
BACKWARD = {"gradients", "gradient", "update", "optimizer's"}
"""What differs with a wrong backward. A loss does not show one percent of two small updates."""


def scaled(factor: float) -> Fault:
    return Fault("scaled", "", result=lambda x: x * factor, concerns=lambda one: one.dtype.is_floating)


def noticed(found: Verification) -> set[str]:
    """Return the stages without training that differ, and what differs in both kinds of training."""
    assert found.errors == {}
    kinds: dict[str, set[str]] = {"training": set(), "step": set()}
    for one in found.failures:
        name = one.name.removeprefix("size of ")
        if one.stage in kinds:
            kinds[one.stage].add(name.split(" ")[0])
        else:
            kinds.setdefault("buffer" if name.startswith("buffer") else one.stage, set())
    return (kinds.keys() - {"training", "step"}) | (kinds["training"] & kinds["step"])


@pytest.mark.conformance
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("make", [attention, convolutions])
def test_without_a_fault_they_pass(make: Callable[[], Model], dtype: DType) -> None:
    found = verify.verify(make(), dtype=dtype, steps=2)
    assert noticed(found) == set()
    assert found.passed


@pytest.mark.kept("-float32-convolution.default--")
@pytest.mark.parametrize(
    ("make", "dtype", "operator", "fault", "expected"),
    [
        (attention, "float32", "gelu.default", scaled(1.01), {*FORWARD, "gradients", *TRAINED}),
        (attention, "float32", "gelu_backward.default", scaled(1.01), BACKWARD),
        (attention, "float32", "native_layer_norm_backward.default", scaled(0.99), BACKWARD),
        (convolutions, "float32", "convolution.default", scaled(1.01), {*FORWARD, "buffer", *TRAINED}),
        (attention, "bfloat16", "addmm.default", scaled(1.01), {"gradients", *TRAINED}),
        (attention, "bfloat16", "gelu_backward.default", scaled(1.05), {"gradients", "gradient", "update"}),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_a_lowering_that_is_off_by_a_little(
    make: Callable[[], Model], dtype: DType, operator: str, fault: Fault, expected: set[str]
) -> None:
    lowering = next(one for one in load() if one.name == f"aten.{operator}")
    with in_place(lowering, fault):
        assert noticed(verify.verify(make(), dtype=dtype, steps=2)) >= expected


def without_first(x: hlo.Value) -> hlo.Value:
    """Return ``x`` with zeros in its first row."""
    return hlo.pad_axis(hlo.slice_axis(x, 0, 1, x.shape[0]), 0, 0, 1, 0)


@pytest.mark.conformance
def test_a_sum_that_lacks_the_first_sample() -> None:
    """The gradient of a bias lacks one of its eight summands."""
    fault = Fault("lacks", "", operand=without_first, concerns=lambda one: one.dtype.is_floating)
    lowering = next(one for one in load() if one.name == "aten.sum.dim_IntList")
    with in_place(lowering, fault):
        found = noticed(verify.verify(convolutions(), steps=2))
    assert found >= {"gradients", "gradient", "update", "optimizer's"}


@pytest.mark.conformance
@pytest.mark.parametrize(
    ("dtype", "kind", "factor"),
    [
        *(("float32", kind, 1.01) for kind in (*sorted(TRAINED), "parameter", "buffer")),
        *(("bfloat16", kind, 1.05) for kind in (*sorted(TRAINED), "parameter", "buffer")),
    ],
)
def test_a_value_of_training_that_is_off_by_a_little(
    monkeypatch: pytest.MonkeyPatch, dtype: DType, kind: str, factor: float
) -> None:
    right: Mapping[str, Callable[..., Any]] = {
        name: getattr(steps, name) for name in ("compiled_values", "step_values")
    }

    def wrong(name: str) -> Callable[..., dict[str, torch.Tensor]]:
        def values(*arguments: Any) -> dict[str, torch.Tensor]:
            found = right[name](*arguments)
            return {
                name: value * factor if name.startswith(kind) and value.is_floating_point() else value
                for name, value in found.items()
            }

        return values

    for name in right:
        monkeypatch.setattr(verify, name, wrong(name))
    assert noticed(verify.verify(convolutions(), dtype=dtype, steps=2)) == {kind}


class Lacking(nn.Module):
    """Uses one weight eight times, and has a small second result; ``lacks`` names the part to leave out."""

    def __init__(self) -> None:
        super().__init__()
        self.lacks = ""
        self.shared, self.small = nn.Linear(16, 16, bias=False), nn.Linear(16, 4)
        self.norm = nn.BatchNorm1d(16)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h = x
        for turn in range(8):
            weight = self.shared.weight
            if turn == 0 and self.lacks == "summand":
                weight = weight.detach()
            h = h + 0.2 * torch.tanh(h @ weight)
        norm = self.norm
        if self.lacks == "buffer" and self.training:
            y = nn.functional.batch_norm(h, None, None, norm.weight, norm.bias, training=True)
        else:
            y = norm(h)
        small = 0.3 * self.small(h)
        return y, small.detach() if self.lacks == "term" else small


def lacking() -> Model:
    torch.manual_seed(0)
    return Model("lacking", Lacking(), (torch.randn(32, 16),))


@pytest.mark.kept("buffer-expected2")
@pytest.mark.parametrize(
    ("lacks", "expected"),
    [
        ("", set()),
        ("summand", {"gradients", "gradient", "update", "optimizer's"}),
        ("buffer", {"buffer"}),
        ("term", {"error"}),
    ],
)
def test_a_part_of_training_that_is_missing(
    monkeypatch: pytest.MonkeyPatch, lacks: str, expected: set[str]
) -> None:
    """Omit one of eight summands of a gradient, the update of a buffer, or one of two terms of the loss."""
    _compile_without(monkeypatch, lacks)
    found = verify.verify(lacking(), steps=2)
    assert found.passed == (not lacks)
    if expected == {"error"}:  # a parameter gets no gradient
        assert set(found.errors) == {"gradients", "training", "step"}
        assert all("small.bias" in text or "small.weight" in text for text in found.errors.values())
    else:
        assert noticed(found) >= expected


def _compile_without(monkeypatch: pytest.MonkeyPatch, lacks: str) -> None:
    """Make every way to compile the model omit the part ``lacks``."""

    def lacking(subject: Subject) -> Subject:
        assert isinstance(subject.model, Lacking)
        subject.model.lacks = lacks
        return subject

    through_compile, step_values = Subject.compiled, steps.step_values
    monkeypatch.setattr(Subject, "compiled", lambda own, **options: through_compile(lacking(own), **options))
    monkeypatch.setattr(verify, "step_values", lambda own, *rest: step_values(lacking(own), *rest))


@pytest.mark.conformance
@pytest.mark.parametrize("kind", ["optimizer's", "buffer", "parameter", "loss"])
def test_a_value_of_training_that_is_stale(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """The last step returns the value that the step before wrote."""

    def stale(name: str) -> Callable[..., dict[str, torch.Tensor]]:
        right = getattr(steps, name)

        def values(subject: Subject, optimizer: str, count: int, *rest: Any) -> dict[str, torch.Tensor]:
            before = right(subject.copy(training=True), optimizer, count - 1, *rest)
            found = right(subject, optimizer, count, *rest)
            last = {f"loss {count - 1}": before.get(f"loss {count - 2}")} if kind == "loss" else before
            return {**found, **{name: one for name, one in last.items() if name.startswith(kind)}}

        return values

    for name in ("compiled_values", "step_values"):
        monkeypatch.setattr(verify, name, stale(name))
    monkeypatch.setattr(verify, "STAGES", ())  # the stages without training do not show this
    found = verify.verify(lacking(), steps=3)
    assert noticed(found) == {kind}
