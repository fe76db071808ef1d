"""Versions of PyTorch: what stops working if one has changed, and what is said about it."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch
from packaging.requirements import Requirement

from torchstone import hlo, lowering
from torchstone.errors import LoweringDefinitionError, MissingInternal
from torchstone.lowering.registry import Registry, lowers
from torchstone.torch_internals import missing_internals, versions
from torchstone.torch_internals.operators import MissingOverload, namespace
from torchstone.torch_internals.probing import Internal

aten = namespace("aten")


@pytest.fixture(scope="module")
def future() -> Any:
    """What Torchstone reports for a PyTorch that has changed some operators and lacks a private function."""
    program = Path(__file__).with_name("future.py")
    done = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


LACKING = {"2.13.0": set(), "2.14.1": {"aten.cholesky.default"}}
"""Overloads that the tested versions lack. It would contain a misspelled name in a lowering."""
CHANGED = {
    "aten.cosh.default": "PyTorch 2.99.0 has no such overload",
    "aten.atan2.default": "takes ['other'], which aten.atan2.default does not have",
    "aten.lerp.Scalar": "leaves out ['exact'] of aten.lerp.Scalar",
}


def test_changed_operators_cost_themselves_only(future: Any) -> None:
    assert future["unavailable"].keys() == CHANGED.keys()
    assert all(text in future["unavailable"][name] for name, text in CHANGED.items())
    assert future["count"] == len(lowering.load()) - len(CHANGED)
    assert future["works"]
    assert future["compiled"]


def test_explain_says_why(future: Any) -> None:
    assert (
        "its schema in PyTorch 2.99.0 is not the one that the lowering was written for" in future["renamed"]
    )
    assert "aten.anew.default" in future["new"]
    assert "no lowering and no decomposition is registered" in future["new"]


def test_a_private_name_that_is_missing_costs_its_feature(future: Any) -> None:
    assert "PyTorch 2.99.0 has no torch._C._any_requires_grad" in future["lacking"]
    assert "this is off: recurrent operators with derivatives" in future["lacking"]


def test_doctor_lists_what_is_not_available(future: Any) -> None:
    found = future["doctor"]
    assert found["unavailable"].keys() == {*CHANGED, "recurrent operators with derivatives"}
    assert found["tested_pytorch"] == list(versions.TESTED)
    assert found["problems"] == []


def test_an_untested_version_warns_once(future: Any) -> None:
    [warning] = future["warnings"]
    assert warning.startswith("PyTorch 2.99.0 is not among the tested versions (2.13.0, 2.14.1)")


def test_nothing_is_missing_in_a_tested_version() -> None:
    assert versions.is_tested()
    assert missing_internals() == []
    assert lowering.load().unavailable.keys() == LACKING[versions.version()]


def test_a_missing_name_says_what_is_off() -> None:
    with pytest.raises(MissingInternal, match=r"has no torch\._C\._not_there, so this is off: flying"):
        Internal.__call__(unregistered("torch._C._not_there", "flying"))
    assert unregistered("torch._not_there.name", "flying").find() is None


def unregistered(path: str, feature: str) -> Internal:
    made = Internal.__new__(Internal)
    made.path, made.feature, made._value = path, feature, Internal._UNKNOWN
    return made


def test_a_missing_overload_is_named_and_has_no_lowering() -> None:
    registry = Registry()
    overload = aten.not_there.default
    assert isinstance(overload, MissingOverload)
    lowers(overload, into=registry)(lambda self: self)
    assert registry.unavailable == {
        "aten.not_there.default": f"PyTorch {versions.version()} has no such overload"
    }
    with pytest.raises(MissingInternal, match=r"torch\.ops\.aten\.not_there\.default"):
        aten.not_there(torch.ones(()))


def test_overloads_that_are_there_are_pytorchs_own() -> None:
    assert aten.add.Tensor is torch.ops.aten.add.Tensor
    assert {aten.add: 1}[torch.ops.aten.add] == 1
    assert aten.add(torch.ones(()), 1) == 2


def test_another_spelling_of_a_parameter_is_data_of_the_lowering() -> None:
    registry = Registry()

    def negated(operand: hlo.Value) -> hlo.Value:
        return -operand

    with pytest.raises(LoweringDefinitionError, match=r"takes \['operand'\], which .* does not have"):
        lowers(aten.neg.default, into=registry)(negated)
    lowers(aten.neg.default, renamed={"operand": "self"}, into=registry)(negated)
    entry = registry.get(torch.ops.aten.neg.default)
    assert entry is not None
    assert (entry.parameters, entry.respelled) == (("operand",), {"self": "operand"})


@pytest.mark.parametrize(("package", "table"), [("torchstone", None), ("optest-full", "torch")])
def test_the_declared_range_is_what_was_tested(package: str, table: str | None) -> None:
    text = (Path(__file__).parents[3] / package / "pyproject.toml").read_text("utf-8")
    project = tomllib.loads(text)["project"]
    listed = project["optional-dependencies"][table] if table else project["dependencies"]
    [declared] = [one for one in map(Requirement, listed) if one.name == "torch"]
    published = ("2.12.1", "2.13.0", "2.14.0", "2.14.1", "2.15.0")
    assert tuple(one for one in published if one in declared.specifier) == versions.TESTED
