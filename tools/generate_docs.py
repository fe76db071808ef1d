"""Writes the pages of ``docs`` that are tables of the code: operators, inventory, gaps, settings, errors.

    python tools/generate_docs.py            # write them (make docs)
    python tools/generate_docs.py --check    # exit 1 and show the difference where one is out of date

A page is written as a whole, or between the marks ``<!-- begin NAME -->`` and
``<!-- end NAME -->``. The table of composites is what lowering the operator
samples emits, so it cannot promise what no lowering does.
"""

from __future__ import annotations

import argparse
import difflib
import inspect
import operator
import os
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from torch._ops import OpOverload
from torch._subclasses import FakeTensorMode
from torch.fx import Graph, GraphModule, Node

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "packages" / "torchstone" / "tests")]
os.environ.pop("XDG_CACHE_HOME", None)  # the defaults, not one machine's

import derivative_docs  # noqa: E402
import gap_docs  # noqa: E402
import inventory_docs  # noqa: E402
from markdown_tables import WRITTEN, code, table  # noqa: E402

from operator_samples import Sample, load_samples  # noqa: E402
from optest.plan import driver_settings  # noqa: E402
from optest.plan import schema as plan_schema  # noqa: E402
from torchstone import config, dtypes, errors, hlo, lowering  # noqa: E402
from torchstone.compiler.index_checks import RULES  # noqa: E402
from torchstone.compiler.lower import lower_graph  # noqa: E402
from torchstone.compiler.support import needs_seed, unsupported_reason  # noqa: E402
from torchstone.dtypes import DType  # noqa: E402
from torchstone.lowering import Lowering  # noqa: E402

DTYPE_GROUPS: Mapping[str, frozenset[DType]] = {
    "bool": dtypes.BOOLEAN,
    "int": dtypes.INTEGRAL,
    "uint": dtypes.UNSIGNED - dtypes.INTEGRAL,
    "float": dtypes.FLOATING,
    "complex": dtypes.COMPLEX,
    "float8": dtypes.FLOAT8,
    "4-bit": dtypes.SUB_BYTE,
}
"""Short names for dtypes that usually come together."""


def dtype_text(found: Iterable[DType]) -> str:
    """``bool int float8_e5m2``: whole groups by their short name, the others one by one."""
    left, words = set(found), []
    for name, group in DTYPE_GROUPS.items():
        present = group & left
        words += [name] if present == group else dtype_names(present)
    return " ".join(words)


def dtype_names(found: Iterable[DType]) -> list[str]:
    return [d.name for d in sorted(found, key=lambda d: (d.kind, d.bits, d.name))]


# Operators --------------------------------------------------------------------------

OPERATORS = """\
# Operators

{overloads} ATen overloads in {families} families are lowered. What PyTorch decomposes into these is
covered too; `torchstone ops MODEL` says what one model needs and what it lacks.

The dtypes are those of the first tensor operand, or of the result where there is none. A gap is a
dtype that PyTorch's CPU kernels take and the lowering does not, with the reason.

Higher-order operators: {higher_order}.

Short names of dtypes:

{legend}
## Indices out of range

A program cannot raise. What it does with an index out of range is in the table; with
`config.check_indices` it raises `IndexOutOfRange` instead, with the operator and the line of the
model. A program is exported or compiled with the checks or without them; without them they cost
nothing. Branches of conditions and bodies of loops are checked too; the condition of a `while_loop`
is not. Nor are the `indices` of `max_unpool2d` and `max_unpool3d`, whose range is the result's size,
and the `targets` of `_ctc_loss`, which may hold anything behind their lengths: out of range the
former write nothing, the latter read the nearest class.

{indices}"""


def operators_page() -> str:
    """Every overload of the registry, by family."""
    registry = lowering.load()
    families: dict[str, list[Lowering]] = defaultdict(list)
    for entry in registry:
        families[entry.family].append(entry)
    legend = [f"`{name}`: {', '.join(dtype_names(group))}" for name, group in DTYPE_GROUPS.items()]
    introduction = OPERATORS.format(
        overloads=len(registry),
        families=len(families),
        higher_order=code(one.name for one in registry.higher_order_lowerings()),
        legend="".join(f"- {line}\n" for line in legend),
        indices=index_table(),
    )
    parts = [WRITTEN, introduction]
    for family, entries in sorted(families.items()):
        rows = [
            (
                f"`{entry.name.removeprefix('aten.')}`",
                dtype_text(entry.dtypes),
                gap_text(entry),
                prose(entry.documentation),
            )
            for entry in entries
        ]
        parts += [f"## {family}\n", table(("overload", "dtypes", "gaps", "what it is"), rows)]
    return "\n".join(parts)


