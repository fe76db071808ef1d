"""The default generator: random values of each input's domain."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .base import Array, Generated, Input, inputs_of
from .distributions import (
    FINITE_SPECIALS,
    SPECIAL_FLOATS,
    draw,
    draw_indices,
    has_infinity,
    sprinkle,
)

if TYPE_CHECKING:
    from ..core.case import TestCase


class RandomTensorGenerator:
    """Draws random values, with NaN, infinities and zeros among them if the operator accepts them.

    Operators that work on single elements, or only move them, get such special values in every
    case; in every second case, all inputs have the same ones in the same places. In other operators a
    single NaN may decide every result, so only every third case has special values. The case's id
    decides which cases.
    """

    def generate(self, case: TestCase, rng: np.random.Generator) -> Generated:
        """Return inputs of the case's shapes and dtypes, and no expected outputs."""
        number = int(case.id, 16)
        everywhere = bool(case.descriptor.tags & {"elementwise", "data-movement"})
        sprinkled = everywhere or number % 3 == 0
        places = int(rng.integers(2**32)) if everywhere and number % 2 == 0 else None
        return tuple(
            _values(one, specials_for(case, one) if sprinkled else (), rng, places) for one in inputs_of(case)
        ), None


def _values(one: Input, specials: tuple[float, ...], rng: np.random.Generator, places: int | None) -> Array:
    if one.index is not None:
        return draw_input_indices(one, rng)
    values = draw(one.shape, one.dtype, one.domain, rng)
    if specials:
        same = rng if places is None else np.random.default_rng(places)
        sprinkle(values, np.array(specials).astype(one.dtype), same)
    return values


def specials_for(case: TestCase, one: Input) -> tuple[float, ...]:
    """Return the special values to mix into an input; none if the operator does not define their result.

    Operators tagged ``edge:nan``, and those that only move data, get all special values. Those tagged
    ``edge:nan-only`` get no infinities and nothing outside the domain. If an operator has several
    inputs, those that must not be zero get none.
    """
    tags = case.descriptor.tags
    if not one.floating or one.domain.distinct or (one.domain.nonzero and len(case.descriptor.inputs) > 1):
        return ()
    if tags & {"edge:nan", "data-movement"}:
        return SPECIAL_FLOATS if has_infinity(one.dtype) else FINITE_SPECIALS
    return tuple(filter(one.may_be, FINITE_SPECIALS)) if "edge:nan-only" in tags else ()


def draw_input_indices(one: Input, rng: np.random.Generator) -> Array:
    """Draw valid indices for an input whose domain says that it holds indices."""
    assert one.index is not None
    size, axis = one.index
    domain = one.domain
    return draw_indices(
        one.shape, one.dtype, size, rng, negative=domain.negative, distinct=domain.distinct, axis=axis
    )
