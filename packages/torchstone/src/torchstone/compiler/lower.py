"""Lowers each node of a normalized graph, and checks each result against PyTorch's metadata."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node

from .. import dtypes, hlo
from ..errors import LoweringBug, TorchstoneError, UnsupportedNode, UnsupportedOperators, UnsupportedShape
from ..hlo import Rng, Value
from ..lowering import Lowering, Spec, load
from ..lowering.registry import EXPANSIONS
from ..sharding import Placement
from ..torch_internals.operators import HigherOrderOperator, schema_of
from .argument_checks import refused
from .expansion import expansion_of
from .graphs import (
    bind,
    constant_of,
    fake_arguments,
    flattened,
    is_symbolic_number,
    location_text,
    origin_text,
    plain_number,
    spec_of,
    user_location,
)
from .rehearsal import refusal_of_any_values
from .support import NO_EFFECT, REPLAY_RNG, SAVE_RNG


def lower_graph(
    module: GraphModule,
    arguments: Sequence[hlo.Argument],
    *,
    name: str = "main",
    result_names: Sequence[str] | None = None,
    baked: Mapping[str, torch.Tensor] | None = None,
    seed: bool = False,
    placement: Placement | None = None,
) -> hlo.Module:
    """Return ``module`` as a verified StableHLO module.

    ``arguments`` describe the tensor placeholders in order, then the seed
    (uint64 ``[2]``) if ``seed``. ``baked`` maps names of placeholders to the tensors that
    become constants instead of arguments. ``placement`` has the mesh that the module is for. Raises
    :class:`LoweringBug` if the result of a lowering differs from PyTorch's metadata.
    """
    built = hlo.Module(
        name,
        None if placement is None else placement.mesh,
        full_precision=torch.get_float32_matmul_precision() == "highest",
    )

    def body(values: list[Value]) -> list[Value]:
        inputs, key = (values[:-1], values[-1]) if seed else (values, None)
        return lower_values(module, inputs, baked=baked, seed=key)

    places = None
    if placement is not None:
        places = [placement.results.get(result) for result in result_names or ()]
    built.build(arguments, body, result_names, places)
    return built


def lower_values(
    module: GraphModule,
    inputs: Sequence[Value],
    *,
    baked: Mapping[str, torch.Tensor] | None = None,
    seed: Value | None = None,
) -> list[Value]:
    """Return the results of ``module`` for ``inputs`` of the StableHLO module that is being built."""
    return _Walker(module, baked or {}, seed).run(inputs)


class _Walker:
    """The lowering of one graph. Each subgraph of a higher-order operator gets its own walker."""

    def __init__(
        self, module: GraphModule, baked: Mapping[str, torch.Tensor], seed: Value | None, stream: int = 0
    ) -> None:
        self.module = module
        self.baked = baked
        self.seed = seed
        self.stream = stream
        self.registry = load()
        self.values: dict[Node, Any] = {}

    def run(self, inputs: Sequence[Value]) -> list[Value]:
        feed = iter(inputs)
        for node in self.module.graph.nodes:
            if node.op == "placeholder":
                self.values[node] = self._placeholder(node, feed)
            elif node.op == "get_attr":
                self.values[node] = self._attribute(node)
            elif node.op == "call_function":
                place = user_location(node)
                with hlo.location(origin_text(node), *(place or ())):
                    self.values[node] = self._call_or_refuse(node)
            elif node.op == "output":
                results = [self._argument(leaf) for leaf in flattened(node.args[0])]
                return [result for result in results if isinstance(result, Value)]  # sizes are not results
        raise LoweringBug("the graph has no output")

    def _call_or_refuse(self, node: Node) -> Any:
        try:
            return self._call(node)
        except LoweringBug as error:
            bug = error
        cause = refusal_of_any_values(node)  # outside ``except``: the bug is not the refusal's context
        if cause is None:
            raise bug
        raise refused(node, cause) from cause

    def _placeholder(self, node: Node, feed: Iterator[Value]) -> Any:
        if node.name in self.baked:
            return constant_of(self.baked[node.name])
        # A symbolic number is not an argument: it is computed from the shapes of arguments.
        return next(feed) if isinstance(node.meta.get("val"), torch.Tensor) else node.meta.get("val")

    def _attribute(self, node: Node) -> Any:
        found: Any = operator.attrgetter(str(node.target))(self.module)
        if isinstance(found, GraphModule):
            return self._subgraph(node, found)
        return constant_of(found)

    def _subgraph(self, node: Node, module: GraphModule) -> Callable[..., list[Value]]:
        self.stream += 1 << 12
        # A loop's body is lowered once, so it would draw the same numbers in every round.
        seed = self.seed if all(user.target is torch.ops.higher_order.cond for user in node.users) else None

        def call(*inputs: Value) -> list[Value]:
            return _Walker(module, {}, seed, self.stream).run(inputs)

        return call

    def _argument(self, argument: Any) -> Any:
        if isinstance(argument, Node):
            return self.values[argument]
        if isinstance(argument, torch.dtype):
            return dtypes.from_torch(argument)
        if isinstance(argument, (tuple, list)):
            return [self._argument(item) for item in argument]
        if isinstance(argument, slice):
            return slice(*(self._argument(item) for item in (argument.start, argument.stop, argument.step)))
        return argument

    def _call(self, node: Node) -> Any:
        if node.target in NO_EFFECT:
            return None
        if node.target is operator.getitem:
            source, index = node.args
            return self._argument(source)[index]
        if is_symbolic_number(node):
            return plain_number(node.meta["val"])
        if node.target is SAVE_RNG:
            result = self._save_rng(node)
        elif node.target is REPLAY_RNG:
            state, target, *args = node.args
            result = self._lower(node, target, args, Rng.restored(self._argument(state)))
        elif isinstance(node.target, HigherOrderOperator):
            result = self._higher_order(node)
        else:
            result = self._lower(node, node.target, node.args)
        return _checked(node, result)

    def _save_rng(self, node: Node) -> list[Any]:
        state, _ = node.meta["val"]
        rng = self._rng(node)
        saved = rng.state(state.shape[0])
        target, *args = node.args
        return [saved, self._lower(node, target, args, rng)]

    def _higher_order(self, node: Node) -> Any:
        function = self.registry.higher_order(node.target)
        if function is None:
            raise LoweringBug(f"{node.target} has no lowering")
        kwargs = {key: self._argument(value) for key, value in node.kwargs.items()}
        return function(*self._argument(node.args), **kwargs, out=spec_of(node.meta["val"]))

    def _lower(self, node: Node, target: Any, args: Sequence[Any], rng: Rng | None = None) -> Any:
        lowering = self.registry.get(target)
        if lowering is None:
            raise LoweringBug(f"{target} has no lowering")
        given = bind(lowering, args, node.kwargs)
        arguments = {name: self._argument(given[name]) for name in lowering.parameters if name in given}
        if not any(isinstance(leaf, Value) for leaf in flattened(list(arguments.values()))):
            arguments |= _tensors_of_numbers(target, arguments)
        if "out" in lowering.special:
            value = node.meta["val"]
            arguments["out"] = spec_of(value[1] if node.target is SAVE_RNG else value)
        if "meta" in lowering.special:
            arguments["meta"] = fake_arguments(given)
        for name in EXPANSIONS & lowering.special:
            arguments[name] = _expansion(node, lowering)
        if "rng" in lowering.special:
            arguments["rng"] = rng or self._rng(node)
        try:
            return lowering.function(**arguments)
        except LoweringBug as error:
            raise LoweringBug(f"{lowering.name} at {_place(node)}: {error.message}") from error
        except UnsupportedShape as error:
            raise _located(error, lowering.name, node) from error
        except MemoryError as error:
            raise UnsupportedShape(
                f"{lowering.name} at {_place(node)}: a program for these sizes does not fit in memory",
                hint="correct the sizes of windows, padding and dilation",
            ) from error
        except TorchstoneError:
            raise
        except Exception as error:
            cause = f"{type(error).__name__}: {error}"
            raise LoweringBug(f"the lowering of {lowering.name} failed at {_place(node)}: {cause}") from error

    def _rng(self, node: Node) -> Rng:
        if self.seed is None:
            raise UnsupportedOperators(
                [
                    UnsupportedNode(
                        str(node.target),
                        1,
                        "random numbers inside a loop would be the same in every round",
                        (location_text(node) or "source line unknown",),
                        "draw them before the loop and pass them in",
                    )
                ]
            )
        self.stream += 1
        return Rng(self.seed, self.stream)


def _place(node: Node) -> str:
    return location_text(node) or "an unknown source line"


def _located(error: UnsupportedShape, operator: str, node: Node) -> UnsupportedShape:
    """Return ``error`` with the operator and line of the call whose lowering raised it."""
    return UnsupportedShape(f"{operator} at {_place(node)}: {error.message}", hint=error.hint)


def _tensors_of_numbers(target: Any, arguments: Mapping[str, Any]) -> dict[str, Value]:
    """Return, as tensors, the numbers that a call has in place of tensors.

    A number beside a tensor stays a number. But PyTorch's derivatives also make calls without any
    tensor, such as the conjugate of a complex factor.
    """
    tensors = {one.name for one in schema_of(target).arguments if isinstance(one.type, torch.TensorType)}
    return {
        name: constant_of(torch.tensor(value, dtype=_DTYPES_OF_NUMBERS[type(value)]))
        for name, value in arguments.items()
        if name in tensors and type(value) in _DTYPES_OF_NUMBERS
    }


_DTYPES_OF_NUMBERS = {bool: torch.bool, int: torch.int64, float: torch.float64, complex: torch.complex128}
"""The dtypes that PyTorch's metadata has for Python numbers."""


