"""Runs a fixed sample of each campaign, and checks that the campaigns themselves notice defects."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import click
import damaged_artifacts
import database_modules
import hand_called
import hostile_commands
import pytest
import redirected_scripts
import torch
from campaign import Outcome, attempt, main

from torchstone.parity.operators import Sample

FEW = {"artifacts": 24, "programs": 2, "exports": 1, "scripts": 3}
"""How many inputs CI tries. The other campaigns are left to the conformance run."""
MANY = {"artifacts": 200, "commands": 40, "programs": 15, "exports": 20, "scripts": 12, "overloads": 20}
"""How many inputs the conformance run tries. The scripts among them all run in one process."""


@pytest.mark.parametrize(
    ("campaign", "count"),
    [
        *FEW.items(),
        *(pytest.param(campaign, count, marks=pytest.mark.conformance) for campaign, count in MANY.items()),
    ],
)
def test_a_sample_ends_as_it_may(campaign: str, count: int) -> None:
    outcomes = list(attempt(campaign, 0, list(range(count))))
    assert [one for one in outcomes if one.defect] == []
    assert len(outcomes) == count
    endings = {one.ended for one in outcomes}
    if campaign in ("programs", "exports"):
        assert "agrees" in endings
    elif campaign == "overloads":
        assert {"compiled", "exported"} <= endings
    elif campaign != "scripts":  # each script checks its own results
        assert len(endings) > 2  # with fewer, little was tried


@pytest.mark.conformance
def test_modules_of_pytorch_compile_and_export() -> None:
    """Try a few kinds of modules. ``campaign.py modules`` tries every input of all modules."""
    kinds = ("nn.MultiLabelMarginLoss", "nn.TransformerEncoder", "nn.BatchNorm2d", "nn.GRUCell")
    wanted = {f"{kind} in {mode} mode" for kind in kinds for mode in ("training", "evaluation")}
    chosen: dict[str, int] = {}
    for number, case in enumerate(database_modules.cases()):
        if case.kind in wanted:
            chosen[case.kind] = number  # the last input, which has the most options
    assert chosen.keys() == wanted
    unreduced = chosen["nn.MultiLabelMarginLoss in training mode"] - 1  # one sample
    outcomes = list(attempt("modules", 0, sorted((unreduced, *chosen.values()))))
    assert [one for one in outcomes if one.defect] == []
    assert {one.ended for one in outcomes} == {"compiles and exports"}


@pytest.mark.parametrize("part", ["values", "gradients", "buffers"])
def test_a_module_that_computes_something_else_is_noticed(part: str) -> None:
    case = next(one for one in database_modules.cases() if one.kind == "nn.BatchNorm2d in training mode")
    eager = database_modules.run(case, lambda module: module, gradients=True)
    other = copy.copy(eager)
    setattr(other, part, [one * 1.01 + 0.01 for one in getattr(eager, part)])
    database_modules.compare(eager, eager, lambda: eager)
    with pytest.raises(AssertionError, match=part):
        database_modules.compare(other, eager, lambda: eager)


@pytest.mark.conformance
def test_a_fault_in_each_of_four_places_is_named() -> None:
    outcomes = list(attempt("bisect", 0, list(range(4))))
    assert [one for one in outcomes if one.defect] == []
    assert [one.ended for one in outcomes] == ["lowering", "engine", "rounding", "nondeterminism"]


def test_a_campaign_goes_on_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "counting.py").write_text(
        "class Made: what = 'it'\n"
        "class Tries:\n"
        "    def make(self, number): self.number = number; return Made()\n"
        "    def attempt(self, made): return 'well', 'bad' if self.number == 4 else ''\n"
        "def prepare(seed, folder): return Tries()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("campaign.MODULES", {"counting": "counting"})
    journal = tmp_path / "journal.jsonl"

    def run(*words: str) -> int:
        given = ["campaign.py", "counting", "--journal", str(journal), *words]
        monkeypatch.setattr("sys.argv", given)
        return main()

    assert run("--count", "3") == 0
    first = journal.read_text().splitlines()
    assert run("--count", "5") == 1  # the last one is a defect
    lines = journal.read_text().splitlines()
    assert lines[:4] == first
    assert [json.loads(line)["number"] for line in lines[1:]] == [0, 1, 2, 3, 4]
    assert "5 inputs: 5 well\n1 ended as none may\n" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="is the journal of another campaign"):
        run("--count", "5", "--seed", "1")
    assert journal.read_text().splitlines() == lines


@pytest.mark.parametrize("count", [1, 3])
def test_another_number_of_results_is_a_defect(count: int) -> None:
    def run(function: Any, tensors: Any) -> Any:
        del function, tensors
        return [[torch.zeros(2, dtype=torch.int64)] * count]

    overload, call = torch.ops.aten.max.dim, Sample((torch.ones(2, 3), 1))
    (told,) = hand_called.wrong(overload, [call], run)
    assert told.endswith(f"{count} results instead of 2")


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> hostile_commands.Tries:
    return hostile_commands.prepare(0, tmp_path_factory.mktemp("calls"))


def ends(code: int) -> None:
    raise SystemExit(code)


def damages(work: Path) -> None:
    (work.parent / "precious.txt").write_text("other")


def test_commands_are_read_in_the_encoding_that_they_write(calls: hostile_commands.Tries) -> None:
    made = hostile_commands.Made("torchstone", ["export"], {"PYTHONIOENCODING": "utf-16"}, shell="")
    assert calls.attempt(made) == ("exit code 2", "")


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (lambda: {}["missing"], "it raised"),
        (lambda: click.echo("\x07"), "is shown"),
        (lambda: click.echo("s3cr3t"), "a password is shown"),
        (lambda: ends(7), "exit code 7 means nothing"),
        (lambda: ends(1), "no message"),
        (lambda: click.echo("Traceback (most recent call last)"), "a traceback"),
        (lambda: Path("../precious.txt").unlink(), "a file outside was changed"),
        (lambda: Path("link").unlink(), "a link was replaced"),
        (lambda: Path(".left.tmp").touch(), "files are left behind"),
        (lambda: Path("owned").touch(), "a file ran code"),
    ],
)
def test_commands_that_do_wrong_are_noticed(calls: hostile_commands.Tries, fault: Any, told: str) -> None:
    group = click.Group("wrong", commands={"wrong": click.Command("wrong", callback=fault)})
    with contextlib.ExitStack() as stack:
        calls.groups["wrong"] = group
        stack.callback(calls.groups.pop, "wrong")
        ended, defect = calls.attempt(hostile_commands.Made("wrong", ["wrong"]))
    assert told in defect, ended
    assert os.getcwd() != str(calls.sandbox / "work")


def test_wrong_answers_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files with flipped weights are read by a reader that trusts everything."""
    tries = damaged_artifacts.prepare(0, tmp_path)
    original = tries.originals["linear"]
    members = damaged_artifacts.members_of(original)
    weights = bytearray(members["weights.safetensors"])
    weights[-2] ^= 1
    content = damaged_artifacts.signed({**members, "weights.safetensors": bytes(weights)})
    made = damaged_artifacts.Made("flipped", content, "linear", damaged=True, trusted=True)
    assert tries.attempt(made) == ("gives outputs", "wrong answer: ['output']")
    whole = damaged_artifacts.Made("whole", original, "linear", damaged=True, trusted=True)
    assert tries.attempt(whole) == ("gives outputs", "")


