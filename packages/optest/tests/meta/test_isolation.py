"""Real crashes and hangs: each costs exactly its own case, and nothing is left behind."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from optest.backends import BackendDriver
from optest.core.case import TestCase
from optest.core.result import CaseResult, Status
from optest.core.summary import Summary
from optest.errors import BackendError
from optest.reporting import Reporter
from optest.running.executor import IsolatedExecutor, TaskTimedOut, WorkerDied, WorkerStartFailed
from optest.running.handle import DriverHandle
from optest.running.journal import Journal
from optest.running.process import Task, WorkerProcess
from optest.running.runner import TestRunner

Make = Callable[..., TestCase]


class Collect(Reporter):
    def __init__(self) -> None:
        self.results: dict[int, CaseResult] = {}

    def on_case_result(self, result: CaseResult) -> None:
        self.results[result.shapes["input0"][0]] = result


def run(
    driver: BackendDriver, cases: list[TestCase], **options: object
) -> tuple[Summary, dict[int, CaseResult]]:
    seen = Collect()
    options = {"timeout": 20.0, **options}
    return TestRunner(driver, [seen], **options).run(cases), seen.results  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("size", "status", "signal_name", "exit_code", "said"),
    [
        (103, Status.CRASHED, "SIGSEGV", None, "about to fault"),
        (104, Status.CRASHED, "SIGABRT", None, "Fatal Python error: Aborted"),
        (109, Status.CRASHED, None, 9, ""),
        (112, Status.CRASHED, "SIGKILL", None, ""),
        (107, Status.ERROR, None, None, "no_memory"),
    ],
)
def test_a_crash_costs_its_own_case(
    driver: BackendDriver,
    make_case: Make,
    notes: Path,
    size: int,
    status: Status,
    signal_name: str | None,
    exit_code: int | None,
    said: str,
) -> None:
    summary, results = run(driver, [make_case(one) for one in (1, 2, size, 3, 4, 5)])
    assert {one: result.status for one, result in results.items() if one != size} == dict.fromkeys(
        (1, 2, 3, 4, 5), Status.PASSED
    )
    found = results[size]
    assert (found.status, found.signal, found.exit_code) == (status, signal_name, exit_code)
    assert said in found.stderr_tail
    assert f"--shape input0={size}" in found.rerun
    assert summary.failed == 1
    if status is Status.CRASHED:  # a new process takes over: set up, reset, and only then the next case
        told = [line.split()[0] for line in notes.read_text().splitlines()]
        assert told == ["setup", "run", "run", "run", "setup", "reset", "run", "run", "run", "teardown"]


def test_memory_that_is_not_there_is_an_error_with_its_reason(driver: BackendDriver, make_case: Make) -> None:
    _, results = run(driver, [make_case(107), make_case(1)])
    assert results[107].reason.startswith(("MemoryError", "_ArrayMemoryError", "numpy"))
    assert results[1].status is Status.PASSED


@pytest.mark.kept("106")
@pytest.mark.parametrize("size", [105, 106])
def test_a_hang_is_stopped_and_shows_where_it_hung(
    driver: BackendDriver, make_case: Make, children: Callable[[], list[int]], size: int
) -> None:
    _, results = run(driver, [make_case(1), make_case(size), make_case(2)], timeout=1.0)
    assert [results[one].status for one in (1, size, 2)] == [Status.PASSED, Status.TIMED_OUT, Status.PASSED]
    assert "1 s" in results[size].reason
    assert "in hang" in results[size].stderr_tail or "in locked_hang" in results[size].stderr_tail
    assert not children()


def test_children_of_a_case_end_with_it(
    driver: BackendDriver, make_case: Make, notes: Path, children: Callable[[], list[int]]
) -> None:
    """This includes children that moved to their own session."""
    _, results = run(driver, [make_case(108), make_case(1)], timeout=1.0)
    assert (results[108].status, results[1].status) == (Status.TIMED_OUT, Status.PASSED)
    assert notes.read_text().count("child") == 2
    assert not children()


def test_errors_have_what_the_case_wrote(driver: BackendDriver, make_case: Make) -> None:
    _, results = run(driver, [make_case(102), make_case(1), make_case(120), make_case(101)])
    assert (results[102].status, results[102].reason) == (Status.ERROR, "RuntimeError: launch failed")
    assert "what the kernel said" in results[102].stderr_tail
    assert "Traceback" in results[102].stderr_tail
    assert "what the kernel said" not in results[120].stderr_tail
    assert results[120].reason == "the driver returned dict; it must return a tuple of NumPy arrays"
    assert results[101].status is Status.MISMATCH
    assert results[101].comparisons[0]["mismatches"] == 1
    assert results[101].comparisons[0]["worst"]["index"] == [7]


def test_retries_tell_flaky_cases(driver: BackendDriver, make_case: Make) -> None:
    summary, results = run(driver, [make_case(110), make_case(103)], retries=2)
    flaky, crashed = results[110], results[103]
    assert (flaky.status, flaky.attempts, flaky.flaky) == (Status.PASSED, 2, True)
    assert "RuntimeError: only the first time" in flaky.reason
    assert (crashed.status, crashed.attempts, crashed.flaky) == (Status.CRASHED, 3, False)
    assert (summary.flaky, summary.failed) == (1, 1)


def test_a_worker_killed_from_outside_costs_one_case(
    driver: BackendDriver, make_case: Make, notes: Path
) -> None:
    def kill() -> None:
        while "run 111" not in notes.read_text():
            time.sleep(0.005)
        line = next(one for one in notes.read_text().splitlines() if one.startswith("run 111"))
        os.kill(int(line.split()[2]), signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    _, results = run(driver, [make_case(111), *(make_case(one) for one in range(1, 9))])
    killer.join()
    assert results.pop(111).signal == "SIGKILL"
    assert {one.status for one in results.values()} == {Status.PASSED}
    assert len(results) == 8


def test_two_workers_share_the_work(driver: BackendDriver, make_case: Make, notes: Path) -> None:
    _, results = run(driver, [make_case(111), *(make_case(one) for one in range(1, 60))], workers=2)
    assert {one.status for one in results.values()} == {Status.PASSED}
    assert len(results) == 60
    processes = {line.split()[2] for line in notes.read_text().splitlines() if line.startswith("run")}
    assert len(processes) == 2


@pytest.mark.parametrize(
    ("how", "told", "attempts"),
    [
        ("raises", "'misbehaving' could not be set up: RuntimeError: no device", 1),
        ("crashes", "did not start: the worker process was killed by SIGSEGV\nabout to fault", 3),
    ],
)
def test_a_backend_that_cannot_be_set_up_is_one_message(
    driver: BackendDriver,
    make_case: Make,
    monkeypatch: pytest.MonkeyPatch,
    children: Callable[[], list[int]],
    notes: Path,
    how: str,
    told: str,
    attempts: int,
) -> None:
    monkeypatch.setenv("MISBEHAVING_SETUP", how)
    with pytest.raises(BackendError, match=told):
        run(driver, [make_case(1), make_case(2)])
    assert notes.read_text().count("setup") == attempts
    assert not children()


def test_a_backend_that_does_not_come_back_ends_the_run(
    driver: BackendDriver, make_case: Make, monkeypatch: pytest.MonkeyPatch, notes: Path, tmp_path: Path
) -> None:
    """The results so far are reported and stay in the journal."""
    monkeypatch.setenv("MISBEHAVING_SETUP", "raises later")
    seen, file = Collect(), tmp_path / "journal"
    runner = TestRunner(driver, [seen], journal=Journal(file))
    with pytest.raises(BackendError, match="the device is lost"):
        runner.run([make_case(1), make_case(103), *(make_case(one) for one in range(2, 9))])
    assert [one.status for one in seen.results.values()] == [Status.PASSED, Status.CRASHED]
    assert notes.read_text().count("setup") == 4
    assert len(Journal(file, resume=True)) == 2


def test_fail_fast_stops(driver: BackendDriver, make_case: Make) -> None:
    summary, results = run(
        driver, [make_case(101), *(make_case(one) for one in range(1, 40))], fail_fast=True
    )
    assert summary.stopped
    assert summary.failed == 1
    assert len(results) < 10


class TestExecutor:
    """The executor by itself, with plain functions."""

    def test_it_is_an_executor(self) -> None:
        import misbehaving

        with IsolatedExecutor(2) as executor:
            assert list(executor.map(misbehaving.add, range(50), range(50))) == list(range(0, 100, 2))
            with pytest.raises(ZeroDivisionError):
                executor.submit(divmod, 1, 0).result()
            assert len({executor.submit(misbehaving.pid).result() for _ in range(20)}) <= 2
        with pytest.raises(RuntimeError, match="after shutdown"):
            executor.submit(misbehaving.pid)

    def test_large_arguments_and_results_do_not_block(self) -> None:
        big = bytes(5_000_000)
        with IsolatedExecutor(1) as executor:
            futures = [executor.submit(bytes.upper, big) for _ in range(6)]
            assert all(one.result() == big for one in futures)

    def test_what_does_not_pickle_is_in_its_future(self) -> None:
        with IsolatedExecutor(1) as executor:
            assert executor.submit(lambda: 1).exception() is not None
            assert executor.submit(threading.Lock).exception() is not None
            assert executor.submit(abs, -1).result() == 1

    def test_a_death_before_the_next_task_is_sent_is_blamed_on_the_first(self, tmp_path: Path) -> None:
        """Messages that a process sent before it died are read, although no task can be sent to it."""
        import misbehaving

        class Slow(IsolatedExecutor):
            def _next_for(self, worker: WorkerProcess) -> Task | None:
                if worker.tasks:
                    time.sleep(1)
                return super()._next_for(worker)

        note = tmp_path / "note"
        with Slow(1) as executor:
            died, after = executor.submit(misbehaving.note_and_exit, note), executor.submit(abs, -1)
            assert isinstance(died.exception(), WorkerDied)
            assert after.result() == 1
        assert note.read_text() == "once\n"

    def test_deaths_and_hangs_are_exceptions(self) -> None:
        import misbehaving

        with IsolatedExecutor(1, timeout=1.0) as executor:
            futures = [
                executor.submit(one) for one in (misbehaving.segfault, misbehaving.hang, misbehaving.pid)
            ]
            death, hang = futures[0].exception(), futures[1].exception()
            assert isinstance(death, WorkerDied)
            assert (death.signal, death.exit_code) == ("SIGSEGV", None)
            assert isinstance(hang, TaskTimedOut)
            assert futures[2].result() != os.getpid()

    def test_cancelled_futures_do_not_run(self, children: Callable[[], list[int]]) -> None:
        import misbehaving

        executor = IsolatedExecutor(1)
        futures = [executor.submit(misbehaving.hang) for _ in range(5)]
        while not futures[0].running():
            time.sleep(0.01)
        executor.kill()
        assert all(one.done() for one in futures)
        assert futures[4].cancelled()
        assert not children()

    def test_what_a_process_sent_before_it_is_killed_counts(self) -> None:
        busy = threading.Event()
        with IsolatedExecutor(1) as executor:
            first, second = executor.submit(abs, -1), executor.submit(abs, -2)
            first.add_done_callback(lambda _: busy.wait(60))  # keeps the executor from reading
            assert first.result() == 1
            assert executor._workers[0].channel.poll(60)
            threading.Timer(0.2, busy.set).start()
            executor.kill()
        assert second.result(0) == 2

    def test_cancelled_futures_do_not_hold_up_others(self) -> None:
        with IsolatedExecutor(1) as executor:
            futures = [executor.submit(time.sleep, 0.2), *(executor.submit(abs, -i) for i in range(20))]
            cancelled = [one for one in futures[2:-1] if one.cancel()]
            assert cancelled
            assert futures[-1].result() == 19

    def test_a_start_that_fails_breaks_it(self) -> None:
        executor = IsolatedExecutor(1, start=bool.__divmod__)  # type: ignore[arg-type]
        future = executor.submit(abs, -1)
        assert isinstance(future.exception(), WorkerStartFailed)
        with pytest.raises(WorkerStartFailed):
            executor.submit(abs, -1)
        executor.shutdown()

    def test_an_unused_one_starts_no_process(self, children: Callable[[], list[int]]) -> None:
        with IsolatedExecutor(4):
            assert not children()


def test_a_driver_that_does_not_pickle_says_so() -> None:
    class Local(BackendDriver):
        kind = name = "local"

        def run(self, case: TestCase, inputs: object) -> tuple[()]:
            return ()

    with pytest.raises(BackendError, match="'local' cannot be handed to a worker process"):
        DriverHandle(Local())
