"""Inputs from Hypothesis: as a generator for plans, and as a strategy for property tests."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.internal.conjecture import providers
from ml_dtypes import finfo

from ..core.dtypes import kind_of, real_part
from ..operators.domain import Domain
from .base import Array, Generated, Input, inputs_of
from .distributions import draw, integer_limits
from .random import draw_input_indices, specials_for

if TYPE_CHECKING:
    from ..core.case import TestCase

_EXAMPLES = 6
"""How many examples are drawn; the last is used, because Hypothesis starts with the simplest ones."""
_POOL = 12
"""The largest number of different values in an array."""


class Reproducible(providers.HypothesisProvider):
    """A Hypothesis provider that uses no constants from loaded modules, so that only the seed decides."""

    def _maybe_draw_constant(self, *_: Any, **__: Any) -> None:
        return None


_BACKEND = "optest"
providers.AVAILABLE_PROVIDERS[_BACKEND] = f"{Reproducible.__module__}.{Reproducible.__name__}"


class HypothesisGenerator:
    """Draws values with Hypothesis: many are equal, simple, tiny, huge or special."""

    def generate(self, case: TestCase, rng: np.random.Generator) -> Generated:
        """Return inputs of the case's shapes and dtypes, which only ``rng`` decides; no expected outputs."""
        found: list[tuple[Array, ...]] = []

        @settings(
            max_examples=_EXAMPLES,
            backend=_BACKEND,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @seed(int(rng.integers(2**62)))
        @given(inputs_strategy(case))
        def collect(inputs: tuple[Array, ...]) -> None:
            found.append(inputs)

        collect()
        return found[-1], None


def inputs_strategy(case: TestCase) -> st.SearchStrategy[tuple[Array, ...]]:
    """Return a strategy for all inputs of ``case``, which shrinks towards zeros."""
    return st.tuples(*(_strategy(one, specials_for(case, one)) for one in inputs_of(case)))


def _strategy(one: Input, specials: tuple[float, ...]) -> st.SearchStrategy[Array]:
    domain, kind = one.domain, kind_of(np.dtype(one.dtype))
    if domain.distinct or domain.simplex:
        return st.integers(0, 2**32 - 1).map(lambda number: _drawn(one, np.random.default_rng(number)))
    if one.index is not None:
        size = one.index[0]
        values = _arrays(np.int64, one, st.integers(-size if domain.negative else 0, max(size - 1, 0)))
    elif kind == "bool":
        values = _arrays(np.bool_, one, st.booleans())
    elif kind == "int":
        values = _arrays(np.int64, one, _integers(one.dtype, domain))
    elif kind == "complex":
        part = _floats(real_part(np.dtype(one.dtype)).name, domain)
        values = _arrays(np.complex128, one, st.builds(complex, part, part))
    else:
        values = _arrays(np.float64, one, _floats(one.dtype, domain, specials))
    return values.map(np.sort) if domain.sorted and one.shape else values


def _drawn(one: Input, rng: np.random.Generator) -> Array:
    if one.index is not None:
        return draw_input_indices(one, rng)
    return draw(one.shape, one.dtype, one.domain, rng)


def _arrays(wide: Any, one: Input, elements: st.SearchStrategy[Any]) -> st.SearchStrategy[Array]:
    """Return a strategy for arrays that spread a few values at random.

    Such arrays have ties, and cost the same at any size.
    """

    def spread(pool: list[Any], number: int) -> Array:
        chosen = np.random.default_rng(number).integers(len(pool), size=one.shape)
        return np.asarray(np.array(pool, wide)[chosen]).astype(one.dtype)

    return st.builds(spread, st.lists(elements, min_size=1, max_size=_POOL), st.integers(0, 2**32 - 1))


def _integers(dtype: str, domain: Domain) -> st.SearchStrategy[int]:
    least, largest = integer_limits(dtype)
    low = least if domain.low is None else max(math.ceil(domain.low), least)
    high = largest if domain.high is None else min(math.floor(domain.high), largest)
    values = st.integers(max(low, 1) if domain.positive else low, high)
    return values.filter(bool) if domain.nonzero else values


def _floats(dtype: str, domain: Domain, specials: tuple[float, ...] = ()) -> st.SearchStrategy[float]:
    """Return a strategy for floats within ``dtype``; the default bounds keep products and sums finite."""
    largest = float(finfo(dtype).max)
    limit = min(largest, 1e3)
    low = -limit if domain.low is None else max(domain.low, -largest)
    high = limit if domain.high is None else min(domain.high, largest)
    if domain.integers:
        values = st.integers(math.ceil(low), math.floor(high)).map(float)
        values = values.filter(bool) if domain.nonzero else values
    else:
        values = st.floats(low, high, allow_subnormal=False)
        if domain.nonzero:
            values = values.map(lambda value: value if abs(value) >= 0.125 else 0.125)
    if domain.positive:
        values = values.map(lambda value: max(abs(value), 0.125))
    return st.one_of(values, st.sampled_from(specials)) if specials else values
