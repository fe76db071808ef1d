"""Counter-based random bits, and the two distributions that all others build on.

The generator is SplitMix64 (Steele, Lea and Flood 2014) used as a hash of
``(seed, stream, element index)``: pure, splittable, and made of elementwise
operations only, so that it runs on every consumer and in the reference
interpreter. The seed is an input of the program, never a constant in it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..dtypes import FLOAT32, FLOAT64, UINT8, UINT64, DType
from .dimensions import Dim, product
from .elementwise import convert, cosine, log, shift_left, shift_right_logical, sqrt
from .reduction import reduce_sum
from .shape import broadcast_to, concatenate, iota, pad_axis, reshape, slice_axis
from .value import Value, scalar

_GOLDEN = 0x9E3779B97F4A7C15
_MIX_1 = 0xBF58476D1CE4E5B9
_MIX_2 = 0x94D049BB133111EB


def _mix(z: Value) -> Value:
    z = (z ^ shift_right_logical(z, 30)) * _MIX_1
    z = (z ^ shift_right_logical(z, 27)) * _MIX_2
    return z ^ shift_right_logical(z, 31)


class Rng:
    """The random numbers of one operator: ``seed`` is uint64 ``[2]``, ``stream`` distinguishes operators.

    Each draw from one object uses its own stream. The same seed and
    stream give the same numbers on every engine.
    """

    def __init__(self, seed: Value, stream: int) -> None:
        self._low = reshape(slice_axis(seed, 0, 0, 1), ())
        self._high = reshape(slice_axis(seed, 0, 1, 2), ())
        self._stream = stream << 16

    def state(self, size: int) -> Value:
        """The state of this generator, as uint8 ``[size]`` (16 bytes, padded); see :meth:`restored`."""
        low = self._low + scalar(self._stream * _GOLDEN, UINT64)
        words = concatenate([reshape(low, (1, 1)), reshape(self._high, (1, 1))], 0)
        shifts = iota((2, 8), 1, UINT64) * 8
        octets = convert(shift_right_logical(broadcast_to(words, (2, 8)), shifts) & 0xFF, UINT8)
        return pad_axis(reshape(octets, (16,)), 0, 0, 0, size - 16)

    @classmethod
    def restored(cls, state: Value) -> Rng:
        """The generator with the given :meth:`state`."""
        octets = convert(reshape(slice_axis(state, 0, 0, 16), (2, 8)), UINT64)
        return cls(reduce_sum(shift_left(octets, iota((2, 8), 1, UINT64) * 8), [1]), 0)

    def bits(self, shape: Sequence[Dim]) -> Value:
        """Uniform uint64 of ``shape``."""
        self._stream += 1
        key = _mix(_mix(self._low + scalar(self._stream * _GOLDEN, UINT64)) ^ self._high)
        index = iota((product(shape),), 0, UINT64)
        counter = (index + 1) * _GOLDEN
        return reshape(_mix(counter + broadcast_to(key, counter.shape)), shape)

    def uniform(self, shape: Sequence[Dim], dtype: DType = FLOAT32) -> Value:
        """Uniform on [0, 1) in float32 or float64, a multiple of 2⁻²⁴ or 2⁻⁵³."""
        digits = 53 if dtype is FLOAT64 else 24
        wide = FLOAT64 if dtype is FLOAT64 else FLOAT32
        bits = convert(shift_right_logical(self.bits(shape), 64 - digits), wide)
        return bits * 2.0**-digits

    def normal(self, shape: Sequence[Dim], dtype: DType = FLOAT32) -> Value:
        """Standard normal in float32 or float64 (Box and Muller 1958)."""
        radius = sqrt(log(1.0 - self.uniform(shape, dtype)) * -2.0)
        return radius * cosine(self.uniform(shape, dtype) * (2.0 * math.pi))
