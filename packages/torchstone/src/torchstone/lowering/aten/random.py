"""Random numbers: the usual distributions, dropout, randomized leaky ReLU.

Numbers come from the counter-based generator of :mod:`torchstone.hlo.random`. They
have PyTorch's distributions but not its sequences. Not here: permutations and
sampling from weights (``sampling``), backward operators (PyTorch decomposes them).
"""

from __future__ import annotations

import math
from typing import Any

from ... import hlo
from ...dtypes import (
    ALL_INTEGRAL,
    BFLOAT16,
    BOOL,
    BOOLEAN,
    COMPLEX,
    COPYABLE,
    FLOAT16,
    FLOAT64,
    FLOATING,
    INT64,
    REAL,
    UINT64,
    DType,
)
from ...hlo import Rng, Value
from ...torch_internals.operators import namespace
from ..common import cast
from ..conditions import BERNOULLI_P, BERNOULLI_SELF, DEVIATION
from ..misfits import Arguments, other_shape
from ..promotion import as_value, opmath
from ..registry import Spec, lowers

aten = namespace("aten")
prims = namespace("prims")

_COUNTING = ALL_INTEGRAL | FLOATING
_CONTINUOUS = FLOATING | COMPLEX
_DIGITS = {FLOAT16: 11, BFLOAT16: 8}
"""Significant binary digits of 16-bit floats. With more, numbers might round up to the excluded end."""


def uniform(rng: Rng, shape: hlo.Shape, dtype: DType) -> Value:
    """Uniform on [0, 1), in the op-math dtype of ``dtype``; both parts if that is complex."""
    if dtype.is_complex:
        return hlo.complex_(rng.uniform(shape, dtype.real), rng.uniform(shape, dtype.real))
    numbers = rng.uniform(shape, opmath(dtype))
    if dtype not in _DIGITS:
        return numbers
    scale = 2.0 ** _DIGITS[dtype]
    return hlo.floor(numbers * scale) / scale


def logarithm_of_uniform(rng: Rng, shape: hlo.Shape, dtype: DType) -> Value:
    """``log(u)`` for ``u`` uniform on (0, 1), in the op-math dtype; always finite and negative."""
    wide = opmath(dtype)
    epsilon = 2.0**-54 if wide.bits == 64 else 2.0**-25
    return hlo.log(rng.uniform(shape, wide) + epsilon)


def _spread(value: Any, like: Value) -> Value:
    return hlo.broadcast_to(as_value(value, like.dtype), like.shape)


def _moved(x: Value, scale: Any, shift: Any) -> Value:
    """``x * scale + shift``. For a complex number, PyTorch shifts both parts."""
    shift = _spread(shift, x)
    return x * _spread(scale, x) + (shift * (1 + 1j) if x.dtype.is_complex else shift)


# Uniform and normal ---------------------------------------------------------------------


@lowers(aten.rand.default, aten.rand.generator, dtypes=_CONTINUOUS, ignores=("size", "dtype"))
@lowers(aten.rand_like.default, aten.rand_like.generator, dtypes=_CONTINUOUS, ignores=("self", "dtype"))
def rand(*, out: Spec, rng: Rng) -> Value:
    """Uniform on [0, 1)."""
    return hlo.convert(uniform(rng, out.shape, out.dtype), out.dtype)


# aten.uniform itself has a parameter named `from`; PyTorch decomposes it to this.
@lowers(prims.uniform.default, dtypes=_CONTINUOUS, ignores=("shape", "dtype", "stride"))
def uniform_between(low: Any, high: Any, *, out: Spec, rng: Rng) -> Value:
    """Uniform on [low, high), also for both parts of a complex number."""
    return hlo.convert(_moved(uniform(rng, out.shape, out.dtype), high - low, low), out.dtype)


def _normal(rng: Rng, out: Spec) -> Value:
    """Standard normal in the op-math dtype; each part of a complex number has variance 1/2."""
    if not out.dtype.is_complex:
        return rng.normal(out.shape, opmath(out.dtype))
    real, imag = (rng.normal(out.shape, out.dtype.real) * math.sqrt(0.5) for _ in range(2))
    return hlo.complex_(real, imag)


