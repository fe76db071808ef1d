"""The pages of the redirection's gap log, for ``tools/generate_docs.py``.

``docs/gap-log.json`` is also an input: it says when each gap was first seen, and keeps the fixed gaps.
"""

from __future__ import annotations

from pathlib import Path

from markdown_tables import WRITTEN

from torchstone.gaps.analysis import analyze
from torchstone.gaps.render import to_history, to_markdown

TITLE = """\
# Gap log of the redirection

What a redirection of CUDA code to the CPU does differently from PyTorch's own API, by kind of gap. What the
words mean, and how an entry gets here, is told in [the guide](gaps.md). `torchstone gaps log` writes the same
for other devices and providers.

"""


def pages(root: Path) -> dict[str, str]:
    """Return the text of each page, by its path below the repository's root."""
    history = root / "docs" / "gap-log.json"
    log = analyze("redirect", previous=history if history.exists() else None)
    return {
        "docs/gap-log.md": f"{WRITTEN}\n{TITLE}{to_markdown(log)}",
        "docs/gap-log.json": to_history(log),
    }
