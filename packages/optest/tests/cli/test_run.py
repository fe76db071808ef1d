"""``optest run`` and the commands that read its results, on the stub; tests/meta runs processes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner, Result

from optest.cli.app import cli
from optest.ledger import Ledger

RELU = ("run", "--op", "relu", "--dtype", "float16", "--shape", "8,2048", "--backend", "stub")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OPTEST_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("OPTEST_LEDGER", raising=False)
    monkeypatch.delenv("OPTEST_PLUGINS", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


@pytest.fixture
def call() -> Callable[..., Result]:
    """Return a function that runs the command in this process and checks its exit code."""

    def run(*words: str, code: int = 0) -> Result:
        result = CliRunner().invoke(cli, words)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        assert result.exit_code == code, result.output
        return result

    return run


def only_case(file: Path) -> dict[str, Any]:
    (case,) = json.loads(file.read_text())["cases"]
    assert isinstance(case, dict)
    return case


Call = Callable[..., Result]


def test_the_first_command_of_the_guide(call: Call, home: Path) -> None:
    shown = call(*RELU).stdout
    assert "1 case on stub" in shown
    assert "1 passed in" in shown
    assert (home / "ledger.sqlite").exists()
    assert list((home / "journals").iterdir()) == []  # a complete run needs none


def test_reports_agree_with_the_published_schema(call: Call, tmp_path: Path) -> None:
    call(*RELU, "--report", "json:out/r.json", "--report", "junit", "--report", "html")
    schema = json.loads(call("schema", "report").stdout)
    jsonschema.Draft202012Validator(schema).validate(json.loads((tmp_path / "out" / "r.json").read_text()))
    assert {one.name for one in tmp_path.iterdir()} == {
        "home",
        "out",
        "optest-report.xml",
        "optest-report.html",
    }


def test_flags_reach_the_case(call: Call, tmp_path: Path) -> None:
    call(
        *("run", "--op", "softmax", "--dtype", "float32", "--shape", "input0=3,4", "--attr", "dim=0"),
        *("--seed", "5", "--rtol", "0.5", "--atol", "0.25", "--backend", "numpy", "--report", "json:r.json"),
        *("--generator", "optest.generators:EdgeGenerator", "--ledger", "none"),
    )
    case = only_case(tmp_path / "r.json")
    assert (case["op"], case["dtypes"], case["shapes"]) == ("softmax", ["float32"], {"input0": [3, 4]})
    assert (case["attributes"]["dim"], case["seed"]) == (0, 5)
    tolerance = case["comparisons"][0]["tolerance"]
    assert (tolerance["rtol"], tolerance["atol"]) == (0.5, 0.25)
    assert not (tmp_path / "home" / "ledger.sqlite").exists()


def test_workers_and_timeouts_isolate_the_stub(call: Call, tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text("cases: [{op: relu, dtypes: [float16, float32], shapes: [[4], [5], [6]]}]\n")
    words = ("run", "--plan", str(plan), "--backend", "stub")
    here = call(*words, "--report", "json:here.json")
    apart = call(*words, "--workers", "2", "--timeout", "60", "--report", "json:apart.json")
    assert "6 passed" in here.stdout
    assert "6 passed" in apart.stdout

    def judged(name: str) -> dict[str, Any]:
        cases = json.loads((tmp_path / name).read_text())["cases"]
        return {one["case_id"]: one["comparisons"] for one in cases}

    assert judged("here.json") == judged("apart.json")


def test_results_of_several_runs(call: Call, tmp_path: Path) -> None:
    call(*RELU)
    call(*RELU[:-1], "numpy")
    runs = json.loads(call("history", "relu", "--json").stdout)["runs"]
    assert [(one["backend"], one["passed"]) for one in runs] == [("stub", 1), ("numpy", 1)]
    assert "numpy" in call("history", "relu", "--dtype", "float16").stdout
    assert "the ledger has no run of 'relu'" in call("history", "relu", "--dtype", "int8", code=2).stderr
    first, second = (one["run"] for one in runs)
    told = call("diff", first, second)
    assert "1 cases in both" in told.stdout
    data = json.loads(call("diff", first, "latest", "--json").stdout)
    assert data["newly_failing"] == []
    added = json.loads(call("merge", "home/ledger.sqlite", "--ledger", "all.sqlite", "--json").stdout)
    assert added == {"added": {"home/ledger.sqlite": 2}}
    assert "0 runs added" in call("merge", "home/ledger.sqlite", "--ledger", "all.sqlite").stdout
    assert len(Ledger(tmp_path / "all.sqlite").runs()) == 2


def test_targets_of_one_command_driver_are_apart(call: Call) -> None:
    """Settings of the whole run tell targets apart, but not those for the folder and the timeout."""
    for word, timeout in (("one", 5), ("one", 9), ("two", 5)):
        command = f"backend_config.command.command=[sh, -c, 'cat input/*.bin > output/output0.bin; : {word}']"
        more = ("--attr", command, "--attr", f"backend_config.command.timeout={timeout}")
        call("run", "--op", "flatten", "--dtype", "int32", "--shape", "4", "--backend", "command", *more)
    shown = json.loads(call("history", "flatten", "--json").stdout)["runs"]
    first, same, other = (one["backend"] for one in shown)
    assert first == same != other
    assert re.fullmatch(r"command \(settings [0-9a-f]{8}\)", first)
    assert (
        f"2 backends are called 'command': {' and '.join(sorted((first, other)))}"
        in call("coverage", "--backend", "command", code=2).output
    )
    assert json.loads(call("coverage", "--json").stdout)["backend"] == other
    assert len(json.loads(call("coverage", "--backend", first, "--json").stdout)["runs"]) == 2


def test_merging_tells_which_shards_are_missing(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("run", "--suite", "builtin", "--op", "relu", "--backend", "stub")
    for shard in ("1/3", "3/3", "2/3"):
        given = (*words, "--shard", shard, "--ledger", f"{shard[0]}.sqlite")
        monkeypatch.setattr("sys.argv", ["optest", *given])
        call(*given)
    told = f"no run of 'optest {' '.join(words)}' on stub has the shards"
    first = json.loads(call("merge", "1.sqlite", "--ledger", "all.sqlite", "--json").stdout)
    assert first["warnings"] == [f"{told} 2/3 and 3/3"]
    assert f"{told} 2/3" in call("merge", "3.sqlite", "--ledger", "all.sqlite").output
    covered = json.loads(call("coverage", "--ledger", "all.sqlite", "--json").stdout)
    assert any(told in one for one in covered["warnings"])
    whole = json.loads(call("merge", "2.sqlite", "--ledger", "all.sqlite", "--json").stdout)
    assert whole == {"added": {"2.sqlite": 1}}


def test_new_failures_are_exit_code_1(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    call(*RELU)
    from optest.backends.stub import StubDriver

    monkeypatch.setattr(StubDriver, "run", lambda self, case, inputs: (inputs[0] * 2,))
    call(*RELU, code=1)
    runs = [one["run"] for one in json.loads(call("history", "relu", "--json").stdout)["runs"]]
    assert "newly failing" in call("diff", *runs, code=1).stdout
    call("diff", *reversed(runs))


def test_a_case_is_replayed_from_the_ledger(call: Call, tmp_path: Path) -> None:
    call(*RELU, "--seed", "9", "--report", "json:r.json")
    case = only_case(tmp_path / "r.json")
    again = call("replay", case["case_id"][:10], "--json")
    data = json.loads(again.stdout)
    assert (data["summary"]["ran"], data["run"]["seed"]) == (1, 9)
    assert "does not fail on stub" in call("replay", case["case_id"], "--script", "x.py", code=2).stderr
    assert "0 cases" in call("replay", "0000", code=2).stderr


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("this is not a database, and longer than the header of one" * 20, "cannot be read"),
        (None, "cannot be made"),
    ],
)
def test_a_ledger_that_cannot_be_used_is_told_first(
    call: Call, tmp_path: Path, content: str | None, told: str
) -> None:
    place = tmp_path / "l"
    if content is None:
        place = place / "below" / "a-file"
        place.parent.parent.touch()
    else:
        place.write_text(content)
    result = call(*RELU, "--ledger", str(place), "--report", "json:r.json", code=3)
    assert told in result.stderr
    assert result.stdout == ""
    assert not (tmp_path / "r.json").exists()
    call(*RELU, "--ledger", "none")


def test_a_read_only_ledger_is_told_first(call: Call, tmp_path: Path) -> None:
    call(*RELU, "--ledger", "l.sqlite")
    read_only = f"sqlite:///file:{tmp_path / 'l.sqlite'}?mode=ro&uri=true"  # file modes do not stop root
    assert "readonly" in call(*RELU, "--ledger", read_only, code=3).stderr
    assert len(json.loads(call("history", "relu", "--ledger", read_only, "--json").stdout)["runs"]) == 1


def test_a_ledger_that_breaks_in_mid_run_loses_nothing(
    call: Call, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The report is complete, the journal stays for --resume, and the exit code is 3 (environment)."""

    def broken(self: Ledger, run_id: str, results: object) -> None:
        from optest.errors import LedgerError

        raise LedgerError("disk full")

    with monkeypatch.context() as context:
        context.setattr(Ledger, "append", broken)
        result = call(*RELU, "--report", "json:r.json", code=3)
    assert "problem: ledger: disk full" in result.stdout
    assert only_case(tmp_path / "r.json")["status"] == "passed"
    assert len(list((home / "journals").iterdir())) == 1
    resumed = json.loads(call(*RELU, "--resume", "--json").stdout)
    assert (resumed["summary"]["resumed"], resumed["exit_code"]) == (1, 0)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--shape", "8x2048"), "write sizes with commas, like 8,2048"),
        (("--dtype", "float99"), "relu does not take float99; it takes float16"),
        (("--backend", "stubb"), "unknown backend 'stubb': did you mean stub"),
        (("--chip", "a100", "--backend", "numpyy"), "did you mean numpy"),
        (("--attr", "alpha=1"), "relu has no attribute 'alpha'"),
        (("--report", "jsonn"), "unknown report 'jsonn': did you mean json"),
        (("--shard", "3/2"), "write i/n with 1 <= i <= n"),
        (("--plan", "no.yaml"), "no.yaml: cannot read the plan"),
        (("--filter", "op=conv2"), "conv2"),
        (("--workers", "0"), "--workers"),
    ],
)
def test_mistakes_are_one_message(call: Call, words: tuple[str, ...], told: str) -> None:
    result = call("run", "--op", "relu", "--shape", "4", "--backend", "stub", *words, code=2)
    assert told in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("where", "told"),
    [
        ("comand: {command: x}", "unknown driver in backend_config 'comand': did you mean command?"),
        ("stub: {fast: true}", "backend_config.stub: Additional properties are not allowed ('fast' was"),
    ],
)
def test_settings_that_no_driver_reads_are_told(call: Call, where: str, told: str) -> None:
    """Such settings are reported before anything runs: in a plan, in a case of it, on the command line."""
    case = "{op: relu, dtypes: float32, shapes: {input0: [2]}"
    Path("whole.yaml").write_text(f"backend_config:\n  {where}\ncases:\n  - {case}}}\n")
    Path("case.yaml").write_text(f"cases:\n  - {case}, backend_config: {{{where}}}}}\n")
    for plan in ("whole.yaml", "case.yaml"):
        assert told in call("run", "--plan", plan, "--backend", "stub", code=2).output
    driver, _, settings = where.partition(": ")
    assert told in call(*RELU, "--attr", f"backend_config.{driver}={settings}", code=2).output
    assert not Path("home").exists()


