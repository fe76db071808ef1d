"""Compiled functions in several threads, and in forked processes."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from torchstone.torch_internals.patches import tracing


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def in_threads(count: int, work: Callable[[int], None]) -> list[Exception]:
    """Return what ``work`` raised in ``count`` threads that start together; fail if a thread does not end."""
    errors: list[Exception] = []
    together = threading.Barrier(count)

    def run(number: int) -> None:
        together.wait()
        try:
            work(number)
        except Exception as error:  # noqa: BLE001 - the test compares them with none
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads), "the threads wait for each other"
    return errors


def branch(a: Any) -> Any:
    return torch.cond(a.sum() > 0, lambda x: x.sin() * 2, lambda x: x.cos() - 1, (a,))


@pytest.mark.kept("2")
@pytest.mark.parametrize("count", [2, 32])
def test_threads_with_dynamic_shapes(count: int) -> None:
    def function(a: torch.Tensor, n: int) -> Any:
        return torch.cat([a[n:] * 2, a.sin()]).sum(0), a[n]

    compiled = torch.compile(function, backend="torchstone", dynamic=True)

    def work(number: int) -> None:
        for size in range(3, 7):
            a = torch.randn(size + number % 3, 5)
            torch.testing.assert_close(compiled(a, 1 + number % 2), function(a, 1 + number % 2))

    assert in_threads(count, work) == []
    a = torch.randn(3)
    torch.testing.assert_close(torch.compile(torch.cos, backend="torchstone")(a), a.cos())


def test_a_call_while_tracing_does_not_wait_for_one_that_wants_to_trace() -> None:
    compiled = torch.compile(branch, backend="torchstone", dynamic=True)
    compiled(torch.randn(3))
    traces = threading.Event()

    def work(number: int) -> None:
        a = torch.randn(10 + number)
        if number == 0:
            with tracing():
                traces.set()
                time.sleep(0.5)  # by now the other thread has begun to specialize, and waits for the lock
                compiled(a)
        else:
            traces.wait()
            torch.testing.assert_close(compiled(a), branch(a))

    assert in_threads(2, work) == []


_FORK = """
import os, torch
compiled = torch.compile(lambda a: a @ a, backend="torchstone")
x = torch.randn(600, 600)
{before}
child = os.fork()
if child == 0:
    try:
        result = {call}
        torch.testing.assert_close(result, {eager})
        print("right", flush=True)
    except BaseException as error:
        print(error, flush=True)
    os._exit(0)
os.waitpid(child, 0)
torch.testing.assert_close(compiled(x), x @ x, rtol=1e-4, atol=1e-3)
print("parent goes on")
"""
_NEW = 'torch.compile(lambda a: a @ a + 3, backend="torchstone")(x)'


@pytest.mark.sampled(3)
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
@pytest.mark.parametrize(
    ("before", "call", "eager", "refused"),
    [
        ("compiled(x)", "compiled(x)", "x @ x", True),
        ("compiled(x)", _NEW, "x @ x + 3", True),
        ("", _NEW.replace("a @ a + 3", "a + 3"), "x + 3", False),
    ],
    ids=["run", "compile", "fork first"],
)
def test_a_forked_child_does_not_hang(before: str, call: str, eager: str, refused: bool) -> None:
    script = _FORK.format(before=before, call=call, eager=eager)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert "parent goes on" in done.stdout, done.stderr
    if refused:
        assert "it was forked after its parent had started an engine" in done.stdout
        assert 'start the child with the "spawn" method' in done.stdout
    else:
        assert "right" in done.stdout