def test_children_that_die_or_hang_are_noticed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "dying.py").write_text(
        "import os, threading, time\n"
        "class Made: what = 'it'\n"
        "class Tries:\n"
        "    def make(self, number): self.number = number; return Made()\n"
        "    def attempt(self, made):\n"
        "        if self.number == 1: os._exit(3)\n"
        "        if self.number == 2: time.sleep(60)\n"
        "        if self.number == 3: threading.Timer(0.5, os._exit, [4]).start()\n"
        "        return 'well', ''\n"
        "def prepare(seed, folder): return Tries()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("campaign.MODULES", {"dying": "dying"})
    outcomes = []
    for outcome in attempt("dying", 0, [0, 1, 2, 3, 4, 5], limit_s=3.0):
        outcomes.append(outcome)
        if outcome.number == 3:
            time.sleep(2)  # the child dies while nothing is asked of it
    assert outcomes == [
        Outcome(0, "it", "well"),
        Outcome(1, "it", "crash", "the process ended with 3"),
        Outcome(2, "it", "hang", "it did not end within 3 s"),
        Outcome(3, "it", "well"),
        Outcome(4, "unknown", "crash", "the process ended with 4"),
        Outcome(5, "it", "well"),
    ]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("body", "ended"),
    [
        ("assert torch.zeros(1, device='cuda').item() == 1", "exit code 1"),
        ("assert torch.ones(1).cuda().device.type == 'cuda'", "ends well"),
        ("sys.exit(3)", "exit code 3"),
    ],
)
@pytest.mark.parametrize("head", ["# run: --devices 2", "# run in a process:"])
def test_scripts_that_compute_something_else_are_noticed(
    head: str, body: str, ended: str, tmp_path: Path
) -> None:
    (tmp_path / "one.py").write_text(f"{head}\nimport sys\nimport torch\n{body}\n")
    (script,) = redirected_scripts.scripts(tmp_path)
    found, defect = redirected_scripts.Tries([script], tmp_path).attempt(script)
    assert (found, bool(defect)) == (ended, ended != "ends well")


