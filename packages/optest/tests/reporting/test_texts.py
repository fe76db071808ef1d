"""Reports on the terminal, in JUnit XML and in HTML."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from optest.core.result import CaseResult, RunInfo, Status
from optest.core.summary import Summary
from optest.errors import ReportError
from optest.reporting import Reporter, ReportManager, TerminalReporter
from optest.reporting.html import HtmlReporter
from optest.reporting.json_report import JsonReporter
from optest.reporting.junit import JUnitReporter

Play = Callable[..., Summary]
Results = tuple[CaseResult, ...]


def terminal(play: Play, results: Results, **fields: object) -> str:
    file = io.StringIO()
    play(TerminalReporter(file=file), results, **fields)
    return file.getvalue()


def test_a_failure_has_everything_that_the_guide_lists(play: Play, results: Results) -> None:
    text = terminal(play, results)
    for part in (
        "MISMATCH relu float16 [8, 2048]",
        "cuda-runtime (gpu, chip a100)",
        "seed        7",
        "input0 [8, 2048]",
        "alpha=0.5, mode=up",
        "rtol 0.001, atol 1e-05",
        "mismatch: 2 of 3 elements differ (66.7 %)",
        "worst at [2]: actual inf, expected 4.0",
        "infinity 1",
        "rerun       optest run --op relu --seed 7",
        "CRASHED conv<2d> float16",
        "signal      SIGSEGV",
        "<tag> [bold]",
    ):
        assert part in text, part


def test_the_end_condenses(play: Play, results: Results) -> None:
    mismatches = [replace(results[1], case_id=f"{i:016x}") for i in range(50)]
    text = terminal(play, (*results, *mismatches))
    assert text.count("MISMATCH relu") == 19  # and one crash: 20 in full
    assert "further failures only in the summary" in text
    assert "relu  mismatch × 51  0123456789abcdef output0: 1 of 3 elements differ" in text
    assert text.splitlines()[-1].startswith("1 passed, 51 mismatch, 1 crashed, 1 xfailed in 0.0 s")


def test_the_closing_line(play: Play, results: Results) -> None:
    assert (
        terminal(play, (), interrupted=True).splitlines()[-1].startswith("no case ran in 0.0 s; interrupted")
    )
    assert "stopped at the first failure" in terminal(play, results, stopped=True)
    assert "problem: json: disk full" in terminal(play, results, problems=["json: disk full"])
    flaky = replace(results[0], flaky=True, attempts=2)
    assert "1 passed (1 of them flaky)" in terminal(play, (flaky,))


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("color", [True, False])
def test_colours_and_progress_on_a_terminal_only(
    monkeypatch: pytest.MonkeyPatch, play: Play, results: Results, color: bool
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    screen = Screen()
    play(TerminalReporter(color=color, file=screen), results)
    assert bool(re.search(r"\x1b\[[0-9;]*3[0-9]m", screen.getvalue())) == color
    assert re.search("[0-4]/4", screen.getvalue())  # the bar
    assert "\x1b" not in terminal(play, results)


JUNIT = {
    "testsuites": (set(), {"name", "tests", "failures", "errors", "time"}, {"testsuite"}),
    "testsuite": (
        {"name", "tests"},
        {"name", "tests", "failures", "errors", "skipped", "time", "timestamp", "hostname"},
        {"properties", "testcase"},
    ),
    "properties": (set(), set(), {"property"}),
    "property": ({"name", "value"}, {"name", "value"}, set()),
    "testcase": (
        {"name", "classname"},
        {"name", "classname", "time"},
        {"skipped", "error", "failure", "system-out"},
    ),
    "system-out": (set(), set(), set()),
    "skipped": (set(), {"message"}, set()),
    "error": (set(), {"type", "message"}, set()),
    "failure": (set(), {"type", "message"}, set()),
}
"""Element → required attributes, allowed attributes, children; from the XSDs of Jenkins and Surefire."""


def check_junit(element: ElementTree.Element) -> None:
    required, allowed, children = JUNIT[element.tag]
    assert required <= set(element.attrib) <= allowed, element.tag
    for child in element:
        assert child.tag in children, (element.tag, child.tag)
        check_junit(child)


def test_junit(tmp_path: Path, play: Play, results: Results) -> None:
    play(JUnitReporter(tmp_path / "r.xml"), results)
    root = ElementTree.parse(tmp_path / "r.xml").getroot()
    assert root.tag == "testsuites"
    check_junit(root)
    (suite,) = root
    counts = {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped")}
    assert counts == {"tests": "4", "failures": "1", "errors": "1", "skipped": "1"}
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", suite.get("timestamp") or "")
    assert [child.tag for child in suite] == ["properties", *["testcase"] * 4]
    passed, failed, crashed, skipped = suite.findall("testcase")
    assert len(passed) == 0
    assert float(passed.get("time") or 0) == 0.25
    assert "rerun: optest run --op relu" in (failed[0].text or "")
    assert crashed.get("classname") == "optest.activation.conv<2d>"
    assert "line 2\\0 & <tag>" in (crashed[0].text or "")  # XML has neither NUL nor ESC
    assert "no bfloat16 accumulator" in (skipped[0].get("message") or "")


def test_junit_takes_nothing_for_a_pass_that_is_none(tmp_path: Path, play: Play, results: Results) -> None:
    """Fallbacks are skipped, flaky cases have a note, and a run that was cut short has an error."""
    passed = results[0]
    fallback = replace(passed, status=Status.FALLBACK, reason="ran in eager PyTorch: aten.add")
    flaky = replace(passed, flaky=True, reason="flaky: attempt 2 passed, the first did not (error: no)")
    unsupported = replace(passed, status=Status.UNSUPPORTED, reason="no")
    play(JUnitReporter(tmp_path / "r.xml"), (passed, fallback, flaky, unsupported), interrupted=True)
    root = ElementTree.parse(tmp_path / "r.xml").getroot()
    check_junit(root)
    (suite,) = root
    counts = {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped")}
    assert counts == {"tests": "5", "failures": "0", "errors": "1", "skipped": "2"}
    _, fell, again, declined, whole = suite.findall("testcase")
    assert fell[0].get("message") == "fallback: ran in eager PyTorch: aten.add"
    assert (again[0].tag, again[0].text) == ("system-out", flaky.reason)
    assert declined[0].get("message") == "unsupported: no"
    assert whole[0].get("message") == "interrupted: 4 of 4 cases have a result"


class Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in ("meta", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_html(tmp_path: Path, play: Play, results: Results) -> None:
    play(HtmlReporter(tmp_path / "r.html"), results)
    text = (tmp_path / "r.html").read_text()
    page = Page()
    page.feed(text)
    assert not page.open
    assert not page.links  # one file, nothing from elsewhere
    assert "<tag>" not in text
    for part in ("conv<2d>", "line 2", "worst at [2]: actual inf", "a100", 'Linux "x" & <y>', "no bfloat16"):
        assert part in page.text, part
    assert page.text.index("optest run --op relu --seed 7") > 0


def test_html_says_what_it_leaves_out(tmp_path: Path, play: Play, results: Results) -> None:
    many = [replace(results[1], case_id=f"{i:016x}") for i in range(1203)]
    play(HtmlReporter(tmp_path / "r.html"), many)
    assert "The first 1000 of 1203; the JSON report has all of them." in (tmp_path / "r.html").read_text()


class Broken(Reporter):
    name = "broken"

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.calls = 0
        self.discarded = False

    def discard(self) -> None:
        self.discarded = True

    def on_case_result(self, result: CaseResult) -> None:
        self.calls += 1
        raise self.error


@pytest.mark.parametrize(
    ("error", "told"),
    [(ReportError("disk full"), "broken: disk full"), (KeyError("x"), "broken: KeyError: 'x'")],
)
def test_a_reporter_that_fails_costs_the_others_nothing(
    tmp_path: Path, results: Results, run_info: RunInfo, error: Exception, told: str
) -> None:
    summary = Summary(4)
    broken, junit, file = Broken(error), JUnitReporter(tmp_path / "r.xml"), io.StringIO()
    with ReportManager([TerminalReporter(file=file), broken, junit], summary) as manager:
        manager.on_start(run_info, 4)
        for one in results:
            manager.on_case_result(one)
        manager.on_complete(summary)
    assert broken.calls == 1
    assert summary.problems == [told]
    assert broken.discarded
    assert f"problem: {told}" in file.getvalue()
    assert (tmp_path / "r.xml").exists()


def test_half_a_report_is_none(tmp_path: Path, results: Results, run_info: RunInfo) -> None:
    """A result that breaks the schema, or a run that never ends, leaves no report and no temporary file."""
    summary = Summary()
    with ReportManager([JsonReporter(tmp_path / "r.json")], summary) as manager:
        manager.on_start(run_info, 2)
        manager.on_case_result(results[0])
        manager.on_case_result(replace(results[0], case_id="short"))
        manager.on_complete(summary)
    assert "case_id" in summary.problems[0]
    with ReportManager([JsonReporter(tmp_path / "r.json")], summary) as manager:
        manager.on_start(run_info, 2)
        manager.on_case_result(results[0])  # and then something goes wrong elsewhere
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_none_is_told_at_the_start(tmp_path: Path, play: Play) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file" / "r.xml", tmp_path):
        with pytest.raises(ReportError, match="cannot be written"):
            play(JUnitReporter(path), ())
