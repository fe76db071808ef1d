"""Captured functions that eager PyTorch runs, where that was measured to be faster."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.fx import GraphModule

import torchstone
from torchstone.backend import measured
from torchstone.backend.records import GraphRecord, recorded
from torchstone.backend.watching import calls_recorded
from torchstone.config import override
from torchstone.runtime.decisions import Decision, Decisions

COMPILED, EAGER = "compiled", "eager PyTorch"


pytestmark = pytest.mark.usefixtures("tuning")


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Make measuring prefer eager PyTorch; return the questions that were asked."""
    asked: list[dict[str, Any]] = []

    def best(_: Decisions, question: dict[str, Any], candidates: Any, *, agree: Any, **__: Any) -> Decision:
        compiled, other = (prepare()() for prepare in candidates.values())
        assert agree(compiled, other)
        asked.append(question)
        return Decision(EAGER)

    monkeypatch.setattr(Decisions, "best", best)
    return asked


def in_eager(records: list[GraphRecord]) -> dict[str, int]:
    return {record.kind: record.in_eager for record in records}


class Convolutions(nn.Module):
    """A network that saves results of channels-last convolutions for its backward."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 5, 3)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 2)), (4, 6)),
    "convolutions": (Convolutions, (2, 3, 12, 12)),
    "attention": (lambda: nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True), (2, 5, 8)),
}


@pytest.mark.kept("attention")
@pytest.mark.parametrize("name", NETWORKS)
def test_results_and_gradients_are_those_of_eager(name: str, eager: list[dict[str, Any]]) -> None:
    make, shape = NETWORKS[name]
    model = make()
    compiled = torch.compile(model, backend="torchstone", fullgraph=True)
    with recorded() as records:
        for call in range(3):
            inputs = [torch.randn(shape).requires_grad_(), *model.parameters()]
            output, expected = compiled(inputs[0]), model(inputs[0])
            assert output.stride() == expected.stride()
            torch.testing.assert_close(output, expected)
            ours = torch.autograd.grad(output.square().sum(), inputs)
            torch.testing.assert_close(ours, torch.autograd.grad(expected.square().sum(), inputs))
            chosen = int(call > 0)  # the first call runs the program
            assert in_eager(records) == {"forward": chosen, "backward": chosen}
    assert len(eager) == 1
    assert not any(record.fallbacks or record.preferred for record in records)


def test_results_of_float8(eager: list[dict[str, Any]]) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return (x @ x).to(torch.float8_e4m3fn)

    compiled, x = torch.compile(function, backend="torchstone", fullgraph=True), torch.randn(4, 4)
    for _ in range(3):
        torch.testing.assert_close(compiled(x).float(), function(x).float())
    assert len(eager) == 1


def test_sparse_gradients_of_tables(eager: list[dict[str, Any]]) -> None:
    table = nn.Embedding(10, 3, sparse=True)
    compiled = torch.compile(table, backend="torchstone")
    for _ in range(3):
        indices = torch.randint(0, 10, (4, 5))
        found, expected = (
            torch.autograd.grad(one(indices).square().sum(), table.weight)[0] for one in (compiled, table)
        )
        assert found.layout is expected.layout is torch.sparse_coo
        torch.testing.assert_close(found.coalesce(), expected.coalesce())
    assert len(eager) == 1


def test_views_and_writes(eager: list[dict[str, Any]]) -> None:
    def function(a: torch.Tensor, b: torch.Tensor) -> Any:
        a.mul_(2)
        total = a + b
        return a[1:], total.t(), total, b.view(-1)

    compiled = torch.compile(function, backend="torchstone", fullgraph=True)
    for _ in range(3):
        a, b = torch.randn(3, 4), torch.randn(3, 4)
        twins = a.clone(), b.clone()
        found, expected = compiled(a, b), function(*twins)
        torch.testing.assert_close((found, a, b), (expected, *twins))
        assert [one.stride() for one in found] == [one.stride() for one in expected]
        for one, owner in zip(found, (a, found[2], found[2], b), strict=True):
            assert one.untyped_storage().data_ptr() == owner.untyped_storage().data_ptr()
    assert len(eager) == 1


def test_each_shape_asks_at_its_second_call(eager: list[dict[str, Any]]) -> None:
    model = nn.Linear(6, 2)
    compiled = torch.compile(model, backend="torchstone", dynamic=True)
    asked = []
    with torch.no_grad():
        for size in (3, 5, 3, 5, 3, 7):
            x = torch.randn(size, 6)
            torch.testing.assert_close(compiled(x), model(x))
            asked.append(len(eager))
    assert asked == [0, 0, 1, 2, 2, 2]


@torchstone.graph_pass("nothing")
def nothing(module: GraphModule) -> GraphModule:
    """A user's pass, which changes nothing."""
    return module