@lowers(aten.randn.default, aten.randn.generator, dtypes=_CONTINUOUS, ignores=("size", "dtype"))
@lowers(aten.randn_like.default, aten.randn_like.generator, dtypes=_CONTINUOUS, ignores=("self", "dtype"))
def randn(*, out: Spec, rng: Rng) -> Value:
    """Standard normal; each part of a complex number has variance 1/2."""
    return hlo.convert(_normal(rng, out), out.dtype)


@lowers(
    aten.normal.Tensor_float,
    aten.normal.float_Tensor,
    aten.normal.Tensor_Tensor,
    dtypes=FLOATING,
    gaps=dict.fromkeys(COMPLEX, "PyTorch's shape function of this operator rejects complex numbers"),
    values=[DEVIATION],
)
@lowers(aten.normal.float_float, dtypes=_CONTINUOUS, ignores=("size", "dtype"))
@lowers(aten.normal_functional.default, dtypes=_CONTINUOUS, ignores=("self",))
def normal(mean: Any = 0.0, std: Any = 1.0, *, out: Spec, rng: Rng) -> Value:
    """Normal with the given mean (for complex numbers, of both parts) and standard deviation."""
    return hlo.convert(_moved(_normal(rng, out), std, mean), out.dtype)


@lowers(aten.log_normal.default, dtypes=FLOATING, ignores=("self",))
def log_normal(mean: float = 1.0, std: float = 2.0, *, out: Spec, rng: Rng) -> Value:
    """The exponential of a normal variable with the given mean and standard deviation."""
    return hlo.convert(hlo.exponential(_normal(rng, out) * std + mean), out.dtype)


# Other distributions --------------------------------------------------------------------


@lowers(aten.exponential.default, dtypes=FLOATING, ignores=("self",))
def exponential(lambd: float = 1.0, *, out: Spec, rng: Rng) -> Value:
    """Exponential with rate ``lambd``, always above zero."""
    return hlo.convert(logarithm_of_uniform(rng, out.shape, out.dtype) * (-1.0 / lambd), out.dtype)


@lowers(aten.geometric.default, dtypes=REAL, ignores=("self",))
def geometric(p: float, *, out: Spec, rng: Rng) -> Value:
    """The number of trials up to the first success, which has probability ``p``."""
    wide = opmath(out.dtype) if out.dtype.is_floating else FLOAT64
    trials = hlo.ceil(logarithm_of_uniform(rng, out.shape, wide) / math.log1p(-p))
    return cast(hlo.maximum(trials, 1.0), out.dtype)


@lowers(aten.cauchy.default, dtypes=FLOATING, ignores=("self",))
def cauchy(median: float = 0.0, sigma: float = 1.0, *, out: Spec, rng: Rng) -> Value:
    """Cauchy around ``median`` with scale ``sigma``."""
    angle = (rng.uniform(out.shape, opmath(out.dtype)) - 0.5) * math.pi
    return hlo.convert(hlo.tan(angle) * sigma + median, out.dtype)


# Integers ------------------------------------------------------------------------------


def _integers(rng: Rng, low: Any, high: Any, out: Spec) -> Value:
    """Uniform on [low, high): 64 random bits modulo the span, with a bias of at most span / 2⁶⁴."""
    span, base = (as_value(n, INT64) for n in (high, low))
    bits = rng.bits(out.shape)
    span = hlo.convert(span - base, UINT64)
    offset = hlo.remainder(bits, hlo.broadcast_to(span, out.shape))
    return cast(hlo.convert(offset, INT64) + hlo.broadcast_to(base, out.shape), out.dtype)


@lowers(aten.randint.default, aten.randint.generator, dtypes=_COUNTING, ignores=("size", "dtype"))
@lowers(
    aten.randint_like.default,
    aten.randint_like.generator,
    aten.randint_like.Tensor,
    dtypes=_COUNTING,
    ignores=("self", "dtype"),
)
def randint(high: Any, *, out: Spec, rng: Rng) -> Value:
    """Uniform integers on [0, high)."""
    return _integers(rng, 0, high, out)


@lowers(aten.randint.low, aten.randint.low_generator, dtypes=_COUNTING, ignores=("size", "dtype"))
@lowers(
    aten.randint_like.low_dtype,
    aten.randint_like.low_generator_dtype,
    dtypes=_COUNTING,
    ignores=("self", "dtype"),
)
def randint_between(low: Any, high: Any, *, out: Spec, rng: Rng) -> Value:
    """Uniform integers on [low, high)."""
    return _integers(rng, low, high, out)


