"""Samples of distributions that are drawn by rejection: gamma, Dirichlet, Poisson and binomial.

Each round proposes values for all elements and says which to accept. The host reads whether any element is
left, and rounds go on until none is. The methods are those of PyTorch's CPU kernels
(ATen/native/Distributions.h), applied to whole tensors. They compute in float64, as the CPU kernels do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..torch_internals.operators import namespace
from .operators import Operator
from .transfers import to_cpu

aten = namespace("aten")
Tensor = torch.Tensor
_Round = Callable[[], tuple[Tensor, Tensor]]

_SMALL_RATE = 10.0
"""Below this mean, samples are found by counting; from it on, they are drawn by transformed rejection."""
_MOST = 200
"""A bound of the counts for means below ``_SMALL_RATE``; larger counts are too improbable to matter."""


def _rejected(values: Tensor, done: Tensor, propose: _Round) -> Tensor:
    """Return ``values`` where ``done`` is true, and elsewhere the first proposal that is accepted."""
    while not bool(done.all()):
        found, taken = propose()
        values = torch.where(taken & ~done, found, values)
        done = done | taken
    return values


def _uniform(like: Tensor, generator: torch.Generator | None) -> Tensor:
    """Return uniform numbers in (0, 1], whose logarithms are finite."""
    return 1 - torch.rand(like.shape, dtype=torch.float64, device=like.device, generator=generator)


def standard_gamma(self: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Return gamma samples by the method of Marsaglia and Tsang (2000).

    A shape below 1 is increased by 1, and the sample is then multiplied by a power of a uniform number.
    """
    shape = self.double()
    wide = torch.where(shape < 1, shape + 1, shape)
    scale = wide - 1 / 3
    width = (9 * scale).rsqrt()

    def propose() -> tuple[Tensor, Tensor]:
        x = torch.randn(shape.shape, dtype=torch.float64, device=shape.device, generator=generator)
        cube = (1 + width * x) ** 3
        u = _uniform(shape, generator)
        inner = 1 - 0.0331 * x**4
        taken = (u < inner) | (u.log() < 0.5 * x * x + scale * (1 - cube + cube.log()))
        return scale * cube, (cube > 0) & taken

    impossible = ~(shape > 0)  # a shape of zero gives zero, one below zero or NaN gives NaN
    found = _rejected(torch.where(shape == 0, 0.0, torch.nan), impossible, propose)
    factor = torch.where(shape < 1, _uniform(shape, generator) ** (1 / shape), 1.0)
    found = torch.where(impossible, found, found * factor)
    return found.clamp_min(torch.finfo(self.dtype).tiny).to(self.dtype)


