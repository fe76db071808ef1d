"""PyTorch leaves some orders open, Torchstone does not: of equal elements, the first one counts."""

from __future__ import annotations

import math

import pytest
import torch

from torchstone import export
from torchstone.lowering import ordering

NEGATIVE_NAN = torch.tensor(-1, dtype=torch.int32).view(torch.float32).item()


def numbers() -> torch.Tensor:
    """Two rows of repeated elements, NaNs of both signs, zeros of both signs and infinities."""
    rows = torch.randint(-9, 9, (2, 300), generator=torch.Generator().manual_seed(0)).float()
    rows[1, 40:48] = torch.tensor([math.nan, -0.0, 0.0, math.inf, NEGATIVE_NAN, -math.inf, 1e-40, -1e-40])
    assert torch.signbit(rows[1, 44])
    return rows


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
@pytest.mark.parametrize("largest", [True, False])
def test_topk_is_the_head_of_a_stable_sort(dtype: torch.dtype, largest: bool) -> None:
    x = numbers().to(dtype)
    found = export(lambda x: (*x.topk(18, 1, largest), *x.topk(19, 1, largest)), (x,))(x)
    values, indices = x.sort(dim=1, descending=largest, stable=True)
    for count, (taken, places) in ((18, found[:2]), (19, found[2:])):
        assert torch.equal(places, indices[:, :count])
        assert torch.equal(taken.view(torch.uint8), values[:, :count].contiguous().view(torch.uint8))


@pytest.fixture
def by_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the selection for tensors that exceed the caches, also for few elements."""
    monkeypatch.setattr(ordering, "_OUTSIDE_CACHES", 0)
    monkeypatch.setattr(ordering, "_BLOCK", 64)


@pytest.mark.kept("192-0")
@pytest.mark.parametrize(("size", "axis"), [(192, 0), (100, 1), (100, 2)])
@pytest.mark.usefixtures("by_halves")
def test_selection_by_halves_of_keys(size: int, axis: int) -> None:
    """Select the first, the last and an element between, from numbers over the whole range and close ones."""
    shape = [2, 3]
    shape.insert(axis, size)
    generator = torch.Generator().manual_seed(size)
    wide = torch.randint(-(2**31), 2**31, shape, generator=generator)
    close = torch.randint(65_500, 65_580, shape, generator=generator)
    inputs, ranks = (wide.int(), -close.int(), wide.float()), (1, size // 3, size)
    found = export(lambda *xs: [x.kthvalue(rank, axis)[0] for x in xs for rank in ranks], inputs)(*inputs)
    expected = [x.sort(axis)[0].select(axis, rank - 1) for x in inputs for rank in ranks]
    assert all(map(torch.equal, found, expected))


@pytest.mark.parametrize("halves", [False, True])
def test_selection_gives_the_first_of_equal_elements(halves: bool, request: pytest.FixtureRequest) -> None:
    if halves:
        request.getfixturevalue("by_halves")
    x = numbers()
    found = export(lambda x: (*x.kthvalue(150, 1), *x.median(1), *x.nanmedian(1)), (x,))(x)
    expected = [x.kthvalue(150, 1)[0], x.median(1)[0], x.nanmedian(1)[0]]
    for value, index, wanted in zip(found[::2], found[1::2], expected, strict=True):
        assert torch.equal(value.nan_to_num(), wanted.nan_to_num())
        for row in range(2):
            elements = x[row]
            same = elements.isnan() if value[row].isnan() else elements == value[row]
            assert index[row] == same.nonzero()[0]


@pytest.mark.parametrize(
    ("row", "value", "place"),
    [
        ([2, 0, 0, 2, math.nan, 0, 2, 2], 2, 7),
        ([math.nan, 1, math.nan, 0], 0, 3),
        ([1, 1, math.nan, 0, 0], 0, 4),
        ([math.nan, 0, math.nan, NEGATIVE_NAN, 0], 0, 4),
        ([math.nan, math.nan], math.nan, 0),
    ],
)
def test_mode_counts_numbers_whatever_the_place_of_nan(row: list[float], value: float, place: int) -> None:
    x = torch.tensor(row)
    values, indices = export(torch.mode, (x,))(x)
    torch.testing.assert_close(values, torch.tensor(float(value)), equal_nan=True)
    assert indices.item() == place
