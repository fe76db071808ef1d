"""Operators whose results are as large as their inputs' values say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from torchstone.device.operators import plan_count

from .mirrored import DEVICE, EXACT, mirrored, refusals

VALUES = torch.tensor([[0.5, -1.0, 0.0, 2.0], [3.0, 0.0, -0.5, 0.5], [-2.0, 0.5, 1.0, float("nan")]])

REPEATED = torch.tensor([[1, 2, 1, 2], [0, 5, 0, 5], [0, 5, 0, 5], [1, 2, 1, 2], [-1, 9, -1, 3]])


def _assigned(x: Tensor, where: Any, value: Any) -> Tensor:
    changed = x.clone()
    changed[where] = value
    return changed


CALLS: dict[str, Callable[[Tensor], Any]] = {
    "nonzero": lambda x: x.nonzero().contiguous(),
    "nonzero of nothing": lambda x: (x > 9).nonzero().contiguous(),
    "nonzero of one": lambda x: x[0, 0].nonzero().contiguous(),
    "nonzero of an empty tensor": lambda x: x[:0].nonzero().contiguous(),
    "nonzero as tuple": lambda x: [one.contiguous() for one in x.nonzero(as_tuple=True)],
    "where": lambda x: [one.contiguous() for one in torch.where(x > 0)],
    "argwhere": lambda x: torch.argwhere(x > 0).contiguous(),
    "masked_select": lambda x: x.masked_select(x > 0),
    "masked_select broadcast": lambda x: x.masked_select(x[:1] > 0),
    "mask": lambda x: x[x > 0],
    "mask of rows": lambda x: x[x[:, 0] > 0],
    "mask of columns": lambda x: x[:, torch.tensor([True, False, True, True], device=x.device)],
    "mask and numbers": lambda x: x[x[:, 0] > 0, torch.tensor([1, 2], device=x.device)],
    "mask of the CPU": lambda x: x[torch.tensor([True, False, True])],
    "assign a number": lambda x: _assigned(x, x > 0, 7.0),
    "assign values": lambda x: _assigned(x, x > 0, x[x > 0] * 2),
    "assign rows": lambda x: _assigned(x, x[:, 0] > 0, x[:2]),
    "unique": lambda x: x[:2].unique(return_inverse=True, return_counts=True),
    "unique of integers": lambda x: (x[:2] * 2).long().unique(),
    "unique of nothing": lambda x: x[:0].unique(return_counts=True),
    "unique_consecutive": lambda x: (
        x.flatten().sign().unique_consecutive(return_inverse=True, return_counts=True)
    ),
    "unique rows": lambda x: REPEATED.to(x.device).unique(dim=0, return_inverse=True, return_counts=True),
    "unique columns": lambda x: REPEATED.to(x.device).unique(dim=-1, return_inverse=True),
    "unique slices": lambda x: REPEATED.to(x.device).view(5, 2, 2).unique(dim=1, return_counts=True),
    "unique of one axis": lambda x: REPEATED.to(x.device)[:, 1].unique(dim=0, return_counts=True),
    "unique rows of none": lambda x: x[:0].unique(dim=0, return_inverse=True, return_counts=True),
    "unique_consecutive rows": lambda x: REPEATED.to(x.device).unique_consecutive(
        dim=0, return_inverse=True, return_counts=True
    ),
    "bincount": lambda x: (x[:2] * 2 + 2).long().flatten().bincount(minlength=12),
    "bincount with weights": lambda x: (x[0] * 2 + 2).long().bincount(x[1]),
    "repeat_interleave": lambda x: torch.arange(3, device=x.device).repeat_interleave(
        torch.tensor([2, 0, 3], device=x.device)
    ),
    "one_hot": lambda x: F.one_hot(torch.tensor([2, 0], device=x.device)),
    "masked_scatter": lambda x: x.masked_scatter(x > 0, x.flatten()),
    "item": lambda x: (x[1, 2].item(), x[0].tolist(), bool(x[0, 0] > 0), int(x[1, 0])),
}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", CALLS)
def test_results_are_those_of_the_cpu(name: str) -> None:
    def values(device: str) -> Any:
        found = CALLS[name](VALUES.to(device))
        return _detached(found)

    mirrored(values, **EXACT)


def _detached(found: Any) -> Any:
    """Copy the results: whether one is a view of something longer is up to the device."""
    if isinstance(found, Tensor):
        return found.detach().clone(memory_format=torch.contiguous_format)
    return [_detached(one) for one in found] if isinstance(found, (list, tuple)) else found


def test_gradients_reach_what_was_selected() -> None:
    def run(device: str) -> Any:
        x = VALUES[:2].to(device).requires_grad_()
        (x[x > 0] ** 2).sum().backward()
        x.masked_select(x < 0).sum().backward()
        return x.grad.clone() if x.grad is not None else None

    mirrored(run, **EXACT)


def test_many_counts_share_few_programs() -> None:
    x = torch.arange(64.0, device=DEVICE)
    for bound in (3, 60):
        (x < bound).nonzero()
    before = plan_count()
    for bound in (3, 4, 60, 61, 62):
        assert (x < bound).nonzero().shape == (bound, 1)
    # Only views of other lengths are new, and those need no program.
    assert plan_count() - before <= 3


def test_a_mask_of_another_shape_is_refused() -> None:
    cpu, device = refusals(lambda device: VALUES.to(device)[torch.tensor([True, False], device=device)])
    assert isinstance(device, IndexError)
    assert str(device) == str(cpu)


@pytest.mark.parametrize("count", [0, 2, 4])
def test_another_number_of_values_than_the_mask_selects_is_refused(count: int) -> None:
    x, mask = torch.zeros(4, device="pjrt"), torch.tensor([True, True, False, True], device="pjrt")
    with pytest.raises(
        RuntimeError, match=r"shape mismatch: value tensor of shape \[\d\] cannot be broadcast"
    ):
        x[mask] = torch.ones(count, device="pjrt")
    assert x.tolist() == [0, 0, 0, 0]
    x[mask] = torch.arange(1.0, 4, device="pjrt")
    x[mask & False] = torch.ones(0, device="pjrt")
    assert x.tolist() == [1, 2, 0, 3]


def test_counts_of_nothing_are_whole_whatever_the_weights() -> None:
    def counts(device: str) -> Tensor:
        nothing = torch.empty(0, dtype=torch.long, device=device)
        return torch.bincount(nothing, weights=torch.empty(0, device=device), minlength=2)

    mirrored(counts, **EXACT)


def test_out_forms() -> None:
    def run(device: str) -> Any:
        x = VALUES.to(device)
        chosen = torch.empty(0, device=device)
        torch.masked_select(x, x > 0, out=chosen)
        places = torch.empty(0, dtype=torch.long, device=device)
        torch.nonzero(x > 0, out=places)
        return chosen.clone(), places.clone(memory_format=torch.contiguous_format)

    mirrored(run, **EXACT)


def test_slices_along_an_axis_beside_one_of_no_elements_are_refused() -> None:
    cpu, device = refusals(lambda device: torch.empty(2, 0, device=device).unique(dim=0))
    assert str(device) == str(cpu)


STEPS = torch.randn(3, 2, 4, generator=torch.Generator().manual_seed(0)).log_softmax(2)
REFUSED: dict[str, Callable[[str], Any]] = {
    "steps": lambda d: F.ctc_loss(STEPS.to(d), torch.tensor([[1, 2], [1, 1]], device=d), [9, 3], [2, 1]),
    "no steps": lambda d: F.ctc_loss(STEPS.to(d), torch.tensor([[1, 2], [1, 1]], device=d), [-1, 3], [2, 1]),
    "few targets": lambda d: F.ctc_loss(
        STEPS.to(d), torch.tensor([[1, 2], [1, 1]], device=d), [3, 3], [3, 1]
    ),
    "many targets": lambda d: F.ctc_loss(STEPS.to(d), torch.tensor([1, 2, 1, 1], device=d), [3, 3], [2, 1]),
    "a tensor of steps": lambda d: F.ctc_loss(
        STEPS.to(d),
        torch.tensor([[1, 2], [1, 1]], device=d),
        torch.tensor([9, 3], device=d),
        torch.tensor([2, 1], device=d),
    ),
    "softmax of a number": lambda d: torch.ones((), device=d).softmax(1),
    "sort of a number": lambda d: torch.ones((), device=d).sort(-2),
    "cummax of a number": lambda d: torch.ones((), device=d).cummax(1),
    "side": lambda d: torch.searchsorted(STEPS[0, 0].to(d), STEPS[0, 0].to(d), side="middle"),
    "histc": lambda d: torch.histc(STEPS.to(d), 3, float("-inf"), 1),
    "complex repeats": lambda d: torch.tensor([1, 2], device=d).repeat_interleave(
        torch.tensor([1j, 2j], device=d)
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_arguments_that_the_cpu_refuses(name: str) -> None:
    one, other = refusals(REFUSED[name])
    assert type(one) is type(other)
    assert str(one) == str(other)


@pytest.mark.parametrize("lengths", [[3, -1], [3, 1]])
def test_segments_that_the_cpu_refuses(lengths: list[int]) -> None:
    def reduced(device: str) -> Tensor:
        return torch.segment_reduce(
            torch.ones(2, device=device), "sum", lengths=torch.tensor(lengths, device=device)
        )

    one, other = refusals(reduced)
    assert str(one) in str(other)
