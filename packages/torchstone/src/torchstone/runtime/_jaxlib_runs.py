"""Runs compiled programs: the part of jaxlib's private API that executes them and returns their results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import methodcaller
from typing import Any

from jax.sharding import SingleDeviceSharding
from jaxlib import _jax as _native

from ._jaxlib import detached, need, shaped_array

_result_handler = need(_native, "array_result_handler")


class Execution:
    """One run of a program, whose results outlive an exception that a signal handler raises.

    Python runs handlers as soon as the call that executes the program returns, before the caller gets what
    it returns. The default handler of Ctrl-C raises :class:`KeyboardInterrupt` there. The results may be all
    that is left of donated arguments.
    """

    __slots__ = ("_made",)

    def __init__(self) -> None:
        self._made: list[list[Any]] = []

    @property
    def is_done(self) -> bool:
        """Whether the program was executed, and the donated arguments are gone."""
        return bool(self._made)

    @property
    def results(self) -> list[Any]:
        """The result arrays of an execution that is done."""
        return self._made[0]

    def take(self, results: Iterable[list[Any]]) -> list[Any]:
        """Take the results from an iterator written in C, which executes the program when it is asked."""
        self._made.extend(results)
        return self.results


def executor(
    executable: Any, device: Any, outputs: Iterable[tuple[tuple[int, ...], Any]]
) -> Callable[..., list[Any]]:
    """Return a function from argument arrays to result arrays, on one device.

    ``outputs`` are the shapes and NumPy dtypes of the results. The function also takes an
    :class:`Execution`, as its second argument.
    """
    execute = need(executable, "execute_sharded")
    place = SingleDeviceSharding(device)
    # With these, no Python code runs while arrays are made, as it would to find out where they are.
    handlers = [
        _result_handler(shaped_array(shape, dtype), place, committed=True, _skip_checks=True)
        for shape, dtype in outputs
    ]
    results_of = methodcaller("consume_with_handlers", handlers)

    def run(arguments: Sequence[Any], execution: Execution | None = None) -> list[Any]:
        with detached():
            if execution is not None:
                return execution.take(map(results_of, map(execute, (arguments,))))
            results: list[Any] = results_of(execute(arguments))
        return results

    return run


def partitioned_executor(executable: Any) -> Callable[[Sequence[Any]], list[list[Any]]]:
    """Return a function from argument arrays to the parts of each result, in the order of the devices."""
    execute = need(executable, "execute_sharded")

    def run(arguments: Sequence[Any]) -> list[list[Any]]:
        with detached():
            parts: list[list[Any]] = execute(arguments).disassemble_into_single_device_arrays()
        return parts

    return run


def wait(results: Iterable[Iterable[Any]]) -> None:
    """Wait until all parts of all results are computed; raise if the execution failed."""
    for parts in results:
        for part in parts:
            part.block_until_ready()
