"""Graphs with sizes and numbers that depend on the values of tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
import torch._dynamo.config as dynamo_config
from torch._dynamo.exc import BackendCompilerFailed

from torchstone.backend.records import recorded
from torchstone.errors import FallbackWarning
from torchstone.torch_internals import pytree

pytestmark = pytest.mark.filterwarnings(f"ignore::{FallbackWarning.__module__}.FallbackWarning")


@pytest.fixture(autouse=True)
def _captured(fresh_dynamo: None) -> Iterator[None]:
    with dynamo_config.patch(capture_dynamic_output_shape_ops=True, capture_scalar_outputs=True):
        yield


def values(seed: int, rows: int = 4) -> torch.Tensor:
    return torch.randn(rows, 5, generator=torch.Generator().manual_seed(seed))


def compiled(function: Callable[..., Any], dynamic: bool | None = None, **options: Any) -> Any:
    return torch.compile(
        function, backend="torchstone", fullgraph=True, dynamic=dynamic, options={"tuning": False, **options}
    )


def sized(x: torch.Tensor, counts: torch.Tensor) -> Any:
    count = int(counts.sum().item())
    torch._check(count >= 0)
    torch._check(count <= x.shape[0])
    return torch.zeros(count) + 1, x[:count] * 2, count


def checked(x: torch.Tensor, counts: torch.Tensor) -> Any:
    count = int(counts.max().item())
    torch._check(count == 2)
    return x.sin()[:count] + 1, torch.ones(count) * 3


def written(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    found = x[mask]
    x.mul_(found.sum())
    return found * 2


def outputs(x: torch.Tensor) -> Any:
    rows = x[x[:, 0] > 0] * 2
    return rows, rows.t(), x.cos(), rows[:1], x.t()


CASES: dict[str, tuple[Callable[..., Any], Callable[[int], tuple[torch.Tensor, ...]]]] = {
    "nonzero": (lambda x: (x > 0).nonzero(), lambda seed: (values(seed),)),
    "masked_select": (lambda x: torch.masked_select(x.sin(), x > 0) * 2, lambda seed: (values(seed),)),
    "rows": (lambda x: (x[x[:, 0] > 0] @ x.t()).relu(), lambda seed: (values(seed),)),
    "sum": (lambda x: x[x > 0].sum() * x, lambda seed: (values(seed),)),
    "unique": (
        lambda x: x.round().unique(return_inverse=True, return_counts=True),
        lambda seed: (values(seed).long(),),
    ),
    "repeat_interleave": (
        lambda x: x.sin().repeat_interleave((x[:, 0] > 0).long() + 1, 0).cos(),
        lambda seed: (values(seed),),
    ),
    "number": (lambda x: (x * x.max().item() + x.exp(), x.argmax().item()), lambda seed: (values(seed),)),
    "size": (sized, lambda seed: (values(seed), torch.tensor([seed % 3, 1]))),
    "checked": (checked, lambda seed: (values(seed), torch.tensor([2, seed % 2]))),
    "outputs": (outputs, lambda seed: (values(seed),)),
}


def _compare(want: Sequence[Any], got: Sequence[Any]) -> None:
    for one, other in zip(want, got, strict=True):
        torch.testing.assert_close(other, one)
        if isinstance(one, torch.Tensor):
            assert one.stride() == other.stride()


@pytest.mark.sampled(9)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_counts_that_change_give_what_eager_pytorch_gives(name: str, training: bool, dynamic: bool) -> None:
    function, make = CASES[name]
    fast = compiled(function, dynamic)
    with recorded() as records:
        for seed in range(4):
            ours, theirs = make(seed), make(seed)
            if training:
                for one in (*ours, *theirs):
                    one.requires_grad_(one.is_floating_point())
            want, got = pytree.tree_leaves(function(*theirs)), pytree.tree_leaves(fast(*ours))
            _compare(want, got)
            ends = [
                sum(one.sin().sum() for one in made if isinstance(one, torch.Tensor) and one.requires_grad)
                for made in (want, got)
            ]
            for end in ends:
                if isinstance(end, torch.Tensor):
                    end.backward()
            _compare(
                [one.grad for one in theirs if one.grad is not None],
                [one.grad for one in ours if one.grad is not None],
            )
    kinds = [record.kind for record in records]
    assert len(kinds) == len(set(kinds))  # no graph was compiled again for another count
    assert any(record.fallbacks for record in records)


@pytest.mark.parametrize("dynamic", [False, True])
def test_inputs_are_written_between_unknown_sizes(dynamic: bool) -> None:
    fast = compiled(written, dynamic)
    for seed in range(3):
        ours, theirs = values(seed), values(seed)
        mask = ours > 0
        torch.testing.assert_close(fast(ours, mask), written(theirs, mask))
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("start", [0, 2])
def test_views_of_written_inputs_have_sizes_that_depend_on_values(start: int) -> None:
    def function(x: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
        first = count.item()
        torch._check(first >= 0)
        torch._check(first <= x.shape[0])
        view = x[first:]
        x.add_(1)
        return view

    fast = compiled(function)
    for first in (1, 3):
        bases = [torch.arange(40.0).reshape(8, 5) for _ in range(2)]
        ours, theirs = (
            one(base[start:], torch.tensor(first)) for one, base in zip((fast, function), bases, strict=True)
        )
        torch.testing.assert_close(ours, theirs)
        assert ours.storage_offset() == theirs.storage_offset()
        assert ours.untyped_storage().data_ptr() == bases[0].untyped_storage().data_ptr()


@pytest.mark.parametrize(
    ("function", "good", "bad"), [(checked, [2], [3]), (sized, [3], [7]), (sized, [1], [-1])]
)
def test_checks_of_numbers_run_in_each_call(function: Any, good: list[int], bad: list[int]) -> None:
    fast = compiled(function)
    fast(values(0), torch.tensor(good))
    with pytest.raises(RuntimeError, match="Runtime assertion failed"):
        fast(values(0), torch.tensor(bad))
    _compare(fast(values(0), torch.tensor(good)), function(values(0), torch.tensor(good)))


def test_checks_of_sizes_run_in_each_call() -> None:
    def function(x: torch.Tensor) -> Any:
        found = (x > 0).nonzero()
        torch._check(found.shape[0] == 3)
        return found.float().sin(), torch.ones(found.shape[0]) + x.sum()

    fast, x = compiled(function), torch.tensor([1.0, 1, -1, 1])
    _compare(fast(x), function(x))
    with pytest.raises(RuntimeError, match="Runtime assertion failed"):
        fast(-x)


def test_sizes_that_the_user_marked_are_compiled() -> None:
    fast = compiled(lambda x: x.sin() * 2)
    with recorded() as records:
        for rows in (1, 3):
            x = values(0, rows)
            torch._dynamo.decorators.mark_unbacked(x, 0)
            torch.testing.assert_close(fast(x), x.sin() * 2)
    assert not any(record.fallbacks for record in records)


@pytest.mark.parametrize("dynamic", [False, True])
def test_branches_take_sizes_that_depend_on_values(dynamic: bool) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        rows = x[x[:, 0] > 0]
        made: torch.Tensor = torch.cond(
            x.sum() > 0, lambda y: y.sin().sum(0), lambda y: y.cos().sum(0), (rows,)
        )
        return made * x

    fast = compiled(function, dynamic)
    for seed in range(3):
        torch.testing.assert_close(fast(values(seed)), function(values(seed)))


PLACES = torch.tensor([2, 0, 1])


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "function",
    [
        lambda x: x[PLACES] * 2,
        lambda x: x[:, PLACES, None],
        lambda x: torch.nn.functional.one_hot(x.argmax(1), 5) * x.sum(),
        lambda x: x[:, :2].repeat_interleave(PLACES[1:] + 1, dim=1, output_size=3),
        lambda x: torch.isin(x, x[:1]),
    ],
)
def test_dynamic_sizes_that_do_not_depend_on_values_are_compiled(function: Callable[..., Any]) -> None:
    fast = compiled(function, dynamic=True, fallback=False)
    for rows in (4, 3, 70):
        torch.testing.assert_close(fast(values(0, rows)), function(values(0, rows)))


def test_no_fallback_refuses_sizes_that_depend_on_values() -> None:
    with pytest.raises(BackendCompilerFailed, match="a size or number that depends on values"):
        compiled(lambda x: x[x > 0] * 2, fallback=False)(values(0))


@pytest.mark.parametrize("dynamic", [False, True])
def test_branches_beside_calls_in_eager_pytorch_are_compiled(dynamic: bool) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        def grown(y: torch.Tensor) -> torch.Tensor:
            return y.exp()

        first = torch.cond(x.sum() > 0, torch.sin, grown, (x,))
        found = x[x > 0].sum()
        last: torch.Tensor = torch.cond(found > 2, torch.sin, grown, (first * found,))
        return last + first

    fast = compiled(function, dynamic)
    for seed in range(3):
        torch.testing.assert_close(fast(values(seed)), function(values(seed)))
