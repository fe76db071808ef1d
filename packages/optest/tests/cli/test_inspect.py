from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner, Result

from optest.cli.app import cli
from optest.operators import operator_registry


def call(*words: str) -> Result:
    """Run the command in this process; ``exit_code`` is what the process would exit with."""
    result = CliRunner().invoke(cli, words)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def test_list_shows_every_operator() -> None:
    result = call("list")
    assert result.exit_code == 0
    assert f"{len(operator_registry)} operators" in result.stdout
    listed = json.loads(call("list", "--json").stdout)["operators"]
    assert [one["name"] for one in listed] == operator_registry.names()


def test_a_table_in_a_file_is_as_wide_as_each_row() -> None:
    lines = call("list").stdout.splitlines()
    assert all(line == line.rstrip() for line in lines)
    assert not set("".join(lines)) & set("─━")


def test_list_narrows() -> None:
    listed = json.loads(call("list", "conv*", "--category", "convolution", "--json").stdout)["operators"]
    assert "conv2d" in {one["name"] for one in listed}
    assert {one["category"] for one in listed} == {"convolution"}
    wrong = call("list", "conw2d")
    assert wrong.exit_code == 2
    assert "did you mean conv2d" in wrong.stderr
    assert call("list", "--category", "convolutoin").exit_code == 2


@pytest.mark.parametrize("op", ["relu", "conv2d", "layer_norm"])
def test_show_tells_what_an_operator_takes(op: str) -> None:
    descriptor = operator_registry.get(op)
    shown = call("show", op).stdout
    assert all(name in shown for name in (*descriptor.inputs, *descriptor.attributes, descriptor.reference))
    data = json.loads(call("show", op, "--json").stdout)
    assert data["dtypes"] == [list(one) for one in descriptor.dtypes]
    assert len(data["setups"]) == len(descriptor.setups)


def test_errors_are_one_message_on_stderr_or_one_object() -> None:
    result = call("show", "rleu")
    assert (result.exit_code, result.stdout) == (2, "")
    assert (
        result.stderr.startswith("optest show: unknown operator 'rleu': did you mean")
        or "relu" in result.stderr
    )
    assert "Traceback" not in result.stderr
    result = call("show", "rleu", "--json")
    assert result.exit_code == 2
    error = json.loads(result.stdout)["error"]
    assert (error["type"], error["hint"]) == ("UnknownName", "`optest list` shows every operator")


def test_the_plan_schema_is_printed() -> None:
    schema = json.loads(call("schema", "plan").stdout)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["title"] == "optest plan"


def test_plan_check_counts_and_lists(tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text("cases:\n  - {op: relu, dtypes: [float16, float32], shapes: [[8, 2048], [4]]}\n")
    assert "4 cases of 1 operators" in call("plan", "check", str(plan)).stdout
    data = json.loads(call("plan", "check", str(plan), "--ids", "--json").stdout)
    assert (data["cases"], data["operators"], len(data["ids"])) == (4, {"relu": 4}, 4)
    assert "relu float16 [8, 2048]" in data["ids"].values()
    plan.write_text("cases:\n  - {op: relu, dtypes: float99}\n")
    result = call("plan", "check", str(plan))
    assert result.exit_code == 2
    assert f"{plan}:2: cases[0].dtypes: relu does not take float99" in result.stderr


def test_a_broken_plugin_is_reported_and_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPTEST_PLUGINS", "no_such_plugin_of_tests")
    result = call("show", "relu")
    assert result.exit_code == 0
    assert "plugin no_such_plugin_of_tests (from OPTEST_PLUGINS) failed: ModuleNotFoundError" in result.stderr
    listed = json.loads(call("list", "relu", "--json").stdout)
    assert [one["name"] for one in listed["failed_plugins"]] == ["no_such_plugin_of_tests"]


@pytest.mark.parametrize("words", [(), ("run",), ("plan", "check"), ("replay",), ("diff",), ("history",)])
def test_help_names_the_exit_codes_or_the_options(words: tuple[str, ...]) -> None:
    result = call(*words, "--help")
    assert result.exit_code == 0
    assert ("Exit codes: 0 ok, 1 failures" in result.stdout) == (words == ())
    assert ("--json" in result.stdout) == (words != ())
