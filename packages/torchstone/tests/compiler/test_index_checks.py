"""Indices out of range: clamped and dropped by default, errors with ``config.check_indices``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._higher_order_ops.map import map as map_over
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

import torchstone
from torchstone import lowering
from torchstone.config import override
from torchstone.errors import IndexOutOfRange
from torchstone.lowering.checks import CLAMPED, DROPPED

ROWS = torch.arange(12.0).reshape(4, 3)
GOOD, BAD = torch.tensor([0, 3]), torch.tensor([0, 4])
WRAPPED, BEYOND = torch.tensor([-1, 3]), torch.tensor([-5, 0])

READS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "embedding": lambda i: torch.nn.functional.embedding(i, ROWS),
    "index_select": lambda i: ROWS.index_select(0, i),
    "gather": lambda i: ROWS.gather(0, i[:, None].expand(2, 3)),
    "take": lambda i: torch.arange(4.0).take(i),
    "index": lambda i: ROWS[i],
    "embedding_bag": lambda i: torch.nn.functional.embedding_bag(i[None], ROWS, mode="sum"),
    "cross_entropy_loss": lambda i: torch.nn.functional.cross_entropy(ROWS[:2, [0, 1, 2, 0]], i),
    "nll_loss": lambda i: torch.nn.functional.nll_loss(-ROWS[:2, [0, 1, 2, 0]].log1p(), i),
}
WRITES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "scatter": lambda i: ROWS.scatter(0, i[:, None].expand(2, 3), -1.0),
    "scatter_add": lambda i: ROWS.scatter_add(0, i[:, None].expand(2, 3), torch.ones(2, 3)),
    "index_add": lambda i: ROWS.index_add(0, i, torch.ones(2, 3)),
    "index_copy": lambda i: ROWS.index_copy(0, i, torch.ones(2, 3)),
    "index_fill": lambda i: ROWS.index_fill(0, i, -1.0),
    "index_put": lambda i: ROWS.index_put((i,), torch.tensor(-1.0)),
    "put": lambda i: torch.arange(4.0).put(i, torch.ones(2)),
}


def exported(function: Callable[..., Any], *args: Any) -> torchstone.Program:
    with override(check_indices=True):
        return torchstone.export(function, args)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", {**READS, **WRITES})
def test_exported_programs_raise_with_operator_and_line(name: str) -> None:
    function = {**READS, **WRITES}[name]
    program = exported(function, GOOD)
    torch.testing.assert_close(program(GOOD), function(GOOD))
    with pytest.raises(IndexOutOfRange, match=rf"aten\._?\w*{name}.*test_index_checks\.py:\d+: ") as raised:
        program(BAD)
    assert "must lie in [" in str(raised.value)
    assert isinstance(raised.value, IndexError)


@pytest.mark.parametrize("name", ["take", "index", "index_fill", "index_put", "put"])
def test_negative_indices_count_from_the_end_where_pytorch_counts_them(name: str) -> None:
    function = {**READS, **WRITES}[name]
    program = exported(function, GOOD)
    torch.testing.assert_close(program(WRAPPED), function(WRAPPED))
    with pytest.raises(IndexOutOfRange):
        program(BEYOND)


@pytest.mark.parametrize("name", ["embedding", "gather", "index_select", "scatter", "index_add"])
def test_negative_indices_are_errors_where_pytorch_refuses_them(name: str) -> None:
    function = {**READS, **WRITES}[name]
    with pytest.raises((IndexError, RuntimeError)):
        function(WRAPPED)
    with pytest.raises(IndexOutOfRange):
        exported(function, GOOD)(WRAPPED)


@pytest.mark.parametrize("name", ["embedding", "index_select", "gather", "take", "index"])
def test_reads_are_clamped_without_the_setting(name: str) -> None:
    function = READS[name]
    torch.testing.assert_close(torchstone.export(function, (GOOD,))(BAD), function(GOOD))


@pytest.mark.parametrize("name", WRITES)
def test_writes_are_dropped_without_the_setting(name: str) -> None:
    function = WRITES[name]
    expected = ROWS if name != "put" else torch.arange(4.0)
    program = torchstone.export(function, (GOOD,))
    torch.testing.assert_close(program(torch.tensor([4, 5])), expected)


def test_the_module_is_unchanged_without_the_setting() -> None:
    plain = torchstone.export(READS["embedding"], (GOOD,))
    checking = exported(READS["embedding"], GOOD)
    assert [spec.kind for spec in plain.signature.outputs] == ["output"]
    assert [spec.kind for spec in checking.signature.outputs] == ["output", "index_check"]


def test_the_ignored_class_is_in_range() -> None:
    def loss(scores: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.nll_loss(scores, target, ignore_index=-100)

    scores, ignoring = torch.randn(2, 3), torch.tensor([1, -100])
    program = exported(loss, scores, ignoring)
    torch.testing.assert_close(program(scores, ignoring), loss(scores, ignoring))
    with pytest.raises(IndexOutOfRange, match="target must lie in"):
        program(scores, torch.tensor([1, 3]))


def in_a_branch(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    return torch.cond(x.sum() > 0, lambda x, i: x.index_select(0, i), lambda x, i: x[i] * 2, (x, i))


def test_the_branch_that_is_taken_is_checked() -> None:
    program = exported(in_a_branch, ROWS, GOOD)
    for x, operator in ((ROWS, "index_select"), (-ROWS, "index.Tensor")):
        torch.testing.assert_close(program(x, GOOD), in_a_branch(x, GOOD))
        with pytest.raises(IndexOutOfRange, match=rf"aten\.{operator}.*test_index_checks\.py:\d+: "):
            program(x, BAD)
    torch.testing.assert_close(program(-ROWS, WRAPPED), in_a_branch(-ROWS, WRAPPED))


def summed(x: torch.Tensor, start: torch.Tensor) -> Any:
    """Sum every second row from ``start`` on, while the index is below six."""
    total = torch.zeros(3)
    return while_loop(
        lambda i, total: (i < 6).all(),
        lambda i, total: (i + 2, total + x.index_select(0, i)[0]),
        (start, total),
    )


def test_every_turn_of_a_loop_is_checked() -> None:
    rows = torch.arange(18.0).reshape(6, 3)
    program = exported(summed, rows, torch.tensor([0]))
    torch.testing.assert_close(program(rows, torch.tensor([1])), summed(rows, torch.tensor([1])))
    with pytest.raises(IndexOutOfRange, match=r"aten\.index_select"):
        program(rows, torch.tensor([-3]))  # its third iteration is within the range again


def followed(x: torch.Tensor, steps: torch.Tensor) -> Any:
    def step(total: torch.Tensor, i: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        row = x.index_select(0, i)[0]
        return total + row, row * 2

    return scan(step, torch.zeros(3), steps, dim=0)


def test_every_step_of_a_scan_is_checked() -> None:
    program = exported(followed, ROWS, torch.tensor([[0], [3], [1]]))
    steps = torch.tensor([[2], [2], [0]])
    torch.testing.assert_close(program(ROWS, steps), followed(ROWS, steps))
    with pytest.raises(IndexOutOfRange, match=r"aten\.index_select"):
        program(ROWS, torch.tensor([[0], [4], [1]]))


def looked_up(x: torch.Tensor, places: torch.Tensor) -> Any:
    return map_over(lambda place, x: x.index_select(0, place), places, x)


def test_every_call_of_a_map_is_checked() -> None:
    places = torch.tensor([[0], [3], [1]])
    program = exported(looked_up, ROWS, places)
    torch.testing.assert_close(program(ROWS, places), looked_up(ROWS, places))
    with pytest.raises(IndexOutOfRange, match=r"aten\.index_select"):
        program(ROWS, torch.tensor([[0], [4], [1]]))


def test_a_target_that_is_no_class() -> None:
    loss, scores = torch.nn.functional.multi_margin_loss, torch.randn(2, 4)
    program = exported(loss, scores, GOOD)
    torch.testing.assert_close(program(scores, GOOD), loss(scores, GOOD))
    with pytest.raises(IndexOutOfRange):
        program(scores, BAD)


def test_places_behind_the_targets_are_in_range() -> None:
    def loss(scores: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.multilabel_margin_loss(scores, target)

    scores, target = torch.randn(3), torch.tensor([2, -1, 0])
    program = exported(loss, scores, target)
    torch.testing.assert_close(program(scores, target), loss(scores, target))
    with pytest.raises(IndexOutOfRange, match="target must lie in"):
        program(scores, torch.tensor([3, -1, 0]))


def test_a_saved_program_checks_too_and_writes_nothing_first(tmp_path: Path) -> None:
    class Counting(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            return x[index]

    program = torchstone.load(exported(Counting(), ROWS, GOOD).save(tmp_path / "counting.tsp"))
    with pytest.raises(IndexOutOfRange):
        program(ROWS.numpy(), BAD.numpy())
    assert program.state()["calls"] == 0
    program(ROWS.numpy(), GOOD.numpy())
    assert program.state()["calls"] == 1


def test_symbolic_sizes_are_the_range() -> None:
    with override(check_indices=True):
        size = torch.export.Dim("size", min=2, max=64)
        program = torchstone.export(
            lambda x, i: x.index_select(0, i), (ROWS, GOOD), dynamic_shapes=({0: size}, None)
        )
    longer = torch.arange(18.0).reshape(6, 3)
    torch.testing.assert_close(program(longer, torch.tensor([0, 5])), longer[[0, 5]])
    with pytest.raises(IndexOutOfRange):
        program(longer, torch.tensor([0, 6]))


def test_compiled_functions_raise() -> None:
    def step(weight: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.embedding(index, weight).sum()

    compiled = torch.compile(step, backend="torchstone", options={"check_indices": True})
    weight = ROWS.clone().requires_grad_()
    compiled(weight, GOOD).backward()
    assert weight.grad is not None
    assert weight.grad[3].tolist() == [1.0, 1.0, 1.0]
    with pytest.raises(IndexOutOfRange, match=r"aten\.embedding\.default at .*test_index_checks\.py"):
        compiled(weight, BAD)


def test_what_happens_out_of_range_is_declared_beside_the_lowering() -> None:
    rules = [entry.indices for entry in lowering.load() if entry.indices is not None]
    assert {rule.effect for rule in rules} >= {CLAMPED, DROPPED}
