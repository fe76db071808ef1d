"""Writes the pages of ``docs`` that are tables of the code: operators, inventory, gaps, settings, errors.

    python tools/generate_docs.py            # write them (make docs)
    python tools/generate_docs.py --check    # exit 1 and show the difference if one is out of date

Some pages are generated as a whole. In others, only the text between ``<!-- begin NAME -->`` and
``<!-- end NAME -->`` is generated.
"""

from __future__ import annotations

import argparse
import difflib
import inspect
import os
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "packages" / "torchstone" / "tests")]
os.environ.pop("XDG_CACHE_HOME", None)  # pages show the defaults, not this machine's paths

import derivative_docs  # noqa: E402
import device_runs  # noqa: E402
import engine_matrix  # noqa: E402
import engine_samples  # noqa: E402
import gap_docs  # noqa: E402
import inventory_docs  # noqa: E402
import lowered_samples  # noqa: E402
import parity_runs  # noqa: E402
from markdown_tables import WRITTEN, code, table  # noqa: E402

from optest import driver_settings  # noqa: E402
from optest.plan import schema as plan_schema  # noqa: E402
from torchstone import config, dtypes, errors, lowering  # noqa: E402
from torchstone.backend.passes import DIVIDING, compiling  # noqa: E402
from torchstone.compiler.operators import registry  # noqa: E402
from torchstone.compiler.pipeline import PROPERTIES, Pass  # noqa: E402
from torchstone.compiler.program import export_pipeline  # noqa: E402
from torchstone.compiler.records import dtype_names, record, refused_values, value_rules  # noqa: E402
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
    """Return text such as ``bool int float8_e5m2``: a short name for each complete group, then the others."""
    left, words = set(found), []
    for name, group in DTYPE_GROUPS.items():
        present = group & left
        words += [name] if present == group else dtype_names(present)
    return " ".join(words)


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
is not. Nor are the `targets` of `_ctc_loss`, which may hold anything behind their lengths: out of
range they read the nearest class. The `indices` of `max_unpool2d` and `max_unpool3d`, whose range is
the result's size, are checked with the values.

{indices}
## Refused values

Eager PyTorch also looks at values when it runs, and raises. A program computes on: a division by
zero returns some number, a failed factorization NaN or infinities. With `config.check_values` it
raises `InvalidValue` instead, with the operator, the line of the model and PyTorch's words, without
the numbers in them that only a running kernel knows. The same holds as for indices.

The weights of `cov`, the lengths of `segment_reduce` and `pack_padded_sequence`, `quantile` beyond
[0, 1] and negative variances of `gaussian_nll_loss` are checked by assertions (`_assert_async`) that
stand in the graph beside what these are expanded to.

Two kinds of refusals are not reported. `linalg.eigh`, and `linalg.svd` of infinite values, fail
where LAPACK does, which depends on the size of the matrix. The windows of `istft` are not checked.

{values}"""


def operators_page() -> str:
    """Return the page that lists every overload of the registry, by family."""
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
        values=value_table(),
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
    """Return the table of operators that take indices: which are valid, and what happens to the others."""
    rows = [
        (
            f"`{entry.name.removeprefix('aten.')}`",
            f"`{rule.operand}`",
            "from the end" if rule.negative else "the end" if rule.exempt == -1 else "out of range",
            rule.effect,
        )
        for entry in lowering.load()
        if (rule := entry.indices) is not None
    ]
    return table(("overload", "indices", "negative", "out of range, without checks"), rows)


def value_table() -> str:
    """Return the table of operators that refuse some values, with the message that PyTorch gives."""
    known = map(record, [*lowering.load().overloads(), *registry.table("assertion")])
    rules = [(one.name, rule) for one in known for rule in value_rules(one)]
    rows = [
        (f"`{name.removeprefix('aten.')}`", refused_values(rule))
        for name, rule in sorted(rules, key=lambda one: one[0])
    ]
    return table(("overload", "what PyTorch says"), rows)


def gap_text(entry: Lowering) -> str:
    by_reason: dict[str, set[DType]] = defaultdict(set)
    for dtype, reason in entry.gaps.items():
        by_reason[reason].add(dtype)
    return "; ".join(f"{dtype_text(found)}: {reason}" for reason, found in sorted(by_reason.items()))


def prose(docstring: str) -> str:
    """Return the first line of a docstring as Markdown: double backquotes and roles become code."""
    plain = re.sub(r":\w+:`~?([^`]+)`", r"`\1`", docstring.partition("\n")[0])
    return plain.replace("``", "`")


# Settings and errors ------------------------------------------------------------------


def settings_table() -> str:
    """Every setting with its variable and default."""
    home = str(Path.home())
    defaults = {
        one.name: one.default if one.default_factory is MISSING else one.default_factory()
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
    rows = [
        (f"`{one.__name__}`", f"`{one.__bases__[0].__name__}`", prose(one.__doc__ or "")) for one in found
    ]
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
    """Return the types that a JSON Schema allows, in YAML's terms, such as "mapping" for "object"."""
    if "oneOf" in schema:
        return " or ".join(dict.fromkeys(map(takes, schema["oneOf"])))
    if "const" in schema or "enum" in schema:
        return code(map(str, schema.get("enum", [schema.get("const")])))
    words = {"object": "mapping", "array": "list", "string": "text", "boolean": "`true` or `false`"}
    limits = {"minimum": "≥", "exclusiveMinimum": ">"}
    limit = "".join(f" {sign} {schema[key]}" for key, sign in limits.items() if key in schema)
    return f"{words.get(schema['type'], schema['type'])}{limit}"


