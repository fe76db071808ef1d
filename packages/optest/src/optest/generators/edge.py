"""The edge generator: extreme values, ties, repeated indices and strided layouts.

Edge *shapes* (empty, 0-d, size 1) belong to the case and come from setups; this
generator accepts every shape.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np

from ..core.dtypes import kind_of
from ..operators.domain import Domain
from .base import Array, Generated, Input, inputs_of
from .distributions import draw, integer_limits
from .random import draw_input_indices, specials_for

if TYPE_CHECKING:
    from ..core.case import TestCase


class EdgeGenerator:
    """Draws values from a small pool of edge values, so that ties are frequent, in non-contiguous arrays.

    Floats: those values around 0 and 1 that lie in the domain; NaN, infinities and signed
    zeros if the operator is tagged ``edge:nan``. Subnormals and the largest finite values are
    added only if no intermediate result can leave the range of floats: in elementwise functions
    of one tensor (except activations, which consist of several) and in comparisons.
    Integers: the extreme values, unless the domain is narrower. Indices: the first, the last,
    and repeated ones unless they must be distinct.
    """

    def generate(self, case: TestCase, rng: np.random.Generator) -> Generated:
        """Return inputs of the case's shapes and dtypes, and no expected outputs."""
        extreme = _takes_extremes(case)
        return tuple(
            strided(_values(one, specials_for(case, one), extreme, rng), rng) for one in inputs_of(case)
        ), None


def _takes_extremes(case: TestCase) -> bool:
    """Whether extreme floats are fair inputs, because no intermediate result can leave the range."""
    one = case.descriptor
    simple = one.category == "comparison" or (one.category == "elementwise" and len(one.inputs) == 1)
    return "edge:nan" in case.descriptor.tags and simple


def _values(one: Input, specials: tuple[float, ...], extreme: bool, rng: np.random.Generator) -> Array:
    if one.index is not None:
        if one.domain.distinct:
            return draw_input_indices(one, rng)
        size = one.index[0]
        ends = [0, size - 1, *((-1, -size) if one.domain.negative else ())]
        return rng.choice(np.array(ends), one.shape).astype(one.dtype)
    kind = kind_of(np.dtype(one.dtype))
    if kind in ("bool", "complex") or one.domain.distinct or one.domain.simplex:
        return draw(one.shape, one.dtype, one.domain, rng)
    pool = _integer_pool(one) if kind == "int" else _float_pool(one, specials, extreme)
    values = rng.choice(pool, one.shape)
    if one.domain.sorted and values.ndim:
        values = np.sort(values, axis=-1)
    return values.astype(one.dtype)


def _integer_pool(one: Input) -> Array:
    least, largest = integer_limits(one.dtype)
    pool = [0, 1, -1, 2, 3, least, largest, least + 1, largest - 1]
    return np.array([value for value in pool if _within(value, one.domain, least, largest)], np.int64)


def _float_pool(one: Input, specials: tuple[float, ...], extreme: bool) -> Array:
    info = ml_dtypes.finfo(one.dtype)
    least, largest = float(info.min), float(info.max)
    tiny = [float(info.smallest_normal), float(info.smallest_subnormal)]
    bounds = [value for value in (one.domain.low, one.domain.high) if value is not None]
    pool = [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.0, -3.0, *bounds]
    found = [value for value in pool if _within(value, one.domain, least, largest)]
    found += specials
    if extreme:
        found += [least, largest, *tiny, *(-value for value in tiny)]
    return np.array(found)


def _within(value: float, domain: Domain, least: float, largest: float) -> bool:
    low = least if domain.low is None else max(domain.low, least)
    high = largest if domain.high is None else min(domain.high, largest)
    whole = not domain.integers or float(value).is_integer()
    sign = value > 0 if domain.positive else value != 0 if domain.nonzero else True
    return low <= value <= high and whole and sign


def strided(values: Array, rng: np.random.Generator) -> Array:
    """Return the values in another memory layout: reversed, in Fortran order, or with gaps."""
    layout = rng.integers(3)
    if values.ndim == 0:
        return values
    if layout == 0:
        return np.ascontiguousarray(values[..., ::-1])[..., ::-1]
    if layout == 1 and values.ndim > 1:
        return np.asfortranarray(values)
    spaced = np.zeros((*values.shape[:-1], values.shape[-1] * 2), values.dtype)
    spaced[..., ::2] = values
    return spaced[..., ::2]
