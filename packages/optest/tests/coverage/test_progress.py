from __future__ import annotations

import datetime
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from optest.core.result import CaseResult, Status
from optest.coverage.attestation import attest, load_attestations
from optest.coverage.progress import Progress
from optest.coverage.snapshot import take_snapshot
from optest.coverage.stages import Operators, load_stages
from optest.errors import PlanError, UsageError

TODAY = datetime.date(2026, 1, 2)
STAGES = """
format = 1
[backend]
device_kinds = ["torch"]
[target]
stage = 2
[target.planned]
linalg = ["eig", "add"]
[[unsupported]]
operator = "jiterator*"
reason = "CUDA source at run time"

[[stage]]
number = 1
name = "First"
summary = "something works"
[[stage.item]]
text = "one operator"
needs = "operators"
phases = ["forward"]
dtypes = ["float32"]
at_least = 1

[[stage]]
number = 2
name = "Second"
summary = "it is covered"
[[stage.item]]
text = "two operators covered"
needs = "covered"
at_least = 2
[[stage.item]]
text = "gradients"
needs = "operators"
phases = ["backward"]
dtypes = ["float32", "float64"]
share = 0.9
[[stage.item]]
text = "these"
needs = "operators"
phases = ["forward"]
names = ["add", "mul|multiply"]
[[stage.item]]
text = "memory"
needs = "operators"
phases = ["memory"]
at_least = 1
device = true
[[stage.item]]
text = "reliable"
needs = "reliable"

[[stage]]
number = 3
name = "Third"
summary = "beyond results"
[[stage.item]]
text = "audited"
needs = "attested"
id = "audit"
valid_days = 30
[[stage.item]]
text = "nearly all pass"
needs = "pass_rate"
share = 0.95
[[stage.item]]
text = "measured"
needs = "recorded"
phases = ["perf"]
at_least = 1
"""


@pytest.fixture
def stages(tmp_path: Path) -> Path:
    file = tmp_path / "stages.toml"
    file.write_text(STAGES)
    return file


def progress(recorder: Any, stages: Path | None, evidence: Path | None = None) -> Progress:
    return take_snapshot(recorder.ledger, stages=stages, evidence=evidence, today=TODAY).progress


def states(found: Progress, number: int) -> dict[str, str]:
    return {one.text: one.state.value for one in found.stages[number - 1].items}


def test_a_stage_is_reached_and_lost_again(recorder: Any, stages: Path) -> None:
    cases = recorder.operator("add") + recorder.operator("mul")
    recorder.run(cases)
    assert progress(recorder, stages).reached == 1
    recorder.run(cases)
    found = progress(recorder, stages)
    assert (found.reached, found.name) == (2, "Stage 2 (Second)")
    assert states(found, 2)["memory"] == "not applicable"
    assert found.next is found.stages[2]
    regressed = [
        replace(one, status=Status.MISMATCH, reason="wrong sign") if one.phase == "backward" else one
        for one in cases
    ]
    recorder.run(regressed)
    lost = progress(recorder, stages)
    assert lost.reached == 1
    assert lost.next is lost.stages[1]
    detail = {one.text: one.detail for one in lost.next.missing}
    assert detail["gradients"] == (
        "backward float32: 0 of 2 operators; 2 are needed; not add and mul",
        "backward float64: 0 of 2 operators; 2 are needed; not add and mul",
    )
    assert "add: backward float32: 1 of 1 do not pass (wrong sign); " in detail["two operators covered"][1]


@pytest.mark.parametrize(
    ("status", "told"), [(Status.CRASHED, "1 cases crash"), (Status.TIMED_OUT, "1 cases time out")]
)
def test_crashes_and_hangs_are_unreliable(recorder: Any, stages: Path, status: Status, told: str) -> None:
    for _ in range(2):
        recorder.run([recorder.case("add", status=status)])
    [reliable] = [one for one in progress(recorder, stages).stages[1].items if one.text == "reliable"]
    assert reliable.state.value == "missing"
    assert reliable.detail == (f"{told}, of 1 operators: add",)


