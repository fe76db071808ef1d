"""``torchstone ops``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from .command import command
from .exits import FAILURES, OK
from .output import print_json, print_table, progress

if TYPE_CHECKING:
    from ..lowering import Lowering


@command("ops")
@click.argument("model", metavar="[MODEL]", required=False)
def ops(model: str | None, as_json: bool) -> int:
    """List the operators that can be lowered; with MODEL, those it needs and which are missing.

    Nothing is compiled. Exits with 1 if MODEL needs an operator that is missing.
    """
    return _registry(as_json) if model is None else _needs(model, as_json)


def _registry(as_json: bool) -> int:
    from ..lowering import load

    registry = load()
    lowerings, higher_order = list(registry), registry.higher_order_lowerings()
    if as_json:
        described = [
            {"operator": one.name, "family": one.family, "documentation": one.documentation}
            for one in higher_order
        ]
        print_json({"operators": [_described(one) for one in lowerings], "higher_order": described})
        return OK
    rows = [(one.name, one.family, _short(one.dtypes), _gaps(one), one.documentation) for one in lowerings]
    rows += [(one.name, one.family, "", "", one.documentation) for one in higher_order]
    print_table(("overload", "family", "dtypes", "gaps", "what it does"), rows)
    click.echo(f"{len(lowerings)} overloads and {len(higher_order)} higher-order operators")
    return OK


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
        click.echo(str(found))
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
        click.echo(f"{len(found.native)} operators lower, {len(found.unsupported)} are missing")
    return OK if found.compiles else FAILURES


def _described(lowering: Lowering) -> dict[str, Any]:
    return {
        "overload": lowering.name,
        "family": lowering.family,
        "dtypes": sorted(dtype.name for dtype in lowering.dtypes),
        "gaps": {dtype.name: reason for dtype, reason in lowering.gaps.items()},
        "documentation": lowering.documentation,
    }


def _gaps(lowering: Lowering) -> str:
    return "; ".join(f"{dtype.name}: {reason}" for dtype, reason in lowering.gaps.items())


def _short(found: Any) -> str:
    """A set of dtypes in a few words."""
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
