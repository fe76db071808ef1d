"""One function is called with three sizes; backends that keep to the first call's sizes fail."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from optest.backends import CallDriver  # noqa: E402
from optest.core.case import BackendTarget  # noqa: E402
from optest.core.result import CaseResult, Status  # noqa: E402
from optest.torch.compiled import TorchCompile  # noqa: E402
from optest.torch.device import TorchDevice  # noqa: E402
from optest.torch.opinfo.execution import Request, run_group  # noqa: E402
from optest.torch.opinfo.groups import Group  # noqa: E402
from optest.torch.opinfo.phases import planned  # noqa: E402
from optest.torch.opinfo.turns import series, sharing, unlike  # noqa: E402

ENTRIES = ("add", "expand", "narrow", "select", "softmax", "split", "sum", "t", "unfold")


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    torch._dynamo.reset()


def run(driver: CallDriver, entry: str) -> list[CaseResult]:
    group = Group("opinfo", entry, "float32", "automatic_dynamic")
    target = BackendTarget("torch", driver.name)
    return list(run_group(driver, Request(group, target, most=1)).results)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("driver", [TorchDevice("cpu"), TorchCompile("aot_eager")], ids=lambda one: one.name)
@pytest.mark.parametrize("entry", ENTRIES)
def test_right_backends_pass(driver: CallDriver, entry: str) -> None:
    [result] = run(driver, entry)
    assert result.status is Status.PASSED, result.reason


class Wrong(TorchDevice):
    """Eager PyTorch that returns ``change(first turn, this turn, result)`` from each call."""

    def __init__(self, change: Callable[[Any, tuple[Any, ...], Any], Any]) -> None:
        super().__init__("cpu")
        self.change = change

    def answer_in_turn(self, function: Any, turns: Sequence[Any]) -> Any:
        found = super().answer_in_turn(function, turns)
        found.outputs = [
            self.change(turns[0], turn, result) for turn, result in zip(turns, found.outputs, strict=True)
        ]
        return found


@pytest.mark.kept("writes an input", "the first view", "other strides")
@pytest.mark.parametrize(
    ("entry", "change", "reason"),
    [
        ("t", lambda first, _, __: first[0][0].t(), "call 2 of 3: output0: shape"),
        ("t", lambda _, __, out: out.clone(), "shares memory with nothing, expected input0"),
        ("mm", lambda _, __, out: out.t().contiguous().t(), "strides"),
        ("add", lambda _, turn, out: turn[0][0].copy_(out), "input0 has other values"),
        ("add", lambda _, __, out: out.double(), "dtype"),
    ],
    ids=["the first view", "a copy", "other strides", "writes an input", "another dtype"],
)
def test_a_defect_is_caught(entry: str, change: Any, reason: str) -> None:
    [result] = run(Wrong(change), entry)
    assert result.status is Status.MISMATCH
    assert reason in result.reason


def test_a_backend_that_ignores_a_second_shape_is_caught() -> None:
    """The backend returns the views of its first call again, which are wrong for other sizes."""

    def stale(graph: Any, examples: Any) -> Any:
        kept: list[Any] = []

        def run(*args: Any) -> Any:
            kept[:] = kept or [graph(*args)]
            return kept[0]

        return run

    class Stale(TorchCompile):
        def answer_in_turn(self, function: Any, turns: Sequence[Any]) -> Any:
            self.backend = stale  # type: ignore[assignment]
            return super().answer_in_turn(function, turns)

    [result] = run(Stale("aot_eager"), "t")
    assert result.status is Status.MISMATCH
    assert result.reason.startswith("call 3 of 3:")


def test_a_fallback_counts_as_one() -> None:
    class Breaking(TorchCompile):
        def answer_in_turn(self, function: Any, turns: Sequence[Any]) -> Any:
            def broken(*args: Any, **kwargs: Any) -> Any:
                torch._dynamo.graph_break()
                return function(*args, **kwargs)

            return super().answer_in_turn(broken, turns)

    [result] = run(Breaking("aot_eager"), "add")
    assert result.status is Status.FALLBACK
    assert "graph break" in result.reason


@pytest.mark.parametrize("entry", ["add", "sum", "t", "matmul", "linalg.cholesky", "gather", "nonzero"])
def test_a_single_sample_is_resized(entry: str) -> None:
    case = planned(Group("opinfo", entry, "float32", "automatic_dynamic"), [0])[0].make()
    turns = series(case, [])
    assert len({tuple(tuple(one.shape) for one in turn.call.tensors) for turn in turns}) == 3


def test_what_differs_is_named() -> None:
    a = torch.zeros(4, 6)
    assert sharing([a, a[1:], a.clone(), a.t()]) == [None, 0, None, 0]
    assert unlike([a, a[1:]], [a, a[1:]], 1) == ""
    assert unlike([a, a[1:]], [a, a[:3]], 1) == "output0: storage offset 6, expected 0"
    assert unlike([a, a[:1]], [a, a[:1].as_strided((1, 6), (1, 1))], 1) == ""
