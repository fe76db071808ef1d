"""``make compat``: what it runs again, what counts as passing, and the page that it writes."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
REPORT = """<testsuites><testsuite>
<testcase name="good"/><testcase name="bad"><failure/></testcase><testcase name="broken"><error/></testcase>
</testsuite></testsuites>"""


SCRIPT = """#!/bin/sh
echo run >> {place}/calls
echo "$OPTEST_HOME" >> {place}/homes
echo closing line
test -e {place}/again || {{ touch {place}/again; exit 1; }}
"""
"""A program whose first call fails."""


RECORD = """{"operators": {
"code": 1, "seconds": 2.0, "total": 700, "failed": ["test_forward[aten.x]"], "closing": ""}}"""


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """The program, with its files in a temporary folder."""
    monkeypatch.syspath_prepend(ROOT / "tools")
    spec = importlib.util.spec_from_file_location("compat", ROOT / "tools" / "compat.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "compat", module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "PLACE", tmp_path / "compat")
    monkeypatch.setattr(module, "RECORD", tmp_path / "record.json")
    monkeypatch.setattr(module, "PAGE", tmp_path / "page.md")
    return module


@pytest.fixture
def compat(loaded: ModuleType, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The program, for which the checked code stays the same."""
    monkeypatch.setattr(loaded, "sources", lambda: "this code")
    return loaded


def test_the_versions_are_those_that_torchstone_names(compat: ModuleType) -> None:
    from torchstone.torch_internals import TESTED

    assert compat.tested_versions() == TESTED


def test_pins_that_follow_pytorch_hold_for_its_version_only(compat: ModuleType) -> None:
    pinned, other = (compat.constraints_for(version).splitlines() for version in ("2.13.0", "9.9.9"))
    assert {line.partition("==")[0] for line in pinned} - {line.partition("==")[0] for line in other} == set(
        compat.FOLLOWS_TORCH
    )


