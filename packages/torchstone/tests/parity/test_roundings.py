"""A model in eager PyTorch with other roundings: its parameters, inputs and gradients move."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from optest.torch.roundings import OtherRoundings
from torchstone.parity.roundings import RUNS, Reruns, started, without_onednn
from torchstone.parity.subject import Subject


def test_gradients_move_and_what_a_run_begins_with() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8))
    given = Subject(model, (torch.randn(16, 8), torch.arange(3)), {})
    roundings = OtherRoundings(0)
    moved = started(given.copy(training=True), roundings)
    assert isinstance(moved.model, nn.Module)
    for (name, one), other in zip(model.named_parameters(), moved.model.parameters(), strict=True):
        assert torch.equal(one, other) == (name in ("1.bias",)), name  # zeros do not move
    assert not torch.equal(moved.args[0], given.args[0])
    assert torch.equal(moved.args[1], given.args[1])

    def gradient(subject: Subject) -> torch.Tensor:
        assert isinstance(subject.model, nn.Sequential)
        subject.model(subject.args[0]).square().mean().backward()
        found = subject.model[0].weight.grad
        assert found is not None
        return found

    plain = gradient(given.copy(training=True))
    with roundings:
        found = gradient(given.copy(training=True))
    assert not torch.equal(found, plain)
    torch.testing.assert_close(found, plain, atol=1e-5, rtol=1e-3)


def test_runs_are_made_once_and_those_without_onednn_restore_the_setting() -> None:
    given = Subject(nn.Linear(4, 4), (torch.randn(3, 4),), {})
    seen: list[bool] = []

    def run(subject: Subject) -> torch.Tensor:
        seen.append(torch.backends.mkldnn.enabled)
        return subject.model(*subject.args)

    before = torch.backends.mkldnn.enabled
    for onednn in (True, False):
        reruns = Reruns(lambda: given.copy(training=True), run, onednn=onednn)
        found = reruns()
        assert reruns() is found
        assert len(found) == RUNS
        assert not torch.equal(found[0], found[1])
    assert seen == [before] * RUNS + [False] * RUNS
    with pytest.raises(ZeroDivisionError), without_onednn():
        raise ZeroDivisionError
    assert torch.backends.mkldnn.enabled == before


def test_onednn_is_left_out_where_flags_are_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch's test utilities let only context managers change flags."""
    own = torch.backends.flags_frozen.__globals__
    monkeypatch.setitem(own, "__allow_nonbracketed_mutation_flag", False)
    with pytest.raises(RuntimeError, match="use flags"):
        torch.backends.mkldnn.enabled = False
    with without_onednn():
        assert not torch.backends.mkldnn.enabled
