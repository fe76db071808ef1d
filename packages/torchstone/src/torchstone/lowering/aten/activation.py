"""Activation functions and their gradients.

Not here: sigmoid, tanh and other plain transcendental functions, softmax.

GELU, SiLU and Mish and their gradients are composites; the others are a few
elementwise operations that every consumer fuses by itself. All compute 16-bit
floats in float32.
"""

from __future__ import annotations

import math
from typing import Any

from ... import hlo
from ...dtypes import ALL_INTEGRAL, BOOLEAN, COMPLEX, FLOAT32, FLOATING, REAL
from ...hlo import Value
from ...torch_internals.operators import namespace
from ..composites import composed
from ..factories import lowers_unary
from ..misfits import other_dtypes
from ..precise import expm1
from ..promotion import broadcast, opmath
from ..registry import Spec, lowers
from ..series import choose, polynomial, table

aten = namespace("aten")


def _wide(out: Spec, *operands: Value) -> list[Value]:
    """Broadcast the operands to the result's shape and convert them to the dtype to compute in."""
    return broadcast(operands, opmath(out.dtype), out.shape)


def _done(result: Value, out: Spec) -> Value:
    return hlo.convert(result, out.dtype)


def _relu(x: Value) -> Value:
    """``max(self, 0)``; NaN stays NaN."""
    return hlo.maximum(x, 0)


lowers_unary(aten.relu.default, kernel=_relu, dtypes=REAL)


@lowers(aten.threshold.default, dtypes=REAL)
def threshold(self: Value, threshold: Any, value: Any, out: Spec) -> Value:
    """``self`` where it is greater than ``threshold`` (or NaN), else ``value``."""
    (x,) = _wide(out, self)
    return _done(hlo.select(x <= threshold, hlo.full_like(x, value), x), out)


@lowers(aten.threshold_backward.default, dtypes=REAL, refuses=other_dtypes("grad_output", "self"))
def threshold_backward(grad_output: Value, self: Value, threshold: Any, out: Spec) -> Value:
    """``grad_output`` where ``self`` is greater than ``threshold`` (or NaN), else 0."""
    grad, x = _wide(out, grad_output, self)
    return _done(hlo.select(x <= threshold, 0, grad), out)


# Composites -------------------------------------------------------------------------

_TANH_SCALE = math.sqrt(2.0 / math.pi)
_TANH_CUBIC = 0.044715


# A polynomial in s / (s + 2) for (s + 2) exp(s²/2) Φ(-s), s ≥ 0, with a relative error of 2.4e-8: exact at 0,
# else interpolated at Chebyshev's nodes
_NORMAL_TAIL = table("""
    -0.1214950482 0.5181241522 -0.8602484741 0.7606107241 -0.4589856037 0.1438618387
    0.009402586849 0.1102331628 0.08473979738 -0.1915317398 -0.5957691485 1.0
""")


_DENSITY = 1.0 / math.sqrt(2.0 * math.pi)


def _bell(x: Value) -> Value:
    return hlo.exponential(x * x * -0.5)


def _normal_cdf(x: Value) -> Value:
    if x.dtype is not FLOAT32:  # erfc keeps relative accuracy in the lower tail, where 1 + erf cancels
        return hlo.erfc(x * -math.sqrt(0.5)) * 0.5
    return _cdf_of_tail(x, hlo.abs_(x), _bell(x))


def _cdf_of_tail(x: Value, size: Value, bell: Value) -> Value:
    # This takes one exponential, which the gradient needs anyway, and one division. XLA's erfc is slower.
    share = 1.0 / (size + 2.0)
    tail = bell * (share * polynomial(share * -2.0 + 1.0, _NORMAL_TAIL))
    return hlo.select(x > 0.0, 1.0 - tail, tail)


def _gelu(x: Value) -> Value:
    return x * _normal_cdf(x)


def _gelu_gradient(grad: Value, x: Value) -> Value:
    grad, x = _in_common(grad, x)
    if x.dtype is not FLOAT32:
        return grad * (_normal_cdf(x) + x * _bell(x) * _DENSITY)
    # The formulas differ on purpose from those of GELU itself. If they were equal, XLA would share their two
    # intermediate values and keep them from the forward pass to the backward pass, which takes as much memory
    # again as PyTorch keeps.
    bell = hlo.exponential(x * (x * -0.5))
    return grad * (_cdf_of_tail(x, hlo.maximum(x, -x), bell) + x * (bell * _DENSITY))


