"""The matrix exponential: a Taylor polynomial of degree 18 with scaling and squaring.

It uses Taylor rather than Padé because Taylor needs only products (Bader, Blanes and Casas
2019, who give the bounds; ATen uses the same degree). Each matrix of the batch
is scaled by its own power of two.
"""

from __future__ import annotations

import math

from ... import hlo
from ...dtypes import FLOAT64, INT32
from ...hlo import Value
from . import matrices
from .matrices import product

_LARGEST_NORM = {True: 1.090863719290036, False: 3.010066362817634}
"""The largest 1-norm for which degree 18 is exact to the last digit, in float64 and in float32."""
_DEGREE = 18
_GROUP = 6


def exponential(a: Value) -> Value:
    """``exp(A)`` of every matrix of ``[batch, n, n]``."""
    batch = a.shape[0]
    bound = _LARGEST_NORM[a.dtype.real is FLOAT64]
    norm = hlo.reduce_max(hlo.reduce_sum(hlo.abs_(a), [1]), [1])
    ratio = hlo.maximum(norm / bound, 1.0)
    usable = hlo.select(hlo.is_finite(ratio), ratio, hlo.full_like(ratio, 1))
    squarings = hlo.convert(hlo.ceil(hlo.log(usable) * (1 / math.log(2))), INT32)
    factor = hlo.power(hlo.full_like(norm, 0.5), hlo.convert(squarings, norm.dtype))
    scaled = a * hlo.broadcast_in_dim(hlo.convert(factor, a.dtype), a.shape, [0])
    most = hlo.reduce([squarings], [0], [0], hlo.maximum)[0]

    def square(i: Value, x: Value) -> list[Value]:
        more = hlo.broadcast_to(i, (batch,)) < squarings
        return [hlo.select(hlo.broadcast_in_dim(more, x.shape, [0]), product(x, x), x)]

    return hlo.fori(most, square, [_taylor(scaled)])[0]


def _taylor(a: Value) -> Value:
    """``Σ Aᵏ / k!`` up to degree 18 in seven products (Paterson and Stockmeyer 1973)."""
    powers = [matrices.identity(a.shape, a.dtype), a]
    while len(powers) <= _GROUP:
        half = len(powers) // 2
        powers.append(product(powers[half], powers[len(powers) - half]))
    result = powers[0] * (1 / math.factorial(_DEGREE))
    for low in range(_DEGREE - _GROUP, -1, -_GROUP):
        result = product(powers[_GROUP], result)
        for k in range(_GROUP):
            result = result + powers[k] * (1 / math.factorial(low + k))
    return result
