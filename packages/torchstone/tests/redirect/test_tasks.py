"""Scopes in generators, coroutines and asyncio tasks: each has its own, and none leaks into other code."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import torch

import torchstone

OUTSIDE = torch.cuda.is_available()


def told() -> tuple[bool, bool]:
    """Return whether CUDA seems available by name, and whether calls that PyTorch dispatches go there."""
    try:
        device = torch.ones(1, device="cuda").device.type
    except (AssertionError, RuntimeError):
        device = "none"
    return torch.cuda.is_available(), device == "cuda"


INSIDE, NOT_INSIDE = (True, True), (OUTSIDE, OUTSIDE)


@torchstone.redirected(target="cpu")
def values() -> Iterator[Any]:
    received = yield told()
    try:
        yield received, told()
    except KeyError:
        yield told()
    finally:
        values.__dict__["closed_inside"] = told()


def test_a_decorated_generator_is_inside_while_it_computes() -> None:
    assert inspect.isgeneratorfunction(values)
    made = values()
    assert next(made) == INSIDE
    assert told() == NOT_INSIDE
    assert made.send(5) == (5, INSIDE)
    assert told() == NOT_INSIDE
    assert made.throw(KeyError()) == INSIDE
    made.close()
    assert values.__dict__.pop("closed_inside") == INSIDE
    assert told() == NOT_INSIDE


@torchstone.redirected(target="cpu")
def returns() -> Iterator[Any]:
    yield 1
    return told()


def test_a_decorated_generator_keeps_its_result_and_its_error() -> None:
    made = returns()
    assert next(made) == 1
    with pytest.raises(StopIteration) as end:
        next(made)
    assert end.value.value == INSIDE
    failing = returns()
    next(failing)
    with pytest.raises(ValueError, match="mine"):
        failing.throw(ValueError("mine"))
    assert told() == NOT_INSIDE


@torchstone.redirected(target="cpu")
async def waits() -> tuple[Any, Any]:
    before = told()
    await asyncio.sleep(0)
    return before, told()


@torchstone.redirected(target="cpu")
async def awaited_values() -> AsyncIterator[Any]:
    await asyncio.sleep(0)
    received = yield told()
    yield received, told()


def test_a_decorated_coroutine_is_inside_and_its_caller_is_not() -> None:
    async def main() -> list[Any]:
        return [await waits(), told()]

    assert inspect.iscoroutinefunction(waits)
    assert asyncio.run(main()) == [(INSIDE, INSIDE), NOT_INSIDE]


def test_a_decorated_asynchronous_generator_is_inside_while_it_computes() -> None:
    async def main() -> list[Any]:
        made: Any = awaited_values()
        seen = [await made.__anext__(), told(), await made.asend(3), told()]
        await made.aclose()
        return [*seen, told()]

    assert inspect.isasyncgenfunction(awaited_values)
    assert asyncio.run(main()) == [INSIDE, NOT_INSIDE, (3, INSIDE), NOT_INSIDE, NOT_INSIDE]


def test_a_scope_that_waits_does_not_redirect_other_tasks() -> None:
    async def inside(entered: asyncio.Event, looked: asyncio.Event) -> Any:
        with torchstone.redirected(target="cpu"):
            entered.set()
            await looked.wait()
            return told()

    async def outside(entered: asyncio.Event, looked: asyncio.Event) -> Any:
        await entered.wait()
        found = told()
        looked.set()
        return found

    async def main() -> Any:
        entered, looked = asyncio.Event(), asyncio.Event()
        return await asyncio.gather(inside(entered, looked), outside(entered, looked))

    assert asyncio.run(main()) == [INSIDE, NOT_INSIDE]


@pytest.mark.parametrize("shared", [False, True])
def test_scopes_of_tasks_that_take_turns_do_not_mix(shared: bool) -> None:
    scope = torchstone.redirected(target="cpu", devices=2)

    async def task(devices: int, steps: int) -> list[Any]:
        seen = []
        with scope if shared else torchstone.redirected(target="cpu", devices=devices):
            for _ in range(steps):
                seen.append((torch.cuda.device_count(), *told()))
                await asyncio.sleep(0)
        return [*seen, *told()]

    async def main() -> Any:
        return await asyncio.gather(task(1, 1), task(2, 4), task(3, 2))

    found = asyncio.run(main())
    for (devices, steps), seen in zip([(1, 1), (2, 4), (3, 2)], found, strict=True):
        assert seen == [(2 if shared else devices, *INSIDE)] * steps + list(NOT_INSIDE)
    assert told() == NOT_INSIDE


def test_tasks_that_are_made_inside_are_inside() -> None:
    async def child() -> Any:
        await asyncio.sleep(0)
        return told(), await asyncio.to_thread(told)

    async def main() -> Any:
        with torchstone.redirected(target="cpu"):
            return await asyncio.create_task(child())

    assert asyncio.run(main()) == (INSIDE, INSIDE)


def test_a_task_that_a_scope_sends_to_an_earlier_thread_is_wholly_outside() -> None:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def elsewhere() -> Any:
        return told()

    try:
        with torchstone.redirected(target="cpu"):
            assert asyncio.run_coroutine_threadsafe(elsewhere(), loop).result(60) == NOT_INSIDE
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(60)
        loop.close()
