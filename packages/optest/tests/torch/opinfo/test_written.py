"""Calls of a suite may write into their operands only if eager PyTorch does so, too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from optest.backends import Answer  # noqa: E402
from optest.core.case import BackendTarget  # noqa: E402
from optest.core.result import Status  # noqa: E402
from optest.torch.compiled import TorchCompile  # noqa: E402
from optest.torch.device import TorchDevice  # noqa: E402
from optest.torch.opinfo.asking import asked  # noqa: E402
from optest.torch.opinfo.calls import Call, copied, evaluate, written  # noqa: E402
from optest.torch.opinfo.execution import Request, run_group  # noqa: E402
from optest.torch.opinfo.groups import Group  # noqa: E402
from optest.torch.opinfo.phases import cases_of  # noqa: E402


def clamping() -> Call:
    """Return a call of a wrong kernel: its result is right, but it changes its operand."""
    return Call(lambda x: [x.relu_().clone()], (torch.tensor([-1.0, 0.0, 2.0]),), results=1)


@pytest.mark.parametrize(
    ("driver", "whose"),
    [(TorchDevice("cpu"), "the call on cpu"), (TorchCompile("aot_eager"), "the compiled call")],
    ids=["eager", "compiled"],
)
def test_an_operator_that_writes_is_named(driver: Any, whose: str) -> None:
    call = clamping()
    [answer] = driver.answer([call])
    assert answer.error_text.partition("\n")[0] == (
        f"InputWritten: {whose} wrote into operand 0, which eager PyTorch only reads"
    )
    assert call.tensors[0].tolist() == [-1.0, 0.0, 2.0]
    [allowed] = driver.answer([replace(call, writes=(0,))])
    assert allowed.outputs[0].tolist() == [0.0, 0.0, 2.0]


class Scribbling:
    """A driver that runs on the original tensors of its calls, and overwrites one of them."""

    name = "scribbling"

    def answer(self, calls: Sequence[Call], repeats: int = 1) -> list[Answer]:
        answers = [Answer(evaluate(call)) for call in calls]
        calls[0].tensors[0].fill_(7)
        return answers


class Short(Scribbling):
    def answer(self, calls: Sequence[Call], repeats: int = 1) -> list[Answer]:
        return []


class Leaving(Scribbling):
    def answer(self, calls: Sequence[Call], repeats: int = 1) -> list[Answer]:
        raise SystemExit(0)


def statuses(driver: Any, entry: str, phase: str = "forward") -> list[tuple[Status, str]]:
    request = Request(Group("opinfo", entry, "float32", phase), BackendTarget("x"), most=2)
    return [(one.status, one.reason) for one in run_group(driver, request).results]


def test_what_a_driver_does_instead_of_answering() -> None:
    first, second = statuses(Scribbling(), "exp")
    assert first[0] is Status.ERROR
    assert "the driver scribbling wrote into tensors of the call (operand 0)" in first[1]
    assert second[0] is Status.PASSED
    assert {one for one, _ in statuses(Short(), "exp")} == {Status.ERROR}
    assert "gave 0 answers to 2 calls" in statuses(Short(), "exp")[0][1]
    assert statuses(Leaving(), "exp") == [(Status.ERROR, "SystemExit: 0")] * 2
    assert {one for one, _ in statuses(Leaving(), "bernoulli")} == {Status.ERROR}


def test_what_eager_writes_may_be_written() -> None:
    """Batch normalization may update its running statistics."""
    cases = list(cases_of(Group("opinfo", "nn.functional.batch_norm", "float32", "forward"), most=99))
    assert any(case.call.writes for case in cases)
    assert {one for one, _ in statuses(TorchDevice("cpu"), "nn.functional.batch_norm")} == {Status.PASSED}


def test_asking_nothing() -> None:
    assert asked(Short(), []) == []


@pytest.mark.parametrize(
    "tensor",
    [
        torch.zeros(8)[::8],
        torch.zeros(4, 6, dtype=torch.complex64)[:1, ::6],
        torch.zeros(0, 3).t(),
        torch.ones(3, dtype=torch.complex64).conj(),
        torch.zeros(()).expand(2, 3),
        torch.eye(2).to_sparse(),
        torch.zeros(2, device="meta"),
    ],
    ids=["lone element", "lone complex", "empty", "conjugated", "overlapping", "sparse", "meta"],
)
def test_tensors_of_every_layout_are_looked_at(tensor: torch.Tensor) -> None:
    call = Call(lambda x: [x], (tensor,))
    assert written(call, call.map(copied)) == []


def test_a_lone_element_that_is_written_is_seen() -> None:
    call = Call(lambda x: [x], (torch.zeros(8)[::8],))
    original = call.map(copied)
    call.tensors[0].fill_(-0.0)
    assert written(call, original) == [0]


def test_the_driver_in_the_guide_answers_a_suite() -> None:
    """Runs the class of docs/optest/drivers.md without registering it."""
    page = (Path(__file__).parents[5] / "docs/optest/drivers.md").read_text("utf-8")
    code = page.partition("## Answering calls of PyTorch")[2].partition("```python\n")[2].partition("```")[0]
    names: dict[str, Any] = {}
    exec(code, names)
    assert {one for one, _ in statuses(names["MyCompiler"](), "exp")} == {Status.PASSED}
    request = Request(Group("opinfo", "exp", "float32", "forward"), BackendTarget("x"), most=2)
    assert all(one.origin.form == "native" for one in run_group(names["MyCompiler"](), request).results)
