"""Samples of distributions that are drawn by rejection: gamma, Dirichlet, Poisson and binomial.

Each round proposes values for all elements and says which of them to take; a count of the rest comes back to
the host, and rounds go on until there are none. The methods are those of PyTorch's CPU kernels
(ATen/native/Distributions.h), over whole tensors. They compute in float64, as those do.
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
"""Below this mean, numbers are counted up to; above it, they are drawn from a transformed uniform one."""
_MOST = 200
"""More than any count of a mean below ``_SMALL_RATE`` whose probability float64 can tell from 0."""


def _rejected(values: Tensor, done: Tensor, propose: _Round) -> Tensor:
    """``values`` where ``done``; elsewhere the first proposal that is taken."""
    while not bool(done.all()):
        found, taken = propose()
        values = torch.where(taken & ~done, found, values)
        done = done | taken
    return values


def _uniform(like: Tensor, generator: torch.Generator | None) -> Tensor:
    """In (0, 1]: its logarithm is finite."""
    return 1 - torch.rand(like.shape, dtype=torch.float64, device=like.device, generator=generator)


def standard_gamma(self: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Marsaglia and Tsang (2000); a shape below 1 is raised by one and scaled back with a uniform power."""
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
    """Gamma samples, divided by their sum along the last axis."""
    found = standard_gamma(self.double(), generator)
    found = found / found.sum(-1, keepdim=True)
    return found.clamp_min(torch.finfo(self.dtype).tiny).to(self.dtype)


def poisson(self: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Counts. Small means by inversion, large ones by transformed rejection (PTRS, Hörmann 1993)."""
    if bool((self < 0).any()):
        aten.poisson.default(to_cpu(self))  # raises
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
    """Successes. Few by sums of geometric numbers, many by transformed rejection (BTRS, Hörmann 1993)."""
    if bool((count < 0).any()) or bool(((prob < 0) | (prob > 1)).any()):
        aten.binomial.default(to_cpu(count), to_cpu(prob))  # as the CPU takes it
    trials, chance = torch.broadcast_tensors(count.double(), prob.double())
    flipped = chance > 0.5
    p = torch.where(flipped, 1 - chance, chance).clamp_min(0)
    none = (trials <= 0) | (p <= 0)
    known = torch.where(trials.isnan() | p.isnan(), torch.nan, 0.0)
    done = none | known.isnan()
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
    return torch.where(flipped, trials - found, found).to(count.dtype)


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
"""Coefficients of the rational approximation, by powers of log(x / alpha), then of log(alpha)."""


def _standard_gamma_grad(self: Tensor, output: Tensor) -> Tensor:
    """How a sample moves with its shape (``standard_gamma_grad_one`` of PyTorch): a formula a region."""
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


KERNELS: dict[str, Callable[..., Any]] = {
    "_standard_gamma": standard_gamma,
    "_standard_gamma_grad": Operator("_standard_gamma_grad", composed=_standard_gamma_grad),
    "_sample_dirichlet": sample_dirichlet,
    "poisson": poisson,
    "binomial": binomial,
}