def _expansion(node: Node, lowering: Lowering) -> Callable[..., list[Value]]:
    """Return the expansion of a composite-implicit call as a function that traces it when called."""

    def expand(*values: Value) -> list[Value]:
        return _Walker(expansion_of(node, lowering), {}, None).run(values)

    return expand


def _checked(node: Node, result: Any) -> Any:
    """Return ``result`` with the sizes spelled as in the node's metadata.

    Raises :class:`LoweringBug` if its shapes or dtypes differ from the metadata.
    """
    expected = spec_of(node.meta.get("val"))
    if isinstance(expected, Spec) and isinstance(result, (tuple, list)) and len(result) == 1:
        (result,) = result
    return _check(node, result, expected)


def _check(node: Node, got: Any, want: Any) -> Any:
    if isinstance(want, tuple):
        if not isinstance(got, (tuple, list)) or len(got) != len(want):
            raise LoweringBug(
                f"the lowering of {node.target} returned {got!r}; PyTorch returns {len(want)} values"
            )
        return [_check(node, one, spec) for one, spec in zip(got, want, strict=True)]
    return got if want is None else _check_one(node, got, want)


def _check_one(node: Node, got: Any, want: Spec) -> Value:
    try:
        fits = isinstance(got, Value) and got.dtype is want.dtype
        fits = fits and hlo.assume_same_shape(got.shape, want.shape)
    except UnsupportedShape as error:
        raise _located(error, str(node.target), node) from error
    if not fits:
        raise LoweringBug(
            f"the lowering of {node.target} returned {got!r}; PyTorch says {want.shape} {want.dtype}"
            f" (at {_place(node)})"
        )
    return got if hlo.is_static(got.shape) else hlo.respelled(got, want.shape)
