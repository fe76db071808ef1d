"""The page ``docs/derivatives.md``: the overloads that PyTorch's derivative formulas leave to be lowered."""

from __future__ import annotations

from markdown_tables import WRITTEN, code, table

from torchstone.parity.derivatives import DERIVATIVES

INTRODUCTION = """\
# Derivatives

`torch.compile` has AOTAutograd trace the backward pass. What it leaves to lower, beside elementwise
arithmetic: {overloads} overloads, {named} of them with `backward` in their names. Each call of the
tables is run through `torch.compile` without fallback; its backward graph has the overloads of its
row, and its gradients equal eager PyTorch's
(`packages/torchstone/tests/parity/test_derivatives.py`).

The names of the inputs are those of the [inventory](inventory/README.md)'s calls. Derivatives of every
single overload are checked by its samples, in float64 and complex128.
"""


def page() -> str:
    """Return the page: for each family, a table of calls and the overloads in their backward graphs."""
    rows = [row for calls in DERIVATIVES.values() for row in calls.items()]
    overloads = {name for _, names in rows for name in names}
    named = sum("backward" in name for name in overloads)
    parts = [WRITTEN, INTRODUCTION.format(overloads=len(overloads), named=named)]
    for family, calls in DERIVATIVES.items():
        listed = [(f"`{text}`", code(names)) for text, names in calls.items()]
        parts += [f"## {family}\n", table(("call", "in its backward graph"), listed)]
    return "\n".join(parts)
