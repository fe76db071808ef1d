"""Operands on their way to a device, and what ``memory`` and ``transfer`` find in one that is wrong."""

from __future__ import annotations

from itertools import count

import pytest

torch = pytest.importorskip("torch")

from optest.errors import MemoryKept, ValuesChanged  # noqa: E402
from optest.torch.opinfo.calls import placed  # noqa: E402
from optest.torch.opinfo.devices import Held, Transferred  # noqa: E402


def test_memory_that_a_device_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.tensor([-1.0, 2.0])
    monkeypatch.setattr(torch.cpu, "memory_allocated", lambda device: 64, raising=False)
    assert Held(torch.relu)(x).tolist() == [0, 2]
    in_use = count(64, 8)
    monkeypatch.setattr(torch.cpu, "memory_allocated", lambda device: next(in_use))
    with pytest.raises(MemoryKept, match="8 bytes on cpu are in use after the results of a call"):
        Held(torch.relu)(x)


def test_values_that_a_copy_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.tensor([[0.0, float("nan")], [-0.0, 2.0]]).t()
    assert torch.equal(Transferred(torch.isnan)(x), torch.isnan(x))
    right = torch.Tensor.copy_

    def lossy(self: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
        return self.abs_() if non_blocking else right(self, source)

    monkeypatch.setattr(torch.Tensor, "copy_", lossy)
    message = r"a tensor of torch\.float32 and shape \[2, 2\] changes on its way"
    with pytest.raises(ValuesChanged, match=message):
        Transferred(torch.neg)(x)


def test_operands_keep_their_strides_on_the_way_to_a_device() -> None:
    """Else no device would see gaps, or elements that share memory."""
    x = torch.zeros(1, 5).expand(4, 5)[:, 1::2]
    assert placed(x, "meta").stride() == placed(x, "cpu").stride() == x.stride() == (0, 2)
    assert placed(x, "meta").storage_offset() == 1
    assert placed(torch.ones(2, dtype=torch.complex64).conj(), "cpu").tolist() == [1, 1]