@pytest.mark.parametrize(
    "options",
    [
        {"fallback": False},
        {"tuning": False},
        {"check_indices": True},
        {"check_values": True},
        {"passes": [nothing]},
    ],
    ids=lambda options: next(iter(options)),
)
def test_options_that_leave_nothing_to_eager(options: dict[str, Any], eager: list[dict[str, Any]]) -> None:
    compiled = torch.compile(nn.Linear(6, 2), backend="torchstone", options=options)
    for _ in range(3):
        compiled(torch.randn(3, 6))
    assert not eager


def test_without_a_budget_nothing_is_measured(eager: list[dict[str, Any]]) -> None:
    with override(tuning_budget_s=0.0):
        compiled = torch.compile(torch.sin, backend="torchstone")
        for _ in range(3):
            compiled(torch.randn(3))
    assert not eager


def test_random_numbers_are_those_of_the_program(eager: list[dict[str, Any]]) -> None:
    compiled = torch.compile(lambda x: nn.functional.dropout(x), backend="torchstone")
    x, drawn = torch.ones(100), []
    for _ in range(3):
        torch.manual_seed(3)
        drawn.append(compiled(x))
    assert not eager
    torch.testing.assert_close(drawn[1:], drawn[:1] * 2, rtol=0, atol=0)


def test_calls_that_are_watched_run_the_program(eager: list[dict[str, Any]]) -> None:
    with calls_recorded() as calls:
        compiled = torch.compile(torch.sin, backend="torchstone")
        for _ in range(3):
            compiled(torch.randn(3))
    assert len(calls) == 3
    assert not eager


def test_a_graph_that_eager_refuses_stays_compiled() -> None:
    """The program reads the nearest element, where eager PyTorch raises."""
    compiled = torch.compile(lambda x, i: x.index_select(0, i), backend="torchstone")
    x, index = torch.randn(3), torch.tensor([7])
    with recorded() as records:
        for _ in range(3):
            assert compiled(x, index) == x[2]
    assert in_eager(records) == {"inference": 0}


@pytest.mark.usefixtures("eager")
def test_buffers_are_written_once_per_call() -> None:
    """A trial writes into copies of the buffers."""
    model, twin = (nn.BatchNorm1d(4, momentum=0.5) for _ in range(2))
    compiled = torch.compile(model, backend="torchstone", fullgraph=True)
    for _ in range(3):
        x = torch.randn(5, 4)
        torch.testing.assert_close(compiled(x), twin(x))
        torch.testing.assert_close(dict(model.named_buffers()), dict(twin.named_buffers()))


@pytest.mark.usefixtures("eager")
def test_a_trial_leaves_gradients_hooks_and_random_state_alone() -> None:
    model, seen = nn.Linear(3, 2), []
    model.weight.register_hook(lambda gradient: seen.append(gradient))
    compiled = torch.compile(model, backend="torchstone")
    for call in range(1, 4):
        state = torch.get_rng_state()
        output = compiled(torch.ones(4, 3))
        assert torch.equal(torch.get_rng_state(), state)
        assert len(seen) == call - 1
        output.sum().backward()
        assert len(seen) == call
    torch.testing.assert_close(model.weight.grad, torch.full((2, 3), 12.0))


