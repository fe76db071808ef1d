"""The command as users run it: exit codes, interruption, resuming, and what is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Optest = Any  # the fixture's class, in conftest


def cases_of(report: Path) -> dict[int, dict[str, Any]]:
    """Return the records of a JSON report by the first size of their input."""
    return {one["shapes"]["input0"][0]: one for one in json.loads(report.read_text())["cases"]}


def wait_for(file: Path, text: str) -> None:
    limit = time.monotonic() + 60
    while text not in file.read_text():
        assert time.monotonic() < limit, f"{text!r} never came"
        time.sleep(0.01)


def wait_for_results(home: Path, count: int) -> None:
    """Wait until the journal has ``count`` results; the worker may start a case before the last arrives."""
    limit = time.monotonic() + 60
    while sum(file.read_bytes().count(b"\n") for file in home.rglob("*.jsonl")) < count:
        assert time.monotonic() < limit, f"the journal never had {count} results"
        time.sleep(0.01)


def test_a_run_with_every_kind_of_failure(
    optest: Optest, tmp_path: Path, children: Callable[[], list[int]]
) -> None:
    done = optest(
        *("run", "--plan", optest.plan(1, 101, 102, 103, 104, 105, 109, 120, 2), "--timeout", "2"),
        *("--workers", "2", "--report", "json:r.json", "--report", "junit:r.xml", "--report", "html:r.html"),
    )
    assert done.returncode == 1
    cases = cases_of(tmp_path / "r.json")
    assert {size: one["status"] for size, one in cases.items()} == {
        1: "passed", 101: "mismatch", 102: "error", 103: "crashed", 104: "crashed", 105: "timed_out",
        109: "crashed", 120: "error", 2: "passed",
    }  # fmt: skip
    assert (cases[103]["signal"], cases[109]["exit_code"]) == ("SIGSEGV", 9)
    assert "2 passed, 1 mismatch, 2 error, 3 crashed, 1 timed out" in done.stdout
    assert "MISMATCH relu float32 [101]" in done.stdout
    assert "worst at [7]: actual 3.0, expected" in done.stdout
    assert "\x1b" not in done.stdout
    assert done.stderr == ""
    assert (tmp_path / "r.html").exists()
    assert (tmp_path / "r.xml").exists()
    assert not [one.name for one in tmp_path.iterdir() if one.name.startswith(".")]
    assert not children()


@pytest.mark.conformance
def test_the_rerun_command_runs_the_case_again(optest: Optest, tmp_path: Path) -> None:
    import shlex

    optest("run", "--plan", optest.plan(1, 101), "--report", "json:r.json")
    failed = cases_of(tmp_path / "r.json")[101]
    words = shlex.split(failed["rerun"])
    assert words[0] == "optest"
    again = optest(*words[1:], "--report", "json:again.json")
    assert again.returncode == 1
    (case,) = json.loads((tmp_path / "again.json").read_text())["cases"]
    assert (case["case_id"], case["status"]) == (failed["case_id"], "mismatch")
    assert case["comparisons"] == failed["comparisons"]
    replayed = optest("replay", failed["case_id"][:8])
    assert (replayed.returncode, "worst at [7]" in replayed.stdout) == (1, True)


def test_exit_codes(optest: Optest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert optest("run", "--plan", optest.plan(1, 2)).returncode == 0
    assert optest("run", "--plan", optest.plan(1, 101)).returncode == 1
    usage = optest("run", "--op", "rleu", "--backend", "misbehaving")
    assert (usage.returncode, usage.stdout) == (2, "")
    assert "did you mean" in usage.stderr
    monkeypatch.setenv("MISBEHAVING_SETUP", "raises")
    environment = optest("run", "--plan", optest.plan(1, 2))
    assert environment.returncode == 3
    assert "the driver 'misbehaving' could not be set up: RuntimeError: no device" in environment.stderr
    assert "Traceback" not in environment.stderr


@pytest.mark.parametrize("sizes", [(1, 2, 105, 3), (105,)])
def test_ctrl_c_prints_what_ran(
    optest: Optest, notes: Path, children: Callable[[], list[int]], sizes: tuple[int, ...]
) -> None:
    process = optest.start("run", "--plan", optest.plan(*sizes), "--report", "json:r.json")
    wait_for(notes, "run 105")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    left = f"interrupted, {2 if len(sizes) > 1 else 1} cases left" if len(sizes) > 1 else "interrupted"
    assert left in out
    assert ("2 passed" in out) == (len(sizes) > 1)
    assert "Traceback" not in out + err
    assert json.loads((optest.folder / "r.json").read_text())["summary"]["interrupted"] is True
    assert not children()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_killed_run_leaves_no_process(
    optest: Optest, notes: Path, children: Callable[[], list[int]], number: signal.Signals
) -> None:
    """This holds even if the worker hangs in C with the GIL held."""
    process = optest.start("run", "--plan", optest.plan(106, 106 + 1000), "--workers", "2")
    wait_for(notes, "run 106")
    assert len(children()) == 3
    process.send_signal(number)
    process.communicate(timeout=30)
    limit = time.monotonic() + 20
    while children() and time.monotonic() < limit:
        time.sleep(0.02)
    assert not children()


def test_resume_after_kill_9_runs_only_what_is_left(optest: Optest, notes: Path, tmp_path: Path) -> None:
    sizes = (1, 2, 101, 3, 111, 4, 5, 6)
    plan = optest.plan(*sizes)
    process = optest.start("run", "--plan", plan)
    wait_for(notes, "run 111")
    wait_for_results(tmp_path / "home", 4)
    process.kill()
    process.communicate(timeout=30)
    before = [line for line in notes.read_text().splitlines() if line.startswith("run")]
    resumed = optest("run", "--plan", plan, "--resume", "--report", "json:r.json")
    assert resumed.returncode == 1  # the mismatch from before counts
    after = [line.split()[1] for line in notes.read_text().splitlines() if line.startswith("run")][
        len(before) :
    ]
    assert after == ["111", "4", "5", "6"]
    report = json.loads((tmp_path / "r.json").read_text())
    assert sorted(cases_of(tmp_path / "r.json")) == sorted(sizes)
    assert report["summary"]["resumed"] == 4
    assert "4 taken from the run before" in resumed.stdout
    again = optest("run", "--plan", plan, "--resume", "--report", "json:r.json")
    assert again.returncode == 1
    assert json.loads((tmp_path / "r.json").read_text())["summary"]["resumed"] == 0


def test_resume_beside_a_running_one_is_refused(optest: Optest, notes: Path) -> None:
    plan = optest.plan(1, 105)
    process = optest.start("run", "--plan", plan)
    wait_for(notes, "run 105")
    refused = optest("run", "--plan", plan, "--resume")
    process.kill()
    process.communicate(timeout=30)
    assert refused.returncode == 3
    assert "the run to resume is still going on" in refused.stderr


def test_shards_are_disjoint_and_complete(optest: Optest, tmp_path: Path) -> None:
    plan = optest.plan(*range(1, 30))
    seen: list[int] = []
    for shard in ("1/3", "2/3", "3/3"):
        assert optest("run", "--plan", plan, "--shard", shard, "--report", "json:r.json").returncode == 0
        seen += cases_of(tmp_path / "r.json")
    assert sorted(seen) == list(range(1, 30))


def test_fail_fast(optest: Optest) -> None:
    done = optest("run", "--plan", optest.plan(1, 101, *range(2, 40)), "--fail-fast")
    assert done.returncode == 1
    assert "stopped at the first failure" in done.stdout


def test_a_report_that_cannot_be_written_is_told_before_anything_runs(
    optest: Optest, notes: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    done = optest("run", "--plan", optest.plan(1), "--report", "json:file/r.json")
    assert done.returncode == 3
    assert "the json report file/r.json cannot be written" in done.stderr
    assert "run 1" not in notes.read_text()


def test_the_json_summary_on_stdout(optest: Optest) -> None:
    done = optest("run", "--plan", optest.plan(1, 103), "--json")
    data = json.loads(done.stdout)
    assert data["exit_code"] == done.returncode == 1
    assert data["summary"]["counts"]["crashed"] == 1
    assert data["run"]["backend"]["name"] == "misbehaving"


def test_the_output_may_be_cut_off(optest: Optest) -> None:
    process = optest.start("list")
    process.stdout.close()
    assert process.wait(60) in (0, 1, 2)
    assert "Traceback" not in process.stderr.read()


def test_a_script_may_run_its_own_driver(tmp_path: Path, optest: Optest) -> None:
    """Workers get a driver that the main script defines; the script needs multiprocessing's usual guard."""
    script = tmp_path / "own.py"
    script.write_text(
        "import numpy as np\n"
        "from optest.backends import BackendDriver\n"
        "from optest.core.case import BackendTarget, TestCase\n"
        "from optest.running.runner import TestRunner\n"
        "from optest.operators import operator_registry\n"
        "class Mine(BackendDriver):\n"
        "    kind, name = 'cpu', 'mine'\n"
        "    def run(self, case, inputs):\n"
        "        return (np.maximum(inputs[0], 0),)\n"
        "def main():\n"
        "    case = TestCase(operator_registry.get('relu'), ('float32',), {'input0': (4,)}, {},\n"
        "                    BackendTarget('cpu', 'mine'), None, 0)\n"
        "    print(TestRunner(Mine()).run([case]).to_dict()['counts']['passed'], 'passed')\n"
        "GUARD\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(one for one in sys.path if one)}

    def run() -> subprocess.CompletedProcess[str]:
        words = [sys.executable, str(script)]
        return subprocess.run(words, capture_output=True, text=True, env=environment, timeout=60, check=False)

    text = script.read_text()
    script.write_text(text.replace("GUARD", "if __name__ == '__main__':\n    main()"))
    assert run().stdout == "1 passed\n"
    script.write_text(text.replace("GUARD", "main()"))
    assert "put the code that runs tests under `if __name__" in run().stderr
