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


@pytest.mark.parametrize("name", UNARY)
def test_functions_of_one_operand_satisfy_the_rule(name: str) -> None:
    found = measure(name, UNARY[name], [POINTS])
    assert found.passed, describe(found)


@pytest.mark.parametrize("name", BINARY)
def test_functions_of_two_operands_satisfy_the_rule(name: str) -> None:
    found = measure(name, BINARY[name], PAIRS)
    assert found.passed, describe(found)


def test_every_transcendental_overload_is_measured() -> None:
    """What the families of functions lower for one float32 operand is in the list."""
    aliases = {"lgamma": "gammaln", "round.decimals": "", "pow.Tensor_Scalar": "pow", "pow.Scalar": "pow"}
    exact = {"ceil", "floor", "frac", "round", "trunc", "sigmoid_backward", "tanh_backward"}
    measured = {name.removeprefix("special.").partition("(")[0] for name in (*UNARY, *BINARY)}
    missing = []
    for entry in lowering.load():
        name = entry.name.removeprefix("aten.").removesuffix(".default")
        plain = aliases.get(name, name.partition(".")[0].removeprefix("special_"))
        plain = {"igamma": "gammainc", "igammac": "gammaincc"}.get(plain, plain)
        families = ("elementary", "trigonometry", "special", "bessel", "gamma")
        if entry.family in families and FLOAT32 in entry.dtypes and plain not in measured | exact | {""}:
            missing.append(entry.name)
    assert not missing


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