def test_a_device_must_show_what_devices_have(recorder: Any, stages: Path) -> None:
    device = {"kind": "torch", "name": "torch:cpu", "chip": None}
    recorder.run([recorder.case("add")], backend=device)
    assert states(progress(recorder, stages), 2)["memory"] == "missing"
    recorder.run([recorder.case("noncontiguous", phase="memory")], backend=device)
    assert states(progress(recorder, stages), 2)["memory"] == "met"


def test_named_operators_may_have_either_name(recorder: Any, stages: Path) -> None:
    recorder.run([recorder.case("add"), recorder.case("multiply", status=Status.ERROR)])
    [item] = [one for one in progress(recorder, stages).stages[1].items if one.text == "these"]
    assert item.detail == ("multiply: does not pass in forward",)
    recorder.run([recorder.case("multiply")])
    assert states(progress(recorder, stages), 2)["these"] == "met"


def test_rates_and_records(recorder: Any, stages: Path) -> None:
    wrong = [recorder.case("add", sample=number, status=Status.MISMATCH) for number in range(2)]
    right = [recorder.case("add", sample=number) for number in range(2, 40)]
    recorder.run([*wrong, *right, recorder.case("add", phase="perf", status=Status.MISMATCH)])
    found = progress(recorder, stages)
    assert states(found, 3)["nearly all pass"] == "missing"
    assert found.stages[2].items[1].detail == ("38 of 41 cases pass (92.6 %); 95% are needed",)
    assert states(found, 3)["measured"] == "met"


def test_evidence_is_attested_and_expires(recorder: Any, stages: Path, tmp_path: Path) -> None:
    recorder.run([recorder.case("add")])
    assert states(progress(recorder, stages), 3)["audited"] == "missing"
    file = tmp_path / "evidence.toml"
    made = attest(file, "audit", ["echo", 'no "known" vulnerability'], TODAY)
    assert states(progress(recorder, stages, file), 3)["audited"] == "attested"
    [output] = tmp_path.glob("evidence.*.txt")
    assert output.read_text() == 'no "known" vulnerability\n'
    assert made.command == "echo 'no \"known\" vulnerability'"
    later = take_snapshot(
        recorder.ledger, stages=stages, evidence=file, today=TODAY + datetime.timedelta(days=31)
    )
    assert states(later.progress, 3)["audited"] == "expired"
    output.write_text("something else\n")
    tampered = progress(recorder, stages, file).stages[2].items[0]
    assert tampered.state.value == "missing"
    assert "is not what was attested: the hash differs" in tampered.detail[0]
    output.unlink()
    assert "is not there" in progress(recorder, stages, file).stages[2].items[0].detail[0]


def test_a_failed_command_attests_nothing(tmp_path: Path) -> None:
    file = tmp_path / "evidence.toml"
    with pytest.raises(UsageError, match="exited with 1: nothing is attested"):
        attest(file, "audit", ["false"], TODAY)
    with pytest.raises(UsageError, match="cannot be run: No such file"):
        attest(file, "audit", ["/no/such/program"], TODAY)
    assert not file.exists()


@pytest.mark.parametrize("criterion", ["", "https://me:s3cr3t@127.0.0.1", "an audit", "-audit"])
def test_evidence_for_what_is_not_a_name_is_refused(tmp_path: Path, criterion: str) -> None:
    file = tmp_path / "evidence.toml"
    with pytest.raises(UsageError, match="the criterion is not a name of letters") as refused:
        attest(file, criterion, ["echo"], TODAY)
    assert "s3cr3t" not in str(refused.value)
    assert not file.exists()


