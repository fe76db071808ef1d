"""Scaffolds a built-in operator of optest: ``make new-builtin NAME=softclip CATEGORY=activation``.

It needs two implementations that share no code, and a point worked out by hand. The scaffold writes the
descriptor (``operators/builtin``), the reference (``operators/references``), the NumPy implementation
(``backends/numpy_impl``) and the point (``tests/operators/spot_values``): four files, since each checks the
others. What the operator computes is left to you, in the last three; until that is written its tests fail
and say so.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

from scaffolding import ROOT, Refused, insert, tidy

from optest.backends.numpy_impl import IMPLEMENTATIONS
from optest.operators.builtin import descriptors

SOURCES = Path("packages/optest/src/optest")
SPOTS = Path("packages/optest/tests/operators/spot_values")

_DESCRIPTOR = """    operator(
        "{name}",
        "{category}",
        "Describe the result in one line.",
        dtypes=alike({inputs}, FLOATS),
        setups=(
{setups}
        ),
        shapes={shapes},
        torch="{torch}",
        tags=("differentiable",),
    ),"""
_SHAPES = (
    ("(8, 33)", ""),
    ("(2, 3, 4, 5)", ""),
    ("(127,)", "odd length"),
    ("(3, 1, 1, 2, 7)", "5-d"),
    ("(64, 17)", ""),
    ("(1,)", "size 1"),
    ("()", "0-d"),
    ("(0, 3)", "empty"),
)
_REFERENCE = """

@reference
def {name}_reference({parameters}) -> Array:
    raise NotImplementedError("write {name} as it is defined, for arrays in a wide type")
"""
_IMPLEMENTATION = """

def _{name}({parameters}) -> Array:
    raise NotImplementedError("write {name} by another formula than the reference's")


OPERATORS["{name}"] = _{name}
"""
_POINT = '{name} = [{{ x = [{inputs}], y = [["work it out by hand"]] }}]\n'


def nearest(names: set[str], tables: Mapping[Path, set[str]]) -> Path:
    """Return the file in ``tables`` that has the most of the operators ``names``."""
    return max(tables, key=lambda path: len(tables[path] & names))


def torch_name(name: str) -> str:
    """Return the dotted name of PyTorch's equivalent. Raise :class:`Refused` if there is none."""
    import torch

    for module in (torch.nn.functional, torch, torch.special, torch.linalg):
        if callable(getattr(module, name, None)):
            return f"{module.__name__}.{name}"
    raise Refused(f"PyTorch has no {name} in torch or torch.nn.functional: give TORCH=torch.its.name")


def scaffold(name: str, category: str, inputs: int, torch: str, root: Path = ROOT) -> list[Path]:
    """Write the files and return their paths. Raise :class:`Refused` if that is not possible."""
    known = list(descriptors())
    if not name.isidentifier() or name in {one.name for one in known}:
        raise Refused(f"{name!r} is taken, or is not a name of a function")
    modules = sorted(path.stem for path in (root / SOURCES / "operators" / "builtin").glob("[a-z]*.py"))
    if category not in modules or category == "build":
        raise Refused(f"there is no category {category!r}: it is one of {', '.join(modules)}")
    beside = importlib.import_module(f"optest.operators.builtin.{category}").OPERATORS
    names = {one.name for one in beside}
    equivalent = torch or torch_name(name)
    families: dict[Path, set[str]] = {}
    for one, function in IMPLEMENTATIONS.items():
        families.setdefault(Path(f"{function.__module__.rpartition('.')[2]}.py"), set()).add(one)
    points = {path: set(tomllib.loads(path.read_text("utf-8"))) for path in (root / SPOTS).glob("*.toml")}
    source = root / SOURCES
    references = source / "operators" / "references" / f"{category}.py"
    if not references.exists():
        raise Refused(f"there are no references of {category} on their own: write this one by hand")
    own = {
        path: names for path, names in families.items() if (source / "backends/numpy_impl" / path).exists()
    }
    written = [
        source / "operators" / "builtin" / f"{category}.py",
        references,
        source / "backends" / "numpy_impl" / nearest(names, own),
        nearest(names, points),
    ]
    parameters = ", ".join(f"{word}: Array" for word in ("values", "other", "third", "fourth")[:inputs])
    setups = "\n".join(
        f"            setup({', '.join([shape] * inputs)}{f', note={note!r}' if note else ''}),"
        for shape, note in _SHAPES
    )
    shapes = "identity" if inputs == 1 else "broadcast"
    described = _DESCRIPTOR.format(
        name=name, category=beside[-1].category, inputs=inputs, setups=setups, shapes=shapes, torch=equivalent
    )
    insert(written[0], described, [f"from .build import {shapes}, setup, alike, FLOATS"], before_last=True)
    insert(
        written[1],
        _REFERENCE.format(name=name, parameters=parameters),
        ["from .wide import Array, reference"],
    )
    insert(written[2], _IMPLEMENTATION.format(name=name, parameters=parameters))
    insert(written[3], _POINT.format(name=name, inputs=", ".join(["[0.5, 1.0]"] * inputs)))
    tidy(written)
    return written


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("name", help="the operator, as PyTorch calls it")
    parser.add_argument("category", help="its module in operators/builtin, as in activation")
    parser.add_argument(
        "--inputs", type=int, choices=range(1, 5), default=1, help="how many tensors it takes"
    )
    parser.add_argument("--torch", default="", help="the dotted name of PyTorch's equivalent")
    parser.add_argument("--root", type=Path, default=ROOT, help="the repository to write to")
    given = parser.parse_args()
    try:
        written = scaffold(given.name, given.category, given.inputs, given.torch, given.root)
    except Refused as refused:
        print(f"new-builtin: {refused}", file=sys.stderr)
        return 2
    for path in written:
        print(f"wrote {path.relative_to(given.root)}")
    print("next: write both implementations, the point and the description, then run")
    print(f"  .venv/bin/python -m pytest packages/optest/tests/operators -k {given.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
