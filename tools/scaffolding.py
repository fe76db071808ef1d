"""Helpers that the scaffolds of operators share: they write into source files."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


class Refused(Exception):
    """The requested operator cannot be scaffolded. The text says why and what to do."""


def insert(
    path: Path, text: str, imports: Iterable[str] = (), *, new: str = "", before_last: bool = False
) -> None:
    """Put ``text`` at the end of ``path``, or before its last line, and ``imports`` after its imports.

    A new file begins with the text ``new``.
    """
    lines = (path.read_text("utf-8") if path.exists() else new).splitlines()
    closing = [lines.pop()] if before_last else []
    wanted = [line for line in imports if line not in lines]
    if wanted:
        last = max(index for index, line in enumerate(lines) if line.startswith(("from ", "import ")))
        if lines[last].endswith("("):
            last = lines.index(")", last)
        lines[last + 1 : last + 1] = wanted
    path.write_text("\n".join([*lines, *text.rstrip("\n").splitlines(), *closing]) + "\n", "utf-8")


def tidy(paths: Iterable[Path]) -> None:
    """Sort the imports, remove unused ones, and format the files."""
    ruff = [sys.executable, "-m", "ruff"]
    names = [str(path) for path in paths if path.suffix == ".py"]
    for words in (["check", "--quiet", "--fix", "--select", "I,F401"], ["format", "--quiet"]):
        subprocess.run([*ruff, *words, "--config", str(ROOT / "pyproject.toml"), *names], check=True)
