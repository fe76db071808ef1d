"""The mutation test of the suite, on a sample: `optest faults` runs it over every operator."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import pytest
from click.testing import CliRunner
from stratified import stratified

from optest.backends import backend_manager
from optest.cli.app import cli
from optest.core.case import TestCase
from optest.core.result import Status
from optest.errors import UnknownName
from optest.faults import FAULTS, FaultyDriver, Pair, Verdict, excluded, fault_kind, faults_of, run_faults
from optest.faults.rules import EXCLUSIONS, Exclusion, cases_of
from optest.operators import operator_registry
from optest.operators.builtin import descriptors
from optest.running.execution import run_case

DESCRIPTORS = list(descriptors())
CATEGORIES = sorted({one.category for one in DESCRIPTORS})


EXCLUDED = [
    Pair(descriptor.name, fault.name, Verdict.EXCLUDED, reason)
    for descriptor in DESCRIPTORS
    for fault in faults_of(descriptor)
    if (reason := excluded(descriptor, fault)) is not None
]


def some(share: int) -> list:
    """About one in ``share`` operators of each category."""
    return stratified(DESCRIPTORS, share, name=lambda one: one.name, stratum=lambda one: one.category)


@pytest.mark.parametrize("category", CATEGORIES)
def test_the_suite_notices(category: str) -> None:
    """The suite catches at least 95 % of the faults that apply, and on average five in each operator."""
    report = run_faults([one for one in some(4) if one.category == category])
    assert report.caught_share >= 0.95, report.having(Verdict.SURVIVED)
    assert report.caught_per_operator >= 5


def test_every_fault_is_caught_somewhere() -> None:
    caught = {fault_kind(one) for one in run_faults(some(9)).having(Verdict.CAUGHT)}
    assert caught == {*FAULTS, "ignores-attribute"}


def test_there_is_a_fault_for_each_attribute() -> None:
    add = operator_registry.get("add")
    assert [one.name for one in faults_of(add)] == [*FAULTS, "ignores-attribute:alpha"]


def test_every_rule_excludes_something_and_says_why() -> None:
    assert {one.detail for one in EXCLUDED} == {one.reason for one in EXCLUSIONS}


def test_exclusions_are_not_the_rule() -> None:
    """A rule that excluded everything would make the share worthless."""
    counts = Counter(fault_kind(one) for one in EXCLUDED)
    assert not counts["zeros"] + counts["drops-last"]
    for name, most in (("copies-input", 5), ("wrong-sign", 20), ("off-by-one", 1), ("wrong-rounding", 40)):
        assert counts[name] <= most
    assert sum("left open" in one.detail for one in EXCLUDED) <= 25


@pytest.mark.parametrize("rule", EXCLUSIONS, ids=lambda one: f"{one.fault}: {one.reason}")
def test_excluded_faults_change_no_verdict(rule: Exclusion) -> None:
    """The suite cannot notice what a rule excludes; a rule that hides a real fault fails here."""
    for pair in [one for one in EXCLUDED if one.detail == rule.reason][:12]:
        for case in cases_of(operator_registry.get(pair.op))[:12]:
            result = run_case(FaultyDriver(pair.fault), case)
            assert result.status is Status.PASSED, (pair.fault, case.describe(), result.reason)


def test_an_attribute_that_no_setup_varies_survives() -> None:
    """No rule excuses such a fault, because the suite should vary the attribute."""
    add = operator_registry.get("add")
    plain = replace(add, setups=tuple(one for one in add.setups if "alpha" not in one.attributes))
    (pair,) = run_faults([plain], ["ignores-attribute:alpha"]).pairs
    assert (pair.verdict, pair.case_id) == (Verdict.SURVIVED, "")


def a_case(op: str) -> TestCase:
    return cases_of(operator_registry.get(op))[0]


def test_the_driver_works_with_the_runner() -> None:
    driver = backend_manager.select("faulty:zeros")
    assert (driver.kind, driver.name) == ("faulty", "faulty:zeros")
    result = run_case(driver, a_case("add"))
    assert result.status is Status.MISMATCH
    assert run_case(FaultyDriver("ignores-attribute:alpha"), a_case("relu")).status is Status.PASSED


def test_the_driver_spoils_any_other() -> None:
    base = backend_manager.select("numpy")
    assert run_case(FaultyDriver("reversed-axis", base), a_case("exp")).status is Status.MISMATCH
    assert run_case(base, a_case("exp")).status is Status.PASSED


def test_unknown_faults_are_named() -> None:
    with pytest.raises(UnknownName, match="wrong-sign"):
        FaultyDriver("wrong-sing")
    with pytest.raises(UnknownName):
        run_faults(DESCRIPTORS[:1], ["nonsense"])


def invoke(*arguments: str) -> tuple[int, str]:
    found = CliRunner().invoke(cli, ["faults", *arguments], standalone_mode=False)
    assert found.exception is None, found.exception
    return found.return_value, found.output


def test_the_command_reports() -> None:
    code, text = invoke("--op", "argmax", "--op", "neg")
    assert code == 0
    assert "applicable faults caught" in text
    assert "no result is rounded" in text


def test_the_command_as_json() -> None:
    code, text = invoke("--op", "add", "--fault", "zeros", "--fault", "drops-last", "--json")
    found = json.loads(text)
    assert (code, found["caught"], found["applicable"], found["caught_share"]) == (0, 2, 2, 1.0)
    assert found["per_operator"] == {"add": [2, 2]}
    assert found["enough"] is True


def test_too_many_survivors_are_a_failure() -> None:
    code, text = invoke("--op", "scatter_reduce", "--fault", "saturates")
    assert code == 1
    assert "Not caught" in text


def test_an_unknown_operator_is_a_usage_error() -> None:
    found = CliRunner().invoke(cli, ["faults", "--op", "ad"], standalone_mode=False)
    assert found.return_value == 2
