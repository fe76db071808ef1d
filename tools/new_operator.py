"""Scaffolds a lowering: ``make new-operator NAME=aten.deg2rad.default FAMILY=trigonometry``.

Two files get a new last function: the family's module of lowerings, with the overload's own parameters and
the dtypes that eager's CPU kernel takes, and the family's module of samples. ``make docs`` writes the
operator's page and its row in the tables from the docstring. What the operator computes is left to you; until
that is written its tests fail and say so.
"""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from scaffolding import ROOT, Refused, insert, tidy

from torchstone import dtypes, lowering
from torchstone.dtypes import DType

LOWERINGS = Path("packages/torchstone/src/torchstone/lowering/aten")
SAMPLES = Path("packages/torchstone/tests/operator_samples")
NOT_TAKEN = (RuntimeError, NotImplementedError, TypeError)
"""The errors that a kernel raises for a dtype that it does not support."""
TOO_LONG = 400
"""The line count at which a family's module is full. A scaffold needs 20 free lines below it."""

_NEW_LOWERINGS = '''"""{family}: describe what belongs here and what does not."""

from __future__ import annotations

from ...torch_internals.operators import namespace

aten = namespace("aten")
'''
_NEW_SAMPLES = '''"""Samples of ``lowering.aten.{family}``."""

from __future__ import annotations

from torchstone.torch_internals.operators import namespace

aten = namespace("aten")
'''
_LOWERING = '''

@lowers({overload}, dtypes={dtypes})
def {function}({parameters}) -> {result}:
    """Describe the result in one line."""
{widened}    raise NotImplementedError(f"express {name} in terms of hlo, given {{{uses}}}")
'''
_WIDENED = """\
    # Eager computes 16-bit floats in float32, and so does this. Convert what you return to out.dtype.
    {tensors} = {converted}
"""
_SAMPLES = """

@samples({overload})
def _{function}(make: Make) -> Iterator[Sample]:
    yield Sample(({typical}), note="typical")
    yield Sample(({small}), note="size 1")
    yield Sample(({scalar}), note="0-d")
    yield Sample(({empty}), note="empty")
    yield Sample(({strided}), note="transposed")
    yield Sample(({edges}), note="special values")
"""
_ANNOTATIONS = {"Tensor": "Value", "int": "int", "bool": "bool", "float": "float", "str": "str"}
_EXAMPLES = {"int": "0", "float": "0.5", "number": "2", "bool": "False", "str": '"none"'}


def find_overload(name: str) -> Any:
    """Return the overload with a name such as ``aten.deg2rad.default`` or ``deg2rad``."""
    packet, _, overload = name.removeprefix("aten.").partition(".")
    found = getattr(torch.ops.aten, packet, None)
    if found is None:
        near = difflib.get_close_matches(packet, dir(torch.ops.aten), 3)
        raise Refused(f"ATen has no operator {packet}; near it: {', '.join(near) or 'nothing'}")
    if (overload or "default") not in found.overloads():
        raise Refused(
            f"aten.{packet} has no overload {overload or 'default'}: {', '.join(found.overloads())}"
        )
    return getattr(found, overload or "default")


def check(overload: Any) -> None:
    """Raise :class:`Refused` if ``overload`` already has a lowering, or if no graph can contain it."""
    known = lowering.load().get(overload)
    if known is not None:
        raise Refused(f"{overload} is lowered already, in lowering/aten/{known.family}.py")
    if overload._schema.is_mutable:
        raise Refused(f"{overload} writes into its arguments: graphs have its functional form")


def dtype_set(taken: Iterable[DType]) -> str:
    """Return the source of a set of dtypes. It uses the named sets of :mod:`torchstone.dtypes` that fit."""
    wanted = frozenset(taken)
    named = {
        name: value for name, value in vars(dtypes).items() if isinstance(value, frozenset) and name.isupper()
    }
    parts, left = list[str](), wanted
    for name, value in sorted(named.items(), key=lambda item: -len(item[1])):
        if value <= wanted and value & left:
            parts.append(name)
            left -= value
    if left:
        parts.append("{" + ", ".join(sorted(one.name.upper() for one in left)) + "}")
    return " | ".join(parts) or "frozenset()"


def arguments(overload: Any, tensor: str) -> list[str]:
    """Return the source of each required argument, with ``tensor`` for every tensor."""
    found = []
    for one in overload._schema.arguments:
        if one.has_default_value() or one.kwarg_only:
            break
        kind = str(one.type)
        if kind == "Tensor":
            found.append(tensor)
        elif kind in _EXAMPLES:
            found.append(_EXAMPLES[kind])
        else:
            raise Refused(
                f"the parameter {one.name} of {overload} is a {kind}, for which no samples can be made up: "
                "write this one by hand, as docs/adding-an-operator.md tells"
            )
    return found


def call(overload: Any, tensor: torch.Tensor) -> Any:
    """What eager returns for a typical call."""
    source = ", ".join(arguments(overload, "tensor"))
    return overload(*eval(f"({source},)", {"tensor": tensor}))


