"""From an operator's call to its program: PyTorch's metadata, a graph, and StableHLO around it.

The program reads its views out of the flat arrays of their storages, computes what the graph says, and puts
written views back, all in one executable. In-place and ``out=`` forms take the lowering of the functional
form; what has no lowering of its own is traced through PyTorch's decompositions, as the compiler does.
"""

from __future__ import annotations

import logging
import operator
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from .. import dtypes, hlo
from ..compiler.argument_checks import check_arguments
from ..compiler.checks import add_checks
from ..compiler.expansion import traced
from ..compiler.lower import lower_values
from ..compiler.normalize import decompositions, mended_operators
from ..compiler.support import survey, unsupported_reason
from ..dtypes import DType
from ..hlo import Value
from ..lowering import load
from ..lowering.common import cast
from ..torch_internals import pytree
from ..torch_internals.dispatch import without_function_modes
from ..torch_internals.fake import LOGGER, FakeTensorMode
from ..torch_internals.operators import OpOverload, namespace, schema_of
from ..torch_internals.patches import tracing
from ..torch_internals.private_device import functional_form, parameters_of, written_arguments
from . import engine, layout
from .calls import Call, substituted
from .layout import Layout
from .plans import Moved, New, Plan, answer_of

aten = namespace("aten")


class Unplanned(Exception):
    """An operator that no program can be made for: the reason, in words."""


@dataclass
class _Draft:
    """One call on fake tensors: what goes in, what PyTorch says comes out."""

    overload: OpOverload
    call: Call
    args: list[Any]
    kwargs: dict[str, Any]
    fakes: list[torch.Tensor]
    before: list[Layout]
    mode: FakeTensorMode
    composed: Callable[..., Any] | None = None
    result: Any = None

    def written(self) -> list[int]:
        """Positions, among the call's tensors, of those that the operator writes into."""
        names = written_arguments(self.overload)
        schema = [argument.name for argument in schema_of(self.overload).arguments]
        values = [
            value
            for name in names
            for value in pytree.tree_leaves(
                self.kwargs[name] if name in self.kwargs else _at(self.args, schema.index(name))
            )
        ]
        return [self.place(value) for value in values if isinstance(value, torch.Tensor)]

    def place(self, fake: torch.Tensor) -> int:
        """Which of the call's tensors ``fake`` stands for; -1 for a new one."""
        return next((i for i, one in enumerate(self.fakes) if one is fake), -1)


def _at(values: Sequence[Any], position: int) -> Any:
    return values[position] if position < len(values) else None


def build(
    overload: OpOverload,
    call: Call,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    composed: Callable[..., Any] | None = None,
) -> Plan:
    """The plan for a call. Raises :class:`Unplanned`, or what PyTorch's metadata functions raise.

    ``composed`` is traced in place of the operator.
    """
    with tracing(), without_function_modes(), torch.no_grad():
        draft = _rehearsed(overload, call, args, kwargs, composed)
        written = draft.written()
        for place in written:
            _refuse_repeats(draft.before[place])
        graph, new = _graph(draft, written, args, kwargs)
        return _Planner(draft, graph, written, new).plan()


def _rehearsed(
    overload: OpOverload,
    call: Call,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    composed: Callable[..., Any] | None,
) -> _Draft:
    """The call on fake tensors of the CPU, which share storages as the call's tensors do."""
    with mended_operators(), _quiet(), FakeTensorMode() as mode:
        fakes = _fakes(call)
        feed = iter(fakes)
        given = substituted(call, args, kwargs, lambda _: next(feed))
        draft = _Draft(overload, call, *given, fakes, [_layout(fake) for fake in fakes], mode)
        draft.composed = composed
        draft.result = (composed or overload)(*draft.args, **draft.kwargs)
    return draft


@contextmanager
def _quiet() -> Iterator[None]:
    """Without PyTorch's log of what its metadata refuses in this thread: the CPU raises it as an error."""
    logger, thread = logging.getLogger(LOGGER), threading.get_ident()

    def elsewhere(record: logging.LogRecord) -> bool:
        return record.thread != thread

    logger.addFilter(elsewhere)
    try:
        yield
    finally:
        logger.removeFilter(elsewhere)