def index_table() -> str:
    """Every operator with index operands: what may be in them, and what happens to the rest."""
    rows = [
        (
            f"`{str(overload).removeprefix('aten.')}`",
            f"`{rule.operand}`",
            "from the end" if rule.negative else "the end" if rule.exempt == -1 else "out of range",
            rule.effect,
        )
        for overload, rule in sorted(RULES.items(), key=lambda item: str(item[0]))
    ]
    return table(("overload", "indices", "negative", "out of range, without checks"), rows)


def gap_text(entry: Lowering) -> str:
    by_reason: dict[str, set[DType]] = defaultdict(set)
    for dtype, reason in entry.gaps.items():
        by_reason[reason].add(dtype)
    return "; ".join(f"{dtype_text(found)}: {reason}" for reason, found in sorted(by_reason.items()))


def prose(docstring: str) -> str:
    """The first line of a docstring in Markdown: double backquotes and roles become code."""
    plain = re.sub(r":\w+:`~?([^`]+)`", r"`\1`", docstring.partition("\n")[0])
    return plain.replace("``", "`")


# Composites -------------------------------------------------------------------------

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
    """What the lowerings emit under one name and version."""

    operands: dict[int, str] = field(default_factory=dict)
    optional: set[int] = field(default_factory=set)
    attributes: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    common: set[str] | None = None
    """Attributes that every call has."""
    overloads: set[str] = field(default_factory=set)

    def add(self, overload: str, operation: Any, names: Sequence[str]) -> None:
        """Take one ``stablehlo.composite`` operation in; ``names`` are those of ``main``'s arguments."""
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
    """Every composite that the operator samples' modules contain."""
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
    """Composites by name and version, from every operator sample in one dtype."""
    samples = load_samples()
    found: dict[tuple[str, int], Composite] = defaultdict(Composite)
    for entry in lowering.load():
        if entry.overload not in samples:
            continue
        preferred = [d for d in (dtypes.FLOAT32, dtypes.INT64) if d in entry.dtypes]
        dtype = (preferred or sorted(entry.dtypes, key=str))[0]
        for operation, names in emitted(entry, samples[entry.overload].make(dtype.torch)):
            key = (operation.attributes["name"].value, operation.attributes["version"].value)
            found[key].add(entry.name.removeprefix("aten."), operation, names)
    return found


def emitted(entry: Lowering, samples: Sequence[Sample]) -> Iterator[tuple[Any, list[str]]]:
    """The composite operations that samples are lowered to, each with the names of ``main``'s arguments."""
    graph, mode = Graph(), FakeTensorMode(allow_non_fake_inputs=True)
    arguments: list[hlo.Argument] = []
    results: list[Node] = []
    for sample in samples:
        fake = sample.map(mode.from_tensor)
        try:
            entry.overload(*sample.args, **sample.kwargs)
            with mode:
                value = entry.overload(*fake.args, **fake.kwargs)
        except (RuntimeError, NotImplementedError, TypeError, ValueError):
            continue  # PyTorch does not take this sample in this dtype
        node = call(graph, entry.overload, fake, arguments)
        node.meta["val"] = value
        if unsupported_reason(node, lowering.load()) is None:
            results += tensor_nodes(node)
        else:
            graph.erase_node(node)
    graph.output(tuple(results))
    module = GraphModule(torch.nn.Module(), graph)
    seed = needs_seed(module)
    if seed:
        arguments.append(hlo.Argument((2,), dtypes.UINT64, "seed"))
    built = lower_graph(module, arguments, seed=seed)
    with built.context:
        # Those inside of other composites are found where they stand alone.
        main = next(one for one in built.op.body.operations if one.name.value == "main")
        for operation in operations(main.operation):
            if operation.name == "stablehlo.composite":
                yield operation, [argument.name for argument in arguments]


