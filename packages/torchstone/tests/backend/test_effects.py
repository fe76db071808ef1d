"""Side effects of functions happen as often as in eager PyTorch, whether the function is measured or not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed
import torch.distributed._functional_collectives as collectives
from torch import nn
from torch.utils.checkpoint import checkpoint

from torchstone.runtime.decisions import Decision, Decisions

pytestmark = [
    pytest.mark.usefixtures("tuning"),
    pytest.mark.filterwarnings("ignore::torchstone.errors.FallbackWarning"),
]

CALLS: Counter[str] = Counter()


@torch.library.custom_op("torchstone_tests::counted", mutates_args=())
def counted(x: torch.Tensor) -> torch.Tensor:
    CALLS["counted"] += 1
    return x * 2


@torch.library.custom_op("torchstone_tests::counted_backward", mutates_args=())
def counted_backward(gradient: torch.Tensor) -> torch.Tensor:
    CALLS["counted_backward"] += 1
    return gradient * 2


@torch.library.custom_op("torchstone_tests::counted_write", mutates_args=["x"])
def counted_write(x: torch.Tensor) -> None:
    CALLS["counted_write"] += 1
    x.add_(1)


counted.register_fake(torch.empty_like)
counted_backward.register_fake(torch.empty_like)
counted.register_autograd(lambda _, gradient: counted_backward(gradient))


class WithEffectInBackward(torch.autograd.Function):
    """Doubles its input; its backward counts its calls."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return counted_backward(gradients[0])


def writing(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    counted_write(y)
    return y * 2


@pytest.fixture(autouse=True)
def _counting() -> None:
    CALLS.clear()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Decision]:
    """The decisions so far. Each runs both candidates and picks eager PyTorch where it works and agrees."""
    found: list[Decision] = []

    def best(_: Decisions, question: Any, candidates: Any, **options: Any) -> Decision:
        compiled, eager = candidates.values()
        for _ in range(2):
            expected = compiled()()
        try:
            assert options["agree"](expected, eager()())
            found.append(Decision("eager PyTorch"))
        except Exception as error:  # noqa: BLE001 - as in what it stands for
            found.append(Decision("compiled", dropped={"eager PyTorch": str(error)}))
        return found[-1]

    monkeypatch.setattr(Decisions, "best", best)
    return found


def effects(function: Callable[..., Any]) -> list[Any]:
    """Return the counts, result and gradient after each of three calls."""
    CALLS.clear()
    seen = []
    for _ in range(3):
        x = torch.ones(3, requires_grad=True)
        result = function(x)
        (gradient,) = torch.autograd.grad(result.sum(), x)
        seen.append((dict(CALLS), result.tolist(), gradient.tolist()))
    return seen


@pytest.mark.parametrize(
    "function",
    [lambda x: counted(x) + 1, writing, lambda x: WithEffectInBackward.apply(x) + 1],
    ids=["forward and backward", "writes", "backward"],
)
def test_custom_operators_run_once_per_call(function: Callable[..., Any], asked: list[Decision]) -> None:
    assert effects(torch.compile(function, backend="torchstone")) == effects(function)
    assert not asked


def test_functions_of_others_do_not_run_again(asked: list[Decision]) -> None:
    @torch._dynamo.allow_in_graph
    def others(x: torch.Tensor) -> torch.Tensor:
        CALLS["others"] += 1
        return x + 1

    compiled = torch.compile(lambda x: others(x) * 2, backend="torchstone")
    compiled(torch.ones(3))
    traced = CALLS["others"]
    for _ in range(3):
        assert compiled(torch.ones(3)).tolist() == [4.0] * 3
    assert CALLS["others"] == traced
    assert not asked


def test_collectives_do_not_run_again(asked: list[Decision], tmp_path: Path) -> None:
    def function(x: torch.Tensor) -> Any:
        return collectives.all_reduce(x, "sum", torch.distributed.group.WORLD) + 1

    store = torch.distributed.FileStore(str(tmp_path / "store"), 1)
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        compiled = torch.compile(function, backend="torchstone")
        for _ in range(3):
            assert compiled(torch.ones(3)).tolist() == [2.0] * 3
    finally:
        torch.distributed.destroy_process_group()
    assert not asked


