"""The speed of whole models as a picture: one group of bars per model, drawn as SVG."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape

from .speed import MODES, Figures

COLORS = {"inductor": "#8c959f", "torchstone": "#d9822b", "step": "#9a3412"}
NAMES = {"inductor": "Inductor", "torchstone": "Torchstone", "step": "Torchstone, whole step"}
MOST = 3.0
"""Longer bars are cut off at this ratio. The number beside the bar gives its real length."""

_TEXT, _RULE = "#6e7781", "#afb8c1"
_LEFT, _UNIT, _BAR, _GAP, _TITLE = 150, 130, 12, 12, 34


def svg(figures: Iterable[Figures]) -> str:
    """Return an SVG document: how many times as fast as eager each candidate is, by mode and model."""
    listed = list(figures)
    body: list[str] = []
    y = 30.0
    for place, (name, color) in enumerate(COLORS.items()):
        body.append(_box(_LEFT + place * 110, 8, 10, 10, color))
        body.append(_text(_LEFT + place * 110 + 15, 17, NAMES[name]))
    for mode in MODES:
        chosen = [one for one in listed if one.mode == mode]
        if not chosen:
            continue
        y += _TITLE
        body.append(_text(8, y - 12, f"{mode}, times as fast as eager", weight="bold"))
        top = y
        for one in chosen:
            y = _group(body, y, one.name, {n: one.ratios[n] for n in COLORS if n in one.ratios})
        for mark in (1, 2, 3):
            x = _LEFT + mark * _UNIT
            style = "" if mark == 1 else ' stroke-dasharray="2 3"'
            body.append(f'<line x1="{x}" y1="{top}" x2="{x}" y2="{y - 6}" stroke="{_RULE}"{style}/>')
            body.append(_text(x, y + 6, f"{mark} ×", anchor="middle"))
        y += 12
    width = _LEFT + MOST * _UNIT + 60
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{y + 8:.0f}" '
        f'font-family="sans-serif" font-size="11">\n' + "\n".join(body) + "\n</svg>\n"
    )


def _group(body: list[str], y: float, name: str, ratios: Mapping[str, float]) -> float:
    """Draw the bars of one model from ``y`` on, and return where the next model begins."""
    body.append(_text(_LEFT - 8, y + len(ratios) * _BAR / 2 + 4, name, anchor="end"))
    for candidate, ratio in ratios.items():
        length = min(ratio, MOST) * _UNIT
        body.append(_box(_LEFT, y, length, _BAR - 2, COLORS[candidate]))
        body.append(_text(_LEFT + length + 4, y + _BAR - 3, f"{ratio:.2f}"))
        y += _BAR
    return y + _GAP


def _box(x: float, y: float, width: float, height: float, color: str) -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{color}"/>'


def _text(x: float, y: float, words: str, *, anchor: str = "start", weight: str = "normal") -> str:
    style = f'text-anchor="{anchor}" font-weight="{weight}" fill="{_TEXT}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{escape(words)}</text>'
