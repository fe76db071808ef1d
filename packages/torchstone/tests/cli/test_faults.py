"""``torchstone faults``: what it prints, its JSON, its exit code, its errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from torchstone.parity import faults as package
from torchstone.parity.faults import FaultReport, Mutant, Verdict

Torchstone = Callable[..., Any]


def a_report(*verdicts: Verdict) -> FaultReport:
    mutants = [
        Mutant("aten.add.Tensor", "arithmetic", "wrong-sign", "add float32 forward", one, f"it {one}")
        for one in verdicts
    ]
    return FaultReport(0, mutants, 1, {"mul": "its control fails: no"})


@pytest.mark.parametrize(("survivors", "code"), [(0, 0), (1, 0), (2, 1)])
def test_the_command(
    torchstone: Torchstone, monkeypatch: pytest.MonkeyPatch, survivors: int, code: int
) -> None:
    found = [*[Verdict.CAUGHT] * (20 - survivors), *[Verdict.SURVIVED] * survivors, Verdict.EXCLUDED]
    monkeypatch.setattr(package, "run_faults", lambda *_, **__: a_report(*found))
    done = torchstone("faults")
    assert done.code == code
    assert f"{20 - survivors} of 20 applicable faults caught" in done.stdout
    assert "wrong-sign: it excluded (1)" in done.stdout
    assert "Left out: mul" in done.stdout
    assert ("Not caught" in done.stdout) is bool(survivors)
    as_json = torchstone("faults", "--json").json
    assert as_json["enough"] is (code == 0)
    assert (as_json["caught"], as_json["applicable"]) == (20 - survivors, 20)
    assert as_json["faults"] == {"wrong-sign": [20 - survivors, 20]}


def test_a_fault_that_there_is_not_is_a_usage_error(torchstone: Torchstone) -> None:
    done = torchstone("faults", "--fault", "wrong-sing")
    assert done.code == 2
    assert "did you mean wrong-sign" in done.stderr
