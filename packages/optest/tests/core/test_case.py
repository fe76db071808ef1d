from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from optest.core.case import BackendTarget, TestCase
from optest.core.result import FAILURES, CaseResult, RunInfo, Status
from optest.operators import AttributeSpec, OperatorDescriptor, operator_registry


def _shapes(
    shapes: Mapping[str, tuple[int, ...]], attributes: Mapping[str, Any]
) -> dict[str, tuple[int, ...]]:
    return {"output0": shapes["input0"]}


SCALE = OperatorDescriptor(
    name="scale_of_test",
    category="elementwise",
    inputs=("input0",),
    outputs=("output0",),
    dtypes=(("float16",),),
    reference="nowhere:scale",
    output_dtypes=lambda dtypes, attributes: dtypes,
    output_shapes=_shapes,
    attributes={"by": AttributeSpec(float, 1.0), "dims": AttributeSpec(list, ())},
)

CASE = TestCase(
    descriptor=SCALE,
    dtypes=("float16",),
    shapes={"input0": (8, 2048)},
    attributes={"by": 2.0, "dims": (0, 1)},
    backend=BackendTarget("stub"),
    tolerance=None,
    seed=3,
)


def test_the_id_is_the_same_in_every_process() -> None:
    assert CASE.id == "801d271af60e50ea"
    assert replace(CASE, attributes={"dims": (0, 1), "by": 2.0}).id == CASE.id  # order does not matter


def test_the_id_leaves_out_what_does_not_decide_the_answer() -> None:
    elsewhere = replace(
        CASE, backend=BackendTarget("gpu", "cuda", "a100"), backend_config={"x": {}}, note="n"
    )
    assert elsewhere.id == CASE.id


@pytest.mark.parametrize(
    "change",
    [
        {"dtypes": ("float32",)},
        {"shapes": {"input0": (2048, 8)}},
        {"attributes": {"by": 2.5, "dims": (0, 1)}},
        {"seed": 4},
        {"phase": "backward"},
        {"generator": "other:G"},
        {"reference": "other:r"},
    ],
)
def test_the_id_has_all_that_does(change: dict[str, Any]) -> None:
    assert replace(CASE, **change).id != CASE.id


def test_hooks_default_to_the_operators_own() -> None:
    assert (CASE.generator, CASE.reference) == (SCALE.generator, "nowhere:scale")
    assert replace(CASE, reference="mine:f").reference == "mine:f"


def test_it_describes_itself() -> None:
    assert CASE.describe() == "scale_of_test float16 [8, 2048] by=2.0 dims=[0, 1]"
    plain = replace(CASE, attributes={"by": 1.0, "dims": ()}, phase="backward")
    assert plain.describe() == "scale_of_test float16 [8, 2048] [backward]"
    assert str(BackendTarget("gpu", "cuda", "a100")) == "cuda (a100)"
    assert str(BackendTarget("gpu")) == "gpu"


def test_a_case_of_a_registered_operator_pickles_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator_registry, "_builtins", None)
    monkeypatch.setattr(operator_registry, "_descriptors", {SCALE.name: SCALE})
    copy = pickle.loads(pickle.dumps(CASE))
    assert copy == CASE
    assert copy.descriptor is SCALE
    monkeypatch.setattr(operator_registry, "_descriptors", {SCALE.name: replace(SCALE, doc="another")})
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
        pickle.dumps(CASE)  # the registry would give a different operator back


def test_results_survive_json() -> None:
    result = CaseResult(
        case_id=CASE.id,
        op="scale",
        category="elementwise",
        dtypes=("float16",),
        shapes={"input0": (8, 2048)},
        attributes={"by": 2.0, "dims": (0, (1, 2))},
        phase="forward",
        seed=3,
        backend={"kind": "stub", "name": "stub", "chip": None},
        status=Status.CRASHED,
        reason="segmentation fault",
        comparisons=({"mode": "allclose"},),
        stderr_tail="…",
        signal="SIGSEGV",
        attempts=2,
        flaky=True,
        rerun="optest run --op scale",
    )
    data = json.loads(json.dumps(result.to_dict()))
    assert CaseResult.from_dict(data) == result
    assert CaseResult.from_dict(data | {"added later": 1}) == result
    assert data["status"] == "crashed"


def test_run_information_survives_json() -> None:
    info = RunInfo(
        "r", "2026-01-01T00:00:00+00:00", "0.1", "optest run", {"kind": "stub"}, {"python": "3"}, 4
    )
    assert RunInfo.from_dict(json.loads(json.dumps(info.to_dict()))) == info


def test_what_fails_a_run() -> None:
    assert {one.value for one in FAILURES} == {"mismatch", "error", "crashed", "timed_out", "xpassed"}
    assert [one.value for one in Status if not one.failed] == [
        "passed",
        "unsupported",
        "fallback",
        "skipped",
        "xfailed",
    ]


def test_importing_optest_loads_nothing_heavy() -> None:
    heavy = {"numpy", "scipy", "yaml", "rich", "sqlalchemy", "jsonschema", "hypothesis"}
    code = f"import sys, optest; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
