"""Ctrl-C while a batch of calls runs leaves tensors their values."""

from __future__ import annotations

import pytest
import torch

from interrupts import assert_same, batches, interrupt_next, network, trained


def test_an_interrupted_batch_of_calls_has_made_its_update(monkeypatch: pytest.MonkeyPatch) -> None:
    model = network().to("pjrt")
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    given = batches(6)

    @torch.pjrt.lazy()
    def step(inputs: torch.Tensor, targets: torch.Tensor) -> float:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs.to("pjrt")), targets.to("pjrt"))
        loss.backward()
        optimizer.step()
        return loss.item()

    for batch in given[:3]:
        step(*batch)
    interrupt_next(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        step(*given[3])
    assert_same(model.state_dict(), trained(4))
    for batch in given[4:]:
        step(*batch)
    assert_same(model.state_dict(), trained(6))
