"""Verification notices what is wrong, and passes what is right."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from torchstone.lowering import load, registry
from torchstone.parity import zoo
from torchstone.parity.model import Model, load_model
from torchstone.parity.verify import Verification, verify

aten = torch.ops.aten


def model(module: Callable[..., Any], *args: Any, **kwargs: Any) -> Model:
    return Model("the model of a test", module, args, kwargs)


def reasons(found: Verification) -> str:
    """Why a verification failed, for an assertion's message."""
    failures = [f"{check.stage} {check.name}: {check.comparison.describe()}" for check in found.failures]
    return "\n".join([*failures, *found.errors.values()])


@pytest.fixture
def wrong_sine(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """``sin`` is lowered as ``cos``."""
    right = load().get(aten.sin.default)
    wrong = load().get(aten.cos.default)
    assert right is not None
    assert wrong is not None
    registry.remove(aten.sin.default)
    registry.add(type(right)(**{**vars_of(right), "function": wrong.function}))
    yield
    registry.remove(aten.sin.default)
    registry.add(right)


def vars_of(lowering: Any) -> dict[str, Any]:
    return {name: getattr(lowering, name) for name in lowering.__dataclass_fields__}


@pytest.mark.usefixtures("wrong_sine")
def test_a_wrong_lowering_is_noticed_in_every_stage() -> None:
    # The derivative of sin is cos, which is right. That of sin(sin(x)) contains sin, so it is wrong.
    found = verify(model(lambda x: x.sin().sin(), torch.tensor([0.5, 1.0, 2.0])))
    assert not found.passed
    assert {check.stage for check in found.failures} == {"artifact", "compiled", "gradients"}
    assert found.errors == {}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
def test_dtypes(dtype: Any) -> None:
    found = verify(load_model("mlp"), dtype=dtype, gradients=dtype in ("float32", "bfloat16"))
    assert found.passed, reasons(found)
    rules = {check.comparison.passed_by for check in found.checks}
    assert rules == ({"accuracy"} if dtype in ("bfloat16", "float16") else {"tolerance"})
    (output,) = [check.comparison for check in found.checks if check.stage == "artifact"]
    assert output.dtype == dtype


def test_batch_norm_trains_and_its_buffers_are_compared() -> None:
    found = verify(model(nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3)), torch.randn(4, 2, 5, 5)))
    assert found.passed, reasons(found)
    names = {check.name for check in found.checks if check.stage == "gradients"}
    assert names == {
        *("0.weight", "0.bias", "1.weight", "1.bias"),
        *("buffer 1.running_mean", "buffer 1.running_var", "buffer 1.num_batches_tracked"),
    }
    counted = next(check for check in found.checks if check.name == "buffer 1.num_batches_tracked")
    assert counted.comparison.passed_by == "exact"


def test_dropout_is_noticed_and_the_model_is_left_as_it_was() -> None:
    module = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5)).train()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    found = verify(model(module, torch.randn(8, 3)))
    assert found.passed, reasons(found)
    assert found.notes == ["random in training mode (dropout?): gradients are compared in evaluation mode"]
    assert module.training
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
    assert all(parameter.grad is None for parameter in module.parameters())


def test_a_function_is_differentiated_by_its_inputs() -> None:
    found = verify(
        model(lambda x, n, *, y: (x * y + n).exp(), torch.ones(2), torch.tensor(1), y=torch.zeros(2))
    )
    assert found.passed, reasons(found)
    assert [check.name for check in found.checks if check.stage == "gradients"] == ["input 0", "input 2"]


def test_nothing_to_differentiate_is_said() -> None:
    found = verify(model(lambda n: n + 1, torch.arange(3)))
    assert found.passed, reasons(found)
    assert found.notes == ["not compared (gradients): no parameters, no floating-point inputs"]


def test_inputs_that_eager_does_not_differentiate_are_left_out() -> None:
    found = verify(
        model(torch.nn.functional.soft_margin_loss, torch.randn(3), torch.tensor([1.0, -1.0, 1.0]))
    )
    assert found.passed, reasons(found)
    assert [check.name for check in found.checks if check.stage == "gradients"] == ["input 0"]
    assert found.notes == ["eager PyTorch does not differentiate input 1"]


@pytest.mark.parametrize(
    ("name", "left_out"),
    [("embedding_sparse", "step"), ("semi_structured_sparse", "gradients, training, step")],
)
def test_models_of_the_inventory_that_train_in_part(name: str, left_out: str) -> None:
    found = verify(load_model(name), steps=2)
    assert found.passed, reasons(found)
    assert any(note.startswith(f"not compared ({left_out}): ") for note in found.notes)


def test_a_graph_break_is_counted() -> None:
    def breaks(x: torch.Tensor) -> torch.Tensor:
        if torch.compiler.is_dynamo_compiling():
            torch._dynamo.graph_break()
        print(end="")
        return x.sin() + 1

    found = verify(model(breaks, torch.ones(2)), gradients=False)
    assert found.compilation.deliberate_breaks == 1
    assert found.compilation.breaks.total() == 1


@pytest.mark.parametrize(
    "name",
    [
        "to_sparse_csr",
        *(
            pytest.param(name, marks=pytest.mark.conformance)
            for name in ("one_hot_dynamic", "semi_structured_sparse", "sparse_indices", "quantized_add")
        ),
    ],
)
def test_capture_rules_hold_in_every_stage(name: str) -> None:
    found = verify(load_model(name))
    assert found.passed, reasons(found)
    assert not found.compilation.breaks
    assert {check.stage for check in found.checks} >= {"artifact", "compiled"}
    assert any("because of the capture rules for" in note for note in found.notes)


def test_gradients_that_stay_in_eager_are_named_by_the_model() -> None:
    given = load_model("embedding_sparse")
    found = verify(given)
    assert found.passed, reasons(found)
    assert set(found.compilation.fallbacks) == set(given.in_eager)
    assert not verify(replace(given, in_eager=())).passed


def test_a_model_that_eager_cannot_run() -> None:
    found = verify(model(lambda x: x @ x, torch.ones(2, 3)))
    assert not found.passed
    assert "eager PyTorch cannot run the model: RuntimeError: mat1 and mat2" in found.errors["artifact"]


SMALL: dict[str, Callable[[], Any]] = {
    "resnet18": lambda: zoo.resnet18(size=32),
    "bert": lambda: zoo.bert(layers=2, width=64),
    "gpt2": lambda: zoo.gpt2(layers=2, width=64),
    "vit": lambda: zoo.vit(layers=2, width=64),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", SMALL)
def test_a_small_transformer(name: str) -> None:
    pytest.importorskip("transformers", reason="the extra torchstone[models] is not installed")
    module, args = SMALL[name]()
    found = verify(model(module, *args), gradients=name == "bert")
    assert found.passed, reasons(found)
    assert found.compilation.breaks.total() == 0


@pytest.mark.conformance
@pytest.mark.parametrize("name", zoo.MODELS)
def test_the_zoo(name: str) -> None:
    found = verify(load_model(name))
    assert found.passed, reasons(found)
    assert found.compilation.breaks.total() == 0


@pytest.mark.conformance
def test_bert_under_bfloat16_autocast() -> None:
    found = verify(load_model("bert"), dtype="bfloat16")
    assert found.passed, reasons(found)
