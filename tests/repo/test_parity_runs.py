"""The recorded runs of the parity suite: they are complete, have passed, and recording resumes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import parity_runs
import pytest
from parity_runs import RECORD, WANTED, keep, read, section


def report(model: str, verdict: str = "passed") -> dict[str, Any]:
    return {
        "settings": {"dtype": "float32"},
        "models": [
            {
                "name": model,
                "passed": verdict == "passed",
                "compilation": {"native_operators": 3, "fallback_calls": 1},
                "stages": [{"stage": "artifact", "tensors": 2, "by_float64": 1, "verdict": verdict}],
            }
        ],
    }


STAGES = ["artifact", "compiled", "gradients", "training", "step"]
REFUSED = {"tiny-detr": "in training its code branches on values"}
"""Models that cannot be compiled as a whole step."""


def test_every_model_was_recorded_and_passed() -> None:
    runs = read(RECORD)
    assert [(run["model"], run["dtype"]) for run in runs] == WANTED
    for run in runs:
        failed = [stage for stage, verdict in run["stages"].items() if verdict != "passed"]
        assert failed == (["step"] if run["model"] in REFUSED else [])
        assert run["passed"] is not bool(failed)
        assert not run["fallbacks"]
        assert list(run["stages"]) == STAGES


def test_a_run_replaces_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "runs.json"
    keep(path, [report("vit"), report("mlp", "differs")])
    assert [run["model"] for run in read(path)] == ["mlp", "vit"]  # in the order of the suite
    text = section(path)
    assert "1 of 2 runs passed" in text
    assert "| mlp | float32 | artifact differs | 3 | 1 | 2 | 1 |" in text
    keep(path, [report("mlp")])
    assert "2 of 2 runs passed" in section(path)


class Ran:
    """A finished process of `torchstone parity`. One of the models differs."""

    def __init__(self, model: str, dtype: str) -> None:
        made = report(model, "differs" if model == "cnn" else "passed")
        self.returncode = 1
        self.stdout = json.dumps({**made, "settings": {"dtype": dtype}})


def test_recording_resumes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(parity_runs, "RECORD", tmp_path / "runs.json")
    asked: list[tuple[str, str]] = []

    def run(command: list[str], **_: Any) -> Ran:
        model, dtype = command[4], command[6]
        if len(asked) == 5:
            asked.append((model, dtype))
            raise KeyboardInterrupt
        asked.append((model, dtype))
        return Ran(model, dtype)

    monkeypatch.setattr(parity_runs.subprocess, "run", run)
    with pytest.raises(KeyboardInterrupt):
        parity_runs.main([])
    assert parity_runs.main([]) == 1  # the cnn differs
    assert asked == [*WANTED[:6], *WANTED[5:]]


@pytest.mark.parametrize("printed", ["", "Traceback: …", '{"models": ['])
def test_a_run_without_a_report_is_one_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, printed: str
) -> None:
    monkeypatch.setattr(parity_runs, "RECORD", tmp_path / "runs.json")
    ran = Ran("mlp", "float32")
    ran.stdout, ran.returncode = printed, -9
    monkeypatch.setattr(parity_runs.subprocess, "run", lambda *_, **__: ran)
    with pytest.raises(SystemExit) as ended:
        parity_runs.main([])
    text = str(ended.value)
    assert "`-m torchstone parity mlp --dtype float32 --json` printed no report (exit code -9)" in text
    assert "next: mend that" in text
    assert not (tmp_path / "runs.json").exists()
