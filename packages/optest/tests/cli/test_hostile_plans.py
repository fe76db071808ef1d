"""Hostile plans and flags: each gives one error, at once, before anything runs."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from optest.cli.app import cli
from optest.errors import PlanError, UsageError
from optest.plan.document import read_document
from optest.plan.entries import MOST_CASES
from optest.plan.loader import load
from optest.plan.options import resolve

NAMES = "[" + ", ".join(["relu"] * 1001) + "]"
NUMBERS = "[" + ", ".join(map(str, range(1, 1001))) + "]"
SHAPES = "[" + ", ".join(f"[{size}]" for size in range(1, 1201)) + "]"
NESTED = "\n".join(f"k{n}: &a{n} {'[' * 60}{f'*a{n - 1}' if n else 0}{']' * 60}" for n in range(50))


def read(tmp_path: Path, text: str) -> None:
    file = tmp_path / "plan.yaml"
    file.write_text(text)
    for _ in load(resolve(plan=file)):
        pass


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("&a {<<: *a}", "an alias refers to itself"),
        ("a: &x {<<: [*x]}", "an alias refers to itself"),
        ("a: &x {b: {<<: *x}}", "an alias refers to itself"),
        (NESTED, "nested more than 100 deep"),
        (r'include: "a\0b"', "a text has a NUL or half a character"),
        (r'cases: [{op: "\ud800"}]', "invalid Unicode character escape code"),
        ("options: {timeout: .nan}", "wrong value"),
        ("options: {timeout: .inf}", "a finite number above 0 and at most 1000000"),
        ("options: {timeout: 1.0e+308}", "at most 1000000"),
        ("options: {workers: 100000000}", "at most 10000"),
        ("seed: 9223372036854775808", "a whole number of at least 0 and at most 9223372036854775807"),
        ("seed: -1", "a whole number of at least 0"),
        ("cases: [{op: relu, rtol: .inf}]", "a finite number of at least 0"),
        ("cases: [{op: relu, tolerance: {atol: .nan}}]", "a finite number of at least 0"),
        ("cases: [{op: relu, shapes: {input0: [9223372036854775808]}}]", "at most 9223372036854775807"),
        (f"cases: [{{op: relu, shapes: {{input0: [2]}}, seed: {NUMBERS}, phase: {NAMES}}}]", ""),
        (f"cases: [{{op: add, dtypes: float32, shapes: {{input0: {SHAPES}, input1: {SHAPES}}}}}]", ""),
        (f"cases: [{{op: softmax, shapes: {SHAPES}, attributes: {{dim: {NUMBERS}}}}}]", ""),
        (f"cases: [{{op: softmax, attributes: {{dim: {NUMBERS}}}, seed: {NUMBERS}}}]", ""),
    ],
)
def test_a_plan_is_refused_at_once(tmp_path: Path, text: str, told: str) -> None:
    started = time.monotonic()
    with pytest.raises(PlanError) as found:
        read(tmp_path, text)
    assert (told or f"a run may have {MOST_CASES:,}") in str(found.value)
    assert str(found.value).startswith(f"{tmp_path / 'plan.yaml'}:1")
    assert time.monotonic() - started < 30


def test_entries_are_too_many_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("optest.plan.loader.MOST_CASES", 10)
    with pytest.raises(UsageError, match="stands for more than 10 cases"):
        read(
            tmp_path,
            "cases: [{op: [relu, gelu, exp, abs], dtypes: float32, shapes: {input0: [[2], [3], [4]]}}]",
        )


def test_merging_still_works(tmp_path: Path) -> None:
    file = tmp_path / "plan.yaml"
    file.write_text("a: &x {b: 1, c: 2}\nd: {<<: *x, b: 3}\ne: {<<: [*x, {f: 4}]}")
    assert read_document(file).data == {
        "a": {"b": 1, "c": 2},
        "d": {"b": 3, "c": 2},
        "e": {"b": 1, "c": 2, "f": 4},
    }


RELU = ("run", "--op", "relu", "--backend", "stub", "--ledger", "none")


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (("--timeout", "nan"), "'nan' is not a finite number"),
        (("--timeout", "inf"), "is not in the range 0<x<=1000000"),
        (("--timeout", "1e308"), "is not in the range 0<x<=1000000"),
        (("--rtol", "nan"), "'nan' is not a finite number"),
        (("--rtol", "inf"), "'inf' is not a finite number"),
        (("--atol=-1",), "is not in the range x>=0"),
        (("--seed=-1",), "is not in the range 0<=x<=9223372036854775807"),
        (("--seed", str(2**63)), "is not in the range"),
        (("--workers", "1000000000"), "is not in the range 1<=x<=10000"),
        (("--retries", "1000000000"), "is not in the range 0<=x<=1000"),
        (("--shape", "9" * 5000), "write sizes with commas"),
        (("--shape", str(10**19)), "write sizes with commas"),
        (("--shard", f"{'9' * 5000}/{'9' * 5000}"), "write i/n with 1 <= i <= n"),
        (("--attr", "a=2020-99-99"), "is not a number, text"),
        (("--attr", "a=&x [*x]"), "is not a number, text"),
        (("--attr", 'a="\\0"'), "is not a number, text"),
        (("--attr", "a=" + "[" * 3000), "is not a number, text"),
        (("--attr", "a=" + "9" * 5000), "is not a number, text"),
    ],
)
def test_a_flag_is_refused(flags: tuple[str, ...], told: str) -> None:
    done = CliRunner().invoke(cli, [*RELU, *flags])
    assert (done.exit_code, isinstance(done.exception, SystemExit)) == (2, True), done.exception
    assert told in " ".join(done.output.split())


def test_shares_are_numbers() -> None:
    for name in ("optest.cli.faults", "torchstone.cli.faults"):
        module = pytest.importorskip(name)
        done = CliRunner().invoke(module.faults, ["--at-least", "nan"])
        assert (done.exit_code, "'nan' is not a finite number" in done.output) == (2, True)
        assert CliRunner().invoke(module.faults, ["--seed=-1"]).exit_code == 2
