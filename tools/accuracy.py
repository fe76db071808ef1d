"""Measures how far float32 functions are from the truth and writes the table ``docs/accuracy.md``.

    python tools/accuracy.py           # all functions, about a minute
    python tools/accuracy.py sin pow   # print these only

The figures depend on the machine (the vector instructions of eager's kernels and of the
engine), so no test compares them. The tests only check that the rule holds.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jaxlib  # noqa: E402
import torch  # noqa: E402

from torchstone.parity.accuracy import (  # noqa: E402
    BOUND,
    FACTOR,
    Accuracy,
    binary_functions,
    describe,
    survey,
    unary_functions,
)

PAGE = """\
<!-- Written by `python tools/accuracy.py`: edit that. -->

# Accuracy of float32 functions

How far float32 results of compiled programs and of eager PyTorch are from the truth, in ULPs (units in the
last place). The truth is computed in float64 from the same float32 operands.

**The rule**: within {bound:g} ULPs, or no worse than {factor:g} times eager's worst error in the same region.
Operands of one region have the same sign and exponent or, for functions of two operands, exponents in the
same four octaves. The rule holds for {holding} of the {functions} functions below.

Functions of one operand are tried at {points} operands: at every exponent of both signs, near the zeros,
poles and ends of domains, and at zeros, infinities and NaN. Functions of two are tried at {pairs} pairs.
Operands and results below the smallest normal number do not count: XLA's CPU code flushes them to zero, which
StableHLO allows. If eager also has a large error, terms of the formula cancel (near a zero of the function),
or intermediate values leave the range of float32.

Measured with torch {torch} and jaxlib {jaxlib} on {machine}.

| function | torchstone, ULP | at | eager, ULP | rule |
| --- | --- | --- | --- | --- |
{rows}
"""


def row(found: Accuracy) -> str:
    at = ", ".join(f"{value:.9g}" for value in found.at)
    verdict = "broken" if found.breaches else "within 4 ULPs" if found.error <= BOUND else "as eager"
    return f"| `{found.name}` | {ulps(found.error)} | {at} | {ulps(found.eager_error)} | {verdict} |"


def ulps(error: float) -> str:
    return "NaN mismatch" if error == float("inf") else f"{error:.3g}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for each function and write the page. Return 1 if any function breaks the rule, else 0."""
    parser = argparse.ArgumentParser(description="Measure the accuracy of float32 functions.")
    parser.add_argument("function", nargs="*", help="print these only, and write no page")
    wanted = parser.parse_args(arguments).function
    unknown = sorted(set(wanted) - {*unary_functions(), *binary_functions()})
    if unknown:
        parser.error(f"no function {', '.join(unknown)}; their names are in docs/accuracy.md")
    warnings.filterwarnings("ignore", category=FutureWarning)
    found = []
    for one in survey(only=wanted):
        found.append(one)
        sys.stdout.write("\n".join([row(one), *([describe(one)] if one.breaches else []), ""]))
    if not wanted:
        page = PAGE.format(
            bound=BOUND,
            factor=FACTOR,
            holding=sum(one.passed for one in found),
            functions=len(found),
            points=f"{max(one.points for one in found if len(one.at) == 1):,}",
            pairs=f"{max(one.points for one in found if len(one.at) == 2):,}",
            torch=torch.__version__,
            jaxlib=jaxlib.__version__,
            machine=platform.machine(),
            rows="\n".join(map(row, found)),
        )
        (ROOT / "docs" / "accuracy.md").write_text(page, "utf-8")
    return int(any(one.breaches for one in found))


if __name__ == "__main__":
    sys.exit(main())
