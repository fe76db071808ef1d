"""The accuracy rule of float32 functions on a small sweep, and that the measure itself can fail."""

from __future__ import annotations

import math

import numpy
import pytest
import torch

from torchstone import lowering
from torchstone.dtypes import FLOAT32
from torchstone.parity.accuracy import (
    Measured,
    binary_functions,
    describe,
    errors,
    grid,
    judge,
    measure,
    sweep,
    unary_functions,
)

POINTS, PAIRS = sweep(4), grid(40)
UNARY, BINARY = unary_functions(), binary_functions()


@pytest.mark.sampled(36)
@pytest.mark.parametrize("name", UNARY)
def test_functions_of_one_operand_satisfy_the_rule(name: str) -> None:
    found = measure(name, UNARY[name], [POINTS])
    assert found.passed, describe(found)


@pytest.mark.kept("special.gammainc", "pow", "atan2", "floor_divide")
@pytest.mark.parametrize("name", BINARY)
def test_functions_of_two_operands_satisfy_the_rule(name: str) -> None:
    found = measure(name, BINARY[name], PAIRS)
    assert found.passed, describe(found)


EXACT = {
    "elementary": "ceil floor frac round round.decimals trunc",
    "activation": "hardtanh leaky_relu relu threshold hardtanh_backward leaky_relu_backward "
    "threshold_backward hardshrink_backward softshrink_backward",
    "arithmetic": "abs add addcdiv addcmul div fmax fmin heaviside lerp maximum minimum mul neg reciprocal "
    "rsub sgn sign sub",
    "loss": "mse_loss huber_loss smooth_l1_loss mse_loss_backward huber_loss_backward "
    "smooth_l1_loss_backward binary_cross_entropy_backward",
    "complex_numbers": "_conj _conj_copy _conj_physical _neg_view _neg_view_copy angle complex conj_physical "
    "real view_as_complex view_as_complex_copy",
}
"""Overloads of the elementwise families that are not transcendental: selection and arithmetic."""
ALIASES = {"lgamma": "gammaln", "igamma": "gammainc", "igammac": "gammaincc"}
FAMILIES = {"trigonometry", "special", "bessel", "gamma", "polynomials", *EXACT}


def test_every_transcendental_overload_is_measured() -> None:
    """Every float32 lowering of the elementwise families is measured, unless it is listed as exact."""
    measured = {name.removeprefix("special.").partition("(")[0] for name in (*UNARY, *BINARY)}
    missing, used = [], set()
    for entry in lowering.load():
        if entry.family not in FAMILIES or FLOAT32 not in entry.dtypes:
            continue
        name = entry.name.removeprefix("aten.").removesuffix(".default")
        plain = name.partition(".")[0]
        exact = {name, plain} & set(EXACT.get(entry.family, "").split())
        used |= exact
        function = plain.removeprefix("special_")
        if not exact and ALIASES.get(function, function) not in measured:
            missing.append(entry.name)
    assert not missing
    assert used == set(" ".join(EXACT.values()).split())


def test_sweep_covers_every_exponent_of_both_signs() -> None:
    for sign in (1, -1):
        values = POINTS[(POINTS * sign > 0) & numpy.isfinite(POINTS)]
        assert set(numpy.frexp(numpy.abs(values))[1]) >= set(range(-125, 129))


def test_errors_are_in_ulps_of_the_truth() -> None:
    one_up = numpy.nextafter(numpy.float32(1), numpy.float32(2))
    found = numpy.array([one_up, 1.0, math.nan, math.nan, math.inf, math.inf], numpy.float32)
    truth = numpy.array([1.0, 1.0 + 2**-24, math.nan, 0.0, 1e40, 1.0])
    assert errors(found, truth)[:3].tolist() == [1.0, 0.5, 0.0]
    assert errors(found, truth)[3:].tolist() == [math.inf, 0.0, 2.0**151]


def test_flushed_results_do_not_count_but_lost_ones_do() -> None:
    found = numpy.zeros(2, numpy.float32)
    assert errors(found, numpy.array([2.0**-130, 2.0**-120])).tolist() == [0.0, 2.0**23]


def test_judge_allows_twice_eager_in_the_same_region_only() -> None:
    operands = numpy.array([1.0, 1.5, 2.0], numpy.float32)
    truth = numpy.ones(3)
    eager = numpy.array([1.0 + 3 * 2**-23, 1.0, 1.0], numpy.float32)
    within = numpy.array([1.0, 1.0 + 6 * 2**-23, 1.0], numpy.float32)
    beyond = numpy.array([1.0, 1.0, 1.0 + 6 * 2**-23], numpy.float32)
    assert judge("f", [operands], within, eager, truth).passed
    found = judge("f", [operands], beyond, eager, truth)
    assert found.breaches == (((2.0,), 6.0, 0.0),)
    assert "f(2.0,): 6 ULP" in describe(found)


def test_a_function_that_cancels_is_caught() -> None:
    cancelling = Measured(lambda x: x.exp() - 1, truth=torch.expm1)
    operands = numpy.geomspace(1e-6, 1e-3, 50).astype(numpy.float32)
    found = measure("exp - 1", cancelling, [operands])
    assert found.error > 1000
    assert found.eager_error > 1000
