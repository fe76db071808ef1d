"""Fused eager: calls run as one program where values are needed, and all else is as in eager mode."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from torchstone.device import regions

from .mirrored import DEVICE, EXACT, mirrored


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many calls each program had that ran."""
    found: list[int] = []
    plain = regions.Region.__call__

    def counted(self: regions.Region, batch: Any) -> Any:
        found.append(len(batch.steps))
        return plain(self, batch)

    monkeypatch.setattr(regions.Region, "__call__", counted)
    return found


def test_a_chain_runs_as_one_program_where_values_are_read(runs: list[int]) -> None:
    def chain(device: str) -> Any:
        x = torch.arange(6.0, device=device).view(2, 3)
        y = (x * 2 + 1).exp().sin()
        y[0].add_(x[1])
        return y

    with torch.pjrt.lazy():
        x = chain(DEVICE)
        assert runs == []
        torch.testing.assert_close(x.cpu(), chain("cpu"))
    assert runs == [6]


def test_a_sequence_that_comes_again_makes_nothing_new(runs: list[int]) -> None:
    def step(value: float) -> float:
        with torch.pjrt.lazy():
            x = torch.full((3,), 2.0, device=DEVICE)
            return (x * value).cumsum(0).sum().item()

    assert step(1.5) == 18
    kept = regions.count()
    assert step(2.5) == 30
    assert regions.count() == kept
    assert runs == [4, 4]


def test_views_share_their_storage() -> None:
    @torch.pjrt.lazy()
    def write(device: str) -> Any:
        x = torch.arange(24, dtype=torch.float32).view(4, 6).clone().to(device)
        x.t()[1:3].mul_(-2)
        row, last = x[2], x.view(-1)[-5:]
        torch.add(x[0], 1, out=x[3])
        return x, row, last

    mirrored(write, **EXACT)
