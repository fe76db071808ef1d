"""Tolerances per dtype, category and operator.

This module has the numbers; ``comparator`` applies them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from numbers import Real
from typing import Any

import numpy as np

from .dtypes import float_format, kind_of, native, real_part

ANY_DTYPE = "*"
"""The key for changes that apply to every dtype of an operator or category."""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """The condition for an element to count as correct.

    A finite floating-point element passes if ``|actual − expected| ≤ atol + rtol·|expected|``; for complex
    numbers, these are moduli. Integers and bools must always be equal, whatever the tolerance.

    ``equal_nan``: NaN agrees with NaN. ``signed_zero``: −0.0 disagrees with +0.0.
    ``factor`` is the k of the accuracy rule: the error may be at most k times that of the control.

    Raises ``ValueError`` unless rtol and atol are finite and at least 0, factor is finite and at least 1, and
    the others are bools.
    """

    rtol: float
    atol: float
    equal_nan: bool = True
    signed_zero: bool = False
    factor: float = 2.0

    def __post_init__(self) -> None:
        for name, least in (("rtol", 0), ("atol", 0), ("factor", 1)):
            value = getattr(self, name)
            if not (isinstance(value, Real) and math.isfinite(value) and float(value) >= least):
                raise ValueError(f"{name} is {value!r}; give a finite number of at least {least}")
        for name in ("equal_nan", "signed_zero"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} is {getattr(self, name)!r}; give true or false")


EXACT = Tolerance(0.0, 0.0)
"""The tolerance that requires equal values, which holds for integers and bools."""

# torch.testing.assert_close's defaults (torch/testing/_comparison.py, _DTYPE_PRECISIONS).
_DEFAULTS = {
    "float16": Tolerance(1e-3, 1e-5),
    "bfloat16": Tolerance(1.6e-2, 1e-5),
    "float32": Tolerance(1.3e-6, 1e-5),
    "float64": Tolerance(1e-7, 1e-7),
}


@cache
def default_tolerance(dtype: np.dtype[Any] | str) -> Tolerance:
    """Return the default tolerance of ``dtype``.

    float16, bfloat16, float32 and float64 have the tolerances of ``torch.testing.assert_close``, and complex
    dtypes have the tolerance of their parts. PyTorch has none for 8-bit formats: here they are allowed about
    one step, with rtol = eps and atol = the smallest subnormal. Integers, bools, formats of fewer bits
    (codes, in which one step is half the value) and float8_e8m0fnu (scales, without fraction bits) must be
    exact.
    """
    real = real_part(native(np.dtype(dtype)))
    if kind_of(real) != "float":
        return EXACT
    if real.name in _DEFAULTS:
        return _DEFAULTS[real.name]
    form = float_format(real)
    if form.bits < 8 or form.mantissa_bits == 0:
        return EXACT
    return Tolerance(form.eps, form.smallest_subnormal)


Changes = Mapping[str, float | bool]
"""Fields of :class:`Tolerance` to replace, by name."""
Overrides = Mapping[str, Mapping[str, Changes]]
"""Operator or category → dtype name or ``"*"`` → changes."""

_FIELDS = tuple(one.name for one in fields(Tolerance))


@dataclass(frozen=True)
class ToleranceTable:
    """Tolerances by dtype, overridden by category and by operator.

    ``dtypes`` maps a dtype name to changes. ``categories`` and ``operators`` map a name to such a mapping, in
    which ``"*"`` stands for every dtype. Changes replace single fields, and later ones win. The order is:
    default, ``dtypes``, category, operator, and within each of these ``"*"``, the real part of a complex
    dtype, the dtype itself. Integers and bools stay exact whatever the table says.

    Raises ``ValueError`` for an unknown dtype or field and for impossible values.
    """

    dtypes: Mapping[str, Changes] = field(default_factory=dict)
    categories: Overrides = field(default_factory=dict)
    operators: Overrides = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtypes", _checked("dtypes", self.dtypes))
        for section in ("categories", "operators"):
            entries = _mapping(section, getattr(self, section))
            checked = {name: _checked(f"{section}.{name}", entry) for name, entry in entries.items()}
            object.__setattr__(self, section, checked)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ToleranceTable:
        """Read a mapping as :meth:`to_dict` writes it; every section is optional."""
        unknown = sorted(set(data) - {"dtypes", "categories", "operators"})
        if unknown:
            raise ValueError(
                f"unknown section {unknown[0]!r} of a tolerance table: use dtypes, categories, operators"
            )
        return cls(**data)

    def to_dict(self) -> dict[str, Any]:
        """Return the table as plain, JSON-safe dictionaries."""
        return {
            "dtypes": {name: dict(changes) for name, changes in self.dtypes.items()},
            "categories": _plain(self.categories),
            "operators": _plain(self.operators),
        }

    def lookup(
        self, dtype: np.dtype[Any] | str, *, operator: str | None = None, category: str | None = None
    ) -> Tolerance:
        """Return the tolerance for results in ``dtype`` of ``operator``, which belongs to ``category``."""
        dtype = native(np.dtype(dtype))
        tolerance = default_tolerance(dtype)
        if kind_of(dtype) in ("bool", "int"):
            return tolerance
        changes: dict[str, Any] = {}
        for layer in (
            self.dtypes,
            self.categories.get(category or "", {}),
            self.operators.get(operator or "", {}),
        ):
            for key in (ANY_DTYPE, real_part(dtype).name, dtype.name):
                changes |= layer.get(key, {})
        return replace(tolerance, **changes)

    def with_operator(self, name: str, dtype: str = ANY_DTYPE, **changes: float | bool) -> ToleranceTable:
        """Return a copy with ``changes`` for one operator."""
        return replace(self, operators=_merged(self.operators, name, dtype, changes))

    def with_category(self, name: str, dtype: str = ANY_DTYPE, **changes: float | bool) -> ToleranceTable:
        """Return a copy with ``changes`` for one category."""
        return replace(self, categories=_merged(self.categories, name, dtype, changes))


def _checked(where: str, entry: Mapping[str, Changes]) -> dict[str, dict[str, float | bool]]:
    for dtype, changes in _mapping(where, entry).items():
        if dtype != ANY_DTYPE:
            _check_dtype(where, dtype)
        values: dict[str, Any] = dict(_mapping(f"{where}.{dtype}", changes))
        unknown = sorted(set(values) - set(_FIELDS))
        if unknown:
            raise ValueError(f"{where}.{dtype} sets {unknown[0]!r}; a tolerance has {', '.join(_FIELDS)}")
        try:
            replace(EXACT, **values)  # __post_init__ checks each value
        except ValueError as error:
            raise ValueError(f"{where}.{dtype}: {error}") from None
    return {dtype: dict(changes) for dtype, changes in entry.items()}


def _mapping(where: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{where} is {value!r}; it must be a mapping from names")
    return value


def _check_dtype(where: str, name: str) -> None:
    try:
        known = np.dtype(name).name == name
    except TypeError:
        known = False
    if not known:
        raise ValueError(f"{where} names the dtype {name!r}; write it like float32 or bfloat16, or * for all")


def _merged(overrides: Overrides, name: str, dtype: str, changes: Changes) -> Overrides:
    entry = overrides.get(name, {})
    return {**overrides, name: {**entry, dtype: {**entry.get(dtype, {}), **changes}}}


def _plain(overrides: Overrides) -> dict[str, dict[str, dict[str, float | bool]]]:
    return {
        name: {dtype: dict(changes) for dtype, changes in entry.items()} for name, entry in overrides.items()
    }