def test_numbers_that_nothing_uses_are_not_drawn_again(asked: list[Decision]) -> None:
    """The operator graph lacks random numbers that nothing uses, but eager PyTorch draws them."""

    def function(x: torch.Tensor) -> torch.Tensor:
        torch.rand(3)
        return x + 1

    compiled = torch.compile(function, backend="torchstone")
    torch.manual_seed(0)
    before = torch.get_rng_state()
    for _ in range(3):
        compiled(torch.ones(3))
    assert torch.equal(torch.get_rng_state(), before)
    (decision,) = asked
    assert "aten.rand.default" in decision.dropped["eager PyTorch"]


def test_writes_that_autograd_does_not_see(asked: list[Decision]) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        x.data.add_(1)
        return x * 2

    compiled, x = torch.compile(function, backend="torchstone"), torch.zeros(3)
    for calls in range(1, 4):
        assert compiled(x).tolist() == [2.0 * calls] * 3
        assert x.tolist() == [calls] * 3
    assert len(asked) == 1


def test_inputs_behind_those_that_share_memory(asked: list[Decision]) -> None:
    """AOTAutograd replaces the last two inputs by one, and puts it in front of the first."""

    def function(c: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        a.add_(1)
        return c + b

    compiled, base = torch.compile(function, backend="torchstone"), torch.zeros(4)
    for calls in range(1, 4):
        assert compiled(torch.ones(3), base[:3], base[1:]).tolist() == [1.0 + calls, 1.0 + calls, 1.0]
    assert not asked


@pytest.fixture
def _gradients_recorded() -> Iterator[None]:
    yield
    torch.set_grad_enabled(True)


@pytest.mark.usefixtures("_gradients_recorded")
def test_an_error_in_eager_leaves_the_recording_of_gradients_alone(asked: list[Decision]) -> None:
    def function(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            y = x.index_select(0, index)
        return y + x

    compiled, x = torch.compile(function, backend="torchstone"), torch.ones(1, requires_grad=True)
    for _ in range(2):  # the program reads the nearest element; eager PyTorch raises when it is tried
        compiled(x, torch.tensor([7]))
        assert torch.is_grad_enabled()
    assert [decision.chosen for decision in asked] == ["compiled"]

    torch._dynamo.reset()
    compiled, index = torch.compile(function, backend="torchstone"), torch.tensor([0])
    compiled(x, index), compiled(x, index)
    assert asked[-1].chosen == "eager PyTorch"
    with pytest.raises(IndexError):
        compiled(x, torch.tensor([7]))
    assert torch.is_grad_enabled()


@pytest.mark.parametrize(
    "transform", [torch.vmap, torch.func.vjp, torch.autocast], ids=lambda one: one.__name__
)
def test_functions_that_an_error_would_leave_half_done_stay_compiled(
    transform: Any, asked: list[Decision]
) -> None:
    """When eager PyTorch raises in a trial, it would leave the transform on."""

    def function(x: torch.Tensor, index: torch.Tensor) -> Any:
        if transform is torch.autocast:
            with torch.autocast("cpu", torch.bfloat16):
                return (x @ x).index_select(0, index)
        if transform is torch.vmap:
            return torch.vmap(lambda row: row.index_select(0, index))(x)
        return torch.func.vjp(lambda y: y.index_select(0, index), x)[0]

    compiled = torch.compile(function, backend="torchstone")
    for _ in range(3):
        compiled(torch.ones(2, 2), torch.tensor([0]))
    assert not asked


def test_hooks_on_saved_tensors_are_called_as_often_as_the_function(asked: list[Decision]) -> None:
    """Activation checkpointing uses such hooks to count the saved tensors."""
    layer, packed = nn.Linear(3, 2), []
    compiled = torch.compile(lambda x: layer(x).sin(), backend="torchstone")
    for calls in range(1, 4):
        with torch.autograd.graph.saved_tensors_hooks(lambda one: packed.append(one) or one, lambda one: one):
            compiled(torch.ones(4, 3))
        each = len(packed) // calls
        assert len(packed) == each * calls
        assert each < 8
        x = torch.ones(4, 3, requires_grad=True)
        checkpoint(compiled, x, use_reentrant=False).sum().backward()
        assert x.grad is not None
    assert not asked
    compiled(torch.ones(4, 3))
    assert len(asked) == 1
