"""Makes badges as SVG files; nothing is downloaded to make or show them."""

from __future__ import annotations

from html import escape
from pathlib import Path

from ..errors import ReportError
from ..files import write_whole
from .snapshot import Snapshot

_COLORS = ((0.9, "#2e7d32"), (0.6, "#9a6700"), (0.0, "#b3261e"))
"""Colors, each with the smallest share that it is used for; white text has a contrast of 4.5 on each."""
_TEMPLATE = """<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="20" role="img" \
aria-label="{label}: {value}"><title>{label}: {value}</title>\
<rect width="{width}" height="20" rx="3" fill="{color}"/>\
<path d="M3 0h{left}v20H3a3 3 0 0 1-3-3V3a3 3 0 0 1 3-3z" fill="#444"/>\
<g fill="#fff" text-anchor="middle" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">\
<text x="{label_x}" y="14" textLength="{label_w}">{label}</text>\
<text x="{value_x}" y="14" textLength="{value_w}">{value}</text></g></svg>
"""


def badge(label: str, value: str, share: float) -> str:
    """Return a badge as SVG; ``share``, the part of the goal that is reached, decides the color."""
    color = next(color for least, color in _COLORS if share >= least)
    label_w, value_w = 7 * len(label), 7 * len(value)
    return _TEMPLATE.format(
        width=label_w + value_w + 24, left=label_w + 9, color=color,
        label=escape(label), value=escape(value), label_w=label_w, value_w=value_w,
        label_x=6 + label_w / 2, value_x=18 + label_w + value_w / 2,
    )  # fmt: skip


def write_badges(snapshot: Snapshot, folder: Path) -> list[Path]:
    """Write ``stage.svg`` and ``coverage.svg`` to ``folder``; raises :class:`ReportError`."""
    progress = snapshot.progress
    texts = {
        "stage.svg": badge("stage", str(progress.reached), progress.reached / progress.target),
        "coverage.svg": badge("operators covered", f"{int(100 * snapshot.share)} %", snapshot.share),
    }
    try:
        for name, text in texts.items():
            write_whole(folder / name, text.encode())
    except OSError as error:
        raise ReportError(f"the badges cannot be written to {folder}: {error.strerror}") from error
    return [folder / name for name in texts]
