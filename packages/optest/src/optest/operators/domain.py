"""Which values an operator's input may hold: what generators read to draw them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Domain:
    """The distribution of one input's values; the default is a generator's own choice.

    ``low`` and ``high`` bound the values (both included; None: unbounded), with
    ``floats`` those of floats only.
    ``positive`` excludes zero and below, ``nonzero`` only zero, ``integers`` asks for
    whole numbers in any dtype, ``ties`` for few different values, so that many are equal
    (the whole numbers within the bounds; of floats, thirds of these, which no narrower
    format holds exactly), ``wide`` for some values a thousand times as large, ``sorted``
    for ascending order along the last axis, ``distinct`` for no value twice along
    ``axis`` (or at all, if None), ``simplex`` for non-negative values that add up to 1
    along the last axis.

    ``indices_of`` makes the values valid indices into an axis of another input:
    ``("input0", 0)``, or ``("input0", "dim")`` where the attribute ``dim`` names the
    axis; ``negative`` allows those that count from the end.
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
"""Any value of the dtype: what an input without an entry has."""
POSITIVE = Domain(positive=True)
NONZERO = Domain(nonzero=True)
