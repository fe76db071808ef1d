"""The default generator: random values of each input's domain."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .base import Array, Generated, Input, inputs_of
from .distributions import draw, draw_indices, special_floats, sprinkle

if TYPE_CHECKING:
    from ..core.case import TestCase


class RandomTensorGenerator:
    """Random values; NaN, infinities and zeros among them where the operator takes them.

    Operators that work on single elements or only move them get them in every case; every
    other case has the same ones in the same places of all its inputs. Elsewhere one NaN
    may decide every result, so only every third case has them. The id decides which.
    """

    def generate(self, case: TestCase, rng: np.random.Generator) -> Generated:
        """Inputs of the case's shapes and dtypes; no expected outputs."""
        number = int(case.id, 16)
        everywhere = bool(case.descriptor.tags & {"elementwise", "data-movement"})
        specials = takes_specials(case) and (everywhere or number % 3 == 0)
        places = int(rng.integers(2**32)) if everywhere and number % 2 == 0 else None
        return tuple(self._values(one, specials, rng, places) for one in inputs_of(case)), None

    def _values(self, one: Input, specials: bool, rng: np.random.Generator, places: int | None) -> Array:
        if one.index is not None:
            return draw_input_indices(one, rng)
        values = draw(one.shape, one.dtype, one.domain, rng)
        if specials and one.floating and not one.domain.distinct:
            same = rng if places is None else np.random.default_rng(places)
            sprinkle(values, special_floats(one.dtype), same)
        return values


def takes_specials(case: TestCase) -> bool:
    """Whether the operator says what it makes of NaN and infinities, or only moves them."""
    return bool(case.descriptor.tags & {"edge:nan", "data-movement"})


def draw_input_indices(one: Input, rng: np.random.Generator) -> Array:
    """Valid indices for an input whose domain asks for them."""
    assert one.index is not None
    size, axis = one.index
    domain = one.domain
    return draw_indices(
        one.shape, one.dtype, size, rng, negative=domain.negative, distinct=domain.distinct, axis=axis
    )