def taken_by_eager(overload: Any) -> Iterator[DType]:
    """The dtypes in which eager's CPU kernel takes a typical call."""
    for dtype in sorted(dtypes.COPYABLE, key=str):
        try:
            call(overload, torch.ones(3, 4).to(dtype.torch))
        except NOT_TAKEN:
            continue
        yield dtype


def makes_floats(overload: Any) -> bool:
    """Whether a typical call in float32 returns one tensor of floats."""
    try:
        result = call(overload, torch.ones(3, 4))
    except NOT_TAKEN:
        return False
    return isinstance(result, torch.Tensor) and result.is_floating_point()


def widened(tensors: Sequence[str]) -> str:
    """Return the line of source that converts ``tensors`` to the dtype that the function computes in."""
    convert = "hlo.convert({}, opmath(out.dtype))"
    if len(tensors) == 1:
        return _WIDENED.format(tensors=tensors[0], converted=convert.format(tensors[0]))
    listed = ", ".join(tensors)
    return _WIDENED.format(tensors=listed, converted=f"({convert.format('x')} for x in ({listed}))")


def lowering_of(overload: Any, name: str, dtypes_source: str) -> str:
    """Return the source of the lowering."""
    schema = overload._schema
    parameters, keyword_only = [], False
    for one in schema.arguments:
        if one.kwarg_only and not keyword_only:
            parameters.append("*")
            keyword_only = True
        parameters.append(f"{one.name}: {_ANNOTATIONS.get(str(one.type), 'Any')}")
    tensors = [one.name for one in schema.arguments if str(one.type) == "Tensor"]
    wide = bool(tensors) and makes_floats(overload)
    if wide:
        parameters += ["out: Spec"] if keyword_only else ["*", "out: Spec"]
    return _LOWERING.format(
        overload=name,
        dtypes=dtypes_source,
        function=schema.name.partition("::")[2],
        parameters=", ".join(parameters),
        result="Value" if len(schema.returns) == 1 else "list[Value]",
        name=name,
        widened=widened(tensors) if wide else "",
        uses="}, {".join(one.name for one in schema.arguments),
    )


def samples_of(overload: Any, name: str) -> str:
    """Return the source of the overload's samples."""
    tensors = {
        "typical": "make(3, 4)",
        "small": "make(1)",
        "scalar": "make()",
        "empty": "make(0, 3)",
        "strided": "make(4, 3).t()",
        "edges": "make.edges()",
    }
    written = {}
    for note, tensor in tensors.items():
        listed = arguments(overload, tensor)
        written[note] = ", ".join(listed) + ("," if len(listed) == 1 else "")
    return _SAMPLES.format(overload=name, function=overload._schema.name.partition("::")[2], **written)


def scaffold(name: str, family: str, root: Path = ROOT) -> list[Path]:
    """Write both files and return their paths. Raise :class:`Refused` if that is not possible."""
    overload = find_overload(name)
    check(overload)
    written = [root / LOWERINGS / f"{family}.py", root / SAMPLES / f"{family}.py"]
    if not family.isidentifier():
        raise Refused(f"{family!r} is not a name of a module: families are {', '.join(lowering.families())}")
    if written[0].exists() and len(written[0].read_text("utf-8").splitlines()) > TOO_LONG - 20:
        raise Refused(f"lowering/aten/{family}.py is full: give a FAMILY of its own")
    called, taken = str(overload), dtype_set(taken_by_eager(overload))
    function, sampled = lowering_of(overload, called, taken), samples_of(overload, called)
    names = sorted(
        {word for word in taken.replace("{", " ").replace("}", " ").replace(",", " ").split() if word != "|"}
    )
    insert(
        written[0],
        function,
        (
            "from typing import Any",
            f"from ...dtypes import {', '.join(names)}",
            "from ... import hlo",
            "from ...hlo import Value",
            "from ..promotion import opmath",
            "from ..registry import Spec, lowers",
        ),
        new=_NEW_LOWERINGS.format(family=family),
    )
    insert(
        written[1],
        sampled,
        ("from collections.abc import Iterator", "from . import Make, Sample, samples"),
        new=_NEW_SAMPLES.format(family=family),
    )
    tidy(written)
    return written


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("name", help="the overload, as in aten.deg2rad.default")
    parser.add_argument("--family", default="", help="the module of lowering/aten; by default a new one")
    parser.add_argument("--root", type=Path, default=ROOT, help="the repository to write to")
    given = parser.parse_args()
    try:
        overload = find_overload(given.name)
        family = given.family or overload._schema.name.partition("::")[2]
        written = scaffold(given.name, family, given.root)
    except Refused as refused:
        print(f"new-operator: {refused}", file=sys.stderr)
        return 2
    short = str(overload).removeprefix("aten.")
    for path in written:
        print(f"wrote {path.relative_to(given.root)}")
    print("next: write the function's body and its docstring, then run")
    print(f"  .venv/bin/python -m pytest packages/torchstone/tests/lowering/test_operators.py -k {short}")
    print("  make docs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
