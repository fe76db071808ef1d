"""Decorated functions, generators and coroutines: each call runs in a scope of its own.

A generator is inside its scope while it computes a value, and outside while its caller uses the value. A
coroutine stays inside while it waits, because other asyncio tasks have their own scopes (:mod:`.scope`).
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractContextManager
from typing import Any

Inside = Callable[[], AbstractContextManager[None]]
"""A function that returns a context manager for one fixed scope; it can be called for each step."""


def wrapped(function: Callable[..., Any], inside_each_call: Callable[[], Inside]) -> Callable[..., Any]:
    """Return a function of the same kind (plain, generator, coroutine) that runs each call in a scope."""
    if inspect.isgeneratorfunction(function):

        @functools.wraps(function)
        def steps(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
            inside, generator = inside_each_call(), function(*args, **kwargs)
            step = functools.partial(next, generator)
            while True:
                try:
                    with inside():
                        value = step()
                except StopIteration as end:
                    return end.value
                try:
                    step = functools.partial(generator.send, (yield value))
                except GeneratorExit:
                    with inside():
                        generator.close()
                    raise
                except BaseException as error:  # noqa: BLE001  (thrown in by the caller, for the generator)
                    step = functools.partial(generator.throw, error)

        return steps
    if inspect.isasyncgenfunction(function):

        @functools.wraps(function)
        async def asynchronous_steps(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
            inside, generator = inside_each_call(), function(*args, **kwargs)
            step = generator.__anext__
            while True:
                try:
                    with inside():
                        value = await step()
                except StopAsyncIteration:
                    return
                try:
                    step = functools.partial(generator.asend, (yield value))
                except GeneratorExit:
                    with inside():
                        await generator.aclose()
                    raise
                except BaseException as error:  # noqa: BLE001  (thrown in by the caller, for the generator)
                    step = functools.partial(generator.athrow, error)

        return asynchronous_steps
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def coroutine(*args: Any, **kwargs: Any) -> Any:
            with inside_each_call()():
                return await function(*args, **kwargs)

        return coroutine

    @functools.wraps(function)
    def plain(*args: Any, **kwargs: Any) -> Any:
        with inside_each_call()():
            return function(*args, **kwargs)

    return plain
