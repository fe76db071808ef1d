"""Lowers every operator sample once, and collects the operations and composites that the lowerings emit.

``docs/composites.md`` and ``docs/operators.json`` are written from these, so they list only what some
lowering emits.
"""

from __future__ import annotations

import json
import operator
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from markdown_tables import WRITTEN, code, table
from torch._ops import OpOverload
from torch._subclasses import FakeTensorMode
from torch.fx import Graph, GraphModule, Node

from operator_samples import Sample, load_samples
from torchstone import dtypes, hlo, lowering
from torchstone.compiler.operators.tracing import mended_operators
from torchstone.compiler.passes import lowered
from torchstone.compiler.pipeline import Unit
from torchstone.compiler.records import described, record
from torchstone.compiler.support import unsupported_reason
from torchstone.lowering import Lowering

COMPOSITES = """\
# Composites

{composites} composites may be in a module. How to match one, and what a version promises, is said in
[the artifact](artifact.md#composites).

Operands come in this order and are called as in the ATen schema. Axes are never negative. An
attribute marked `?` is not always there. Two common attributes are not in the table:

- `operands`: an operand marked `?` may be missing. If one is, this has a bool for each operand of the table.
- `dtypes`: the dtype of each result by its PyTorch name, `"none"` for a result that was not asked for.
"""


@dataclass
class Composite:
    """A composite with one name and version: its operands, attributes and overloads in all samples."""

    operands: dict[int, str] = field(default_factory=dict)
    optional: set[int] = field(default_factory=set)
    attributes: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    common: set[str] | None = None
    """The attributes that every call has. ``None`` before the first call."""
    overloads: set[str] = field(default_factory=set)

    def add(self, overload: str, operation: Any, names: Sequence[str]) -> None:
        """Record one ``stablehlo.composite`` operation. ``names`` are the names of ``main``'s arguments."""
        given = {entry.name: entry.attr for entry in operation.attributes["composite_attributes"]}
        there = [bool(one.value) for one in given["operands"]] if "operands" in given else None
        slots = [i for i in range(len(there or operation.operands)) if there is None or there[i]]
        for slot, operand in zip(slots, operation.operands, strict=True):
            self.operands.setdefault(slot, origin(operand, names))
        self.optional |= {i for i, here in enumerate(there or ()) if not here}
        for name, attribute in given.items():
            self.attributes[name].add(attribute_type(attribute))
        self.common = set(given) if self.common is None else self.common & set(given)
        self.overloads.add(overload)

    def operand_names(self) -> list[str]:
        return [
            self.operands[slot] + ("?" if slot in self.optional else "") for slot in sorted(self.operands)
        ]

    def attribute_text(self) -> str:
        return ", ".join(
            f"`{name}{'' if name in (self.common or ()) else '?'}`: {' or '.join(sorted(types))}"
            for name, types in sorted(self.attributes.items())
            if name not in ("dtypes", "operands")
        )


def composites_page() -> str:
    """Return the page that lists every composite in the operator samples' modules."""
    found = collect_composites()
    rows = [
        (
            f"`{name}`",
            str(version),
            code(one.operand_names()),
            one.attribute_text(),
            code(sorted(one.overloads)),
        )
        for (name, version), one in sorted(found.items())
    ]
    header = ("composite", "version", "operands", "attributes", "overloads")
    return "\n".join([WRITTEN, COMPOSITES.format(composites=len(found)), table(header, rows)])


def collect_composites() -> dict[tuple[str, int], Composite]:
    """Return the composites by name and version, from every operator sample in one dtype."""
    found: dict[tuple[str, int], Composite] = defaultdict(Composite)
    for entry, operations, names in lowered_samples():
        for operation in operations:
            if operation.name == "stablehlo.composite":
                key = (operation.attributes["name"].value, operation.attributes["version"].value)
                found[key].add(entry.name.removeprefix("aten."), operation, names)
    return found


