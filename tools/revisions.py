"""The name of the code that a recorded result belongs to, from Git."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Sequence
from pathlib import Path


def revision(root: Path, words: Sequence[str], paths: Sequence[str]) -> str:
    """Return what ``git rev-parse`` prints for ``words``, and a hash of uncommitted changes in ``paths``.

    Without such changes there is no hash. Files that Git does not track are ignored.
    """

    def git(*words: str) -> str:
        return subprocess.run(("git", *words), cwd=root, capture_output=True, text=True, check=True).stdout

    name, changes = git("rev-parse", *words).strip(), git("diff", "HEAD", "--", *paths)
    return f"{name}+{hashlib.sha256(changes.encode()).hexdigest()[:8]}" if changes else name
