"""Values of flags: shapes, dtypes and attributes as they are written on a command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from ..plan.entries import Flags

NamedShape = tuple[str, tuple[int, ...]]


_DIGITS = 19
"""The number of digits at which a size is rejected; sizes are below 2**63."""


def read_shapes(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> tuple[NamedShape, ...]:
    """Parse ``[NAME=]8,2048`` as (name or "", shape), as a click callback; ``scalar`` or ``NAME=`` is 0-d."""
    return tuple(map(_shape, values))


def read_attributes(
    ctx: click.Context, param: click.Parameter, values: Sequence[str]
) -> tuple[tuple[str, Any], ...]:
    """Parse ``k=v``, with v read as YAML, as a click callback."""
    return tuple(map(_attribute, values))


def _shape(value: str) -> NamedShape:
    name, equals, sizes = value.rpartition("=")
    if (equals and not sizes) or sizes == "scalar":
        return name, ()
    parts = sizes.split(",")
    if not all(part.strip().isdecimal() and len(part) < _DIGITS for part in parts):
        raise click.BadParameter(
            f"{value!r}; write sizes with commas, like 8,2048 for every input, input0=8,2048 for one, "
            "scalar or input0= for 0-d"
        )
    return name, tuple(int(part) for part in parts)


def _attribute(value: str) -> tuple[str, Any]:
    from ..errors import PlanError
    from ..plan.document import parse_document

    name, equals, text = value.partition("=")
    if not (name and equals):
        raise click.BadParameter(f"{value!r}; write name=value, like dim=1 or kernel_size=[3,3]")
    try:
        return name, parse_document(text, Path(name), None).data
    except PlanError:
        raise click.BadParameter(
            f"{value!r}; {text!r} is not a number, text, true, false, null or [list]"
        ) from None


def flags_of(
    *,
    op: Sequence[str],
    dtype: Sequence[str],
    shape: Sequence[NamedShape],
    attr: Sequence[tuple[str, Any]],
    **single: Any,
) -> Flags:
    """Return the flags that say what to run; a repeated flag gives alternatives."""
    from ..plan.entries import Flags

    return Flags(
        ops=tuple(op),
        dtypes=tuple(tuple(part.strip() for part in one.split(",")) for one in dtype),
        shapes=_grouped(shape),
        attributes=_grouped(attr),
        **single,
    )


def _grouped(pairs: Sequence[tuple[str, Any]]) -> Mapping[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for name, value in pairs:
        found.setdefault(name, []).append(value)
    return found
