"""From a graph to a program: StableHLO that reads views out of storages and writes views back.

The program takes the flat arrays of the storages, reads views out of them, computes the graph, and writes
changed views back, all in one executable. The graph itself is made in :mod:`.drafting`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from .. import dtypes, hlo
from ..compiler.checks import add_checks
from ..compiler.lower import lower_values
from ..compiler.support import survey
from ..dtypes import DType
from ..hlo import Value
from ..lowering.common import cast
from ..torch_internals.dispatch import without_function_modes
from ..torch_internals.operators import OpOverload
from ..torch_internals.patches import tracing
from ..torch_internals.private_device import below_autocast
from . import engine, layout
from .calls import Call
from .drafting import Draft, Unplanned, graph_of, layout_of, rehearsed
from .layout import Layout
from .plans import Moved, New, Plan, answer_of


def build(
    overload: OpOverload,
    call: Call,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    composed: Callable[..., Any] | None = None,
) -> Plan:
    """Return the plan for a call. Raises :class:`Unplanned`, or what PyTorch's metadata functions raise.

    ``composed`` is traced in place of the operator. Inference mode is off while it is traced, because
    inference tensors do not record what it writes.
    """
    with (
        tracing(),
        without_function_modes(),
        torch.inference_mode(False),
        torch.no_grad(),
        below_autocast(),
    ):
        draft = rehearsed(overload, call, args, kwargs, composed)
        written = draft.written()
        for place in written:
            _refuse_repeats(draft.before[place])
        graph, new = graph_of(draft, written, args, kwargs)
        return _Planner(draft, graph, written, new).plan()


def _refuse_repeats(target: Layout) -> None:
    if target.repeats:
        raise RuntimeError(
            "unsupported operation: more than one element of the written-to tensor refers to a single memory"
            " location. Please clone() the tensor before performing the operation."
        )


class _Planner:
    """A builder that wraps a graph in the code that reads and writes storages."""

    def __init__(
        self, draft: Draft, module: GraphModule, written: list[int], new: list[torch.Tensor]
    ) -> None:
        self.draft, self.call = draft, draft.call
        self.written = written
        self.new = [_new(fake) for fake in new]
        for one in self.new:
            if one.layout.dtype in dtypes.SUB_BYTE:
                raise Unplanned(
                    f"storages hold whole bytes, and elements of {one.layout.dtype} have fewer bits"
                )
        self.after = [layout_of(fake) for fake in draft.fakes]
        self.lengths = self._lengths()
        self.elements = self._elements()
        found = survey(module)
        if found.unsupported:
            raise Unplanned("; ".join(f"{one.overload}: {one.reason}" for one in found.unsupported))
        self.seeded = found.seeded
        self.module, self.checks = add_checks(module, indices=True, values=True)
        self.used = self._used()
        self.reads = self._reads()

    def plan(self) -> Plan:
        program = self._narrowed() if self.written or self.new or self.checks else None
        self._refuse_overlaps()
        return Plan(
            program=program,
            reads=tuple(self.reads),
            hosts=tuple(i for i, place in enumerate(self.call.places) if place < 0),
            seeded=self.seeded,
            writes=tuple((place, self.elements[place]) for place in self._written_boxes()),
            new=tuple(self.new),
            answer=answer_of(self._template(self.draft.result, iter(range(len(self.new))))),
            moved=tuple(self._moved()),
            checks=tuple(self.checks),
        )

    def _lengths(self) -> dict[int, int]:
        """Return the number of bytes that each box holds after the program has run."""
        found = {place: box.nbytes for place, box in enumerate(self.call.boxes)}
        for tensor in self.written:
            place, layout_ = self.call.places[tensor], self.after[tensor]
            if place < 0:
                raise Unplanned("it writes into a tensor on the CPU")
            found[place] = max(found[place], layout_.end * layout_.dtype.itemsize)
        return found

    def _used(self) -> set[int]:
        """Return the positions of the tensors whose values the graph reads."""
        nodes = [node for node in self.module.graph.nodes if node.op == "placeholder"]
        return {i for i, node in enumerate(nodes[: len(self.draft.fakes)]) if node.users}

    def _reads(self) -> list[int]:
        """Return the boxes whose arrays are arguments of the program."""
        read = {self.call.places[i] for i in self.used if self.call.places[i] >= 0}
        held: set[int] = set()
        for tensor in self.written:
            place, target = self.call.places[tensor], self.after[tensor]
            if not target.covers(self.lengths[place]) and place not in held:
                read.add(place)
            held.add(place)
        return sorted(read)

    def _written_boxes(self) -> list[int]:
        return list(dict.fromkeys(self.call.places[tensor] for tensor in self.written))

    def _elements(self) -> dict[int, DType]:
        """Return the dtype of each box's array after the program has run."""
        found = {place: box.dtype for place, box in enumerate(self.call.boxes)}
        for tensor in self.written:
            place = self.call.places[tensor]
            found[place] = _written_as(self.after[tensor], self.lengths[place], found[place])
        return found

    def _narrowed(self) -> engine.Program:
        """Return the program, without arguments for boxes whose values it would not use.

        ``fill_`` takes a tensor but does not read its values, so the box may be without values.
        """
        program = self._program()
        read = [place for position, place in enumerate(self.reads) if position in program.read]
        if read == self.reads:
            return program
        self.used = {i for i in self.used if self.call.places[i] < 0 or self.call.places[i] in read}
        self.reads = read
        return self._program()

    def _refuse_overlaps(self) -> None:
        """Raise :class:`Unplanned` if the call changes elements at one address, each from what it was before.

        On the CPU, such a call reads some elements after it has written others.
        """
        before = self.draft.before
        overlapping = [tensor for tensor in self.written if self.after[tensor].overlaps]
        read = self._values_read() if overlapping else set()
        for tensor in overlapping:
            place = self.call.places[tensor]
            if any(self.call.places[i] == place and before[i] == before[tensor] for i in read):
                raise Unplanned("elements of the written tensor share an address, so their order matters")

    def _values_read(self) -> set[int]:
        """Return the positions of the tensors whose values the graph's results depend on."""
        given = [hlo.Argument(one.size, one.dtype, "") for one in self.draft.before]
        given += [hlo.Argument((), dtype, "") for _, dtype in self.call.numbers]
        if self.seeded:
            given.append(hlo.Argument((2,), dtypes.UINT64, ""))

        def body(values: list[Value]) -> list[Value]:
            seed = values.pop() if self.seeded else None
            return lower_values(self.module, values, seed=seed)

        module = hlo.Module("values")
        module.build(given, body)
        return module.arguments_read()

    def _program(self) -> engine.Program:
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
        return engine.Program(str(self.draft.overload), arguments, self._body)

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
            *(flats[place] for place in self._written_boxes()),
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
        """Return the array of a box after ``values`` are written to one of its views."""
        nbytes = self.lengths[place]
        if target.covers(nbytes):
            return layout.spread(values, target)
        assert flat is not None
        element = _written_as(target, nbytes, flat.dtype)
        missing = nbytes - layout.nbytes_of(flat)
        if missing > 0:
            flat = hlo.pad_axis(layout.reinterpreted(flat, dtypes.UINT8), 0, 0, 0, missing)
        held = layout.reinterpreted(flat, element)
        if element is not target.dtype:
            target, values = target.in_bytes, layout.in_bytes(values)
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
    """Apply a tensor's lazy conjugate and negative bits: from stored to visible values, or back."""
    if tensor.is_conj():
        value = hlo.conj(value)
    return -value if tensor.is_neg() else value


def _as(flat: Value, dtype: DType) -> Value:
    """Return a flat array in a view's dtype, without the bytes that follow its last whole element."""
    nbytes = layout.nbytes_of(flat)
    spare = nbytes % dtype.itemsize
    if spare:
        flat = hlo.slice_axis(layout.reinterpreted(flat, dtypes.UINT8), 0, 0, nbytes - spare)
    return layout.reinterpreted(flat, dtype)


def _written_as(target: Layout, nbytes: int, held: DType) -> DType:
    """Return the dtype that a box's array gets when a view is written to it.

    The array has ``nbytes`` bytes, and its dtype so far is ``held``. The new dtype is that of the view, or
    uint8 where that would lose bytes: those after the last whole element, and, for a view of booleans, those
    that are neither 0 nor 1.
    """
    if target.covers(nbytes):
        return target.dtype
    loses = nbytes % target.dtype.itemsize or (target.dtype is dtypes.BOOL and held is not dtypes.BOOL)
    return dtypes.UINT8 if loses else target.dtype


def _new(fake: torch.Tensor) -> New:
    found = layout_of(fake)
    placed = Layout(found.dtype, found.size, found.stride, 0)
    return New(placed, fake.dtype, placed.end * found.dtype.itemsize)
