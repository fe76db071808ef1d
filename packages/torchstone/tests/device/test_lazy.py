"""Fused eager: calls run as one program when values are needed, and all else works as in eager mode."""

from __future__ import annotations

import gc
import io
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from torchstone.config import override
from torchstone.device import lazy, looks, operators, regions
from torchstone.device.storage import Box
from torchstone.errors import EngineError, IndexOutOfRange, InvalidValue
from torchstone.runtime import executable

from .mirrored import DEVICE, EXACT, mirrored
from .test_views import ONCE, VIEWS, base

pytestmark = pytest.mark.usefixtures("plain_by_default")


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of calls in each program that ran."""
    found: list[int] = []
    plain = regions.Region.__call__

    def counted(self: regions.Region, batch: Any, execution: Any) -> Any:
        found.append(batch.count)
        return plain(self, batch, execution)

    monkeypatch.setattr(regions.Region, "__call__", counted)
    return found


def test_a_chain_runs_as_one_program_where_values_are_read(runs: list[int]) -> None:
    def chain(device: str) -> Any:
        x = torch.arange(6.0, device=device).view(2, 3)
        y = (x / 2 + 1).exp().sin()
        y[0].add_(x[1])
        return y

    with torch.pjrt.lazy():
        x = chain(DEVICE)
        assert runs == []
        torch.testing.assert_close(x.cpu(), chain("cpu"))
    assert runs == [6]


def test_a_sequence_that_comes_again_makes_nothing_new(runs: list[int]) -> None:
    def step(value: float) -> float:
        with torch.pjrt.lazy():
            x = torch.full((3,), 2.0, device=DEVICE)
            return (x * value).cumsum(0).sum().item()

    assert step(1.5) == 18
    kept = regions.count()
    assert step(2.5) == 30
    assert regions.count() == kept
    assert runs == [4, 4]


def test_views_share_their_storage() -> None:
    @torch.pjrt.lazy()
    def write(device: str) -> Any:
        x = torch.arange(24, dtype=torch.float32).view(4, 6).clone().to(device)
        x.t()[1:3].mul_(-2)
        row, last = x[2], x.view(-1)[-5:]
        torch.add(x[0], 1, out=x[3])
        return x, row, last

    mirrored(write, **EXACT)


def test_every_view_is_read_and_written_in_one_program(runs: list[int]) -> None:
    @torch.pjrt.lazy()
    def write(device: str) -> Any:
        found = []
        for name in ONCE:
            x = base(device)
            first, last = x[0], x.view(-1)[5:]
            view = VIEWS[name](x)
            view.mul_(-2)
            x.add_(1)
            found += [x, first, last, view.clone()]
        return found

    mirrored(write, **EXACT)
    assert len(runs) == 1


def test_only_what_somebody_holds_becomes_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    plain = regions.made

    def noted(batch: Any, live: tuple[int, ...], donated: tuple[int, ...]) -> regions.Region:
        found.append((live, donated))
        return plain(batch, live, donated)

    monkeypatch.setattr(regions, "made", noted)
    x, y = torch.ones(3, 7, device=DEVICE), torch.ones(3, 7, device=DEVICE)
    held = y.detach()
    old = torch.empty_like(x).set_(x).mul_(1)  # a program made this array
    with torch.pjrt.lazy():
        z = (x.neg().neg() + y).abs()
        x.mul_(2)
        x.add_(y)
    assert found == [((3, 5), (0,))]
    assert z.sum() == 42
    assert x.sum() == 63
    assert old.sum() == 63
    assert held.sum() == 21


def test_an_index_out_of_range_stops_at_its_call_and_says_where_it_was_made() -> None:
    written, table = torch.zeros(3, device=DEVICE), torch.eye(4, device=DEVICE)
    with torch.pjrt.lazy():
        before = written + 1
        written.add_(1)
        found = table[torch.tensor([1, 9], device=DEVICE)]  # the error names this line
        line = sys._getframe().f_lineno - 1
        found.add_(1)
        written.mul_(5)
        table.zero_()
        after = before + 1
        with pytest.raises(IndexOutOfRange, match=r"aten\.index\.Tensor") as caught:
            after.sum().item()
        assert caught.value.__notes__ == [f"called at {__file__}:{line}, and run later: see torch.pjrt.lazy"]
        assert written.tolist() == [1, 1, 1]
        assert before.tolist() == [1, 1, 1]
        assert table.sum() == 4
        for lost in (found, after):
            with pytest.raises(RuntimeError, match=r"no values: .* IndexOutOfRange: index out of range"):
                lost.tolist()
        assert (written + 1).tolist() == [2, 2, 2]


def test_a_value_that_an_operator_refuses_is_an_error_at_the_end_of_the_context() -> None:
    x = torch.ones(2, device=DEVICE)

    def run() -> None:
        with torch.pjrt.lazy():
            x.add_(1)
            torch.multinomial(torch.tensor([-1.0, 2.0], device=DEVICE), 1)
            x.add_(1)

    with pytest.raises(InvalidValue, match="multinomial"):
        run()
    assert x.tolist() == [2, 2]


def test_what_metadata_refuses_is_an_error_at_once() -> None:
    x, y = torch.ones(2, device=DEVICE), torch.ones(3, device=DEVICE)
    with torch.pjrt.lazy():
        x.add_(1)
        with pytest.raises(RuntimeError, match="must match the size of tensor b"):
            x + y
        x.add_(1)
    assert x.tolist() == [3, 3]


def test_an_exception_in_the_context_leaves_what_was_called_before_it() -> None:
    x = torch.ones(2, device=DEVICE)

    @torch.pjrt.lazy()
    def run() -> None:
        x.add_(1)
        raise KeyError

    with pytest.raises(KeyError):
        run()
    assert x.tolist() == [2, 2]


def test_an_engine_that_fails_on_the_whole_makes_each_call_by_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def exhausted(*_: Any) -> None:
        raise EngineError("RESOURCE_EXHAUSTED: out of memory")

    monkeypatch.setattr(regions.Region, "__call__", exhausted)
    x = torch.ones(2, device=DEVICE)
    with torch.pjrt.lazy():
        y = x * 3
        x.add_(y.sum() * 0.5)
        torch.manual_seed(3)
        noise = torch.rand(2, device=DEVICE)
    torch.manual_seed(3)
    assert x.tolist() == [4, 4]
    assert y.tolist() == [3, 3]
    assert noise.tolist() == torch.rand(2, device=DEVICE).tolist()


def test_out_of_memory_at_the_run_leaves_tensors_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(*_: Any) -> None:
        raise EngineError("RESOURCE_EXHAUSTED: out of memory")

    x = torch.ones(2, device=DEVICE)
    with torch.pjrt.lazy():
        y = x + 1
        x.mul_(7)
        with monkeypatch.context() as patched:
            patched.setattr(executable.LoadedProgram, "_run", exhausted)
            with pytest.raises(torch.OutOfMemoryError):
                x.sum().item()
        assert x.tolist() == [1, 1]
        with pytest.raises(RuntimeError, match="no values"):
            y.tolist()
        x.mul_(7)
    assert x.tolist() == [7, 7]


def test_out_of_memory_for_inputs_gives_all_memory_back() -> None:
    gc.collect()
    before = torch.pjrt.memory_allocated()
    with torch.pjrt.lazy():
        for _ in range(2):
            with pytest.raises(torch.OutOfMemoryError, match="next: free tensors"):
                (torch.empty(10**13, device=DEVICE) + 1).cpu()
    gc.collect()
    assert torch.pjrt.memory_allocated() == before


def test_the_memory_limit_holds_when_a_call_is_made() -> None:
    x = torch.ones(1000, device=DEVICE)
    with override(device_memory_limit=torch.pjrt.memory_allocated() + 6000), torch.pjrt.lazy():
        y = x + 1
        with pytest.raises(torch.OutOfMemoryError, match="Tried to allocate 4000 bytes"):
            x + 2
        del y
        assert (x + 3).sum() == 4000


def test_training_steps_are_one_program_each_and_have_the_losses_of_the_cpu(runs: list[int]) -> None:
    def losses(device: str, optimizer: Any, **options: Any) -> list[float]:
        torch.manual_seed(0)
        layers = (torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU(), torch.nn.MaxPool2d(2), torch.nn.Flatten())
        model = torch.nn.Sequential(*layers, torch.nn.Linear(36, 5)).to(device)
        steps = optimizer(model.parameters(), lr=0.05, **options)
        inputs, targets = torch.randn(8, 1, 8, 8).to(device), (torch.arange(8) % 5).to(device)

        @torch.pjrt.lazy()
        def step() -> float:
            steps.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(inputs), targets)
            loss.backward()
            steps.step()
            return loss.item()

        return [step() for _ in range(3)]

    optimizers: list[tuple[Any, dict[str, Any]]] = [
        (torch.optim.SGD, {"momentum": 0.9}),
        (torch.optim.AdamW, {"fused": True}),
    ]
    for optimizer, options in optimizers:
        runs.clear()
        torch.testing.assert_close(losses(DEVICE, optimizer, **options), losses("cpu", optimizer, **options))
        assert len(runs) == 3


def test_random_numbers_autocast_and_generators_are_those_of_plain_eager() -> None:
    def draw(device: str = DEVICE) -> Any:
        torch.manual_seed(7)
        generator = torch.Generator(device).manual_seed(3)
        with torch.autocast(device, torch.bfloat16):
            product = torch.rand(4, 4, device=device) @ torch.randn(4, 4, device=device)
        return (
            product,
            torch.nn.functional.dropout(torch.ones(50, device=device)),
            torch.randint(9, (5,), device=device, generator=generator),
        )

    for found, expected in zip(torch.pjrt.lazy()(draw)(), draw(), strict=True):
        assert found.dtype == expected.dtype
        torch.testing.assert_close(found.cpu(), expected.cpu())


def test_contexts_nest_and_can_be_turned_off_for_a_part(runs: list[int]) -> None:
    x = torch.ones(2, device=DEVICE)
    with torch.pjrt.lazy():
        x.add_(1)
        with torch.pjrt.lazy():
            x.mul_(3)
        assert runs == []
        with torch.pjrt.lazy(False):
            y = x - 1
        assert runs == [2]
        x.sub_(y)
    assert runs == [2, 1]
    assert x.tolist() == [1, 1]


def test_the_setting_serves_every_thread_and_calls_are_bounded(runs: list[int]) -> None:
    x = torch.ones(2, device=DEVICE)
    with override(device_lazy=True, device_lazy_calls=3):
        for _ in range(7):
            x.add_(1)
        assert runs == [3, 3]
        with torch.pjrt.lazy(False):
            assert torch.ones(2, device=DEVICE).tolist() == [1, 1]
    assert runs == [3, 3]
    assert x.tolist() == [8, 8]
    assert runs == [3, 3, 1]


def test_turning_the_setting_off_ends_what_a_context_began(runs: list[int]) -> None:
    x = torch.arange(3.0).to(DEVICE)
    with override(device_lazy=True):
        with torch.pjrt.lazy():
            y = x * 2.0
        for _ in range(2):
            y = y * 2.0
        assert runs == []
    y = y * 2.0
    assert runs == [3]
    assert y.tolist() == [0.0, 16.0, 32.0]


def test_regions_are_bounded() -> None:
    with override(device_regions=3):
        for size in range(1, 7):
            with torch.pjrt.lazy():
                x = torch.ones(size, device=DEVICE) + 1
            assert x.sum() == 2 * size
        assert regions.count() == 3


@pytest.mark.kept("repr", "synchronize", "numpy", "event", "dlpack")
@pytest.mark.parametrize("point", ["synchronize", "event", "numpy", "dlpack", "save", "nonzero", "repr"])
def test_what_asks_for_values_runs_what_is_pending(point: str, runs: list[int]) -> None:
    asks: dict[str, Callable[[Tensor], Any]] = {
        "synchronize": lambda _: torch.pjrt.synchronize(),
        "event": lambda _: torch.Event(DEVICE).record(),
        "numpy": lambda x: x.cpu().numpy(),
        "dlpack": torch.from_dlpack,
        "save": lambda x: torch.save(x, io.BytesIO()),
        "nonzero": lambda x: x.nonzero(),
        "repr": repr,
    }
    with torch.pjrt.lazy():
        x = torch.ones(2, device=DEVICE) * 2
        assert runs == []
        asks[point](x)
        assert runs


def test_a_thread_that_reads_runs_what_another_has_pending() -> None:
    x, ready, done = torch.zeros(2, device=DEVICE), threading.Event(), threading.Event()

    def write() -> None:
        with torch.pjrt.lazy():
            x.add_(5)
            ready.set()
            done.wait(60)
            x.mul_(2)

    thread = threading.Thread(target=write)
    thread.start()
    ready.wait(60)
    with torch.pjrt.lazy():
        y = x + 1
        assert y.tolist() == [6, 6]
    done.set()
    thread.join()
    assert x.tolist() == [10, 10]


def test_eight_threads_agree() -> None:
    shared = torch.arange(4.0, device=DEVICE)
    results: list[list[float]] = []

    @torch.pjrt.lazy()
    def work(number: int) -> None:
        x = shared * number
        for _ in range(30):
            x = x + shared
            x.sub_(shared[0])
        results.append((x - number * shared).tolist())

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [[0, 30, 60, 90]] * 8


def test_a_fork_runs_what_is_pending(runs: list[int]) -> None:
    with torch.pjrt.lazy():
        x = torch.ones(2, device=DEVICE) + 1
        child = os.fork()
        if not child:
            os._exit(0)
        os.waitpid(child, 0)
        assert len(runs) == 1
        assert x.tolist() == [2, 2]


def test_views_of_conjugates_bytes_and_other_dtypes() -> None:
    @torch.pjrt.lazy()
    def run(device: str) -> Any:
        x = torch.arange(8, dtype=torch.float32).to(device)
        c = torch.view_as_complex(x.view(4, 2))
        c.conj().mul_(2j)
        x.view(torch.int32)[0] = 7
        grown = torch.arange(3.0, device=device)
        grown.resize_(2, 3)
        grown[1] = 1
        empty = torch.empty(0, device=device)
        torch.sum(x.view(2, 4), 1, out=empty)
        return x, c.imag, grown, empty

    mirrored(run)


def test_negative_and_conjugate_views_are_two_things() -> None:
    z = torch.tensor([1 + 2j], device="pjrt")
    assert (torch._neg_view(z) + 1j).tolist() == [-1 - 1j]
    assert (torch._neg_view(z.conj()) + 1j).tolist() == [-1 + 3j]


def test_threads_may_share_a_context() -> None:
    shared, entered, left = torch.pjrt.lazy(), threading.Event(), threading.Event()
    found = []

    def first() -> None:
        with torch.pjrt.lazy():
            with shared:
                entered.set()
                left.wait(30)
            found.append(lazy.wanted())

    thread = threading.Thread(target=first)
    thread.start()
    entered.wait(30)
    with shared:
        left.set()
        thread.join()
    assert found == [True]
    assert not lazy.wanted()


def test_nothing_leaks() -> None:
    x = torch.ones(100, device=DEVICE)

    def round_() -> None:
        with torch.pjrt.lazy():
            y = x * 2
            x.copy_(y - x)

    round_()
    before = torch.pjrt.memory_allocated()
    for _ in range(200):
        round_()
    assert torch.pjrt.memory_allocated() == before
    assert x.sum() == 100


@pytest.mark.parametrize("asks", [False, True], ids=["calls", "asks for values"])
@pytest.mark.parametrize("place", range(4))
def test_a_signal_handler_in_the_middle_of_a_call(
    asks: bool, place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The handler runs while a call gets its results, which Python may do at any call."""
    operators.clear()
    made = 0
    plain = lazy.pending_result

    def interrupted(*given: Any) -> Any:
        nonlocal made
        made += 1
        if made == place + 1:
            total.add_(x)
            if asks:
                assert total.tolist() == [1.0, 2.0, 3.0]
        return plain(*given)

    x, total, count = (
        torch.tensor(numbers).to(DEVICE) for numbers in ([0.0, 1.0, 2.0], [1.0] * 3, [0.0] * 3)
    )
    monkeypatch.setattr(lazy, "pending_result", interrupted)
    with torch.pjrt.lazy():
        y = x * 2.0
        count.add_(y, alpha=3)
        z = y.sub(1.5) + count
    assert total.tolist() == [1.0, 2.0, 3.0]
    assert count.tolist() == [0.0, 6.0, 12.0]
    assert z.tolist() == [-1.5, 6.5, 14.5]