def _tanh_argument(x: Value) -> Value:
    return (x + x * x * x * _TANH_CUBIC) * _TANH_SCALE


def _gelu_tanh(x: Value) -> Value:
    # (1 + tanh u) / 2 is the logistic function of 2u, which does not cancel below zero.
    return x * hlo.logistic(_tanh_argument(x) * 2.0)


def _gelu_tanh_gradient(grad: Value, x: Value) -> Value:
    grad, x = _in_common(grad, x)
    twice = _tanh_argument(x) * 2.0
    slope = (x * x * (3.0 * _TANH_CUBIC) + 1.0) * (2.0 * _TANH_SCALE)
    gate = hlo.logistic(twice)
    return grad * (gate + x * (gate * hlo.logistic(-twice) * slope))


@lowers(aten.gelu.default, dtypes=FLOATING)
def gelu(self: Value, approximate: str = "none", *, out: Spec) -> list[Value | None]:
    """``self * Φ(self)``, exact or by the tanh approximation (Hendrycks and Gimpel 2016)."""
    kernel = _gelu_tanh if approximate == "tanh" else _gelu
    return composed("gelu", [self], kernel, out, {"approximate": approximate})


@lowers(aten.gelu_backward.default, dtypes=FLOATING)
def gelu_backward(
    grad_output: Value, self: Value, approximate: str = "none", *, out: Spec
) -> list[Value | None]:
    """Gradient of GELU."""
    kernel = _gelu_tanh_gradient if approximate == "tanh" else _gelu_gradient
    return composed("gelu_backward", [grad_output, self], kernel, out, {"approximate": approximate})


def _in_common(grad: Value, x: Value) -> list[Value]:
    """Broadcast both to one shape, and convert ``x`` to the dtype of the gradient."""
    return broadcast([grad, x], grad.dtype if x.dtype in ALL_INTEGRAL | BOOLEAN else x.dtype)


def _silu_gradient(grad: Value, x: Value) -> Value:
    grad, x = _in_common(grad, x)
    gate = hlo.logistic(x)
    return grad * gate * (x * (1.0 - gate) + 1.0)


@lowers(aten.silu.default, dtypes=FLOATING | COMPLEX)
def silu(self: Value, out: Spec) -> list[Value | None]:
    """``self * sigmoid(self)``, also called swish."""
    return composed("silu", [self], lambda x: x * hlo.logistic(x), out)


@lowers(aten.silu_backward.default, dtypes=FLOATING | COMPLEX)
def silu_backward(grad_output: Value, self: Value, out: Spec) -> list[Value | None]:
    """Gradient of SiLU."""
    return composed("silu_backward", [grad_output, self], _silu_gradient, out)


def _mish_numerator(x: Value) -> Value:
    """``n = e (e + 2)`` with ``e = exp(x)``. ``tanh(softplus(x))`` is ``n / (n + 2)``. Valid up to 20."""
    power = hlo.exponential(hlo.minimum(x, 20.0))
    return power * (power + 2.0)


def _mish(x: Value) -> Value:
    # Not usable where e² overflows or e is flushed to zero.
    numerator = _mish_numerator(x)
    far_below = x * hlo.exponential(x + 32.0) * math.exp(-32.0)
    return choose(x * (numerator / (numerator + 2.0)), (x > 20.0, x), (x < -64.0, far_below))


def _mish_gradient(grad: Value, x: Value) -> Value:
    grad, x = _in_common(grad, x)
    numerator = _mish_numerator(x)
    rest = 2.0 / (numerator + 2.0)
    inner = numerator * rest * 0.5
    flatness = hlo.select(x > 20.0, 0.0, rest * (inner + 1.0))
    return grad * (inner + x * hlo.logistic(x) * flatness)


@lowers(aten.mish.default, dtypes=FLOATING)
def mish(self: Value, out: Spec) -> list[Value | None]:
    """``self * tanh(softplus(self))``."""
    return composed("mish", [self], _mish, out)


@lowers(aten.mish_backward.default, dtypes=FLOATING)
def mish_backward(grad_output: Value, self: Value, out: Spec) -> list[Value | None]:
    """Gradient of Mish."""
    return composed("mish_backward", [grad_output, self], _mish_gradient, out)


# Piecewise -----------------------------------------------------------------------------