# Passes -----------------------------------------------------------------------------


def passes_reference() -> str:
    """Return the passes of each pipeline in order, and the properties that they need and guarantee."""
    parts = [
        "An export, after `torch.export`:\n\n" + passes_table(export_pipeline().passes),
        "`torch.compile`, for each graph that AOTAutograd hands over. Operators without a lowering may then\n"
        "split the graph:\n\n" + passes_table(DIVIDING.passes),
        "Then, for the graph or each of its parts:\n\n" + passes_table(compiling(()).passes),
        "Properties:\n\n" + table(("property", "means that"), ((f"`{k}`", v) for k, v in PROPERTIES.items())),
    ]
    return "\n" + "\n".join(parts)


def passes_table(passes: Iterable[Pass[Any]]) -> str:
    rows = (
        (f"`{one.name}`", one.doc, code(sorted(one.needs)), code(sorted(one.guarantees))) for one in passes
    )
    return table(("pass", "what it does", "needs", "guarantees"), rows)


# Pages ------------------------------------------------------------------------------


PAGES: Mapping[str, Callable[[], str]] = {
    "docs/operators.md": operators_page,
    "docs/composites.md": lowered_samples.composites_page,
    "docs/operators.json": lowered_samples.operator_records,
    "docs/derivatives.md": derivative_docs.page,
}
SLOW = ("docs/composites.md", "docs/operators.json")
SECTIONS: Mapping[str, tuple[str, Callable[[], str]]] = {
    "docs/configuration.md": ("settings", settings_table),
    "docs/device.md": ("runs", device_runs.section),
    "docs/errors.md": ("errors", errors_table),
    "docs/optest/plans.md": ("plan", plan_reference),
    "docs/parity.md": ("runs", parity_runs.section),
    "docs/passes.md": ("passes", passes_reference),
}


def replace_section(text: str, name: str, content: str) -> str:
    """Return ``text`` with ``content`` in section ``name``. Raise ValueError if ``text`` lacks its marks."""
    begin, end = f"<!-- begin {name} -->\n", f"<!-- end {name} -->"
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"there is no section between {begin.strip()} and {end}")
    return f"{before}{begin}\n{content}\n{end}{after}"


def generate(root: Path = ROOT, *, quick: bool = False) -> dict[Path, str]:
    """Return the text of each generated page by path. With ``quick``, leave out the pages in ``SLOW``."""
    pages = {root / name: make() for name, make in PAGES.items() if not (quick and name in SLOW)}
    pages |= {root / name: text for name, text in inventory_docs.pages(dtype_text).items()}
    pages |= {root / name: text for name, text in gap_docs.pages(root).items()}
    pages |= engine_matrix.pages(root)
    pages |= engine_samples.pages(root)
    for name, (section, make) in SECTIONS.items():
        pages[root / name] = replace_section((root / name).read_text("utf-8"), section, make())
    return pages


def differences(pages: Mapping[Path, str]) -> str:
    """Return a unified diff from the files on disk to ``pages``; it is empty if they agree."""
    lines: list[str] = []
    for path, text in pages.items():
        present = path.read_text("utf-8") if path.exists() else ""
        old, new = present.splitlines(keepends=True), text.splitlines(keepends=True)
        lines += difflib.unified_diff(old, new, str(path), "generated")
    return "".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the pages, or compare them with ``--check``, and return the exit status."""
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
