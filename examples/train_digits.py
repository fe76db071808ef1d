"""Train a CNN on handwritten digits through the compiler, export it, classify with the artifact.

``torchstone demo`` does the same. The code is in :mod:`torchstone.parity.demo`.
"""

from __future__ import annotations

import sys

from torchstone.parity.demo import run_demo


def main() -> int:
    report = run_demo(print)
    for what, value in report.rows():
        print(f"{what}: {value}")
    for failure in report.failures:
        print(f"FAILED: {failure}")
    return 0 if report.passed else 1


if __name__ == "__main__":
    sys.exit(main())
