"""What in-place calls and ``out=`` read of the memory that they write, and what they refuse."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import torch
from torch import Tensor

from torchstone.errors import FallbackRefused, FallbackWarning, IndexOutOfRange

from .mirrored import DEVICE, EXACT, mirrored, refusals

pytestmark = pytest.mark.usefixtures("plain_by_default")

OVERWRITES: dict[str, Callable[[Tensor], Any]] = {
    "zero_": lambda x: x.zero_(),
    "fill_": lambda x: x.fill_(2.0),
    "fill_ tensor": lambda x: x.fill_(torch.tensor(2.0, device=DEVICE)),
    "copy_": lambda x: x.copy_(torch.arange(3.0, device=DEVICE)),
    "copy_ broadcast": lambda x: x.copy_(torch.tensor(3.0, device=DEVICE)),
    "copy_ from the CPU": lambda x: x.copy_(torch.arange(3.0)),
    "assignment": lambda x: x.__setitem__(slice(None), 3.0),
    "through a view": lambda x: x.view(3, 1).copy_(torch.ones(3, 1, device=DEVICE)),
    "as integers": lambda x: x.view(torch.int32).zero_(),
    "normal_": lambda x: x.normal_(1.0, 0.0),
    "bernoulli_": lambda x: x.bernoulli_(1.0),
    "out": lambda x: torch.full((3,), 2.0, out=x),
}


def left_out() -> Tensor:
    """Return a tensor of three numbers that has no values, because an earlier call of its batch failed."""
    made = []
    with suppress(IndexOutOfRange), torch.pjrt.lazy():
        torch.arange(3.0, device=DEVICE)[torch.tensor([7], device=DEVICE)]
        made.append(torch.arange(3.0, device=DEVICE) + 1)
    return made[0]


@pytest.mark.parametrize("later", [False, True], ids=["eager", "fused"])
@pytest.mark.parametrize("name", OVERWRITES)
def test_tensors_without_values_take_new_ones(name: str, later: bool) -> None:
    expected, found = torch.ones(3, device=DEVICE), left_out()
    OVERWRITES[name](expected)
    with torch.pjrt.lazy(later):
        OVERWRITES[name](found)
    assert found.tolist() == expected.tolist()


@pytest.mark.parametrize("later", [False, True], ids=["eager", "fused"])
def test_calls_that_keep_a_part_of_a_tensor_need_its_values(later: bool) -> None:
    for call in (lambda x: x[:2].zero_(), lambda x: x.mul_(0), lambda x: x.fill_(x[0])):
        found = left_out()
        with pytest.raises(RuntimeError, match="this tensor has no values"), torch.pjrt.lazy(later):
            call(found)


INDEXED: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "assignment": lambda x, i: x.__setitem__(i, 1.0),
    "index_put": lambda x, i: x.index_put((i,), x[0]),
    "_index_put_impl_": lambda x, i: torch.ops.aten._index_put_impl_(x, (i,), x[0]),
    "index_select": lambda x, i: x.index_select(0, i),
    "index_add": lambda x, i: x.index_add(0, i, x[: len(i)]),
    "index_fill_": lambda x, i: x.index_fill_(0, i, 1.0),
    "index_copy": lambda x, i: x.index_copy(0, i, x[: len(i)]),
    "put_": lambda x, i: x.put_(i, x[: len(i)]),
}


@pytest.mark.parametrize("count", [0, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int16])
@pytest.mark.parametrize("name", INDEXED)
def test_indices_of_a_wrong_dtype(name: str, dtype: torch.dtype, count: int) -> None:
    def call(device: str) -> Any:
        x = torch.arange(6.0, device=device)
        return INDEXED[name](x, torch.zeros(count, dtype=dtype, device=device))

    one, other = refusals(call)
    assert type(one) is type(other)
    assert str(one) == str(other)


CHANGES: dict[str, Callable[[Tensor], Any]] = {
    "mul_": lambda x: x.mul_(2),
    "lerp_": lambda x: x.lerp_(torch.ones_like(x), 0.5),
    "masked_fill_": lambda x: x.masked_fill_(torch.eye(3, device=x.device) > 0, 9.0),
    "assignment": lambda x: x.__setitem__(torch.tensor([0], device=x.device), 5.0),
    "cumsum_": lambda x: x.cumsum_(0),
    "tril_": lambda x: x.tril_(),
    "out": lambda x: torch.add(x, 1, out=x),
}


@pytest.mark.usefixtures("falls_back")
@pytest.mark.parametrize("name", CHANGES)
def test_changes_of_elements_that_share_an_address_happen_in_the_cpus_order(name: str) -> None:
    def change(device: str) -> Any:
        x = torch.arange(8.0, device=device)
        CHANGES[name](x.as_strided((3, 3), (2, 1)))
        CHANGES[name](x[1:].unfold(0, 3, 2))
        return x

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)
        mirrored(change, **EXACT)
    assert sum(torch.pjrt.fallbacks().values()) == 2


def test_such_changes_say_why_they_need_the_cpu() -> None:
    x = torch.arange(8.0, device=DEVICE)
    with pytest.raises(FallbackRefused, match="elements of the written tensor share an address"):
        x.as_strided((3, 3), (2, 1)).mul_(2)
    x.as_strided((2, 2), (3, 2)).mul_(2)  # interleaved, but each element has its own
    assert x.tolist() == [0, 1, 4, 6, 4, 10, 6, 7]
    x.as_strided((3, 3), (2, 1)).fill_(2)
    assert x.tolist() == [2, 2, 2, 2, 2, 2, 2, 7]


GROWTH: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "add_": lambda x, y: x.add_(y),
    "remainder_": lambda x, y: x.remainder_(y),
    "pow_": lambda x, y: x.pow_(y),
    "eq_": lambda x, y: x.eq_(y),
    "atan2_": lambda x, y: x.atan2_(y),
    "clamp_": lambda x, y: x.clamp_(y),
    "index_add_": lambda x, y: x.index_add_(0, torch.zeros(2, dtype=torch.int64, device=y.device), y[:, 0]),
    "put_": lambda x, y: x.put_(torch.zeros(0, dtype=torch.int64, device=y.device), y[0]),
}


@pytest.mark.parametrize("shape", [(), (1, 3)])
@pytest.mark.parametrize("name", GROWTH)
def test_calls_in_place_do_not_grow_their_tensor(name: str, shape: tuple[int, ...]) -> None:
    tensors: list[Tensor] = []

    def call(device: str) -> Any:
        tensors.append(torch.ones(shape, device=device))
        return GROWTH[name](tensors[-1], torch.full((2, 3), 2.0, device=device))

    one, other = refusals(call)
    assert type(one) is type(other)
    assert str(one) == str(other)
    for tensor in tensors:
        assert tensor.shape == shape
        assert tensor.eq(1).all()


@pytest.mark.parametrize("dtype", [torch.uint8, torch.bool, torch.float32])
@pytest.mark.parametrize("shapes", [((1, 3), (2, 3)), ((1,), (4,)), ((1, 0), (2, 0))])
def test_masks_do_not_grow_the_tensor_that_is_written(
    shapes: tuple[tuple[int, ...], tuple[int, ...]], dtype: torch.dtype
) -> None:
    def call(device: str) -> Any:
        mask, source = (torch.ones(6, dtype=one, device=device) for one in (torch.bool, dtype))
        x = torch.zeros(shapes[0], dtype=dtype, device=device)
        return x.masked_scatter_(
            mask[: shapes[1][0]].view(-1, *[1] * (len(shapes[1]) - 1)).expand(shapes[1]), source
        )

    one, other = refusals(call)
    assert type(one) is type(other)
    assert str(one) == str(other)
