"""The optest driver ``torchstone``: operators as artifacts that are saved, loaded and run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from optest.core.case import BackendTarget, TestCase
from optest.core.result import Status
from optest.errors import BackendError
from optest.operators import operator_registry
from optest.plan.entries import Flags
from optest.plan.loader import load
from optest.plan.options import resolve
from optest.running.execution import run_case
from torchstone.parity import answers
from torchstone.parity.conformance import ArtifactDriver

FEW = ("add", "batch_norm", "cast", "gather", "matmul", "scatter_reduce", "sort", "sum")
TARGET = BackendTarget(ArtifactDriver.kind, ArtifactDriver.name)


def sample(op: str) -> TestCase:
    """Return the operator's first case in float32 or complex64, or else its first case."""
    found = list(load(resolve(flags=Flags(ops=(op,))), TARGET))
    return next((one for one in found if {"float32", "complex64"} & set(one.dtypes)), found[0])


def check(op: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = run_case(ArtifactDriver(), sample(op))
    assert result.status is Status.PASSED, result.reason


@pytest.mark.kept("scatter_reduce", "batch_norm", "cast")
@pytest.mark.parametrize("op", FEW)
def test_an_operator_as_an_artifact(op: str) -> None:
    check(op)


@pytest.mark.conformance
@pytest.mark.parametrize("op", operator_registry.names())
def test_every_operator_as_an_artifact(op: str) -> None:
    check(op)


def test_the_chip_is_the_engine() -> None:
    case = replace(sample("add"), backend=replace(TARGET, chip="reference"))
    assert run_case(ArtifactDriver(), case).status is Status.PASSED
    failed = run_case(ArtifactDriver(), replace(case, backend=replace(TARGET, chip="no-such-engine")))
    assert failed.status is Status.ERROR
    assert "no-such-engine" in failed.reason


@pytest.mark.parametrize("engine", ["reference", "jax", "iree"])
def test_a_driver_for_each_engine(engine: str) -> None:
    if engine == "iree" and find_spec("iree") is None:
        pytest.skip("IREE is not installed: make test-iree")
    driver = ArtifactDriver(engine)
    assert driver.name == f"torchstone:{engine}"
    case = sample("add")
    driver.setup()
    result = run_case(driver, replace(case, backend=replace(TARGET, name=driver.name)))
    assert result.status is Status.PASSED, result.reason


def test_calls_of_suites_run_on_the_drivers_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(answers, "answer", lambda *arguments: asked.append(arguments) or [])
    assert ArtifactDriver("reference").answer([], 2) == []
    assert asked == [([], 2, "reference")]


def test_a_driver_without_its_engine_cannot_be_set_up() -> None:
    with pytest.raises(BackendError, match="unknown engine 'steam'"):
        ArtifactDriver("steam").setup()


def test_what_does_not_lower_is_unsupported() -> None:
    case = sample("relu")
    odd = replace(case.descriptor, tags=frozenset({"torch:torch.Tensor.tolist"}))
    result = run_case(ArtifactDriver(), replace(case, descriptor=odd))
    assert result.status is Status.UNSUPPORTED
    assert result.reason


def test_optest_finds_it_without_loading_pytorch(tmp_path: Path) -> None:
    """The entry point calls the same function, ``register``."""
    (tmp_path / "finds_torchstone.py").write_text(
        "import sys\nfrom optest.backends import backend_manager\n"
        "from torchstone.parity.conformance import register\nregister()\n"
        "assert backend_manager.select('torchstone:iree').engine == 'iree'\n"
        "assert not {'torch', 'jax'} & set(sys.modules)\n"
    )
    environment = {
        **os.environ,
        "OPTEST_PLUGINS": "finds_torchstone",
        "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path]),
    }
    done = subprocess.run(
        [sys.executable, "-c", "from optest.cli import main; main()", "backends", "--json"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "torchstone" in [one["name"] for one in json.loads(done.stdout)["backends"]], done.stdout
