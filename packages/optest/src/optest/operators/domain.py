"""Domains: which values an operator's input may hold; generators draw values from them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Domain:
    """The distribution of one input's values; by default, the generator chooses.

    - ``low`` and ``high`` bound the values, both included (None: unbounded).
    - ``floats``: the bounds apply to floats only.
    - ``positive`` excludes zero and below, ``nonzero`` only zero.
    - ``integers``: whole numbers in any dtype.
    - ``ties``: few different values, so that many are equal: the whole numbers within the
      bounds or, for floats, thirds of these, which no narrower format holds exactly.
    - ``wide``: some values are a thousand times as large.
    - ``sorted``: ascending order along the last axis.
    - ``distinct``: no value twice along ``axis``, or at all if ``axis`` is None.
    - ``simplex``: non-negative values that add up to 1 along the last axis.

    ``indices_of`` makes the values valid indices into an axis of another input:
    ``("input0", 0)``, or ``("input0", "dim")`` if the attribute ``dim`` names the
    axis. ``negative`` allows indices that count from the end.
    """

    low: float | None = None
    high: float | None = None
    floats: bool = False
    positive: bool = False
    nonzero: bool = False
    integers: bool = False
    ties: bool = False
    wide: bool = False
    sorted: bool = False
    distinct: bool = False
    axis: int | None = None
    simplex: bool = False
    indices_of: tuple[str, int | str] | None = None
    negative: bool = False


ANY = Domain()
"""Any value of the dtype; the domain of inputs without an entry."""
POSITIVE = Domain(positive=True)
NONZERO = Domain(nonzero=True)
