"""The mutation test of lowerings, on a sample; `torchstone faults` breaks lowerings of all families."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._subclasses import FakeTensorMode

from optest.errors import UnknownName
from torchstone.compiler.graphs import spec_of
from torchstone.lowering import Lowering, load
from torchstone.parity.faults import (
    EXCLUSIONS,
    Fault,
    Verdict,
    campaign,
    excluded,
    faults_of,
    kinds,
    run_faults,
    survey,
)
from torchstone.parity.faults.broken import Effect, Seen, effect
from torchstone.parity.faults.siblings import INSTEAD, sibling_of

FEW = ("roll", "sort")


def lowering_of(name: str) -> Lowering:
    return next(one for one in load() if one.name == f"aten.{name}")


def fault_of(lowering: Lowering, name: str) -> Fault:
    return next(one for one in faults_of(lowering) if one.name == name)


# Faults and rules ---------------------------------------------------------------------------


def test_a_lowering_has_the_faults_that_its_schema_has_room_for() -> None:
    def about_calls(name: str) -> list[str]:
        return [one.name for one in faults_of(lowering_of(name)) if one.calls]

    assert about_calls("add.Tensor") == [
        "wrong-operator:aten.sub.Tensor",
        "ignores-attribute:alpha",
        "swapped-operands",
    ]
    assert about_calls("topk.default") == [
        "wrong-number:k",
        "wrong-axis:dim",
        "ignores-attribute:largest",
    ]
    assert "wrong-order:tensors" in about_calls("cat.default")
    assert "ignores-operand:bias" in about_calls("convolution.default")
    assert "wrong-choice:rounding_mode" in about_calls("div.Tensor_mode")


def test_every_kind_of_fault_belongs_to_some_lowering() -> None:
    assert {fault.kind for one in load() for fault in faults_of(one)} == set(kinds())


def test_every_sibling_is_one_of_a_lowering() -> None:
    named = {one.overload._schema.name.partition("::")[2] for one in load() if sibling_of(one) is not None}
    assert named == set(INSTEAD)


@pytest.mark.parametrize(
    ("overload", "name", "given", "changed"),
    [
        ("sort.default", "wrong-axis:dim", {"dim": -1}, {"dim": 0}),
        ("sum.dim_IntList", "wrong-axis:dim", {"dim": [0, 1]}, {"dim": [1, 2]}),
        ("sort.default", "ignores-attribute:descending", {"descending": True}, {"descending": False}),
        ("add.Tensor", "ignores-attribute:alpha", {"alpha": 3}, {"alpha": 1}),
        ("select.int", "wrong-number:index", {"index": 2}, {"index": 1}),
        ("roll.default", "wrong-number:shifts", {"shifts": [0, 1]}, {"shifts": [1, 1]}),
        ("gelu.default", "wrong-choice:approximate", {"approximate": "none"}, {"approximate": "tanh"}),
        ("div.Tensor_mode", "wrong-choice:rounding_mode", {"rounding_mode": None}, {"rounding_mode": None}),
    ],
)  # fmt: skip
def test_what_a_fault_makes_of_a_call(
    overload: str, name: str, given: dict[str, Any], changed: dict[str, Any]
) -> None:
    call = {"self": torch.empty(2, 3, 4, device="meta"), **given}
    change = fault_of(lowering_of(overload), name).arguments
    assert change is not None
    assert change(call) == {**call, **changed}


@pytest.mark.parametrize(
    ("overload", "shape", "expected"),
    [
        ("sort.default", (3, 3), Effect.SHOWS),
        ("sort.default", (3,), Effect.NOTHING),
        ("median.dim", (2, 3), Effect.REFUSED),
    ],
)
def test_another_call_must_have_results_of_the_same_shape(
    overload: str, shape: tuple[int, ...], expected: Effect
) -> None:
    lowering = lowering_of(overload)
    with FakeTensorMode():
        tensor = torch.empty(shape)
        seen = Seen({"self": tensor, "dim": 0}, spec_of(lowering.overload(tensor, 0)))
    assert effect(lowering, fault_of(lowering, "wrong-axis:dim"), seen) is expected


def test_every_rule_excludes_something_and_not_everything() -> None:
    reasons = {excluded(one, fault) for one in load() for fault in faults_of(one)}
    assert reasons == {None, *(one.reason for one in EXCLUSIONS)}
    pairs = [(one, fault) for one in load() for fault in faults_of(one)]
    assert sum(excluded(*pair) is not None for pair in pairs) < len(pairs) / 10


# Campaigns ----------------------------------------------------------------------------------


@pytest.mark.conformance
def test_the_suite_notices() -> None:
    before = {one.name: one for one in load()}
    report = run_faults(FEW, lowerings=2, each=2)
    assert report.lowerings == 2
    assert len(report.applicable) == 4
    assert report.having(Verdict.CAUGHT) == report.applicable, report.having(Verdict.SURVIVED)
    assert not report.left_out
    noticed = report.applicable[0]
    assert noticed.status == "mismatch"
    assert noticed.group.split()[0] in FEW
    assert f"--sample {noticed.sample}" in noticed.rerun
    assert {one.name: one for one in load()} == before


def test_nan_is_looked_for_in_a_phase_of_its_own() -> None:
    [mutant] = run_faults(["minimum"], ["swaps-nan"], lowerings=1).applicable
    assert (mutant.verdict, mutant.group) == (Verdict.CAUGHT, "minimum float32 special")


def test_a_fault_that_changes_nothing_survives(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the suite can notice it: no rule excuses it afterwards."""
    harmless = Fault("harmless", "", result=lambda one: one, phases=("forward",))
    monkeypatch.setattr(campaign, "faults_of", lambda lowering: [harmless])
    monkeypatch.setattr(campaign, "ALL", 2)
    monkeypatch.setattr(survey, "_DTYPES", ("float32",))
    report = run_faults(["roll"], lowerings=1)
    [mutant] = report.mutants
    assert mutant.verdict is Verdict.SURVIVED
    assert "samples noticed nothing" in mutant.detail
    assert report.caught_share == 0


def test_the_same_seed_draws_the_same_faults() -> None:
    drawn = campaign._drawn
    add = lowering_of("add.Tensor")
    assert [one.name for one in drawn(add, [], 3)] == [one.name for one in drawn(add, [], 3)]
    assert len({tuple(one.name for one in drawn(add, [], seed)) for seed in range(9)}) > 1
    assert {one.kind for one in drawn(add, ["wrong-sign"], 0)} == {"wrong-sign"}


@pytest.mark.conformance
def test_calls_with_sparse_tensors_are_tried_too() -> None:
    report = run_faults(["sparse.sampled_addmm"], ["wrong-sign"], each=1)
    assert not report.left_out
    assert report.applicable
    assert not report.having(Verdict.SURVIVED)


@pytest.mark.parametrize(("entries", "faults"), [(["ad"], []), (["add"], ["wrong-sing"])])
def test_unknown_names(entries: list[str], faults: list[str]) -> None:
    with pytest.raises(UnknownName):
        run_faults(entries, faults)


@pytest.mark.conformance
@pytest.mark.timeout(3600)
def test_the_suite_notices_faults_in_all_families() -> None:
    """At least 95 % of the faults in at least fifty lowerings."""
    report = run_faults()
    assert report.lowerings >= 50
    assert len(report.applicable) >= 100
    assert report.caught_share >= 0.95, report.having(Verdict.SURVIVED)