def _fakes(call: Call) -> list[torch.Tensor]:
    bases: dict[int, torch.Tensor] = {}
    fakes = []
    for tensor, place in zip(call.tensors, call.places, strict=True):
        if place < 0:
            fakes.append(torch.empty((), dtype=tensor.dtype, device="cpu"))
            continue
        if tensor.layout is not torch.strided or tensor.is_quantized:
            raise Unplanned(f"a tensor has layout {tensor.layout} and dtype {tensor.dtype}")
        size = tensor.dtype.itemsize
        nbytes = call.boxes[place].nbytes // size * size
        if place not in bases:
            bases[place] = torch.empty(call.boxes[place].nbytes, dtype=torch.uint8, device="cpu")
        base = bases[place][:nbytes].view(tensor.dtype)
        fakes.append(base.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset()))
    return fakes


def _layout(tensor: torch.Tensor) -> Layout:
    return Layout(
        dtypes.from_torch(tensor.dtype), tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset())
    )


def _refuse_repeats(target: Layout) -> None:
    if target.repeats:
        raise RuntimeError(
            "unsupported operation: more than one element of the written-to tensor refers to a single memory"
            " location. Please clone() the tensor before performing the operation."
        )


# The graph --------------------------------------------------------------------------------


def _graph(
    draft: _Draft, written: list[int], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[GraphModule, list[torch.Tensor]]:
    """A graph from the call's tensors and numbers to what is written, then what is new; and the new fakes."""
    new = [one for one in _tensors(draft.result) if draft.place(one) < 0]
    module = None
    if draft.composed is None:
        _check(draft)
        module = _one_node(draft, written, new, args, kwargs)
    if module is None:
        if draft.call.numbers:
            raise Unplanned("its lowering takes numbers as parts of the program only")
        module = _decomposed(draft, written, args, kwargs)
    return module, new


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    return (leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor))


def _check(draft: _Draft) -> None:
    """Raises for arguments that eager PyTorch refuses and its metadata functions take."""
    graph = Graph()
    nodes = _placeholders(graph, draft.fakes)
    by_fake = {id(fake): node for fake, node in zip(draft.fakes, nodes, strict=True)}
    args, kwargs = pytree.tree_map_only(
        torch.Tensor, lambda one: by_fake.get(id(one), one), (tuple(draft.args), draft.kwargs)
    )
    node = graph.call_function(draft.overload, args, kwargs)
    node.meta["val"] = draft.result
    graph.output(())
    check_arguments(GraphModule({}, graph))


def _placeholders(graph: Graph, fakes: Sequence[torch.Tensor]) -> list[Node]:
    nodes = []
    for position, fake in enumerate(fakes):
        node = graph.placeholder(f"argument_{position}")
        node.meta["val"] = fake
        nodes.append(node)
    return nodes


@cache
def _rewritten() -> frozenset[Any]:
    """Operators whose lowerings may only be reached through a decomposition that looks at the call first."""
    return frozenset(decompositions(training=True)) & load().overloads()


