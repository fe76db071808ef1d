"""Faults that a tolerance would hide are noticed where results must be exact."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from optest.core.dtypes import kind_of
from optest.faults import Fault, Verdict, run_faults
from optest.faults import catalogue as faults
from optest.operators import operator_registry


def other_zeros(values: np.ndarray) -> np.ndarray:
    """Every zero has the other sign."""
    if kind_of(values.dtype) == "float":
        values[values == 0] *= -1
    return values


def last_bit(values: np.ndarray) -> np.ndarray:
    """One number in the middle is a unit in the last place off."""
    if kind_of(values.dtype) == "float" and values.size:
        flat = values.reshape(-1)
        place = flat.size // 2
        flat[place] = np.nextafter(flat[place], flat.dtype.type(np.inf))
        return flat.reshape(values.shape)
    return values


@pytest.mark.parametrize(
    ("op", "change"),
    [
        ("neg", last_bit), ("maximum", last_bit), ("clamp", last_bit), ("flip", last_bit),
        ("relu6", last_bit), ("max_pool1d", last_bit), ("amax", last_bit), ("sort", last_bit),
        ("ceil", last_bit), ("cast", last_bit), ("copysign", last_bit),
        ("neg", other_zeros), ("where", other_zeros),
        ("atan2", other_zeros), ("copysign", other_zeros), ("sqrt", other_zeros), ("trunc", other_zeros),
        ("mul", other_zeros), ("abs", other_zeros), ("flip", other_zeros),
    ],
)  # fmt: skip
def test_it_is_noticed(
    op: str, change: Callable[[np.ndarray], np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    def spoil(run: faults.Run, case: object, inputs: object) -> tuple[np.ndarray, ...]:
        return tuple(change(np.array(one)) for one in run(case, inputs))  # type: ignore[arg-type]

    fault = Fault("zeros", str(change.__doc__), spoil)  # replaces a fault that no rule excludes
    monkeypatch.setitem(faults.FAULTS, "zeros", fault)  # type: ignore[arg-type]
    [pair] = run_faults([operator_registry.get(op)], ["zeros"]).pairs
    assert pair.verdict is Verdict.CAUGHT, pair.detail


def test_tags_say_what_is_exact() -> None:
    signed = [one.name for one in operator_registry if "signed-zero" in one.tags]
    exact = [one.name for one in operator_registry if "exact" in one.tags]
    assert len(signed) >= 10
    assert len(exact) >= 25
    assert not any(one.rounding for one in operator_registry if "exact" in one.tags)
