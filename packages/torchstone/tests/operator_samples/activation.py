"""Samples of ``lowering.aten.activation``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torchstone.torch_internals.operators import namespace

from . import Make, Sample, samples

aten = namespace("aten")


def forward(make: Make, *parameters: Any, **options: Any) -> Iterator[Sample]:
    """Operands of ``f(self, *parameters)``."""
    yield Sample((make(3, 4), *parameters), dict(options))
    if not make.is_complex:
        yield Sample((make.edges(), *parameters), dict(options), note="special values")
    yield Sample((make(0, 3), *parameters), dict(options), note="empty")
    yield Sample((make(), *parameters), dict(options), note="0-d")
    yield Sample((make.transposed(3, 4), *parameters), dict(options), note="non-contiguous")
    yield Sample((make(1, 1), *parameters), dict(options), note="size 1")


def backward(make: Make, *parameters: Any, **options: Any) -> Iterator[Sample]:
    """Operands of ``f(grad, self, *parameters)``."""
    for sample in forward(make, *parameters, **options):
        x = sample.args[0]
        yield Sample((make(*x.shape), *sample.args), sample.kwargs, note=sample.note)


@samples(aten.relu.default, aten.silu.default, aten.mish.default)
def _plain(make: Make) -> Iterator[Sample]:
    yield from forward(make)


@samples(aten.silu_backward.default, aten.mish_backward.default, gradient=False)
def _plain_backward(make: Make) -> Iterator[Sample]:
    yield from backward(make)


@samples(aten.gelu.default)
def _gelu(make: Make) -> Iterator[Sample]:
    exact, tanh = forward(make), forward(make, approximate="tanh")
    for pair in zip(exact, tanh, strict=True):
        yield from pair


@samples(aten.gelu_backward.default, gradient=False)
def _gelu_backward(make: Make) -> Iterator[Sample]:
    exact, tanh = backward(make), backward(make, approximate="tanh")
    for pair in zip(exact, tanh, strict=True):
        yield from pair


@samples(aten.threshold.default)
def _threshold(make: Make) -> Iterator[Sample]:
    yield from forward(make, 1, 3)
    yield Sample((make(3, 4), -0.5, 20.25), note="fractions")


@samples(aten.threshold_backward.default, gradient=False)
def _threshold_backward(make: Make) -> Iterator[Sample]:
    yield from backward(make, 0)
    yield Sample((make(3, 4), make(3, 4), 1.5), note="fraction")


@samples(aten.hardtanh.default)
def _hardtanh(make: Make) -> Iterator[Sample]:
    yield from forward(make)
    yield Sample((make(3, 4), 0, 6), note="as relu6")
    yield Sample((make(3, 4), -2.5, 1.25), note="fractions")


@samples(aten.hardtanh_backward.default, gradient=False)
def _hardtanh_backward(make: Make) -> Iterator[Sample]:
    yield from backward(make, -1, 1)
    yield Sample((make(5), make.tensor([-2, -1, 0, 1, 2]), -1, 1), note="on the bounds")


@samples(aten.leaky_relu.default)
def _leaky(make: Make) -> Iterator[Sample]:
    yield from forward(make)
    yield Sample((make(3, 4), -0.5), note="negative slope below zero")


@samples(aten.leaky_relu_backward.default, gradient=False)
def _leaky_backward(make: Make) -> Iterator[Sample]:
    yield from backward(make, 0.2, False)
    yield Sample((make(3, 4), make(3, 4), 0.3, True), note="from the result")


@samples(aten.elu.default)
def _elu(make: Make) -> Iterator[Sample]:
    yield from forward(make)
    yield Sample((make(3, 4), 1.5, 1.25, 0.5), note="all factors")


@samples(aten.elu_backward.default, gradient=False)
def _elu_backward(make: Make) -> Iterator[Sample]:
    for is_result in (False, True):
        yield Sample((make(3, 4), 1.5, 1.25, 0.5, is_result, make(3, 4, low=-1, high=1)), note="all factors")
        yield Sample((make(0), 1, 1, 1, is_result, make(0)), note="empty")
        yield Sample((make(), 1, 1, 1, is_result, make(low=-1, high=1)), note="0-d")


@samples(aten.softplus.default)
def _softplus(make: Make) -> Iterator[Sample]:
    yield from forward(make)
    yield Sample((make(3, 4), 2, 3), note="beta and threshold")


@samples(aten.softplus_backward.default, gradient=False)
def _softplus_backward(make: Make) -> Iterator[Sample]:
    yield from backward(make, 1, 20)
    yield Sample((make(3, 4), make(3, 4), 2, 3), note="beta and threshold")


@samples(aten.softshrink_backward.default, aten.hardshrink_backward.default, gradient=False)
def _shrink_backward(make: Make) -> Iterator[Sample]:
    yield from backward(make, 0.5)
    yield Sample((make(5), make.tensor([-2, -1, 0, 1, 2]), 1), note="on the bounds")
