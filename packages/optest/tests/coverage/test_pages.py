from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from optest.cli.app import cli
from optest.core.result import Status
from optest.core.summary import Summary
from optest.coverage.details import details_page
from optest.coverage.models import candidates, model_coverage
from optest.coverage.page import coverage_page
from optest.coverage.snapshot import take_snapshot

HOSTILE = "a|b`<script>alert(1)</script>[x](javascript:1)\n# heading"
STAGES = """
format = 1
[target.planned]
linalg = ["eig"]
[[unsupported]]
operator = "jit*"
reason = "CUDA only"
[[stage]]
number = 1
name = "Only"
summary = "all"
[[stage.item]]
text = "one"
needs = "covered"
at_least = 1
"""


def invoke(*arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(cli, [str(one) for one in arguments], standalone_mode=False)
    assert done.exception is None, done.output
    return done.return_value, done.output


@pytest.fixture
def recorded(recorder: Any, tmp_path: Path) -> Any:
    for _ in range(2):
        recorder.run(
            [
                *recorder.operator("add"),
                *recorder.operator("matmul", "float32", category="linalg"),
                recorder.case(
                    "matmul", "float64", category="linalg", status=Status.ERROR, reason="no kernel"
                ),
                recorder.case("eig", category="linalg", status=Status.UNSUPPORTED, reason="no lowering"),
                recorder.case("jiterator_unary", status=Status.ERROR),
                recorder.case(HOSTILE, status=Status.ERROR, reason=HOSTILE),
            ]
        )
    (tmp_path / "stages.toml").write_text(STAGES)
    return recorder


def assert_harmless(page: str) -> None:
    assert "<script" not in page
    assert "\n# heading" not in page
    assert "\\[x\\](javascript:1)" in page


def test_coverage_md_is_one_screen(recorded: Any, tmp_path: Path) -> None:
    snapshot = take_snapshot(recorded.ledger, stages=tmp_path / "stages.toml")
    page = coverage_page(snapshot, "optest coverage", "docs/details.md")
    for expected in (
        "**Stage 1 (Only). 1 of 4 operators are fully covered (25.0 %), 1 partially.** 12 of 16 recorded",
        "[Details](docs/details.md)",
        "| Stage 1 (Only): all | complete |  |",
        "| dtype | forward | backward | errors | noncontiguous |",
        "| float32 | 2/5 | 2/2 | 2/2 | 2/2 |",
        "## Partially covered (1)",
        "| matmul | float64: 1 of 1 do not pass (no kernel) |",
        "| jiterator\\_unary | CUDA only |",
    ):
        assert expected in page
    assert len(page.splitlines()) < 60
    assert_harmless(page)


def test_coverage_md_says_what_a_checklist_lacks(recorder: Any) -> None:
    recorder.run(recorder.operator("add", "float32"))
    page = coverage_page(take_snapshot(recorder.ledger), "optest coverage")
    assert "Checklists also ask for what no result can show." in page
    row = next(line for line in page.splitlines() if line.startswith("| Minimal: can merge"))
    assert "implementation plan documented" in row


def test_details(recorded: Any, tmp_path: Path) -> None:
    page = details_page(take_snapshot(recorded.ledger, stages=tmp_path / "stages.toml"), "optest coverage")
    for expected in (
        "## Stage: Stage 1 (Only)",
        "- [x] one",
        "- linalg: eig (none)",
        "## Fully supported (1)\n\n### elementwise (1)\n\nadd\n",
        "### linalg (1)\n\n- **matmul**: float64: 1 of 1 do not pass (no kernel)\n",
        "- **eig**: no lowering\n",
        "- **jiterator\\_unary**: CUDA only\n",
        "| 1 | 1 | 2 | 1 | 5 |",
    ):
        assert expected in page
    assert_harmless(page)


def test_details_name_the_runs_and_their_cost(recorder: Any) -> None:
    cases = recorder.operator("add", "float32")
    facts = {"python": "3.11", "torch": "2.13", "commit": "c0ffee", "cpus": "2"}
    seconds = {"capture": 30.0, "lowering": 20.5}
    command = "optest run --suite opinfo --backend torchstone"
    first = recorder.run(cases, Summary(seconds=seconds), environment=facts, command_line=command)
    again = recorder.run(
        cases, Summary(seconds=seconds), environment=facts, command_line=f"{command} --resume"
    )
    page = details_page(take_snapshot(recorder.ledger), "optest coverage")
    for expected in (
        f"- Recorded: 2 runs, {first} to {again} (2026-01-01)\n",
        "- Of: optest 0.1.0, commit c0ffee, python 3.11, torch 2.13\n",
        "- Cases: 4 of 4 pass; 4 are recorded\n",
        "PyTorch's capture 60.0 s; everything else 41.0 s: lowering 41.0 s\n",
        f"- {command}: {first}, {again}\n",
        "| add |  | backward 1/1 (float32); errors 1/1 (float32); forward 1/1 (float32);",
    ):
        assert expected in page


def test_the_commands(recorded: Any, tmp_path: Path) -> None:
    given = ("--ledger", recorded.ledger.place, "--stages", tmp_path / "stages.toml")
    pages = ("-o", tmp_path / "COVERAGE.md", "--details", tmp_path / "docs" / "details.md")
    (tmp_path / "docs").mkdir()
    code, said = invoke("coverage", *given, *pages, "--badges", tmp_path / "badges")
    assert code == 0
    assert "torchstone: 1 full, 2 none, 1 partial, 1 unsupported; Stage 1 (Only)" in said
    assert "[Details](docs/details.md)" in (tmp_path / "COVERAGE.md").read_text()
    assert "# Operator coverage of torchstone: details" in (tmp_path / "docs" / "details.md").read_text()
    for name, value in (("stage", "stage: 1"), ("coverage", "operators covered: 25 %")):
        root = ET.parse(tmp_path / "badges" / f"{name}.svg").getroot()
        assert root.attrib["aria-label"] == value
        assert "http" not in (tmp_path / "badges" / f"{name}.svg").read_text().replace(
            "http://www.w3.org/2000/svg", ""
        )
    found = json.loads(invoke("coverage", *given, "--json")[1])
    assert found["counts"] == {"full": 1, "partial": 1, "none": 2, "unsupported": 1}
    assert json.loads(invoke("stage", *given, "--json")[1])["reached"] == 1
    assert invoke("stage", *given, "--at-least", 1)[0] == 0
    assert invoke("stage", *given[:2], "--at-least", 3)[0] == 1


def test_attest_command(tmp_path: Path) -> None:
    file = tmp_path / "evidence.toml"
    code, said = invoke("attest", "audit", "--evidence", file, "--json", "--", "echo", "-n", "clean")
    assert code == 0
    assert json.loads(said)["command"] == "echo -n clean"
    assert 'id = "audit"' in file.read_text()


@pytest.mark.parametrize(
    ("function", "entry"),
    [
        ("torch.nn.functional.linear", "nn.functional.linear"),
        ("torch.conv2d", "nn.functional.conv2d"),
        ("torch.Tensor.add_", "add"),
        ("torch.Tensor.__radd__", "add"),
        ("torch.Tensor.__rtruediv__", "div"),
        ("torch.Tensor.__getitem__", "__getitem__"),
        ("torch.linalg.norm", "linalg.norm"),
    ],
)
def test_names_of_functions_and_entries(function: str, entry: str) -> None:
    assert entry in candidates(function)


def test_models_are_weighted_by_calls(recorded: Any) -> None:
    operators = take_snapshot(recorded.ledger).operators
    found = model_coverage("m", {"torch.add": 3, "torch.matmul": 2, "torch.foo": 1}, operators)
    assert [(one.operator, one.calls, one.level) for one in found.called] == [
        ("add", 3, "full"),
        ("matmul", 2, "partial"),
        (None, 1, None),
    ]
    assert (found.covered_calls, found.calls) == (3, 6)
