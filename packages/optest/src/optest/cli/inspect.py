"""``optest list``, ``show``, ``backends`` and ``schema``: show operators, drivers and schemas."""

from __future__ import annotations

from typing import Any

import click

from ..console import OK, echo, print_json, print_table
from .command import command, load_plugins


@command("list")
@click.argument("pattern", default="*")
@click.option("--category", multiple=True, help="Only operators of this category.")
@click.option("--tag", multiple=True, help="Only operators with this tag.")
def list_operators(pattern: str, category: tuple[str, ...], tag: tuple[str, ...], as_json: bool) -> int:
    """Show the operators, or those whose name matches PATTERN (as in a shell)."""
    from fnmatch import fnmatchcase

    from ..errors import UnknownName
    from ..operators.registry import operator_registry

    failed = load_plugins(as_json)
    for one in category:
        if one not in operator_registry.categories():
            raise UnknownName("category", one, operator_registry.categories())
    found = [
        one
        for one in operator_registry
        if fnmatchcase(one.name, pattern)
        and (not category or one.category in category)
        and set(tag) <= one.tags
    ]
    if not found and not tag:
        raise UnknownName("operator", pattern, operator_registry.names())
    if as_json:
        print_json({"operators": [_described(one) for one in found], "failed_plugins": failed})
        return OK
    rows = [
        (one.name, one.category, " ".join(dict.fromkeys(types[0] for types in one.dtypes if types)),
         len(one.setups))
        for one in found
    ]  # fmt: skip
    print_table(("operator", "category", "dtypes", "setups"), rows)
    echo(f"{len(found)} operators")
    return OK


@command("show")
@click.argument("op")
def show(op: str, as_json: bool) -> int:
    """Show an operator's inputs, attributes and outputs."""
    from ..operators.registry import operator_registry

    load_plugins(as_json)
    descriptor = operator_registry.get(op)
    if as_json:
        print_json(_described(descriptor))
        return OK
    echo(f"{descriptor.name}: {descriptor.doc}" if descriptor.doc else descriptor.name)
    print_table(
        ("", ""),
        [
            ("category", descriptor.category),
            ("inputs", ", ".join(descriptor.inputs)),
            ("outputs", ", ".join(descriptor.outputs)),
            ("aliases", ", ".join(f"{new} = {old}" for new, old in descriptor.aliases.items()) or "none"),
            ("dtypes", "\n".join(", ".join(one) for one in descriptor.dtypes)),
            ("tags", ", ".join(sorted(descriptor.tags)) or "none"),
            ("reference", descriptor.reference),
            ("generator", descriptor.generator),
        ],
    )
    if descriptor.attributes:
        rows = [(name, one.allowed(), one.default, one.doc) for name, one in descriptor.attributes.items()]
        print_table(("attribute", "takes", "default", ""), rows)
    setups = [
        (" ".join(f"{name}={list(shape)}" for name, shape in one.shapes.items()),
         " ".join(f"{name}={value}" for name, value in one.attributes.items()), one.note)
        for one in descriptor.setups
    ]  # fmt: skip
    print_table(("built-in shapes", "attributes", ""), setups)
    return OK


def _described(descriptor: Any) -> dict[str, Any]:
    """Return an operator as JSON-safe data."""
    return {
        "name": descriptor.name,
        "category": descriptor.category,
        "doc": descriptor.doc,
        "inputs": list(descriptor.inputs),
        "outputs": list(descriptor.outputs),
        "aliases": dict(descriptor.aliases),
        "dtypes": [list(one) for one in descriptor.dtypes],
        "tags": sorted(descriptor.tags),
        "reference": descriptor.reference,
        "generator": descriptor.generator,
        "attributes": {
            name: {"takes": one.allowed(), "default": _default(one.default), "doc": one.doc}
            for name, one in descriptor.attributes.items()
        },
        "setups": [
            {
                "shapes": {name: list(shape) for name, shape in one.shapes.items()},
                "attributes": dict(one.attributes),
                "note": one.note,
            }
            for one in descriptor.setups
        ],
    }


def _default(value: Any) -> Any:
    from ..operators.descriptor import REQUIRED

    return "required" if value is REQUIRED else value


@command("backends")
def backends(as_json: bool) -> int:
    """Show the drivers, with their kinds and chips."""
    from ..backends import backend_manager

    failed = load_plugins(as_json)
    drivers = list(backend_manager.drivers())
    if as_json:
        described = [{"kind": one.kind, "name": one.name, "chips": list(one.chips)} for one in drivers]
        print_json({"backends": described, "failed_plugins": failed})
        return OK
    print_table(
        ("name", "kind", "chips", "isolated"),
        [(one.name, one.kind, ", ".join(one.chips), "yes" if one.isolated else "no") for one in drivers],
    )
    return OK


@command("schema")
@click.argument("name", type=click.Choice(["plan", "report"]), default="plan")
def schema(name: str, as_json: bool) -> int:
    """Print the JSON Schema of plans or of JSON reports."""
    if name == "plan":
        from ..plan.schema import PLAN_SCHEMA

        print_json(PLAN_SCHEMA)
    else:
        from ..reporting.schema import REPORT_SCHEMA

        print_json(REPORT_SCHEMA)
    return OK
