"""The errors of float32 functions over their whole domain, compared with eager PyTorch's.

The truth is eager's float64 result for the same float32 operands, or a formula in float64
where eager's result suffers from cancellation. Errors are in float32 ULPs (units in the last
place) at the truth. The rule: at most 4 ULPs, or at most twice eager's worst error in the
same region of operands. Not here: whether two arrays agree (``optest.core.comparator``),
which does not measure errors in ULPs.

Operands and results below the smallest normal number are left out of the count: XLA's
CPU code flushes them to zero, which StableHLO leaves to an implementation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

import numpy
import torch
from numpy.typing import NDArray

from optest.core.ulp import ulp_size

from ..api import export

BOUND = 4.0
"""Errors up to this many ULPs satisfy the rule."""
FACTOR = 2.0
"""Errors up to this many times eager's worst error in the same region satisfy it too."""
_TINY = 2.0**-126
_SLACK = 1 + 2.0**-20
"""A result this close to the smallest normal number may be flushed too."""
_BEYOND = 2.0**128

Function = Callable[..., torch.Tensor]
Floats = NDArray[numpy.float32]
Doubles = NDArray[numpy.float64]


@dataclass(frozen=True)
class Accuracy:
    """One function's worst errors in ULPs; ``at`` has the operands of Torchstone's worst error.

    ``breaches`` has for each region that breaks the rule the operands, Torchstone's
    error there and eager's worst error in the region, the worst breach first.
    """

    name: str
    points: int
    error: float
    at: tuple[float, ...]
    eager_error: float
    breaches: tuple[tuple[tuple[float, ...], float, float], ...]

    @property
    def passed(self) -> bool:
        return not self.breaches


def measure(name: str, measured: Measured, operands: Sequence[Floats]) -> Accuracy:
    """Compile a function for float32 operands of one shape ``[n]``, run it, and judge every element.

    The program is exported, and runs on the configured engine.
    """
    tried = numpy.all([(operand >= measured.least) | numpy.isnan(operand) for operand in operands], axis=0)
    operands = [operand[tried] for operand in operands]
    tensors = [torch.from_numpy(operand) for operand in operands]

    def call(*given: torch.Tensor) -> torch.Tensor:
        return measured.function(*given)

    found = export(call, tuple(tensors))(*operands)
    eager = measured.function(*tensors).numpy()
    wide = [tensor.double() for tensor in tensors]
    truth = (measured.truth or measured.function)(*wide).numpy()
    return judge(name, operands, found, eager, truth)


def judge(name: str, operands: Sequence[Floats], found: Floats, eager: Floats, truth: Doubles) -> Accuracy:
    """Apply the rule to results at ``operands``, all of one shape ``[n]``."""
    error, eager_error = errors(found, truth), errors(eager, truth)
    region, limit = _regions(operands), {}
    for key in numpy.unique(region):
        limit[key] = float(eager_error[region == key].max())
    allowed = numpy.maximum(BOUND, FACTOR * numpy.array([limit[key] for key in region.tolist()]))
    beyond = numpy.flatnonzero(error > allowed)
    worst_first = beyond[numpy.argsort(-(error[beyond] / allowed[beyond]), kind="stable")]
    seen: dict[int, int] = {}
    for i in worst_first.tolist():
        seen.setdefault(int(region[i]), i)
    worst = int(numpy.argmax(error))
    return Accuracy(
        name,
        len(error),
        float(error[worst]),
        _at(operands, worst),
        float(eager_error.max()),
        tuple((_at(operands, i), float(error[i]), limit[key]) for key, i in seen.items()),
    )


def errors(found: Floats, truth: Doubles) -> Doubles:
    """Return |found − truth| in ULPs of float32: infinite if only one is NaN, 0 if both may be flushed."""
    got, want = (
        numpy.clip(numpy.nan_to_num(values.astype(numpy.float64), nan=0.0), -_BEYOND, _BEYOND)
        for values in (found, truth)
    )
    distance: Doubles = numpy.abs(got - want) / ulp_size(numpy.abs(want), numpy.dtype(numpy.float32))
    distance[(numpy.abs(want) < _TINY * _SLACK) & (numpy.abs(got) <= _TINY * _SLACK)] = 0.0
    missing, wanted = numpy.isnan(found), numpy.isnan(truth)
    distance[missing != wanted] = numpy.inf
    distance[missing & wanted] = 0.0
    return distance


def _regions(operands: Sequence[Floats]) -> NDArray[numpy.int64]:
    """Return a region number for each element: its operand's sign and exponent.

    With two operands, four exponents of each operand make one region.
    """
    octaves = 0 if len(operands) == 1 else 2
    key = numpy.zeros(len(operands[0]), numpy.int64)
    for operand in operands:
        key = key * 512 + (operand.view(numpy.uint32).astype(numpy.int64) >> (23 + octaves))
    return key