def test_a_driver_without_its_settings_is_told_before_anything_runs(call: Call) -> None:
    done = call("run", "--op", "relu", "--op", "add", "--backend", "npu", "--chip", "ascend310b", code=2)
    assert done.stderr.count("the driver 'ascend' needs to know its command") == 1


def test_writers_keep_devices_and_links(call: Call, tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").write_text("before")
    (tmp_path / "kept" / "file").chmod(0o640)
    for name in ("r.json", "c.md", "s.py"):
        (tmp_path / name).symlink_to("kept/file")
    call(*RELU, "--report", "json:/dev/null", "--report", "junit:/dev/null", "--report", "html:/dev/null")
    call("coverage", "-o", "/dev/null")
    assert Path("/dev/null").is_char_device()
    call(*RELU, "--report", "json:r.json")
    assert json.loads((tmp_path / "kept" / "file").read_text())["summary"]["ran"] == 1
    call("coverage", "-o", "c.md")
    assert (tmp_path / "kept" / "file").read_text().startswith("#")
    assert (tmp_path / "kept" / "file").stat().st_mode & 0o777 == 0o640
    assert all((tmp_path / name).is_symlink() for name in ("r.json", "c.md"))


def test_a_full_disk_leaves_no_part_of_a_page(
    call: Call, tmp_path: Path, largest_file: Callable[[int], AbstractContextManager[None]]
) -> None:
    call(*RELU)
    (tmp_path / "c.md").write_text("before")
    full = call(*RELU, "--report", "json:/dev/full", code=3).output
    assert "the json report /dev/full cannot be written: No space left on device" in full
    with largest_file(100):
        told = [
            call("coverage", "-o", "c.md", code=3).output,
            call("coverage", "--badges", "badges", code=3).output,
            call("dashboard", "-o", "site", code=3).output,
        ]
    assert all("cannot be written" in one and "File too large" in one for one in told)
    assert (tmp_path / "c.md").read_text() == "before"
    assert [file for file in tmp_path.rglob("*") if file.name.endswith(".tmp")] == []
    assert not list((tmp_path / "badges").iterdir())
