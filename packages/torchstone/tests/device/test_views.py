"""Views share the storage as on the CPU: values, strides, offsets, bases, versions, writes through others."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import hypothesis
import hypothesis.strategies as st
import numpy
import pytest
import torch
from torch import Tensor

from .mirrored import DEVICE, EXACT, mirrored, refusals, shares

View = Callable[[Tensor], Tensor]

VIEWS: dict[str, View] = {
    "whole": lambda x: x[:],
    "alias": torch.ops.aten.alias,
    "detach": lambda x: x.detach(),
    "as_strided": lambda x: x.as_strided((3, 2), (4, 2), 1),
    "as_strided overlapping": lambda x: x.as_strided((4, 3), (1, 1), 2),
    "as_strided interleaved": lambda x: x.as_strided((2, 2), (3, 2), 0),
    "view": lambda x: x.view(2, -1),
    "view as": lambda x: x.view_as(torch.empty(4, 6)),
    "view of bytes": lambda x: x.view(torch.int16),
    "view of integers": lambda x: x.view(torch.int32),
    "reshape": lambda x: x.reshape(6, 4),
    "flatten": lambda x: x.flatten(),
    "unflatten": lambda x: x.unflatten(1, (2, 3)),
    "ravel": lambda x: x.ravel(),
    "t": lambda x: x.t(),
    "T": lambda x: x.T,
    "transpose": lambda x: x.transpose(0, 1),
    "permute": lambda x: x.view(2, 2, 6).permute(2, 0, 1),
    "movedim": lambda x: x.movedim(0, 1),
    "squeeze": lambda x: x.view(4, 1, 6).squeeze(),
    "squeeze dim": lambda x: x.view(4, 1, 6).squeeze(1),
    "unsqueeze": lambda x: x.unsqueeze(1),
    "expand": lambda x: x[:, :1].expand(4, 3),
    "narrow": lambda x: x.narrow(1, 2, 3),
    "slice": lambda x: x[1:3],
    "steps": lambda x: x[::2, 1::3],
    "column": lambda x: x[:, 2],
    "row": lambda x: x[-1],
    "element": lambda x: x[1, 2],
    "empty": lambda x: x[2:2],
    "select": lambda x: x.select(0, 3),
    "diagonal": lambda x: x.diagonal(),
    "diagonal above": lambda x: x.diagonal(1),
    "diagonal of 3": lambda x: x.view(2, 2, 6).diagonal(0, 1, 2),
    "unfold": lambda x: x.unfold(1, 3, 2),
    "split": lambda x: x.split(3, 1)[1],
    "split sizes": lambda x: x.split([1, 3], 0)[1],
    "chunk": lambda x: x.chunk(2, 1)[1],
    "tensor_split": lambda x: x.tensor_split(3, 1)[2],
    "hsplit": lambda x: x.hsplit(2)[1],
    "unbind": lambda x: x.unbind(1)[4],
    "as complex": lambda x: torch.view_as_complex(x.view(4, 3, 2)),
    "real": lambda x: torch.view_as_complex(x.view(4, 3, 2)).real,
    "imag": lambda x: torch.view_as_complex(x.view(4, 3, 2)).imag,
    "conj": lambda x: torch.view_as_complex(x.view(4, 3, 2)).conj(),
    "imag of conj": lambda x: torch.view_as_complex(x.view(4, 3, 2)).conj().imag,
    "as real": lambda x: torch.view_as_real(torch.view_as_complex(x.view(4, 3, 2))),
}
ONCE = sorted(VIEWS.keys() - {"as_strided overlapping", "expand", "unfold"})
"""Views that show no element twice, so they can be written."""


def base(device: str) -> Tensor:
    return torch.arange(24, dtype=torch.float32).view(4, 6).clone().to(device)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", VIEWS)
def test_a_view_shows_what_it_shows_on_the_cpu(name: str) -> None:
    def look(device: str) -> Any:
        x = base(device)
        view = VIEWS[name](x)
        return x, view, shares(x, view), view._base is x, view.clone(), view.contiguous()

    mirrored(look, **EXACT)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", ONCE)
def test_a_write_through_a_view_reaches_the_base_and_other_views(name: str) -> None:
    def write(device: str) -> Any:
        x = base(device)
        first, last = x[0], x.view(-1)[5:]
        view = VIEWS[name](x)
        view.mul_(-2)
        x.add_(1)
        return x, first, last, view

    mirrored(write, **EXACT)


@pytest.mark.parametrize("outer", ["transpose", "steps", "unfold", "as_strided", "diagonal", "view"])
@pytest.mark.parametrize("inner", ["slice", "column", "transpose", "steps", "narrow"])
def test_views_of_views(outer: str, inner: str) -> None:
    def look(device: str) -> Any:
        x = base(device)
        view = VIEWS[inner](x)
        if view.dim() < 2:
            view = view.unsqueeze(0).expand(1, -1) if outer == "view" else view.unsqueeze(0)
        try:
            second = VIEWS[outer](view)
        except RuntimeError as error:
            return type(error)
        if outer != "unfold":
            second += 10
        return x, view, second, second._base is x

    mirrored(look, **EXACT)


def test_copies_between_overlapping_views_read_before_they_write() -> None:
    def shift(device: str) -> Any:
        x = base(device)
        y = x.clone()
        x[1:] = y[:-1]
        x.t()[2:4].copy_(y.t()[:2])
        x[:, ::2] = x[:, 1::2]
        return x

    mirrored(shift, **EXACT)


@pytest.mark.parametrize(
    ("size", "stride"),
    [((2, 4), (1, 1)), ((4, 2), (1, 1)), ((3, 4), (2, 1)), ((4, 3), (1, 3)), ((2, 3, 4), (5, 2, 2))],
    ids=str,
)
def test_of_elements_at_one_address_the_last_one_that_is_written_stays(
    size: tuple[int, ...], stride: tuple[int, ...]
) -> None:
    def write(device: str) -> Tensor:
        x = base(device)
        values = torch.arange(100, 100 + torch.Size(size).numel(), device=device)
        x.as_strided(size, stride, 1).copy_(values.view(size))
        return x

    mirrored(write, **EXACT)


OVERLAPPING = {
    "copy_": lambda x: x[1:].copy_(x[:-1]),
    "add_": lambda x: x[1:].add_(x[:-1]),
    "out": lambda x: torch.add(x[:-1], 1, out=x[1:]),
    "cat": lambda x: torch.cat([x[:2], x[2:]], out=x),
    "index_put_": lambda x: x.index_put_((torch.tensor([0], device=x.device),), x[1:2]),
    "index_add_": lambda x: x.index_add_(0, torch.tensor([0], device=x.device), x[1:2]),
    "scatter_": lambda x: x[1:].scatter_(0, torch.zeros_like(x[1:], dtype=torch.int64), x[:-1]),
    "cumsum": lambda x: torch.cumsum(x[1:], 0, out=x[:-1]),
}


@pytest.mark.parametrize("write", OVERLAPPING)
def test_writing_where_an_operator_reads_is_refused(write: str) -> None:
    """The error is the CPU's and nothing is written. Writing exactly the place that is read is allowed."""

    def attempt(device: str) -> Any:
        x = base(device)
        with pytest.raises(RuntimeError, match="refer to a single memory location"):
            OVERLAPPING[write](x)
        return x.add_(x)

    mirrored(attempt, **EXACT)