def test_evidence_from_the_future_does_not_count(tmp_path: Path) -> None:
    file = tmp_path / "evidence.toml"
    attest(file, "audit", ["echo"], datetime.date.today() + datetime.timedelta(days=1))
    assert load_attestations(file)["audit"].problem.startswith("it is dated in the future")


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("number = 2", "number = 4", "stages are numbered 1, 2, 3 and so on, in order; found [1, 4, 3]"),
        ("stage = 2\n", "stage = 7\n", "target.stage is 7; there are stages 1 to 3"),
        ('needs = "covered"', 'needs = "luck"', "stage[1].item[0]: Input tag 'luck'"),
        ("at_least = 2", "at_least = 0", "stage[1].item[0].covered.at_least: Input should be greater"),
        ("share = 0.9\n", "share = 0.9\nat_least = 3\n", "give one of at_least, share and names"),
        ("valid_days = 30", "days = 30", "stage[2].item[0].attested.valid_days: Field required"),
        ("format = 1", "format = 2", "this file is for a newer optest"),
        ("format = 1", "format = ", "this is not TOML"),
    ],
)
def test_mistakes_in_a_stages_file(stages: Path, old: str, new: str, told: str) -> None:
    assert STAGES.count(old) >= 1
    stages.write_text(STAGES.replace(old, new, 1))
    with pytest.raises(PlanError) as caught:
        load_stages(stages)
    assert told in str(caught.value)
    assert str(stages) in str(caught.value)


def third_stage(recorder: Any) -> list[CaseResult]:
    """Return cases that reach the built-in Stage 3: the operators that it requires, filled up to 100."""
    plan = load_stages()
    named = {
        one.split("|")[0]
        for stage in plan.stage[:3]
        for item in stage.item
        if isinstance(item, Operators)
        for one in item.names
    }
    dtypes = "float32 float64 int32 int64 int8 uint8 bool complex64 complex128"
    return [
        case
        for name in [*sorted(named), *(f"op{number}" for number in range(100 - len(named)))]
        for case in recorder.operator(name, dtypes, gradients="float32 float64", phases="out perf")
        if case.dtypes == ("float32",) or case.phase in ("forward", "backward")
    ]


REGRESSIONS = (
    ("forward", "int64", 1, Status.MISMATCH, 2, "100–200 operations covered"),
    ("forward", "complex64", 11, Status.ERROR, 2, "many dtypes"),
    ("backward", "float64", 11, Status.MISMATCH, 2, "full autograd"),
    ("out", "float32", 11, Status.FALLBACK, 2, "out= arguments"),
    ("errors", "float32", 11, Status.MISMATCH, 2, "comprehensive error messages"),
    ("noncontiguous", "float32", 11, Status.UNSUPPORTED, 2, "edge and corner cases"),
    ("out", "float32", 1, Status.CRASHED, 2, "reliable over repeated runs"),
    ("backward", "float32", 91, Status.MISMATCH, 1, "basic autograd"),
    ("forward", "float32", 96, Status.MISMATCH, 0, "5–15 core operations working"),
)
"""Phase, dtype and number of broken operators, their status, the remaining stage, a missing item."""


def test_the_third_stage_is_reached_and_recorded_regressions_lose_it(recorder: Any) -> None:
    cases = third_stage(recorder)
    for _ in range(2):
        recorder.run(cases)
    found = progress(recorder, None)
    assert (found.reached, found.name) == (3, "Stage 3 (Extended)")
    assert found.next is not None
    missing = {one.text for one in found.next.missing}
    assert {"300 and more operations covered", "sparse operations"} <= missing
    for phase, dtype, operators, status, reached, item in REGRESSIONS:
        broken = [one for one in cases if (one.phase, one.dtypes) == (phase, (dtype,))][:operators]
        recorder.run([replace(one, status=status, reason="regressed") for one in broken])
        lost = progress(recorder, None)
        assert lost.reached == reached, item
        assert item in {one.text for stage in lost.stages[:3] for one in stage.missing}
        for _ in range(2):
            recorder.run(broken)
    assert progress(recorder, None).reached == 3


def test_a_file_without_stages_adds_to_the_built_in_ones(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text('format = 1\n[target]\nstage = 2\n[[unsupported]]\noperator = "eig"\nreason = "no"\n')
    plan = load_stages(file)
    assert plan.stage == load_stages().stage
    assert plan.checklist == load_stages().checklist
    assert (plan.target.stage, plan.exclusions[0].reason) == (2, "no")


def test_the_built_in_stages_are_the_four_and_the_three_checklists() -> None:
    plan = load_stages()
    assert [one.name for one in plan.stage] == ["Minimal", "Core", "Extended", "Advanced"]
    assert [one.name for one in plan.checklist] == ["Minimal", "MVP", "Production"]
    assert plan.target.stage == 3
