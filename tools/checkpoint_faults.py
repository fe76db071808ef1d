"""Tries every fault that a checkpoint must survive, and writes ``docs/checkpoint-faults.md``.

    python tools/checkpoint_faults.py

The cells are in ``packages/torchstone/tests/checkpoint_cases/faults.py``. If a cell loses
something, the program ends with the cell's error and does not change the page. The tests also try each
cell, and compare the page.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "packages" / "torchstone" / "tests")]

from markdown_tables import table  # noqa: E402

from checkpoint_cases import faults  # noqa: E402

PAGE = "docs/checkpoint-faults.md"
_HEAD = ("what is done", "what may be left", "tried", "seen")
_TEXT = """\
<!-- Written by `.venv/bin/python tools/checkpoint_faults.py`: edit the cells that it runs. -->

# Faults that checkpoints survive

A run is saved at step 5, and again at step 8 with a fault. It has dropout, batch norm, a tied weight,
Adam, a scheduler and a shuffling data loader whose samples draw from the generators of torch, NumPy and
Python. Whatever is left is loaded and trained on to step 10. It must be the old checkpoint or the new one,
and the result must have every bit of a run that was never interrupted: weights, statistics, optimizer,
loss, learning rate, and the next random numbers.

A step is each call by which a save makes, writes, syncs, renames or removes something. A process that is
killed in a write leaves half of it.

{table}
Resuming in another process, in the middle of an epoch, at its end, with workers and with a generator of the
loader's own, is tested beside this. [Checkpoints](checkpoints.md) describes the format, and
[decision 17](adr/017-checkpoints-commit-by-one-file.md) says why a save survives.
"""


def line(cells: Sequence[str]) -> str:
    """Return one row as it appears on the page."""
    return table(_HEAD, [cells]).splitlines()[-1]


def main() -> int:
    """Run every cell, write the page, and return the exit status."""
    torch.set_num_threads(1)
    rows = []
    for cell in faults.FAULTS.values():
        sys.stderr.write(f"{cell.name}\n")
        with faults.room() as folder:
            rows.append(faults.row(cell, cell.try_all(folder)))
    (ROOT / PAGE).write_text(_TEXT.format(table=table(_HEAD, rows)), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