def test_setitem_of_every_kind() -> None:
    def assign(device: str) -> Any:
        x = base(device)
        x[0] = 7
        x[1, 2:4] = torch.tensor([1.5, 2.5], device=device)
        x[..., -1] = torch.arange(4)
        x[2] = x[3]
        x[[0, 3], [1, 1]] = -1
        x[torch.tensor([1, 2], device=device)] *= 2
        x[:, None, 3] += 1
        return x

    mirrored(assign, **EXACT)


def test_writing_to_repeated_elements_is_refused() -> None:
    for error in refusals(lambda device: base(device)[:, :1].expand(4, 3).add_(1)):
        assert isinstance(error, RuntimeError)
        assert "more than one element of the written-to tensor refers to a single memory" in str(error)


def test_versions_count_writes_and_stop_a_wrong_backward() -> None:
    def run(device: str) -> Any:
        x = base(device).requires_grad_()
        y = x * 2
        z = y.exp()
        z[0].zero_()
        assert z._version == 1
        return z.sum()

    for error in refusals(lambda device: run(device).backward()):
        assert "has been modified by an inplace operation" in str(error)


def test_gradients_flow_through_writes_on_views() -> None:
    def run(device: str) -> Any:
        x = base(device).requires_grad_()
        y = x.clone()
        y[1:3].t()[::2].mul_(3)
        y.view(-1)[:5] = x.view(-1)[:5] ** 2
        (y * y).sum().backward()
        return y, x.grad

    mirrored(run)