def test_written_inputs_in_shared_memory_are_not_tried(eager: list[dict[str, Any]]) -> None:
    """Copies of the inputs would not share memory."""
    compiled = torch.compile(lambda a, b: a.mul_(2) + b, backend="torchstone")
    for _ in range(3):
        base = torch.ones(4)
        torch.testing.assert_close(compiled(base[:3], base[1:]), torch.tensor([4.0, 4.0, 3.0]))
    assert not eager


def test_inference_mode(eager: list[dict[str, Any]]) -> None:
    model = nn.Linear(6, 2)
    compiled = torch.compile(model, backend="torchstone")
    with torch.inference_mode():
        for _ in range(3):
            x = torch.randn(3, 6)
            torch.testing.assert_close(compiled(x), model(x))
    assert len(eager) == 1


def test_threads_agree(eager: list[dict[str, Any]]) -> None:
    compiled = torch.compile(lambda x: x.sin() + 1, backend="torchstone")
    inputs = torch.randn(8, 5)
    compiled(inputs[0])
    found: list[Any] = [None] * len(inputs)

    def call(place: int) -> None:
        for _ in range(20):
            found[place] = compiled(inputs[place])

    threads = [threading.Thread(target=call, args=(place,)) for place in range(len(inputs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torch.testing.assert_close(torch.stack(found), inputs.sin() + 1)
    assert len({question["function"] for question in eager}) == 1


def test_exports_are_not_measured(eager: list[dict[str, Any]]) -> None:
    program = torchstone.export(nn.Linear(6, 2), (torch.randn(3, 6),))
    for _ in range(3):
        program(torch.randn(3, 6))
    assert not eager


ONE = torch.arange(1.0, 2001.0)


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (ONE * (1 + 1e-6), True),
        (ONE + 1e-3, True),  # only rounding, compared with the largest element
        (ONE.where(ONE != 7, torch.nan), False),
        (ONE * 1.01, False),
    ],
)
def test_results_agree_but_for_rounding(other: torch.Tensor, expected: bool) -> None:
    assert measured._agree(([ONE], []), ([other], [])) is expected


TURNED = ONE.where(ONE != 700, 0)


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        ([ONE, ONE * 1e-7], True),
        ([TURNED, ONE * 1e-7], True),  # only one element of many differs
        ([ONE, ONE * 5e-8], True),  # the difference is only rounding, compared with the first
        ([ONE * 1.1, ONE * 1e-7], False),
        ([-ONE, ONE * 1e-7], False),
        ([ONE, ONE], False),
        ([ONE.where(ONE != 7, torch.nan), ONE * 1e-7], False),
    ],
)
def test_gradients_agree_as_a_whole(other: list[torch.Tensor], expected: bool) -> None:
    assert measured._agree(([], [ONE, ONE * 1e-7]), ([], other)) is expected


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e8m0fnu], ids=str)
def test_numbers_of_8_bits_agree_but_for_rounding(dtype: torch.dtype) -> None:
    some = torch.tensor([1.0, 2.0, 0.5, 64.0]).to(dtype)
    assert measured._agree(([some], []), ([some.clone()], []))
    assert not measured._agree(([some], []), ([(some.float() * 2).to(dtype)], []))


def test_few_integers_may_differ() -> None:
    some = torch.zeros(2000, dtype=torch.int64)
    for count, expected in ((2, True), (3, False)):
        other = some.clone()
        other[:count] = 1
        assert measured._agree(([some], []), ([other], [])) is expected
    with_nan = torch.tensor([1.0, torch.nan, torch.inf])
    assert measured._agree(([with_nan], []), ([with_nan.clone()], []))
    assert not measured._agree(([with_nan], []), ([torch.zeros(3)], []))


def test_calls_of_parts_that_make_tensors_of_numbers_are_recorded() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x * torch.tensor([2.0, 3.0])

    with calls_recorded() as calls:
        result = torch.compile(function, backend="torchstone")(torch.ones(2))
    (call,) = calls
    torch.testing.assert_close(call.module(*call.inputs)[0], result)