INTERRUPTIONS: dict[str, Callable[[Tensor], Any]] = {
    "makes a call": lambda y: y.add_(1.0),
    "asks for values": lambda y: y.tolist(),
    "waits for a thread that asks for values": lambda y: _in_a_thread(y.tolist),
}


def _in_a_thread(function: Callable[[], Any]) -> None:
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()


@pytest.mark.parametrize("interruption", INTERRUPTIONS)
@pytest.mark.parametrize("raises", [False, True], ids=["returns", "raises"])
def test_a_signal_handler_in_the_middle_of_a_recognized_call(
    interruption: str, raises: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pending: list[Tensor] = []

    def interrupted() -> Box:
        if pending:
            INTERRUPTIONS[interruption](pending.pop())
            if raises:
                raise KeyboardInterrupt
        return Box()

    x = torch.arange(3.0).to(DEVICE)
    operators.clear()
    monkeypatch.setitem(looks._SHARED, "Box", interrupted)
    try:
        with torch.pjrt.lazy():
            y = x * 2.0
            z = y * 3.0
            pending.append(y)
            if raises:
                with pytest.raises(KeyboardInterrupt):
                    z * 0.5
                assert pending == []
            z = z * 4.0
            assert pending == []  # the handler ran in a call that was recognized
            last = z * y
    finally:
        operators.clear()
    changed = 1.0 if interruption == "makes a call" else 0.0
    assert y.tolist() == [0.0 + changed, 2.0 + changed, 4.0 + changed]
    assert z.tolist() == [0.0, 24.0, 48.0]
    assert torch.equal(last, z * y)


def test_memory_of_results_counts_when_their_calls_have_run() -> None:
    x = torch.ones(1000, device=DEVICE)
    gc.collect()
    before = torch.pjrt.memory_allocated()
    with torch.pjrt.lazy():
        y = x * 2.0
        for _ in range(3):
            y = y * 2.0
        y.add_(1.0)
        assert torch.pjrt.memory_allocated() == before
    assert torch.pjrt.memory_allocated() == before + 4000
    y.sum().item()
    gc.collect()
    assert torch.pjrt.memory_allocated() == before + 4000
    del y
    assert torch.pjrt.memory_allocated() == before


def test_finalizers_run_calls_while_calls_accumulate() -> None:
    class Counted:
        def __init__(self) -> None:
            self.cycle = self

        def __del__(self) -> None:
            total.add_(1)
            freed.append(None)

    freed: list[None] = []
    x, total = torch.arange(3.0).to(DEVICE), torch.zeros(3).to(DEVICE)
    thresholds = gc.get_threshold()
    gc.set_threshold(5, 1, 1)
    try:
        with torch.pjrt.lazy():
            y = x
            for _ in range(60):
                Counted()
                y = (y + x).mul(0.5)
            found = y.tolist()
    finally:
        gc.set_threshold(*thresholds)
    gc.collect()
    assert found == pytest.approx([0.0, 1.0, 2.0])
    assert total.tolist() == [float(len(freed))] * 3
    assert len(freed) == 60
