"""``torchstone ops``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from optest.console import FAILURES, OK, echo, print_json, print_table
from optest.names import near_misses

from .command import command
from .output import progress

if TYPE_CHECKING:
    from ..lowering import Lowering


@command("ops")
@click.argument("name", metavar="[MODEL|OPERATOR]", required=False)
@click.option(
    "--inventory",
    is_flag=True,
    help="Show the operators and models of the inventory, as run.",
)
@click.option("--run", "again", is_flag=True, help="Run the inventory now, and record what that shows.")
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where --run records it (default: in the package).",
)
def ops(name: str | None, inventory: bool, again: bool, output: Path | None, as_json: bool) -> int:
    """List the operators that can be lowered; with MODEL, those it needs and which are missing.

    With OPERATOR (aten.add.Tensor, or aten.add for all of its overloads), print everything that is
    known about it: what it becomes, its dtypes and gaps, its derivative, what is checked, and what is
    traced or captured in its place.

    Nothing is compiled, except with --run, which takes about twenty minutes. If --run is
    interrupted, the next one continues where it stopped. Exits with 1 if MODEL needs an operator
    that is missing, or if --run finds a result in the inventory that differs from eager PyTorch.
    """
    if inventory and name is not None:
        raise click.UsageError("--inventory takes no MODEL: give one of them")
    if again and not inventory:
        raise click.UsageError("--run is for the inventory: write --inventory --run")
    if output is not None and not again:
        raise click.UsageError("--output says where --run writes: write --inventory --run --output FILE")
    if inventory:
        return _inventory(output, again, as_json)
    if name is None:
        return _registry(as_json)
    return _known(name, as_json) if _is_operator(name) else _needs(name, as_json)


def _inventory(output: Path | None, again: bool, as_json: bool) -> int:
    with progress() as stage:
        stage("loading the inventory")
        from ..parity.inventory import results

        if again:
            target = output or results.own_path()
            try:
                found = results.record(target, stage)
            except OSError as error:
                raise click.UsageError(
                    f"cannot write {target}: {error.strerror or error}\n"
                    "  next: name a file that can be written with --output"
                ) from error
        else:
            found = results.recorded()
    if as_json:
        print_json(found)
    else:
        for kind in ("operators", "models"):
            inputs = "dtypes" if kind == "operators" else "batch sizes"
            header = (kind, "family", "lowered", "runs", "backward", inputs, "reason")
            print_table(header, [_shown(row) for row in found[kind]])
        echo(f"commit {found['commit'] or 'unknown'}, {_versions(found['versions'])}")
        for kind, counts in found["summary"].items():
            echo(f"{counts['runs']} of {counts['total']} {kind} run and are equal to eager PyTorch")
            if "any batch" in counts:
                echo(f"{counts['any batch']} of them are one program for any batch size")
    rows = [*found["operators"], *found["models"]]
    wrong = [row for row in rows if row["status"] not in results.RUNS or row["backward"] == "differs"]
    return FAILURES if again and wrong else OK


def _shown(row: Mapping[str, Any]) -> tuple[str, ...]:
    from .. import dtypes
    from ..parity.inventory.results import RUNS

    return (
        row["name"],
        row["family"],
        {"missing": "no", "composite": "composite"}.get(row["status"], "yes"),
        "yes" if row["status"] in RUNS else "no",
        row["backward"],
        _short({dtypes.by_name(name) for name in row["dtypes"]})
        if "dtypes" in row
        else ", ".join(map(str, row["batch"])),
        row["reason"],
    )


def _versions(versions: Mapping[str, str | None]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items() if version)


def _registry(as_json: bool) -> int:
    from ..compiler.records import described, record
    from ..lowering import load

    registry = load()
    lowerings, higher_order = list(registry), registry.higher_order_lowerings()
    if as_json:
        print_json(
            {
                "operators": [
                    {"overload": one.name, "gaps": {}, **described(record(one.overload))} for one in lowerings
                ],
                "higher_order": [described(record(one.operator)) for one in higher_order],
                "unavailable": registry.unavailable,
            }
        )
        return OK
    rows = [(one.name, one.family, _short(one.dtypes), _gaps(one), one.documentation) for one in lowerings]
    rows += [(one.name, one.family, "", "", one.documentation) for one in higher_order]
    print_table(("overload", "family", "dtypes", "gaps", "what it does"), rows)
    if registry.unavailable:
        print_table(("not available with this PyTorch", "why"), list(registry.unavailable.items()))
    echo(f"{len(lowerings)} overloads and {len(higher_order)} higher-order operators")
    return OK


def _is_operator(name: str) -> bool:
    """Whether ``name`` begins with a namespace of operators and has no colon, unlike ``module:factory``."""
    return ":" not in name and name.partition(".")[0] in _NAMESPACES


_NAMESPACES = ("aten", "higher_order", "prims", "quantized", "quantized_decomposed", "torchstone")


def _known(name: str, as_json: bool) -> int:
    from ..compiler import records

    found = [records.described(records.record(one)) for one in records.find_operators(name)]
    if not found:
        near = near_misses(name, (one.name for one in records.load()))
        raise click.UsageError(
            f"PyTorch has no operator {name}\n"
            f"  next: write one as in aten.add.Tensor; near it: {', '.join(near) or 'nothing'}"
        )
    if as_json:
        print_json({"operators": found})
        return OK
    for one in found:
        rows = [(part.replace("_", " "), _text(part, value)) for part, value in one.items()]
        print_table(("operator", rows[0][1]), rows[1:])
    return OK


def _text(part: str, value: Any) -> str:
    from .. import dtypes

    if part == "dtypes":
        return _short({dtypes.by_name(name) for name in value})
    if isinstance(value, Mapping):
        return "; ".join(f"{name}: {one}" for name, one in value.items())
    return "; ".join(value) if isinstance(value, list) else str(value)


def _needs(model: str, as_json: bool) -> int:
    with progress() as stage:
        stage("loading the model")
        from ..api import explain
        from ..lowering import load
        from ..parity.model import load_model

        loaded = load_model(model)
        stage("tracing the model")
        found = explain(loaded.model, loaded.args, loaded.kwargs)
    if as_json:
        print_json(found.to_dict())
    elif found.error is not None:
        echo(str(found))
    else:
        registry = load()
        families = {one.name: one.family for one in (*registry, *registry.higher_order_lowerings())}
        rows: list[tuple[object, ...]] = [
            (node.overload, node.count, "missing", f"{node.reason} ({', '.join(node.locations[:3])})")
            for node in found.unsupported
        ]
        rows += [
            (name, count, "lowers", families.get(name, "")) for name, count in found.native.most_common()
        ]
        print_table(("overload", "calls", "", "family, or why not"), rows, title=model)
        echo(f"{len(found.native)} operators lower, {len(found.unsupported)} are missing")
    return OK if found.compiles else FAILURES


def _gaps(lowering: Lowering) -> str:
    return "; ".join(f"{dtype.name}: {reason}" for dtype, reason in lowering.gaps.items())


def _short(found: Any) -> str:
    """Return a short text for a set of dtypes: one word for each complete group, then the other names."""
    from .. import dtypes

    groups = (
        ("int", dtypes.SIGNED),
        ("uint", dtypes.UNSIGNED),
        ("float", dtypes.FLOATING),
        ("float8", dtypes.FLOAT8),
        ("complex", dtypes.COMPLEX),
        ("4-bit", dtypes.SUB_BYTE),
    )
    words, rest = [], set(found)
    for word, group in groups:
        if group <= rest:
            words.append(word)
            rest -= group
    return " ".join([*sorted(dtype.name for dtype in rest), *words])