def _at(operands: Sequence[Floats], i: int) -> tuple[float, ...]:
    return tuple(float(operand[i]) for operand in operands)


# Operands ----------------------------------------------------------------------------


def sweep(mantissas: int = 48) -> Floats:
    """Return every exponent of both signs with ``mantissas`` fractions each, and neighbors of special points.

    The special points are the integers and halves up to 20 (zeros and poles of the gamma functions,
    ends of domains), the multiples of π/2 up to 64, and zeros, infinities and NaN.
    """
    steps = numpy.arange(mantissas, dtype=numpy.uint32)
    # The golden ratio spreads any number of fractions evenly and hits none twice.
    fractions = (steps * numpy.uint32(0x9E3779B9)) >> numpy.uint32(9)
    exponents = numpy.arange(1, 255, dtype=numpy.uint32) << numpy.uint32(23)
    size = (exponents[:, None] | fractions[None, :]).reshape(-1).view(numpy.float32)
    notable = numpy.concatenate([numpy.arange(1, 41) / 2, numpy.arange(1, 41) * (numpy.pi / 2)])
    bits = notable.astype(numpy.float32).view(numpy.int32)
    away = numpy.concatenate([[0], 2 ** numpy.arange(20)]).astype(numpy.int32)
    near = numpy.concatenate([bits[:, None] + away, bits[:, None] - away]).reshape(-1).view(numpy.float32)
    positive = numpy.concatenate([size, near])
    special = numpy.array([0.0, -0.0, numpy.inf, -numpy.inf, numpy.nan], numpy.float32)
    return numpy.concatenate([positive, -positive, special])


