from __future__ import annotations

import math
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from optest.cli.run import SUITES_ONLY, options_of, run
from optest.core.case import BackendTarget, TestCase
from optest.core.tolerance import Tolerance
from optest.operators import operator_registry
from optest.plan.loader import load
from optest.plan.rerun import rerun_command, yaml_text

CASES = [
    {},
    {"attributes": {"alpha": 1e-05, "pads": (1, -2), "mode": "down"}},
    {"attributes": {"alpha": math.inf, "pads": ((1, 2), (3, 4)), "mode": "up"}},
    {"shapes": {"input0": (), "input1": ()}},
    {"shapes": {"input0": (0, 3), "input1": (3,)}, "dtypes": ("float32", "int32"), "seed": 5},
    {"generator": "optest.generators:EdgeGenerator", "reference": "operator:add", "phase": "backward"},
    {"tolerance": Tolerance(0.5, 1e-09)},
    {"backend_config": {"command": {"command": ["a b", "{op}"], "timeout": 1e-05, "env": {"X": "ü"}}}},
]


def parsed(line: str) -> list[TestCase]:
    words = shlex.split(line)
    assert words[:2] == ["optest", "run"]
    context = run.make_context("run", words[2:])
    others = ("no_color", "as_json", *SUITES_ONLY)
    given = {name: value for name, value in context.params.items() if name not in others}
    return list(load(options_of(**given)))


@pytest.mark.parametrize("change", CASES)
def test_the_command_runs_that_very_case(change: dict[str, Any]) -> None:
    case = TestCase(
        operator_registry.get("add"),
        ("float32", "float32"),
        {"input0": (2, 3), "input1": (3,)},
        {"alpha": 1.0, "pads": (), "mode": "up"},
        BackendTarget("gpu", None, "a100"),
        None,
        0,
    )
    case = replace(case, **change)
    [again] = parsed(rerun_command(case))
    assert again.id == case.id
    assert (again.tolerance, again.backend) == (case.tolerance, case.backend)
    assert again.backend_config == case.backend_config


def test_a_case_with_driver_settings_is_named_by_its_plan(plan_file: Callable[..., Path]) -> None:
    case = TestCase(
        operator_registry.get("relu"),
        ("int8",),
        {"input0": (2,)},
        {},
        BackendTarget("npu", "ascend"),
        None,
        0,
        backend_config={"ascend": {"command": ["run"]}},
    )
    line = rerun_command(case, Path("my plan.yaml"))
    assert line == f"optest replay {case.id} --plan 'my plan.yaml' --backend ascend"
    assert rerun_command(replace(case, backend_config={}), Path("my plan.yaml")).startswith(
        "optest run --op relu"
    )


@pytest.mark.parametrize(
    "value", [1e-05, 1e22, -0.5, 3, True, None, "1", "a: b", "é", [1, [2.5, "x"]], -math.inf]
)
def test_values_survive_yaml(value: Any) -> None:
    assert yaml.safe_load(yaml_text(value)) == value


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--shape", "8x2048"], "write sizes with commas"),
        (["--shape", "input0=-1"], "write sizes with commas"),
        (["--attr", "dim"], "write name=value"),
        (["--attr", "dim=[1"], "is not a number, text"),
        (["--seed", "-1"], "0<=x<="),
        (["--workers", "0"], "1<=x<="),
    ],
)
def test_flags_that_cannot_be_read_are_usage_errors(words: list[str], told: str) -> None:
    with pytest.raises(click.UsageError) as caught:
        run.make_context("run", words)
    assert told in caught.value.format_message()