def sample_dirichlet(self: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Return gamma samples, divided by their sum along the last axis."""
    found = standard_gamma(self.double(), generator)
    found = found / found.sum(-1, keepdim=True)
    return found.clamp_min(torch.finfo(self.dtype).tiny).to(self.dtype)


def poisson(self: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Return Poisson samples: by inversion for small means, else by transformed rejection.

    The rejection method is PTRS (Hörmann 1993).
    """
    if bool((self < 0).any()):
        aten.poisson.default(to_cpu(self))  # raises PyTorch's error
    mean = self.double()
    large = mean >= _SMALL_RATE
    u = _uniform(mean, generator)
    chance = (-mean).exp()
    total, count = chance, torch.zeros_like(mean)
    behind = ~large & (u > total)
    for number in range(1, _MOST):
        if not bool(behind.any()):
            break
        count = count + behind
        chance = chance * mean / number
        total = total + chance
        behind = behind & (u > total)
    rate = torch.where(large, mean, _SMALL_RATE)
    b = 0.931 + 2.53 * rate.sqrt()
    a = -0.059 + 0.02483 * b
    height = (1.1239 + 1.1328 / (b - 3.4)).log()
    inside = 0.9277 - 3.6224 / (b - 2)

    def propose() -> tuple[Tensor, Tensor]:
        u, v = _uniform(mean, generator) - 0.5, _uniform(mean, generator)
        edge = 0.5 - u.abs()
        k = ((2 * a / edge + b) * u + rate + 0.43).floor()
        right = v.log() + height - (a / (edge * edge) + b).log() <= k * rate.log() - rate - (k + 1).lgamma()
        return k, (k >= 0) & (((edge >= 0.07) & (v <= inside)) | (((edge >= 0.013) | (v <= edge)) & right))

    return _rejected(count, ~large, propose).to(self.dtype)


def binomial(count: Tensor, prob: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Return binomial samples: by sums of geometric numbers for small means, else by transformed rejection.

    The rejection method is BTRS (Hörmann 1993). For infinitely many trials the result is infinite; PyTorch's
    CPU kernel returns NaN there, or does not return.
    """
    if bool((count < 0).any()) or bool(((prob < 0) | (prob > 1)).any()):
        aten.binomial.default(to_cpu(count), to_cpu(prob))  # raises if PyTorch's CPU kernel refuses them
    trials, chance = torch.broadcast_tensors(count.double(), prob.double())
    flipped = chance > 0.5
    p = torch.where(flipped, 1 - chance, chance).clamp_min(0)
    none = (trials <= 0) | (p <= 0)
    endless = trials.isinf() & (chance > 0)
    known = torch.where(trials.isnan() | p.isnan(), torch.nan, 0.0)
    done = none | endless | known.isnan()
    large = ~done & (trials * p >= _SMALL_RATE)
    tries, found = torch.zeros_like(trials), torch.zeros_like(trials)
    waiting = ~done & ~large
    while bool(waiting.any()):
        tries = tries + (_uniform(trials, generator).log() / torch.where(waiting, -p, -0.5).log1p()).ceil()
        waiting = waiting & (tries <= trials)
        found = found + waiting
    n, q = torch.where(large, trials, 100.0), torch.where(large, p, 0.5)
    width = (n * q * (1 - q)).sqrt()
    b = 1.15 + 2.53 * width
    a = -0.0873 + 0.0248 * b + 0.01 * q
    height = (2.83 + 5.1 / b) * width
    mode = ((n + 1) * q).floor()
    odds = (q / (1 - q)).log()
    best = (mode + 1).lgamma() + (n - mode + 1).lgamma()

    def propose() -> tuple[Tensor, Tensor]:
        u, v = _uniform(trials, generator) - 0.5, _uniform(trials, generator)
        edge = 0.5 - u.abs()
        k = ((2 * a / edge + b) * u + n * q + 0.5).floor()
        right = (v * height / (a / (edge * edge) + b)).log() <= (
            best - (k + 1).lgamma() - (n - k + 1).lgamma() + (k - mode) * odds
        )
        inside = (edge >= 0.07) & (v <= 0.92 - 4.2 / b)
        return k, (k >= 0) & (k <= n) & (inside | right)

    found = _rejected(torch.where(done, known, found), ~large, propose)
    found = torch.where(flipped, trials - found, found)
    return torch.where(endless, trials, found).to(count.dtype)


_SERIES = 6
_RATIONAL = (
    (0.16009398, -0.094634809, 0.025146376, -0.0030648343, 1.0, 0.32668115, 0.10406089, 0.0014179084),
    (
        *(0.53487893, 0.1298071, 0.065735949, -0.0015649758),
        *(0.16639465, 0.020070113, -0.0035938915, -0.00058392623),
    ),
    (
        *(0.040121004, -0.0065914022, -0.0026286047, -0.0013441777),
        *(0.017050642, -0.0021309326, 0.00085092367, -1.5247877e-07),
    ),
)
"""Coefficients of the rational approximation: by power of log(x / alpha), then by power of log(alpha)."""


def _standard_gamma_grad(self: Tensor, output: Tensor) -> Tensor:
    """Return the derivative of a gamma sample with respect to its shape, as ``standard_gamma_grad_one`` does.

    Each range of arguments has its own formula.
    """
    alpha, x = self.double(), output.double()
    numer: Any = 1.0
    first, second = 1 / alpha, 1 / (alpha * alpha)
    for i in range(1, _SERIES):
        numer = numer * -x / i
        first = first + numer / (alpha + i)
        second = second + numer / (alpha + i) ** 2
    power = x**alpha
    moved = (x.log() - torch.digamma(alpha)) * power * first - power * second
    taylor = -moved / (x ** (alpha - 1) * (-x).exp())
    taylor = torch.where(taylor.isnan(), 0.0, taylor)

    ratio = (x / alpha).log()
    near = (
        (1 + 24 * alpha * (1 + 12 * alpha))
        * (1440 * alpha**2 + 6 * x * (53 - 120 * x) - 65 * x * x / alpha + alpha * (107 + 3600 * x))
        / (1244160 * alpha**4)
    )
    root = (8 * alpha).sqrt()
    bent = (x - alpha - alpha * ratio) ** -1.5
    slope = root / (alpha - x) + torch.where(x < alpha, -bent, bent)
    term = ratio * slope - (2 / alpha).sqrt() * (alpha + x) / (alpha - x) ** 2
    far = -(1 + 1 / (12 * alpha) * (1 + 1 / (24 * alpha))) * x * term / root
    saddle = torch.where((0.9 * alpha <= x) & (x <= 1.1 * alpha), near, far)

    v = alpha.log()
    c = [low + ratio * (mid + ratio * high) for low, mid, high in zip(*_RATIONAL, strict=True)]
    p, q = (c[i] + v * (c[i + 1] + v * (c[i + 2] + v * c[i + 3])) for i in (0, 4))
    found = torch.where(x < 0.8, taylor, torch.where(alpha > 8, saddle, (p / q).exp()))
    return found.to(self.dtype)


_BETA_RATIONAL = (
    (
        (
            (1.003668233, -0.01061107488, -0.0657888334, 0.01201642863),
            (0.6336835991, -0.3557432599, 0.05486251648, -0.001465281033),
            (-0.03276231906, 0.004474107445, 0.002429354597, -0.0001557569013),
        ),
        (
            (0.221950385, -0.3187676331, 0.01799915743, 0.01074823814),
            (-0.2951249643, 0.06219954479, 0.01535556598, 0.001550077057),
            (0.02155310298, 0.004170831599, 0.001292462449, 6.976601077e-05),
        ),
        (
            (-0.05980841433, 0.008441916499, 0.01085618172, 0.002319392565),
            (0.02911413504, 0.01400243777, -0.002721828457, 0.000751041181),
            (0.005900514878, -0.001936558688, -9.495446725e-06, 5.385558597e-05),
        ),
    ),
    (
        (
            (1.0, -0.02924021934, -0.04438342661, 0.007285809825),
            (0.6357567472, -0.3473456711, 0.05454656494, -0.002407477521),
            (-0.03301322327, 0.004845219414, 0.00231480583, -0.0002307248149),
        ),
        (
            (0.5925320577, -0.1757678135, 0.01505928619, 0.000564515273),
            (0.1014815858, -0.06589186703, 0.01272886114, -0.0007316646956),
            (-0.007258481865, 0.001096195486, 0.0003934994223, -4.12701925e-05),
        ),
        (
            (0.06469649321, -0.0236701437, 0.002902096474, -5.896963079e-05),
            (0.001925008108, -0.002869809258, 0.0008000589141, -6.063713228e-05),
            (-0.0003477407336, 6.959756487e-05, 1.097287507e-05, -1.650964693e-06),
        ),
    ),
)
"""Coefficients of numerator and denominator: by power of log(x), log(alpha / x), log(total * x / alpha)."""


def _polynomial(coefficients: Any, *variables: Tensor) -> Any:
    """Evaluate a polynomial by Horner's rule; ``coefficients`` are nested one level for each variable."""
    first, *rest = variables
    value: Any = 0.0
    for one in reversed(coefficients):
        value = (_polynomial(one, *rest) if rest else one) + first * value
    return value


def _near_zero(x: Tensor, alpha: Tensor, beta: Tensor, gap: Tensor) -> Tensor:
    factor = -gap - x.log()
    numer: Any = 1.0
    series = (factor + 1 / alpha) / alpha
    for i in range(1, 11):
        numer = numer * (i - beta) * x / i
        series = series + numer / (alpha + i) * (factor + 1 / (alpha + i))
    found = x * (1 - x) ** -beta * series
    return torch.where(found.isnan(), 0.0, found)


def _near_one(x: Tensor, alpha: Tensor, beta: Tensor, gap: Tensor) -> Tensor:
    numer: Any = 1.0
    betas: Any = 1.0
    slopes: Any = 0.0
    series = gap / beta
    for i in range(1, 9):
        numer = numer * (x - 1) / i
        slopes = slopes * (alpha - i) + betas
        betas = betas * (alpha - i)
        series = series + numer / (beta + i) * (slopes + gap * betas)
    found = x ** (1 - alpha) * series
    return torch.where(found.isnan(), 0.0, found)


def _between_large(x: Tensor, alpha: Tensor, beta: Tensor) -> Tensor:
    """Return a saddle point expansion; near the mean, where that is singular, a polynomial."""
    total = alpha + beta
    mean = alpha / total
    width = 0.1 * (alpha * beta / (total + 1)).sqrt() / total
    inner = (453 + 1620 * beta * (1 - x) - 455 * x) * beta + alpha * 8 * (1 - x) * (135 * beta - 11)
    inner = 3 * (59 + 180 * beta - 90 * x) * beta**2 + alpha * inner
    inner = 47 * x * beta**4 + alpha * ((43 + 20 * (16 + 27 * beta) * x) * beta**3 + alpha * inner)
    scale = (1 + 12 * alpha) * (1 + 12 * beta) / total**2
    near = scale / (1 - x) * inner / (12960 * alpha**3 * beta**2 * (1 + 12 * total))

    a, b, c = (1 + 1 / (12 * one) + 1 / (288 * one**2) for one in (alpha, beta, total))
    shift = alpha * (x - 1) + beta * x
    first = 2 * alpha**2 * (x - 1) + alpha * beta * (x - 1) - x * beta**2
    first = first / ((2 * alpha / beta).sqrt() * total**1.5 * shift**2)
    ratio = (alpha / (total * x)).log()
    bent = (beta * (beta / (total * (1 - x))).log() + alpha * ratio) ** -1.5
    bent = torch.where(x < mean, bent, -bent)
    rest = first + ratio / 2 * ((8 * alpha * beta / total).sqrt() / shift + bent)
    far = -a * b / c * x / (2 * alpha * beta / total).sqrt() * rest
    return torch.where((mean - width <= x) & (x <= mean + width), near, far)


def _dirichlet_grad(x: Tensor, alpha: Tensor, total: Tensor) -> Tensor:
    """Return the derivative of a sample with respect to its concentration, as ``dirichlet_grad_one`` does.

    Each range of arguments has its own formula.
    """
    dtype = x.dtype
    x, alpha, total = x.double(), alpha.double(), total.double()
    beta = total - alpha
    edge = total * x * (1 - x)
    logarithm = x.log()
    spread = alpha.log() - logarithm
    given = (logarithm, spread, total.log() - spread)
    p, q = (_polynomial(one, *given) for one in _BETA_RATIONAL)
    gap = torch.digamma(total) - torch.digamma(alpha)
    found = p / q * x * gap / beta
    found = torch.where((alpha > 6) & (beta > 6), _between_large(x, alpha, beta), found)
    found = torch.where((x >= 0.5) & (edge < 0.75), _near_one(x, alpha, beta, gap), found)
    found = torch.where((x <= 0.5) & (edge < 2.5), _near_zero(x, alpha, beta, gap), found)
    return found.to(dtype)


KERNELS: dict[str, Callable[..., Any]] = {
    "_standard_gamma": standard_gamma,
    "_standard_gamma_grad": Operator("_standard_gamma_grad", composed=_standard_gamma_grad),
    "_sample_dirichlet": sample_dirichlet,
    "_dirichlet_grad": Operator("_dirichlet_grad", composed=_dirichlet_grad),
    "poisson": poisson,
    "binomial": binomial,
}