@lowers(aten.hardtanh.default, dtypes=REAL)
def hardtanh(self: Value, min_val: Any = -1, max_val: Any = 1, *, out: Spec) -> Value:
    """``self`` clamped to [min_val, max_val]."""
    (x,) = _wide(out, self)
    return _done(hlo.clamp(min_val, x, max_val), out)


@lowers(aten.hardtanh_backward.default, dtypes=FLOATING)
def hardtanh_backward(grad_output: Value, self: Value, min_val: Any, max_val: Any, out: Spec) -> Value:
    """``grad_output`` strictly inside the bounds, else 0."""
    grad, x = _wide(out, grad_output, self)
    return _done(hlo.select((x <= min_val) | (x >= max_val), 0.0, grad), out)


@lowers(aten.leaky_relu.default, dtypes=FLOATING)
def leaky_relu(self: Value, negative_slope: Any = 0.01, *, out: Spec) -> Value:
    """``self`` where positive, else ``self * negative_slope``."""
    (x,) = _wide(out, self)
    return _done(hlo.select(x > 0.0, x, x * negative_slope), out)


@lowers(aten.leaky_relu_backward.default, dtypes=FLOATING, ignores=("self_is_result",))
def leaky_relu_backward(grad_output: Value, self: Value, negative_slope: Any, out: Spec) -> Value:
    """Gradient of leaky ReLU. ``self`` may be the input or the result: both have the same sign."""
    grad, x = _wide(out, grad_output, self)
    return _done(hlo.select(x > 0.0, grad, grad * negative_slope), out)


@lowers(aten.elu.default, dtypes=FLOATING)
def elu(self: Value, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1, *, out: Spec) -> Value:
    """``scale * self`` where positive, else ``scale * alpha * (exp(input_scale * self) − 1)``."""
    (x,) = _wide(out, self)
    negative = expm1(x * float(input_scale)) * (float(alpha) * float(scale))
    return _done(hlo.select(x > 0.0, x * float(scale), negative), out)


@lowers(aten.elu_backward.default, dtypes=FLOATING)
def elu_backward(
    grad_output: Value,
    alpha: Any,
    scale: Any,
    input_scale: Any,
    is_result: bool,
    self_or_result: Value,
    out: Spec,
) -> Value:
    """Gradient of ELU from its input or its result."""
    grad, x = _wide(out, grad_output, self_or_result)
    steepness = float(alpha) * float(scale)
    if is_result:
        negative = (x + steepness) * float(input_scale)
    else:
        negative = hlo.exponential(x * float(input_scale)) * (steepness * float(input_scale))
    return _done(grad * hlo.select(x <= 0.0, negative, float(scale)), out)


@lowers(aten.softplus.default, dtypes=FLOATING)
def softplus(self: Value, beta: Any = 1, threshold: Any = 20, *, out: Spec) -> Value:
    """``log(1 + exp(beta * self)) / beta``; ``self`` where ``beta * self`` is above ``threshold``."""
    (x,) = _wide(out, self)
    scaled = x * float(beta)
    smooth = hlo.log_plus_one(hlo.exponential(scaled)) / float(beta)
    return _done(hlo.select(scaled > float(threshold), x, smooth), out)


@lowers(aten.softplus_backward.default, dtypes=FLOATING)
def softplus_backward(grad_output: Value, self: Value, beta: Any, threshold: Any, out: Spec) -> Value:
    """Gradient of softplus."""
    grad, x = _wide(out, grad_output, self)
    scaled = x * float(beta)
    return _done(hlo.select(scaled > float(threshold), grad, grad * hlo.logistic(scaled)), out)


@lowers(aten.softshrink_backward.default, dtypes=FLOATING)
def softshrink_backward(grad_output: Value, self: Value, lambd: Any, out: Spec) -> Value:
    """``grad_output`` where ``self`` is outside [−lambd, lambd] (or NaN), else 0."""
    grad, x = _wide(out, grad_output, self)
    return _done(hlo.select(hlo.abs_(x) <= float(lambd), 0.0, grad), out)


@lowers(aten.hardshrink_backward.default, dtypes=FLOATING)
def hardshrink_backward(grad_out: Value, self: Value, lambd: Any, out: Spec) -> Value:
    """``grad_out`` where ``self`` is outside [−lambd, lambd] (or NaN), else 0."""
    return softshrink_backward(grad_out, self, lambd, out)