def grid(count: int = 220) -> tuple[Floats, Floats]:
    """Return all pairs of about ``count`` operands: over all exponents, and denser between 1/16 and 64."""
    wide = numpy.geomspace(2.0**-125, 2.0**126, count // 4)
    middle = numpy.geomspace(2.0**-4, 64.0, count // 4)
    side = numpy.concatenate([wide, middle, numpy.arange(1, 9) / 2]).astype(numpy.float32)
    special = numpy.array([0.0, -0.0, numpy.inf, -numpy.inf, numpy.nan], numpy.float32)
    line = numpy.concatenate([side, -side, special])
    left, right = numpy.meshgrid(line, line)
    return left.reshape(-1), right.reshape(-1)


# Measured functions --------------------------------------------------------------------


@dataclass(frozen=True)
class Measured:
    """A function of tensors, a formula for its truth in float64, and the least operand to try.

    ``truth`` is None if eager's own float64 kernel is accurate enough.
    """

    function: Function
    truth: Function | None = None
    least: float = -math.inf


def _normal(x: torch.Tensor) -> torch.Tensor:
    return torch.special.erfc(x * -math.sqrt(0.5)) / 2


def _gelu_tanh(x: torch.Tensor) -> torch.Tensor:
    return x * torch.sigmoid((x + x**3 * 0.044715) * math.sqrt(8 / math.pi))


def _gelu_tanh_derivative(x: torch.Tensor) -> torch.Tensor:
    argument = (x + x**3 * 0.044715) * math.sqrt(8 / math.pi)
    slope = (x * x * (3 * 0.044715) + 1) * math.sqrt(8 / math.pi)
    gate = torch.sigmoid(argument)
    return gate + x * (gate * torch.sigmoid(-argument) * slope)


def _zeta(x: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """Return eager's zeta, but 0 where eager divides zero by zero because all its terms vanish."""
    found = torch.special.zeta(x, q)
    return torch.where(found.isnan() & (x > 1) & (q > 1), 0.0, found)


def unary_functions() -> dict[str, Measured]:
    """The transcendental and special functions of one operand, and the activations made of them."""
    elementary = (
        "exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sigmoid tanh sin cos tan asin acos atan "
        "sinh cosh asinh acosh atanh"
    )
    special = (
        "erf erfc erfinv erfcx ndtri log_ndtr gammaln digamma i0 i0e i1 i1e entr sinc logit "
        "bessel_j0 bessel_j1 bessel_y0 bessel_y1 modified_bessel_i0 modified_bessel_i1 "
        "modified_bessel_k0 modified_bessel_k1 scaled_modified_bessel_k0 scaled_modified_bessel_k1 "
        "spherical_bessel_j0"
    )
    functional = torch.nn.functional
    found = {name: Measured(getattr(torch, name)) for name in elementary.split()}
    found |= {f"special.{name}": Measured(getattr(torch.special, name)) for name in special.split()}
    found["special.ndtr"] = Measured(torch.special.ndtr, truth=_normal)
    # Beyond this, even float64 has no correct digit of the angle.
    found["special.airy_ai"] = Measured(torch.special.airy_ai, least=-1e8)
    for n in (1, 2, 3):
        # Below this the series of the zeta function gets too long, in eager PyTorch too.
        found[f"special.polygamma({n})"] = Measured(partial(torch.special.polygamma, n), least=-1000.0)
    activations = "silu mish softplus logsigmoid elu celu selu softsign tanhshrink"
    for name in activations.split():
        found[name] = Measured(getattr(functional, name))
    found["gelu"] = Measured(functional.gelu, truth=lambda x: x * _normal(x))
    found["gelu(approximate='tanh')"] = Measured(partial(functional.gelu, approximate="tanh"), _gelu_tanh)
    return found | _gradients() | _elementwise_losses() | _polynomials()


def _gradients() -> dict[str, Measured]:
    """Return the derivatives that have their own operators in PyTorch, for an incoming gradient of one."""
    aten = torch.ops.aten
    kernels: dict[str, Function] = {
        "gelu_backward": aten.gelu_backward,
        "silu_backward": aten.silu_backward,
        "mish_backward": aten.mish_backward,
        "softplus_backward": lambda grad, x: aten.softplus_backward(grad, x, 1.0, 20.0),
        "elu_backward": lambda grad, x: aten.elu_backward(grad, 1.0, 1.0, 1.0, False, x),
        "sigmoid_backward": aten.sigmoid_backward,
        "tanh_backward": aten.tanh_backward,
    }
    found = {name: Measured(partial(_derivative, kernel)) for name, kernel in kernels.items()}
    by_tanh = partial(_derivative, partial(aten.gelu_backward, approximate="tanh"))
    return found | {"gelu_backward(approximate='tanh')": Measured(by_tanh, truth=_gelu_tanh_derivative)}


def _derivative(kernel: Function, x: torch.Tensor) -> torch.Tensor:
    return kernel(torch.ones_like(x), x)


def _elementwise_losses() -> dict[str, Measured]:
    """Return the losses that treat each element separately, for a target of one."""
    functional = torch.nn.functional

    def loss(function: Function, x: torch.Tensor) -> torch.Tensor:
        return function(x, torch.ones_like(x), reduction="none")

    def probability(x: torch.Tensor) -> torch.Tensor:
        return loss(functional.binary_cross_entropy, x.nan_to_num(0.5).clamp(0.0, 1.0))

    def of_soft_margin(x: torch.Tensor) -> torch.Tensor:
        one = torch.ones_like(x)
        return torch.ops.aten.soft_margin_loss_backward(one, x, one, 0)

    return {
        "binary_cross_entropy": Measured(probability),
        "binary_cross_entropy_with_logits": Measured(
            partial(loss, functional.binary_cross_entropy_with_logits)
        ),
        "soft_margin_loss": Measured(partial(loss, functional.soft_margin_loss)),
        "soft_margin_loss_backward": Measured(of_soft_margin),
    }


def _polynomials() -> dict[str, Measured]:
    """Return orthogonal polynomials of degree 5, and 9 if PyTorch has a closed form for high degrees."""
    chebyshev = [f"{shifted}chebyshev_polynomial_{kind}" for shifted in ("", "shifted_") for kind in "tuvw"]
    others = ["hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l"]
    others.append("legendre_polynomial_p")
    degrees = [(name, 5) for name in (*chebyshev, *others)] + [(name, 9) for name in chebyshev]

    def at(function: Function, degree: int, x: torch.Tensor) -> torch.Tensor:
        return function(x, degree)

    return {
        f"special.{name}({degree})": Measured(partial(at, getattr(torch.special, name), degree))
        for name, degree in degrees
    }


def binary_functions() -> dict[str, Measured]:
    """The transcendental and special functions of two operands."""
    names = "pow atan2 hypot logaddexp logaddexp2 xlogy remainder fmod floor_divide"
    found = {name: Measured(getattr(torch, name)) for name in names.split()}
    special = "xlog1py gammainc gammaincc"
    found |= {f"special.{name}": Measured(getattr(torch.special, name)) for name in special.split()}
    found["polar"] = Measured(lambda size, angle: torch.polar(size, angle).real)
    return found | {"special.zeta": Measured(torch.special.zeta, truth=_zeta, least=-1000.0)}


def survey(mantissas: int = 48, count: int = 220, *, only: Iterable[str] = ()) -> Iterator[Accuracy]:
    """Measure every function, or those named in ``only``."""
    wanted = set(only)
    points, pairs = sweep(mantissas), grid(count)
    for functions, operands in ((unary_functions(), (points,)), (binary_functions(), pairs)):
        for name, function in functions.items():
            if not wanted or name in wanted:
                yield measure(name, function, operands)


def describe(found: Accuracy, most: int = 3) -> str:
    """Describe the worst ``most`` regions that break the rule; empty if none does."""
    return "\n".join(
        f"{found.name}{at}: {error:.3g} ULP, eager at most {eager:.3g} there"
        for at, error, eager in islice(found.breaches, most)
    )
