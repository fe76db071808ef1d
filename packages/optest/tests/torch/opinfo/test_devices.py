"""How operands reach a device, and the faults that ``memory`` and ``transfer`` find in a wrong one."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from optest.errors import MemoryKept, ValuesChanged  # noqa: E402
from optest.torch.opinfo.calls import placed  # noqa: E402
from optest.torch.opinfo.databases import entries_of  # noqa: E402
from optest.torch.opinfo.devices import Held, Transferred, WrittenThrough  # noqa: E402


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
    """Otherwise, no device would get operands with gaps or with elements that share memory."""
    x = torch.zeros(1, 5).expand(4, 5)[:, 1::2]
    assert placed(x, "meta").stride() == placed(x, "cpu").stride() == x.stride() == (0, 2)
    assert placed(x, "meta").storage_offset() == 1
    assert placed(torch.ones(2, dtype=torch.complex64).conj(), "cpu").tolist() == [1, 1]


def test_a_view_that_is_a_copy_is_told_from_one_that_is_none() -> None:
    x = torch.ones(2, 3)
    view, held = WrittenThrough(torch.t)(x)
    assert held.tolist() == [[1, 3, 5], [2, 4, 6]]
    assert torch.equal(view, held.t())
    assert x.tolist() == [[1, 1, 1], [1, 1, 1]]
    assert WrittenThrough(torch.t_copy)(x)[1].tolist() == x.tolist()
    parts, held = WrittenThrough(torch.unbind)(x)
    assert [one.tolist() for one in parts] == held.tolist() == [[1, 2, 3], [2, 3, 4]]


@pytest.mark.parametrize("asked", [Held, WrittenThrough])
def test_places_to_split_at_are_read_on_the_cpu(asked: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch accepts these indices only on the CPU."""
    moved: list[torch.dtype] = []
    right = torch.Tensor.cpu
    monkeypatch.setattr(torch.Tensor, "cpu", lambda self: moved.append(self.dtype) or right(self))
    asked(torch.tensor_split)(torch.ones(4), torch.tensor([1]))
    assert set(moved) == {torch.int64}
    moved.clear()
    asked(torch.gather)(torch.ones(4), 0, torch.tensor([1]))
    assert moved == []


def test_which_entries_are_views() -> None:
    entries = entries_of("opinfo")
    views = {name for name, one in entries.items() if one.dtypes and one.has("views", one.dtypes[0])}
    assert {"t", "view_as_real", "split", "as_strided", "reshape", "squeeze"} <= views
    assert not views & {"add", "t_copy", "clone", "sort"}
