"""``make evidence``: what it records, and that it resumes where it was stopped."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner

from optest.cli.app import cli
from optest.core.origin import Origin
from optest.core.result import CaseResult, RunInfo, Status
from optest.core.summary import Summary
from optest.coverage.stages import Operators, Recorded, load_stages
from optest.ledger import Ledger


@pytest.fixture(scope="module")
def evidence(repo: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("evidence", repo / "tools" / "evidence.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["evidence"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("stage", [3, 4])
def test_every_phase_and_dtype_that_a_stage_looks_at_is_recorded(evidence: ModuleType, stage: int) -> None:
    parts = evidence.parts_of(stage)
    plan = load_stages()
    for item in (item for one in plan.stage[:stage] for item in one.item):
        if isinstance(item, Operators | Recorded) and not item.device:
            for phase in item.phases:
                recorded = {one.dtype for one in parts if one.phase == phase}
                assert recorded >= set(getattr(item, "dtypes", ())), item.text
                assert recorded, item.text
    assert {one.phase for one in parts} >= {*plan.rules.edge_phases, *plan.rules.gradient_phases}
    assert {"complex32", "uint64", "float8_e5m2"} <= {one.dtype for one in parts if one.phase == "forward"}
    recorded = {one.dtype for one in parts if one.phase == "noncontiguous"}
    assert {"float32", "int64", "complex64", "float8_e4m3fn"} <= recorded  # entries without float32 too
    assert len({(one.name, one.entries) for one in parts}) == len(parts)


@dataclass
class Optest:
    """Replaces ``optest`` as a process. A run records one passing case; only ``stop`` runs succeed."""

    stop: int = 99
    commands: list[Sequence[str]] = field(default_factory=list)

    def __call__(self, words: Sequence[str], output: Any) -> int:
        self.commands.append(words)
        if words[1] != "run":
            done = CliRunner().invoke(cli, list(words[1:]), standalone_mode=False)
            assert done.exception is None, done.output
            return int(done.return_value)
        number = sum(one[1] == "run" for one in self.commands)
        if number > self.stop:
            return 130
        self.record(words)
        output.write("1 passed in 0.1 s\n")
        return 1  # as if another case failed, which does not stop the evidence

    def record(self, words: Sequence[str]) -> None:
        phase, dtype = words[words.index("--phase") + 1], words[words.index("--dtype") + 1]
        ledger = Ledger(words[words.index("--ledger") + 1])
        backend = {"kind": "stablehlo", "name": "torchstone", "chip": None}
        run = RunInfo(
            f"run{id(self)}-{len(self.commands)}", "2026-01-01T00:00:00", "1", "optest run", backend
        )
        ledger.start(run)
        case = CaseResult(
            phase * 4,
            "add",
            "elementwise",
            (dtype,),
            {},
            {},
            phase,
            0,
            backend,
            Status.PASSED,
            origin=Origin(suite="opinfo", sample=0),
        )
        ledger.append(run.run_id, [case])
        ledger.finish(run.run_id, Summary())


@pytest.fixture
def go(
    evidence: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, Optest]]:
    """A function that runs the tool on two parts, in a folder of its own."""
    parts = [evidence.Part("forward", "float32", groups=2), evidence.Part("backward", "float32", groups=1)]
    monkeypatch.setattr(evidence, "parts_of", lambda stage, device: parts)
    pages = ["-o", str(tmp_path / "COVERAGE.md"), "--details", str(tmp_path / "details.md")]
    given = ["--folder", str(tmp_path), *pages, "--stage", "3"]

    def run(*more: str, stop: int = 99) -> tuple[int, Optest]:
        runner = evidence.Run(evidence.options().parse_args([*given, *more]))
        monkeypatch.setattr(runner, "_optest", optest := Optest(stop))
        return runner.go(), optest

    return run


def test_it_goes_on_where_it_was_stopped(go: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, first = go(stop=1)
    assert code == 130
    assert [one[1] for one in first.commands] == ["run", "merge", "run"]
    assert "goes on from there" in capsys.readouterr().out
    code, second = go()
    assert code == 1  # a stage is asked for, and one operator does not reach it
    assert [one[1] for one in second.commands] == ["run", "merge"] * 3 + ["coverage", "stage"]
    assert all("--resume" in one for one in second.commands if one[1] == "run")
    said = capsys.readouterr().out
    assert "[2/4] pass 1: backward float32, 1 groups" in said
    assert "[3/4] pass 2: forward float32, 2 groups" in said
    assert "in 4 runs" in (tmp_path / "COVERAGE.md").read_text()
    assert "| add |" in (tmp_path / "details.md").read_text()
    assert [one[1] for one in go()[1].commands] == ["coverage", "stage"]


def test_a_shard_leaves_the_page_to_the_merge(go: Any, tmp_path: Path) -> None:
    code, done = go("--shard", "1/2", "--passes", "1")
    assert code == 0
    assert [one[1] for one in done.commands] == ["run", "merge"] * 2
    assert all(one[-4:-2] == ["--shard", "1/2"] for one in done.commands if one[1] == "run")
    assert not (tmp_path / "COVERAGE.md").exists()


def test_each_backend_has_pages_of_its_own(evidence: ModuleType) -> None:
    def pages(*words: str) -> tuple[str, str]:
        return evidence.pages_of(evidence.options().parse_args(words))

    assert pages() == ("COVERAGE.md", "docs/coverage-details.md")
    assert pages("--backend", "torch:pjrt") == ("docs/coverage-device.md", "docs/coverage-device-details.md")
    assert pages("--backend", "mine", "-o", "a.md", "--details", "b.md") == ("a.md", "b.md")
    with pytest.raises(SystemExit, match="no page is known for the backend mine"):
        pages("--backend", "mine", "-o", "a.md")


def test_each_backend_has_a_ledger_of_its_own(evidence: ModuleType, tmp_path: Path) -> None:
    given = ["--folder", str(tmp_path), "--most", "2", "--backend"]
    ours, device = (
        evidence.Run(evidence.options().parse_args([*given, backend]))
        for backend in ("torchstone", "torch:pjrt")
    )
    assert (ours.folder.name, device.folder.name) == (
        f"{ours.commit}-most2",
        f"{ours.commit}-torch-pjrt-most2",
    )


def test_phases_may_run_whole_beside_few_samples_of_the_others(go: Any) -> None:
    _, done = go("--most", "4", "--whole", "backward", "--passes", "1")
    runs = [one for one in done.commands if one[1] == "run"]
    assert ["--most" in one for one in runs] == [True, False]
    assert "backward" in runs[1]


def test_evidence_belongs_to_a_commit_and_its_changes(evidence: ModuleType, tmp_path: Path) -> None:
    def git(*words: str) -> None:
        subprocess.run(("git", "-c", "user.name=x", "-c", "user.email=x", *words), cwd=tmp_path, check=True)

    git("init", "-q")
    (tmp_path / "code.py").write_text("x = 1\n")
    (tmp_path / "COVERAGE.md").write_text("old\n")
    git("add", ".")
    git("commit", "-qm", "first")
    clean = evidence.commit_of(tmp_path)
    (tmp_path / "COVERAGE.md").write_text("new\n")
    assert evidence.commit_of(tmp_path) == clean
    (tmp_path / "code.py").write_text("x = 2\n")
    assert evidence.commit_of(tmp_path).startswith(f"{clean}+")