@pytest.mark.conformance
@pytest.mark.parametrize(("aborts", "ended"), [(1, "ends well"), (9, "exit code 1")])
def test_a_script_that_pytorch_aborts_at_its_exit_runs_again(aborts: int, ended: str, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    (tmp_path / "one.py").write_text(
        f"# run in a process:\nimport sys\nwith open({str(runs)!r}, 'a') as file: file.write('.')\n"
        f"if len(open({str(runs)!r}).read()) <= {aborts}:\n"
        "    print('terminate called without an active exception')\n    sys.exit(1)\n"
    )
    (script,) = redirected_scripts.scripts(tmp_path)
    found, defect = redirected_scripts.Tries([script], tmp_path).attempt(script)
    assert (found, bool(defect)) == (ended, ended != "ends well")
    assert len(runs.read_text()) == min(aborts + 1, 3)


@pytest.mark.conformance
def test_a_script_of_two_processes_ends_well(tmp_path: Path) -> None:
    """The sample of scripts only has scripts that run in one process."""
    (script,) = (one for one in redirected_scripts.scripts() if one.what == "tensor_parallel")
    assert redirected_scripts.Tries([script], tmp_path).attempt(script) == ("ends well", "")


@pytest.mark.conformance
@pytest.mark.skipif(shutil.which("g++") is None, reason="Inductor compiles with g++")
@pytest.mark.parametrize(
    ("overrides", "options"),
    [
        ("mode=max-autotune", ()),
        ("", ("--devices", "2", "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone")),
    ],
    ids=["tuned", "two ranks"],
)
def test_a_gpt_trains(
    overrides: str, options: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run it with other options than the defaults, which the campaign uses."""
    monkeypatch.setenv("GPT_OVERRIDES", overrides)
    script = redirected_scripts.Script(redirected_scripts.SCRIPTS / "nanogpt_train.py", options, True)
    assert redirected_scripts.Tries([script], tmp_path).attempt(script) == ("ends well", "")


def test_there_are_enough_scripts_and_each_needs_cuda() -> None:
    found = redirected_scripts.scripts()
    assert len(found) >= 75
    assert sum("--nproc-per-node" in one.options for one in found) >= 5
    for one in found:
        text = one.path.read_text()
        assert "cuda" in text
        assert text.count("assert") >= 2
        assert "torchstone" not in text