def call(graph: Graph, overload: OpOverload, fake: Sample, arguments: list[hlo.Argument]) -> Node:
    """A node that calls ``overload``; its tensors become ``arguments`` under the schema's names."""

    def place(name: str, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [place(name, item) for item in value]
        if not isinstance(value, torch.Tensor):
            return value
        node = graph.placeholder(f"input{len(arguments)}")
        node.meta["val"] = value
        arguments.append(hlo.Argument(tuple(value.shape), dtypes.from_torch(value.dtype), name))
        return node

    schema = overload._schema.arguments
    args = tuple(place(known.name, value) for known, value in zip(schema, fake.args, strict=False))
    return graph.call_function(
        overload, args, {name: place(name, value) for name, value in fake.kwargs.items()}
    )


def tensor_nodes(node: Node) -> list[Node]:
    """``node``, or one node per tensor that it returns."""
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
    """The first argument of ``main`` that ``value`` is computed from."""
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


# Settings and errors ------------------------------------------------------------------


def settings_table() -> str:
    """Every setting with its variable and default."""
    home = str(Path.home())
    defaults = {
        one.name: one.default if one.default is not MISSING else one.default_factory()  # type: ignore[misc]
        for one in fields(config.Config)
    }
    rows = [
        (f"`{name}`", f"`{variable}`", code([str(defaults[name]).replace(home, "~")]), documentation)
        for name, variable, _, documentation in config.describe()
    ]
    return table(("setting", "variable", "default", "meaning"), rows)


def errors_table() -> str:
    """Every public exception and warning, with its base class."""
    found = [
        one
        for one in vars(errors).values()
        if inspect.isclass(one) and issubclass(one, Exception) and one.__module__ == errors.__name__
    ]
    rows = [(f"`{one.__name__}`", f"`{one.__base__.__name__}`", prose(one.__doc__ or "")) for one in found]
    return table(("name", "is a", "meaning"), rows)


# Plans of optest ---------------------------------------------------------------------


def plan_reference() -> str:
    """Every key of a plan, from its JSON Schema."""
    top = plan_schema.PLAN_SCHEMA["properties"]
    parts = {
        "A plan": top,
        "A case": {**top["cases"]["items"]["properties"]},
        "`tolerance`": plan_schema.TOLERANCE_FIELDS,
        "`options`": plan_schema.OPTION_FIELDS,
        "`backend_config.command` and `backend_config.ascend`": driver_settings.COMMAND_FIELDS,
        "An entry of `inputs` or `outputs`": driver_settings.COMMAND_FIELDS["inputs"]["items"]["properties"],
        "`backend_config.http`": driver_settings.HTTP_FIELDS,
    }
    return "\n".join(
        f"### {title}\n\n{table(('key', 'takes', 'meaning'), field_rows(fields))}"
        for title, fields in parts.items()
    )


def field_rows(fields: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    for name, schema in fields.items():
        yield f"`{name}`", takes(schema), schema.get("description", "")


def takes(schema: Mapping[str, Any]) -> str:
    """The types that a JSON Schema allows, in YAML's words."""
    if "oneOf" in schema:
        return " or ".join(dict.fromkeys(map(takes, schema["oneOf"])))
    if "const" in schema or "enum" in schema:
        return code(map(str, schema.get("enum", [schema.get("const")])))
    words = {"object": "mapping", "array": "list", "string": "text", "boolean": "`true` or `false`"}
    limits = {"minimum": "≥", "exclusiveMinimum": ">"}
    limit = "".join(f" {sign} {schema[key]}" for key, sign in limits.items() if key in schema)
    return f"{words.get(schema['type'], schema['type'])}{limit}"


# Pages ------------------------------------------------------------------------------


PAGES: Mapping[str, Callable[[], str]] = {
    "docs/operators.md": operators_page,
    "docs/composites.md": composites_page,
    "docs/derivatives.md": derivative_docs.page,
}
SLOW = ("docs/composites.md",)
SECTIONS: Mapping[str, tuple[str, Callable[[], str]]] = {
    "docs/configuration.md": ("settings", settings_table),
    "docs/errors.md": ("errors", errors_table),
    "docs/optest/plans.md": ("plan", plan_reference),
}


def replace_section(text: str, name: str, content: str) -> str:
    """``text`` with ``content`` between the marks of section ``name``; ValueError where they are missing."""
    begin, end = f"<!-- begin {name} -->\n", f"<!-- end {name} -->"
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"there is no section between {begin.strip()} and {end}")
    return f"{before}{begin}\n{content}\n{end}{after}"


def generate(root: Path = ROOT, *, quick: bool = False) -> dict[Path, str]:
    """Every generated page's path and the text that it should have; ``quick``: but for those in ``SLOW``."""
    pages = {root / name: make() for name, make in PAGES.items() if not (quick and name in SLOW)}
    pages |= {root / name: text for name, text in inventory_docs.pages(dtype_text).items()}
    pages |= {root / name: text for name, text in gap_docs.pages(root).items()}
    for name, (section, make) in SECTIONS.items():
        pages[root / name] = replace_section((root / name).read_text("utf-8"), section, make())
    return pages


def differences(pages: Mapping[Path, str]) -> str:
    """A unified diff from what is on disk to ``pages``; empty where they agree."""
    lines: list[str] = []
    for path, text in pages.items():
        present = path.read_text("utf-8") if path.exists() else ""
        old, new = present.splitlines(keepends=True), text.splitlines(keepends=True)
        lines += difflib.unified_diff(old, new, str(path), "generated")
    return "".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the pages, or with ``--check`` compare them; the exit status."""
    parser = argparse.ArgumentParser(description="Write the tables of the documentation from the code.")
    parser.add_argument("--check", action="store_true", help="change nothing; fail if a page is out of date")
    parser.add_argument(
        "--quick", action="store_true", help=f"leave out {', '.join(SLOW)}: it takes lowering every sample"
    )
    options = parser.parse_args(arguments)
    pages = generate(quick=options.quick)
    stale = differences(pages)
    if options.check:
        sys.stdout.write(stale and f"{stale}\nThe documentation is out of date: run `make docs`.\n")
        return 1 if stale else 0
    for path, text in pages.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