def operator_records() -> str:
    """Return the record of every overload as JSON, including what it is lowered to."""
    emitted: Mapping[str, tuple[set[str], set[str]]] = defaultdict(lambda: (set(), set()))
    for entry, operations, _ in lowered_samples():
        plain, composites = emitted[entry.name]
        for operation in operations:
            if operation.name == "stablehlo.composite":
                composites.add(operation.attributes["name"].value)
            elif operation.name not in _STRUCTURE:
                plain.add(operation.name)
    shown = {
        entry.name: described(record(entry.overload))
        | {"lowered_to": sorted(emitted[entry.name][0]), "composites": sorted(emitted[entry.name][1])}
        for entry in lowering.load()
    }
    lines = (f"{json.dumps(name)}: {json.dumps(one, ensure_ascii=False)}" for name, one in shown.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


_STRUCTURE = {"func.return", "stablehlo.return"}


@cache
def lowered_samples() -> list[tuple[Lowering, list[Any], list[str]]]:
    """Return each overload that has samples, the operations of ``main``, and its arguments' names."""
    samples = load_samples()
    found = []
    for entry in lowering.load():
        if entry.overload not in samples:
            continue
        preferred = [d for d in (dtypes.FLOAT32, dtypes.INT64) if d in entry.dtypes]
        dtype = (preferred or sorted(entry.dtypes, key=str))[0]
        found.append((entry, *emitted(entry, samples[entry.overload].make(dtype.torch))))
    return found


_ALIVE: list[hlo.Module] = []
"""Keeps modules alive while their operations are read: MLIR frees operations with their context."""


def emitted(entry: Lowering, samples: Sequence[Sample]) -> tuple[list[Any], list[str]]:
    """Return the operations that the samples are lowered to, and the names of ``main``'s arguments."""
    graph, mode = Graph(), FakeTensorMode(allow_non_fake_inputs=True)
    labels: dict[str, str] = {}
    results: list[Node] = []
    for sample in samples:
        fake = sample.map(mode.from_tensor)
        try:
            entry.overload(*sample.args, **sample.kwargs)
            with mended_operators(), mode:
                value = entry.overload(*fake.args, **fake.kwargs)
        except (RuntimeError, NotImplementedError, TypeError, ValueError):
            continue  # PyTorch does not take this sample in this dtype
        node = call(graph, entry.overload, fake, labels)
        node.meta["val"] = value
        if unsupported_reason(node, lowering.load()) is None:
            results += tensor_nodes(node)
        else:
            graph.erase_node(node)
    graph.output(tuple(results))
    unit = Unit(GraphModule(torch.nn.Module(), graph), labels=labels)
    built = lowered(unit)
    _ALIVE.append(built)
    with built.context:
        # Only ``main`` is searched: a composite inside another one also occurs by itself in some sample.
        main = next(one for one in built.op.body.operations if one.name.value == "main")
        return list(operations(main.operation)), [argument.name for argument in unit.arguments]


def call(graph: Graph, overload: OpOverload, fake: Sample, labels: dict[str, str]) -> Node:
    """Add a node that calls ``overload``. Record in ``labels`` each tensor's name in the schema."""

    def place(name: str, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [place(name, item) for item in value]
        if not isinstance(value, torch.Tensor):
            return value
        node = graph.placeholder(f"input{len(labels)}")
        node.meta["val"] = value
        labels[node.name] = name
        return node

    schema = overload._schema.arguments
    args = tuple(place(known.name, value) for known, value in zip(schema, fake.args, strict=False))
    return graph.call_function(
        overload, args, {name: place(name, value) for name, value in fake.kwargs.items()}
    )


def tensor_nodes(node: Node) -> list[Node]:
    """Return ``node`` if it returns one tensor, else one node per tensor that it returns."""
    value = node.meta["val"]
    if isinstance(value, torch.Tensor):
        return [node]
    picked = []
    for i, item in enumerate(value):
        if isinstance(item, torch.Tensor):
            picked.append(node.graph.call_function(operator.getitem, (node, i)))
            picked[-1].meta["val"] = item
    return picked


def operations(operation: Any) -> Iterator[Any]:
    """All operations inside an MLIR operation."""
    for region in operation.regions:
        for block in region.blocks:
            for inner in block.operations:
                yield inner.operation
                yield from operations(inner.operation)


def origin(value: Any, names: Sequence[str]) -> str:
    """Return the name of the first argument of ``main`` that ``value`` is computed from, or "constant"."""
    pending = [value]
    while pending:
        one = pending.pop()
        if hasattr(one, "arg_number"):
            return names[one.arg_number]
        pending += reversed(list(one.owner.operands))
    return "constant"


def attribute_type(attribute: Any) -> str:
    """``int``, ``float``, ``bool``, ``string`` or ``list of int``, as ``hlo.composite`` writes them."""
    kind = type(attribute).__name__
    if kind == "ArrayAttr":
        inner = sorted({attribute_type(item) for item in attribute})
        return f"list of {' or '.join(inner) or 'int'}"
    return {"IntegerAttr": "int", "FloatAttr": "float", "BoolAttr": "bool", "StringAttr": "string"}[kind]
