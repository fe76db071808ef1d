"""The base class of engines that run StableHLO one operation after another, with a NumPy kernel for each.

Control flow, calls, composites, constants and functions are here. A subclass has the kernels that compute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy
from numpy.typing import NDArray

from ..errors import UnsupportedByEngine
from . import _stablehlo
from ._stablehlo import Block, Operation
from .hosted import Function, HostedEngine
from .modules import Module

Array = NDArray[Any]
Kernel = Callable[..., Any]
"""A function of ``(operation, *arrays, *regions)`` that returns one array, or a list with one per result.

It only reads its arrays. A region is a function from arrays to a list of arrays.
"""
Values = dict[int, Array]


class SimulatedEngine(HostedEngine):
    """An engine that runs each operation with a kernel in Python.

    A subclass has ``name``, ``platform``, and ``kernels`` by operation (``"add"``, ``"dot_general"``).
    """

    kernels: ClassVar[Mapping[str, Kernel]]

    def translate(self, program: Module) -> Function:
        """Return a function that runs ``program``.

        Raises :class:`UnsupportedByEngine` with the operations that have no kernel.
        """
        functions = _stablehlo.read(program.bytecode)
        kernels = {**self.kernels, **_CONTROL}
        lacking = {op.name for op in _operations(functions.values())} - kernels.keys() - _CALLS.keys()
        if lacking:
            raise UnsupportedByEngine(self.name, dict.fromkeys(sorted(lacking), "it has no kernel"))

        def call(name: str, *arrays: Array) -> list[Array]:
            return _run(functions[name], {}, arrays)

        def kernel(operation: Operation) -> Kernel:
            attribute = _CALLS.get(operation.name)
            if attribute is not None:
                return partial(call, operation.attributes[attribute])
            return partial(kernels[operation.name], operation)

        bound = {id(op): kernel(op) for op in _operations(functions.values())}

        def _run(block: Block, values: Values, arrays: Sequence[Array]) -> list[Array]:
            values.update(zip(block.arguments, arrays, strict=True))
            for step in block.steps:
                regions = [_region(one, values) for one in step.regions]
                found = bound[id(step.operation)](*(values[one] for one in step.operands), *regions)
                results = found if isinstance(found, (list, tuple)) else [found]
                forms = step.operation.results
                for number, (_, dtype), array in zip(step.results, forms, results, strict=True):
                    values[number] = numpy.asarray(array, dtype)
            return [values[one] for one in block.returned]

        def _region(block: Block, values: Values) -> Callable[..., list[Array]]:
            return lambda *arrays: _run(block, values, arrays)

        def run(arrays: Sequence[Array]) -> list[Array]:
            with numpy.errstate(all="ignore"):
                return call("main", *arrays)

        return run


def _operations(blocks: Any) -> Iterator[Operation]:
    for block in blocks:
        for step in block.steps:
            yield step.operation
            yield from _operations(step.regions)


_CALLS = {"func.call": "callee", "composite": "decomposition"}
"""Operations that run a function of the module, and the attribute of each that names the function."""


def _constant(op: Operation) -> Array:
    value: Array = op.value
    return value


def _while(op: Operation, *given: Any) -> list[Array]:
    *state, goes_on, body = given
    while goes_on(*state)[0]:
        state = body(*state)
    return state


def _if(op: Operation, condition: Array, then: Any, otherwise: Any) -> Any:
    return then() if condition else otherwise()


def _case(op: Operation, index: Array, *branches: Any) -> Any:
    return branches[int(index) if 0 <= index < len(branches) else -1]()


def _barrier(op: Operation, *arrays: Array) -> list[Array]:
    return list(arrays)


_CONTROL: Mapping[str, Kernel] = {
    "constant": _constant,
    "while": _while,
    "if": _if,
    "case": _case,
    "optimization_barrier": _barrier,
}
