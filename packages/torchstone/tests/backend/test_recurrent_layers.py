"""Layers of LSTMs that eager PyTorch's own kernel runs, where that was measured to be faster."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

import torchstone
from torchstone.backend import recurrent_layers
from torchstone.backend.records import GraphRecord, recorded
from torchstone.config import override
from torchstone.errors import UnsupportedOperators
from torchstone.runtime.decisions import Decision, Decisions

FORWARD, BACKWARD = "torchstone.onednn_lstm.default", "torchstone.onednn_lstm_backward.default"


class Network(nn.Module):
    """An LSTM between compiled operators."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.lstm = nn.LSTM(6, 5, **options)
        self.head = nn.LazyLinear(3)
        self(torch.zeros(2, 2, 6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output, (h, c) = self.lstm(x.sin())
        return self.head(output).cos() + h.sum() + c.mean()


@pytest.fixture(autouse=True)
def every_layer(monkeypatch: pytest.MonkeyPatch, tuning: None) -> None:
    """Make every layer count as large enough to be measured."""
    monkeypatch.setattr(recurrent_layers, "_SMALL", 0)


@pytest.fixture
def onednn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make measuring prefer eager PyTorch's kernel."""
    monkeypatch.setattr(Decisions, "best", lambda *_, **__: Decision("oneDNN"))


def preferred(records: list[GraphRecord]) -> dict[str, dict[str, int]]:
    return {record.kind: {node.overload: node.count for node in record.preferred} for record in records}


NETWORKS: dict[str, dict[str, Any]] = {
    "one layer": {},
    "two layers": {"num_layers": 2},
    "both directions": {"bidirectional": True, "num_layers": 2},
    "without biases": {"bias": False},
    "batch first": {"batch_first": True},
}


@pytest.mark.kept("both directions")
@pytest.mark.usefixtures("onednn")
@pytest.mark.parametrize("name", NETWORKS)
def test_results_and_gradients_are_those_of_eager(name: str) -> None:
    options = NETWORKS[name]
    model = Network(**options)
    layers = options.get("num_layers", 1) * (2 if options.get("bidirectional") else 1)
    compiled = torch.compile(model, backend="torchstone", fullgraph=True)
    x = torch.randn(4, 3, 6)
    with recorded() as records:
        with torch.no_grad():
            torch.testing.assert_close(compiled(x), model(x))
        inputs = [x.clone().requires_grad_(), *model.parameters()]
        ours = torch.autograd.grad(compiled(inputs[0]).square().sum(), inputs)
    torch.testing.assert_close(ours, torch.autograd.grad(model(inputs[0]).square().sum(), inputs))
    assert preferred(records) == {
        "inference": {FORWARD: layers},
        "forward": {FORWARD: layers},
        "backward": {BACKWARD: layers},
    }
    assert not any(record.fallbacks for record in records)


@pytest.mark.usefixtures("onednn")
def test_symbolic_batches() -> None:
    model = Network()
    compiled = torch.compile(model, backend="torchstone", fullgraph=True)
    for batch in (3, 4, 6):
        x = torch.randn(5, batch, 6)
        inputs = list(model.parameters())
        ours = torch.autograd.grad(compiled(x).square().sum(), inputs)
        torch.testing.assert_close(ours, torch.autograd.grad(model(x).square().sum(), inputs))


@pytest.mark.usefixtures("onednn")
@pytest.mark.parametrize("options", [{"fallback": False}, {"tuning": False}], ids=str)
def test_options_that_leave_nothing_to_eager(options: dict[str, Any]) -> None:
    with recorded() as records, torch.no_grad():
        torch.compile(Network(), backend="torchstone", options=options)(torch.randn(2, 3, 6))
    assert preferred(records) == {"inference": {}}


@pytest.mark.usefixtures("onednn")
def test_without_a_budget_everything_is_compiled() -> None:
    with recorded() as records, torch.no_grad(), override(tuning_budget_s=0.0):
        torch.compile(Network(), backend="torchstone")(torch.randn(2, 3, 6))
    assert preferred(records) == {"inference": {}}


@pytest.mark.usefixtures("onednn")
@pytest.mark.parametrize("options", [{"proj_size": 2}, {"dtype": torch.float64}], ids=str)
def test_what_the_kernel_does_not_take_is_compiled(options: dict[str, Any]) -> None:
    lstm = nn.LSTM(6, 5, **options)
    x = torch.randn(2, 3, 6, dtype=options.get("dtype"))
    with recorded() as records, torch.no_grad():
        found = torch.compile(lstm, backend="torchstone", fullgraph=True)(x)
        torch.testing.assert_close(found, lstm(x))
    assert preferred(records) == {"inference": {}}


@pytest.mark.conformance
@pytest.mark.usefixtures("onednn")
def test_steps_are_those_of_eager() -> None:
    model = Network(num_layers=2)
    twin = copy.deepcopy(model)
    optimizers = [torch.optim.SGD(one.parameters(), lr=0.1, momentum=0.9) for one in (model, twin)]
    loss_fn = nn.functional.mse_loss
    step = torchstone.compile_step(model, optimizers[0], loss_fn)
    with recorded() as records:
        for _ in range(4):
            x, y = torch.randn(4, 3, 6), torch.randn(4, 3, 3)
            expected = loss_fn(twin(x), y)
            optimizers[1].zero_grad()
            expected.backward()
            optimizers[1].step()
            torch.testing.assert_close(step(x, y), expected.detach())
    torch.testing.assert_close(list(model.parameters()), list(twin.parameters()))
    states = [[one.state[p]["momentum_buffer"] for p in one.param_groups[0]["params"]] for one in optimizers]
    torch.testing.assert_close(*states)
    assert [record.kind for record in records] == ["step", "step"]  # the second program has momentum
    assert preferred(records) == {"step": {FORWARD: 2, BACKWARD: 2}}


@pytest.mark.usefixtures("onednn")
def test_accumulated_gradients_are_those_of_eager() -> None:
    model = Network(num_layers=1)
    twin = copy.deepcopy(model)
    loss_fn = nn.functional.mse_loss
    with recorded() as records:
        step = torchstone.compile_step(model, torch.optim.SGD(model.parameters(), lr=0.1), loss_fn)
        for _ in range(2):
            x, y = torch.randn(4, 3, 6), torch.randn(4, 3, 3)
            step.accumulate(x, y)
            loss_fn(twin(x), y).backward()
    torch.testing.assert_close([p.grad for p in model.parameters()], [p.grad for p in twin.parameters()])
    assert preferred(records) == {"step": {FORWARD: 1, BACKWARD: 1}}


@pytest.mark.kept("True")
@pytest.mark.parametrize("saving", [False, True])
def test_both_candidates_compute_the_same(saving: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def best(_: Decisions, question: Any, candidates: Any, *, agree: Any, **__: Any) -> Decision:
        compiled, eager = (prepare()() for prepare in candidates.values())
        torch.testing.assert_close(compiled, eager)
        assert agree(compiled, eager)
        assert not agree(compiled, [one + 1 for one in eager])
        asked.append(question)
        return Decision("compiled")

    monkeypatch.setattr(Decisions, "best", best)
    with recorded() as records, torch.set_grad_enabled(saving):
        torch.compile(Network(), backend="torchstone", fullgraph=True)(torch.randn(4, 3, 6))
    assert asked
    assert all(one["sizes"] == (4, 3, 6, 5) and one["gradient"] is saving for one in asked)
    assert not any(record.preferred for record in records)


@pytest.mark.usefixtures("onednn")
def test_exports_stay_portable() -> None:
    model, x = Network(), torch.randn(4, 3, 6)
    torch.testing.assert_close(torchstone.export(model, (x,))(x), model(x))
    params = [one.detach() for one in model.lstm.parameters()]

    def by_hand(x: torch.Tensor, h: torch.Tensor) -> Any:
        return torch.ops.torchstone.onednn_lstm(x, h, h, params, False, False)[0]

    with pytest.raises(UnsupportedOperators, match="mkldnn_rnn_layer"):
        torchstone.export(by_hand, (x, torch.zeros(3, 5)))


def test_a_gradient_without_what_the_kernel_saved_is_refused() -> None:
    model, x, state = Network(), torch.randn(4, 3, 6), torch.zeros(3, 5)
    params = [one.detach() for one in model.lstm.parameters()]
    made = torch.ops.torchstone.onednn_lstm(x, state, state, params, False, False)
    with pytest.raises(RuntimeError, match="Expected what onednn_lstm returned with saving=True"):
        torch.ops.torchstone.onednn_lstm_backward(made[:3], x, state, state, params, made, False)