def test_data_and_detach_share_and_do_not_count() -> None:
    def run(device: str) -> Any:
        x = base(device).requires_grad_()
        x.data.mul_(2)
        x.detach()[0].fill_(1)
        with torch.no_grad():
            x[1] = 5
        x.data = torch.ones(2, 2, device=device)
        return x

    mirrored(run, **EXACT)


def test_set_and_resize() -> None:
    def run(device: str) -> Any:
        x, y = base(device), torch.zeros(3, device=device)
        y.set_(x)
        y.add_(1)
        z = torch.empty(0, device=device).set_(x.untyped_storage(), 2, (2, 3), (6, 1))
        z.mul_(10)
        x.resize_(2, 2)
        y.set_()
        return x, y, z, x.is_set_to(z), z.is_set_to(z)

    mirrored(run, **EXACT)


def test_growing_keeps_what_was_there_and_what_is_shared() -> None:
    x = torch.arange(4.0, device=DEVICE)
    alias = x[1:]
    x.resize_(3, 4)
    x.view(-1)[:4].add_(1)
    assert x.shape == (3, 4)
    assert x.view(-1)[:4].tolist() == [1, 2, 3, 4]
    assert alias.tolist() == [2, 3, 4]


def test_a_storage_of_a_tensor_that_has_grown_is_copied_as_far_as_it_goes() -> None:
    x = torch.arange(4.0, device=DEVICE)
    alias = x[1:]
    x.resize_(9)
    assert (copy.deepcopy(alias) + 1).tolist() == [2, 3, 4]
    alias.untyped_storage().copy_(torch.ones(4).untyped_storage())
    assert (alias + 1).tolist() == [2, 2, 2]
    assert (x[:4] * 2).tolist() == [2, 2, 2, 2]


def test_a_tensor_that_cannot_grow_holds_no_more_memory() -> None:
    x = torch.arange(4.0, device=DEVICE)
    before = torch.pjrt.memory_allocated()
    with pytest.raises(Exception, match="cannot be addressed"):
        x.resize_(2**62)
    assert torch.pjrt.memory_allocated() == before
    assert x.tolist() == [0, 1, 2, 3]


def test_out_is_written_through_its_view_and_resized() -> None:
    def run(device: str) -> Any:
        x, target, small = base(device), torch.zeros(6, 6, device=device), torch.empty(0, device=device)
        torch.add(x, 1, out=target[1:5])
        torch.mul(x.t(), 2, out=target.t()[:, 2:])
        torch.sum(x, 1, out=small)
        values, indices = torch.empty(0, device=device), torch.empty(0, dtype=torch.long, device=device)
        result = torch.max(x, 1, out=(values, indices))
        return target, small, values, indices, result.values is values

    mirrored(run, **EXACT)


