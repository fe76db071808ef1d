"""``torch-compile:BACKEND``: one case per operator, through backends of torch.compile."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace

import pytest

from optest.backends import BackendDriver, backend_manager
from optest.core.case import BackendTarget, TestCase
from optest.core.result import Status
from optest.errors import BackendError
from optest.operators import operator_registry
from optest.plan.entries import Flags
from optest.plan.expectations import Expectations
from optest.plan.loader import load
from optest.plan.options import resolve
from optest.running.execution import run_case

torch = pytest.importorskip("torch")

FEW = ("add", "gelu", "gather", "layer_norm", "matmul", "max_pool2d", "sum", "softmax", "sort", "conv2d")
"""Operators for which Inductor generates code, and some that it leaves to PyTorch."""


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def test_gradients_of_the_process_stay_on() -> None:
    run_case(driver_of("aot_eager"), sample("add"))
    assert torch.is_grad_enabled()


def driver_of(backend: str) -> BackendDriver:
    found = backend_manager.select(f"torch-compile:{backend}")
    found.setup()
    return found


def sample(op: str) -> TestCase:
    """Return the operator's first case in float32 or complex64, or its first case if it has neither."""
    found = list(load(resolve(flags=Flags(ops=(op,))), BackendTarget("torch", "torch-compile")))
    return next((one for one in found if {"float32", "complex64"} & set(one.dtypes)), found[0])


def check(backend: str, op: str) -> None:
    driver = driver_of(backend)
    gaps = Expectations.load(driver.expectations) if driver.expectations else Expectations()
    result = gaps.judge(run_case(driver, sample(op)))
    assert result.status in (Status.PASSED, Status.XFAILED), result.reason


@pytest.mark.sampled(12)
@pytest.mark.parametrize("op", operator_registry.names())
def test_every_operator_becomes_one_graph(op: str) -> None:
    check("aot_eager", op)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("op", FEW)
def test_inductor(op: str) -> None:
    check("inductor", op)


@pytest.mark.conformance
@pytest.mark.parametrize("op", operator_registry.names())
def test_inductor_on_every_operator(op: str) -> None:
    check("inductor", op)


def test_a_wrong_compiler_is_found_out() -> None:
    """A backend that compiles another function mismatches, so the passes above are not accidental."""

    def negating(graph: torch.fx.GraphModule, inputs: object) -> object:
        return lambda *values: tuple(-one for one in graph.forward(*values))

    torch._dynamo.register_backend(negating, name="optest_negating")
    result = run_case(driver_of("optest_negating"), sample("add"))
    assert result.status is Status.MISMATCH


def test_a_graph_break_is_unsupported() -> None:
    relu = operator_registry.get("relu")
    breaking = replace(relu, tags=frozenset({"torch:torch._dynamo.graph_break"}))
    result = run_case(driver_of("eager"), replace(sample("relu"), descriptor=breaking))
    assert result.status is Status.UNSUPPORTED
    assert result.reason.startswith("it does not become one graph")


def test_an_unknown_compiler() -> None:
    with pytest.raises(BackendError, match=r"torch\.compile has no backend 'inducter'; there are inductor"):
        driver_of("inducter")
