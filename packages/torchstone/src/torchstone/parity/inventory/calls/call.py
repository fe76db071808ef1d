"""What a call of the inventory is: its Python text, evaluated on named example inputs.

The text is both what is run and what the inventory shows, so that the two cannot
differ. A free name in it is an example input (:mod:`.inputs`).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Call:
    """One call: ``text`` such as ``torch.add(x, y)``.

    ``bounds`` are declared while it is captured. ``reason`` is what a user must know.
    """

    text: str
    bounds: tuple[tuple[str, int], ...] | None = None
    reason: str = ""


CALLS: dict[tuple[str, str], tuple[Call, ...]] = {}
"""By family and name."""