def test_a_report_is_read(compat: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "report.xml"
    path.write_text(REPORT)
    assert compat.read_report(path) == (3, ("bad", "broken"))


@pytest.mark.parametrize(
    ("name", "failed", "good"), [("operators", 7, True), ("operators", 8, False), ("x", 1, False)]
)
def test_99_percent_of_the_operators_have_to_work(
    compat: ModuleType, name: str, failed: int, good: bool
) -> None:
    outcome = compat.Outcome(1, 2.0, total=700, failed=tuple(map(str, range(failed))))
    assert compat.passes(name, outcome) is good


def test_what_passed_is_not_run_again(
    compat: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(compat, "PYTHONS", ())
    for version in compat.tested_versions():
        place = compat.PLACE / version
        (place / "venv/bin").mkdir(parents=True)
        (place / "installed").touch()
        script = SCRIPT.format(place=place)
        for program in ("one", "two"):
            (place / "venv/bin" / program).write_text(script)
            (place / "venv/bin" / program).chmod(0o755)
    monkeypatch.setattr(
        compat, "checks", lambda: [compat.Check("one", ("one",)), compat.Check("two", ("two",))]
    )
    assert compat.main([]) == 1
    assert "2.14.1 one: fails, closing line" in capsys.readouterr().out
    assert compat.main([]) == 0
    assert "two" not in capsys.readouterr().out
    calls = [(compat.PLACE / version / "calls").read_text() for version in compat.tested_versions()]
    assert calls == ["run\n" * 3] * 2
    for version in compat.tested_versions():  # no version resumes from another one's results
        homes = (compat.PLACE / version / "homes").read_text().splitlines()
        assert set(homes) == {str(compat.PLACE / version / "optest")}
    assert "| one | passes | passes |" in " ".join(compat.PAGE.read_text().split())
    monkeypatch.setattr(compat, "sources", lambda: "other code")
    assert compat.main([]) == 0
    assert "2.14.1 two: passes" in capsys.readouterr().out


def test_sources_are_named_with_their_changes(
    loaded: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(loaded, "ROOT", tmp_path)
    file = tmp_path / "packages" / "one.py"
    file.parent.mkdir()
    file.write_text("1")
    identity = ("-c", "user.name=tests", "-c", "user.email=tests@localhost")
    for words in (("init", "--quiet"), ("add", "."), (*identity, "commit", "--quiet", "-m", "Add one")):
        subprocess.run(("git", *words), cwd=tmp_path, check=True)
    committed = loaded.sources()
    file.write_text("2")
    assert loaded.sources().startswith(f"{committed}+")
    file.write_text("1")
    (tmp_path / "page.md").write_text("not in the packages")
    assert loaded.sources() == committed


def test_the_page_names_what_does_not_work(compat: ModuleType) -> None:
    (compat.PLACE / "2.14.1").mkdir(parents=True)
    (compat.PLACE / "2.14.1/results.json").write_text(RECORD)
    text = compat.page([compat.Environment(version) for version in ("2.13.0", "2.14.1")])
    assert "passes: 699 of 700" in text
    assert "## What does not work with PyTorch 2.14.1\n\n- operators: `test_forward[aten.x]`" in text
    assert "not run" in text


@pytest.mark.parametrize(("code", "expected"), [("this code", "passes"), ("", "passes, earlier code")])
def test_results_of_earlier_code_are_marked(
    compat: ModuleType, monkeypatch: pytest.MonkeyPatch, code: str, expected: str
) -> None:
    found = {"2.13.0": "this code", "3.99": code}
    results = {name: {"demo": compat.Outcome(0, 2.0, sources=one)} for name, one in found.items()}
    monkeypatch.setattr(compat.Environment, "recorded", lambda one: results[one.name])
    text = compat.page([compat.Environment("2.13.0"), compat.Environment("2.13.0", "3.99")])
    rows = [[cell.strip() for cell in line.split("|")] for line in text.splitlines()]
    assert [row[2] for row in rows if row[1:2] == ["demo"]] == ["passes", expected]


def test_a_version_of_python_without_an_interpreter_is_said(
    compat: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(compat, "PYTHONS", ("3.99",))
    compat.main(["--only", "3.99"])
    assert "there is no python3.99 on the PATH" in capsys.readouterr().out
    assert "| Python 3.99" in compat.PAGE.read_text()
    assert "| no interpreter |" in " ".join(compat.PAGE.read_text().split())
    assert compat.Environment("2.13.0", "3.99").passed()


@pytest.mark.parametrize("code", [0, 1])
def test_without_an_interpreter_what_is_recorded_has_to_have_passed(
    compat: ModuleType, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    environment = compat.Environment("2.13.0", "3.99")
    monkeypatch.setattr(compat.Environment, "results", lambda _: {"demo": compat.Outcome(code, 2.0)})
    assert environment.passed() is (code == 0)


def test_another_python_checks_its_own_types(compat: ModuleType) -> None:
    environment = compat.Environment("2.13.0", "3.12")
    assert (environment.name, environment.title) == ("3.12", "Python 3.12")
    (types,) = (check for check in environment.checks if check.name == "types")
    assert "3.12" in types.words


def test_an_interpreter_without_pip_gets_an_environment(
    compat: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[list[str]] = []
    environment = compat.Environment("2.13.0", "3.14")
    monkeypatch.setattr(compat.subprocess, "run", lambda words, **_: called.append(words))
    environment.install()
    made, installed = called
    assert made[1:4] == ["-m", "venv", "--without-pip"]
    assert installed[:5] == [sys.executable, "-m", "pip", "--python", str(environment.program)]
    assert "torch==2.13.0" in installed
    environment.install()
    assert len(called) == 2


def test_results_of_another_machine_stay_on_the_page(
    compat: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compat, "PYTHONS", ())
    place = compat.PLACE / "2.14.1"
    place.mkdir(parents=True)
    (place / "results.json").write_text(RECORD)
    compat.main(["--page"])
    (place / "results.json").unlink()
    compat.main(["--page"])
    assert "passes: 699 of 700" in compat.PAGE.read_text()
    (place / "results.json").write_text(RECORD.replace('["test_forward[aten.x]"]', "[]"))
    compat.main(["--page"])
    assert "passes: 700 of 700" in compat.PAGE.read_text()
    assert compat.Environment("2.14.1").results().keys() == {"operators"}  # what is kept runs again
    (place / "results.json").unlink()
    assert compat.Environment("2.14.1").results() == {}


def test_a_script_in_place_of_an_interpreter_is_none(
    compat: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = tmp_path / "python3.99"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert compat.interpreter("3.99") is None
    script.write_text("#!/bin/sh\necho not active >&2\nexit 127\n")
    script.chmod(0o755)
    assert compat.interpreter("3.99") is None
    script.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    assert compat.interpreter("3.99") == sys.executable


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", ""),
        ("one\nall in order\n", "all in order"),
        ("3 passed in 16.33s\n/a.py:1: UserWarning: late\n", "3 passed in 16.33s"),
        ("728 passed in 2193.40s (0:36:33)\n  warn()\n", "728 passed in 2193.40s (0:36:33)"),
        ("14744 passed, 14 xfailed in 2193.4 s\n", "14744 passed, 14 xfailed in 2193.4 s"),
    ],
)
def test_a_run_ends_with_its_summary(compat: ModuleType, text: str, line: str) -> None:
    assert compat.closing_line(text) == line