def _one_node(
    draft: _Draft,
    written: list[int],
    new: list[torch.Tensor],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> GraphModule | None:
    """A graph of one call of the functional form; None if this has no lowering for the call."""
    functional = functional_form(draft.overload)
    if functional is None or functional not in load() or functional in _rewritten():
        return None
    outputs = set(written_arguments(draft.overload)) - set(parameters_of(functional))
    value = draft.result
    if functional is not draft.overload:
        with mended_operators(), draft.mode:
            value = functional(*draft.args, **_without(draft.kwargs, outputs))
    if written:
        results = list(_tensors(value))
        if new or len(results) != len(written):
            return None
        _refuse_conversions(draft, results, written)
    graph = Graph()
    nodes = iter(_placeholders(graph, draft.fakes))
    numbers = iter(_number_nodes(graph, draft))
    node_args, node_kwargs = substituted(
        draft.call, args, kwargs, lambda _: next(nodes), lambda _: next(numbers)
    )
    node = graph.call_function(functional, tuple(node_args), _without(node_kwargs, outputs))
    node.meta["val"] = value
    if unsupported_reason(node, load()) is not None:
        return None
    graph.output(tuple(_parts(graph, node)))
    return GraphModule({}, graph)


def _refuse_conversions(draft: _Draft, results: Sequence[torch.Tensor], written: list[int]) -> None:
    """Raises where a result's kind of dtype does not fit into what is written (only copies convert any)."""
    if draft.overload is aten.copy_.default:
        return
    for value, place in zip(results, written, strict=True):
        target = draft.fakes[place].dtype
        if not torch.can_cast(value.dtype, target):
            raise Unplanned(f"a result of {value.dtype} does not fit into {target}")


def _without(kwargs: Mapping[str, Any], names: set[str]) -> dict[str, Any]:
    return {name: value for name, value in kwargs.items() if name not in names}


def _number_nodes(graph: Graph, draft: _Draft) -> list[Node]:
    """Placeholders of the numbers, which stand behind those of the tensors."""
    nodes = []
    with draft.mode:
        for position, (_, dtype) in enumerate(draft.call.numbers):
            node = graph.placeholder(f"number_{position}")
            node.meta["val"] = torch.empty((), dtype=dtype.torch, device="cpu")
            nodes.append(node)
    return nodes


def _parts(graph: Graph, node: Node) -> list[Node]:
    """The tensors of a node's result, each as a node."""
    value = node.meta["val"]
    if isinstance(value, torch.Tensor):
        return [node]
    parts = []
    for position, one in enumerate(value):
        if isinstance(one, torch.Tensor):
            parts.append(graph.call_function(operator.getitem, (node, position)))
            parts[-1].meta["val"] = one
    return parts


def _decomposed(
    draft: _Draft, written: list[int], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> GraphModule:
    """The call traced through functionalization and PyTorch's decompositions."""

    def computed(*tensors: torch.Tensor) -> list[torch.Tensor]:
        given = [one.clone() if i in written else one for i, one in enumerate(tensors)]
        feed = iter(given)
        traced_args, traced_kwargs = substituted(draft.call, args, kwargs, lambda _: next(feed))
        result = (draft.composed or draft.overload)(*traced_args, **traced_kwargs)
        made = [
            one
            for one, fake in zip(_tensors(result), _tensors(draft.result), strict=True)
            if draft.place(fake) < 0
        ]
        return [*(given[place] for place in written), *(one.clone() for one in made)]

    with draft.mode:
        fakes = [
            torch.empty_strided(one.size, one.stride, dtype=one.dtype.torch, device="cpu")
            for one in draft.before
        ]
    return traced(computed, fakes)


# The program ------------------------------------------------------------------------------


class _Planner:
    """Puts reading and writing of storages around a graph, and compiles it."""

    def __init__(
        self, draft: _Draft, module: GraphModule, written: list[int], new: list[torch.Tensor]
    ) -> None:
        self.draft, self.call = draft, draft.call
        self.written = written
        self.new = [_new(fake) for fake in new]
        self.after = [_layout(fake) for fake in draft.fakes]
        self.lengths = self._lengths()
        found = survey(module)
        if found.unsupported:
            raise Unplanned("; ".join(f"{one.overload}: {one.reason}" for one in found.unsupported))
        self.seeded = found.seeded
        self.module, self.checks = add_checks(module, indices=True, values=True)
        self.used = self._used()
        self.reads = self._reads()

    def plan(self) -> Plan:
        run = self._compile() if self.written or self.new or self.checks else None
        return Plan(
            run=run,
            reads=tuple(self.reads),
            hosts=tuple(i for i, place in enumerate(self.call.places) if place < 0),
            seeded=self.seeded,
            writes=tuple((place, self._element(place)) for place in self._written_boxes()),
            new=tuple(self.new),
            answer=answer_of(self._template(self.draft.result, iter(range(len(self.new))))),
            moved=tuple(self._moved()),
            checks=tuple(self.checks),
        )

    def _lengths(self) -> dict[int, int]:
        """Bytes of each box when the program has run."""
        found = {place: box.nbytes for place, box in enumerate(self.call.boxes)}
        for tensor in self.written:
            place, layout_ = self.call.places[tensor], self.after[tensor]
            if place < 0:
                raise RuntimeError(
                    "an operator on pjrt tensors cannot write into a tensor on the CPU\n"
                    '  next: move the written tensor with .to("pjrt")'
                )
            found[place] = max(found[place], layout_.end * layout_.dtype.itemsize)
        return found

    def _used(self) -> set[int]:
        """Tensors whose values the graph reads."""
        nodes = [node for node in self.module.graph.nodes if node.op == "placeholder"]
        return {i for i, node in enumerate(nodes[: len(self.draft.fakes)]) if node.users}

    def _reads(self) -> list[int]:
        """Boxes whose arrays the program takes."""
        read = {self.call.places[i] for i in self.used if self.call.places[i] >= 0}
        held: set[int] = set()
        for tensor in self.written:
            place, target = self.call.places[tensor], self.after[tensor]
            if not target.covers(self.lengths[place] // target.dtype.itemsize) and place not in held:
                read.add(place)
            held.add(place)
        return sorted(read)

    def _written_boxes(self) -> list[int]:
        return list(dict.fromkeys(self.call.places[tensor] for tensor in self.written))

    def _element(self, place: int) -> DType:
        """The dtype of a written box: that of the last view that is written."""
        return next(
            self.after[tensor].dtype for tensor in reversed(self.written) if self.call.places[tensor] == place
        )

    def _compile(self) -> engine.Run:
        boxes = [self.call.boxes[place] for place in self.reads]
        arguments = [
            hlo.Argument((box.nbytes // box.dtype.itemsize,), box.dtype, f"storage_{place}")
            for place, box in zip(self.reads, boxes, strict=True)
        ]
        arguments += [hlo.Argument((), dtype, "number") for _, dtype in self.call.numbers]
        hosts = [i for i, place in enumerate(self.call.places) if place < 0]
        arguments += [hlo.Argument((1,), self.draft.before[i].dtype, "host") for i in hosts]
        if self.seeded:
            arguments.append(hlo.Argument((2,), dtypes.UINT64, "seed"))
        return engine.compiled(str(self.draft.overload), arguments, self._body)

    def _body(self, values: list[Value]) -> list[Value]:
        feed = iter(values)
        flats = {place: next(feed) for place in self.reads}
        numbers = [next(feed) for _ in self.call.numbers]
        hosts = {i: hlo.reshape(next(feed), ()) for i, place in enumerate(self.call.places) if place < 0}
        seed = next(feed) if self.seeded else None
        inputs = [hosts[i] if i in hosts else self._input(i, flats) for i in range(len(self.draft.fakes))]
        results = lower_values(self.module, [*inputs, *numbers], seed=seed)
        for tensor, value in zip(self.written, results, strict=False):
            place, target = self.call.places[tensor], self.after[tensor]
            stored = _lazily(self.call.tensors[tensor], cast(value, target.dtype))
            flats[place] = self._written_flat(flats.get(place), place, target, stored)
        rest = results[len(self.written) :]
        made = [layout.spread(value, one.layout) for value, one in zip(rest, self.new, strict=False)]
        return [
            *(layout.reinterpreted(flats[place], self._element(place)) for place in self._written_boxes()),
            *made,
            *rest[len(self.new) :],
        ]

    def _input(self, position: int, flats: Mapping[int, Value]) -> Value:
        view = self.draft.before[position]
        if position not in self.used:
            return hlo.full(view.size, 0, view.dtype)
        held = layout.read(_as(flats[self.call.places[position]], view.dtype), view)
        return _lazily(self.call.tensors[position], held)

    def _written_flat(self, flat: Value | None, place: int, target: Layout, values: Value) -> Value:
        """The array of a box with one of its views written."""
        length = self.lengths[place] // target.dtype.itemsize
        if target.covers(length):
            return layout.spread(values, target)
        assert flat is not None
        held = _as(flat, target.dtype)
        (count,) = held.shape
        assert isinstance(count, int)
        if count < length:
            held = hlo.pad_axis(held, 0, 0, 0, length - count)
        return layout.write(held, target, values)

    def _moved(self) -> Iterator[Moved]:
        for tensor in self.written:
            old, new = self.draft.before[tensor], self.after[tensor]
            if (old.size, old.stride) != (new.size, new.stride):
                yield Moved(tensor, self.lengths[self.call.places[tensor]], new.size, new.stride)

    def _template(self, result: Any, new: Iterator[int]) -> Any:
        if isinstance(result, torch.Tensor):
            place = self.draft.place(result)
            return ("new", next(new)) if place < 0 else ("argument", place)
        if isinstance(result, (list, tuple)):
            return [self._template(one, new) for one in result]
        return ("value", result)


def _lazily(tensor: torch.Tensor, value: Value) -> Value:
    """From what a storage holds to what a tensor with lazy conjugate and negative bits shows, and back."""
    if tensor.is_conj():
        value = hlo.conj(value)
    return -value if tensor.is_neg() else value


def _as(flat: Value, dtype: DType) -> Value:
    """A flat array in a view's dtype; bytes behind its last whole element are left out."""
    (count,) = flat.shape
    assert isinstance(count, int)
    spare = count * flat.dtype.itemsize % dtype.itemsize
    if spare:
        flat = layout.reinterpreted(flat, dtypes.UINT8)
        flat = hlo.slice_axis(flat, 0, 0, count * flat.dtype.itemsize - spare)
    return layout.reinterpreted(flat, dtype)


def _new(fake: torch.Tensor) -> New:
    found = _layout(fake)
    placed = Layout(found.dtype, found.size, found.stride, 0)
    return New(placed, fake.dtype, placed.end * found.dtype.itemsize)