# Trials and dropout ------------------------------------------------------------------------


def happens(rng: Rng, shape: hlo.Shape, probability: float) -> Value:
    """Bools that are True with the given probability, exact to 2⁻⁶⁴."""
    threshold = round(probability * 2.0**64)
    if threshold >= 1 << 64:
        return hlo.full(shape, True, BOOL)
    return rng.bits(shape) < threshold


@lowers(aten.bernoulli.p, dtypes=REAL | BOOLEAN, ignores=("self",))
def bernoulli_p(p: float, *, out: Spec, rng: Rng) -> Value:
    """1 with probability ``p``, else 0."""
    return hlo.convert(happens(rng, out.shape, p), out.dtype)


@lowers(aten.bernoulli.Tensor, dtypes=REAL | BOOLEAN, ignores=("self",), values=[BERNOULLI_P])
def bernoulli_tensor(p: Value, *, out: Spec, rng: Rng) -> Value:
    """1 with the probability given by the element of ``p``, else 0."""
    chance = hlo.broadcast_to(hlo.convert(p, opmath(p.dtype)), out.shape)
    return hlo.convert(rng.uniform(out.shape, chance.dtype) < chance, out.dtype)


@lowers(aten.bernoulli.default, dtypes=FLOATING, values=[BERNOULLI_SELF])
def bernoulli(self: Value, *, out: Spec, rng: Rng) -> Value:
    """1 with the probability given by the element of ``self``, else 0."""
    return bernoulli_tensor(self, out=out, rng=rng)


@lowers(
    aten.native_dropout.default,
    dtypes=COPYABLE - COMPLEX,
    gaps=dict.fromkeys(COMPLEX, "PyTorch's shape function of this operator rejects complex numbers"),
)
def native_dropout(
    input: Value, p: float, train: bool | None, *, out: tuple[Spec, Spec], rng: Rng
) -> tuple[Value, Value]:
    """Zero elements with probability ``p``, scale the rest by ``1 / (1 - p)``; return the mask too."""
    if train is False or p == 0:
        return input, hlo.full(input.shape, True, BOOL)
    kept = happens(rng, input.shape, 1.0 - p)
    x = hlo.convert(input, opmath(input.dtype))
    scaled = x * (1.0 / (1.0 - p) if p < 1 else 0.0)
    return hlo.convert(hlo.select(kept, scaled, 0), out[0].dtype), kept


def _rrelu(
    x: Value, noise: Value, lower: float, upper: float, training: bool, rng: Rng
) -> tuple[Value, Value]:
    wide = hlo.convert(x, opmath(x.dtype))
    if not training:
        return hlo.convert(hlo.select(wide > 0, wide, wide * ((lower + upper) / 2)), x.dtype), noise
    slope = hlo.select(wide <= 0, uniform(rng, x.shape, x.dtype) * (upper - lower) + lower, 1.0)
    return hlo.convert(wide * slope, x.dtype), hlo.convert(slope, x.dtype)


def _refuses_other_noise(given: Arguments) -> str | None:
    """Refuse noise of another shape, which PyTorch's shape function does not check."""
    return other_shape("noise", given["noise"].shape, given["self"].shape)


@lowers(aten.rrelu_with_noise_functional.default, dtypes=FLOATING, refuses=_refuses_other_noise)
def rrelu_with_noise_functional(
    self: Value, noise: Value, lower: float = 0.125, upper: float = 1 / 3, training: bool = False, *, rng: Rng
) -> tuple[Value, Value]:
    """Leaky ReLU with a random slope in training (the mean slope otherwise), and the slopes."""
    return _rrelu(self, noise, lower, upper, training, rng)


@lowers(aten.rrelu_with_noise.default, dtypes=FLOATING, refuses=_refuses_other_noise)
def rrelu_with_noise(
    self: Value, noise: Value, lower: float = 0.125, upper: float = 1 / 3, training: bool = False, *, rng: Rng
) -> Value:
    """The output of :func:`rrelu_with_noise_functional`. A functional graph does not read ``noise``."""
    return _rrelu(self, noise, lower, upper, training, rng)[0]