def test_writing_a_view_of_nothing_that_starts_behind_the_end_changes_no_storage() -> None:
    def run(device: str) -> Any:
        x = torch.empty(0, 6, device=device)
        x[..., 3:].copy_(torch.empty(0, 3, device=device))
        x[..., 2:].add_(1)
        return x, x + 1, x.untyped_storage().nbytes()

    mirrored(run, **EXACT)


def test_an_unsafe_view_is_on_its_argument_s_storage() -> None:
    """``torch.kron(out=…)`` writes through one."""

    def run(device: str) -> Any:
        x, out = torch.arange(4.0, device=device).view(2, 2), torch.ones(4, 4, device=device)
        torch.kron(x, x, out=out)
        return out, shares(x, torch.ops.aten._unsafe_view(x, [4]))

    mirrored(run, **EXACT)


BYTES: dict[str, View] = {
    "booleans": lambda x: x.view(torch.bool)[1::3].fill_(True),
    "a boolean": lambda x: x.view(torch.bool)[4].fill_(False),
    "all as booleans": lambda x: x.view(torch.bool).logical_not_(),
    "floats before a tail": lambda x: x[:8].view(torch.float32).mul_(2),
    "one float before a tail": lambda x: x[:8].view(torch.float32)[1].fill_(2),
    "a double before a tail": lambda x: x[:8].view(torch.float64).neg_(),
    "a transposed view before a tail": lambda x: x[:8].view(torch.int16).view(2, 2).t()[1].add_(300),
    "an imaginary part before a tail": lambda x: x[:8].view(torch.complex64).imag.add_(1),
    "a conjugate before a tail": lambda x: x[:8].view(torch.complex64).conj().mul_(1j),
    "floats from the CPU": lambda x: x[:8].view(torch.float32).copy_(torch.ones(2)),
    "a grown tensor": lambda x: torch.add(torch.ones(5, device=x.device), 1, out=x[:4].view(torch.float32)),
}


@pytest.mark.parametrize("name", BYTES)
def test_a_write_through_a_view_of_another_dtype_leaves_other_bytes(name: str) -> None:
    def write(device: str) -> Any:
        x = torch.arange(2, 13, dtype=torch.uint8).to(device)
        tail = x[8:]
        view = BYTES[name](x)
        tail.add_(1)
        return x, view, tail, x.clone()

    mirrored(write, **EXACT)


def test_a_byte_other_than_one_is_true() -> None:
    odd = torch.tensor([2, 1, 0, 4], dtype=torch.uint8).view(torch.bool)
    found = odd.to(DEVICE) & torch.ones(4, dtype=torch.bool, device=DEVICE)
    assert found.tolist() == [True, True, False, True]
    assert (odd[3] & found).tolist() == [True, True, False, True]


@hypothesis.settings(max_examples=40)
@hypothesis.given(st.data())
def test_any_geometry_is_read_and_written_as_on_the_cpu(data: st.DataObject) -> None:
    rank = data.draw(st.integers(0, 3))
    size = data.draw(st.lists(st.integers(0, 4), min_size=rank, max_size=rank))
    stride = data.draw(st.lists(st.integers(0, 9), min_size=rank, max_size=rank))
    offset = data.draw(st.integers(0, 5))
    reach = offset + sum(max(n - 1, 0) * step for n, step in zip(size, stride, strict=True))
    cells = numpy.full(tuple(size), offset)
    for axis, (n, step) in enumerate(zip(size, stride, strict=True)):
        cells = cells + (numpy.arange(n) * step).reshape([-1 if i == axis else 1 for i in range(rank)])
    written = len(numpy.unique(cells)) == cells.size

    def run(device: str) -> Any:
        x = torch.arange(reach + 3, dtype=torch.int32).to(device)
        view = x.as_strided(size, stride, offset)
        before = view.clone()
        if written and not any(n > 1 and step == 0 for n, step in zip(size, stride, strict=True)):
            view.mul_(-3)
        return x, view, before

    mirrored(run, **EXACT)
