"""The report on a script: each CUDA-only place, what became of it, and what stays CUDA-only."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from torchstone.cli.main import cli
from torchstone.errors import ScriptError
from torchstone.redirect.explain import Explanation, State, _from_tables, explain
from torchstone.redirect.launch import Program
from torchstone.redirect.options import Options
from torchstone.redirect.sources import SiteKind, scan_source

CPU = Options(target="cpu")
Write = Callable[..., Path]

TRAIN = """\
import sys
import torch
import moves_of_train
from torch.cuda.amp import GradScaler

device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
x = torch.ones(
    2, device=f"cuda:{0}"
)
for _ in range(3):
    x = x.cuda()
moves_of_train.move(x)
if "--never" in sys.argv:
    torch.cuda.synchronize()
    hasattr(torch.cuda._no_such_name, "nothing")
print("the script says", *sys.argv[1:])
sys.exit(4)
"""
HELPER = "def move(x):\n    return x.cpu().pin_memory()\n"


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delitem(sys.modules, "moves_of_train", raising=False)  # another test may have imported it
    (tmp_path / "moves_of_train.py").write_text(HELPER)
    path = tmp_path / "train.py"
    path.write_text(TRAIN)
    return path


def _states(found: Explanation) -> dict[tuple[str, int, str], str]:
    return {
        (Path(place.site.path).name, place.site.line, place.site.name): place.state.value
        for place in found.places
    }


def test_each_place_and_what_became_of_it(script: Path, capfd: pytest.CaptureFixture[str]) -> None:
    found = explain(Program(str(script)), ["--lr", "1"], CPU)
    assert (found.exit_code, found.target) == (4, "cpu")
    assert _states(found) == {
        ("train.py", 6, "cuda:0"): "redirected",
        ("train.py", 6, "torch.cuda.is_available"): "redirected",
        ("train.py", 8, "cuda:{}"): "redirected",
        ("train.py", 11, "cuda"): "redirected",
        ("train.py", 14, "torch.cuda.synchronize"): "covered",
        ("train.py", 15, "torch.cuda._no_such_name"): "cuda-only",
        ("moves_of_train.py", 2, "pin_memory"): "redirected",
    }
    (moved,) = [place for place in found.places if place.site.line == 11]
    assert max(moved.outcomes.values()) == 3
    (string,) = [place for place in found.places if place.site.name == "cuda:{}"]
    assert string.outcomes == {"is cpu": 1}
    out, err = capfd.readouterr()
    assert (out, err) == ("", "the script says --lr 1\n")


def test_without_a_run_the_tables_answer(script: Path) -> None:
    found = explain(Program(str(script)), (), CPU, run=False)
    assert found.exit_code is None
    assert set(_states(found).values()) == {"covered", "cuda-only"}
    assert not any(place.outcomes for place in found.places)
    assert {Path(place.site.path).name for place in found.places} == {"train.py"}
    (note,) = [place.note for place in found.places if place.site.line == 14]
    assert note == "waits for the target"


def test_what_other_code_was_redirected_is_told_too(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text("exec(compile('import torch; torch.ones(1).cuda()', 'generated.py', 'exec'))\n")
    found = explain(Program(str(path)), (), CPU)
    assert found.places == ()
    assert [text for text in found.elsewhere if text.startswith("generated.py:1  torch.Tensor.cuda: ")]


def test_the_command(script: Path) -> None:
    done = CliRunner().invoke(cli, ["redirect", "explain", "--target", "cpu", str(script), "--", "--never"])
    assert done.exit_code == 1  # the redirection does not support the private call
    assert "AttributeError" in done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == f"{script} on cpu (run, exit code 1)"
    assert "  11:11  cuda: redirected: " in done.stdout
    assert "  14:5  torch.cuda.synchronize: redirected: waits for the target (1×)" in lines
    assert "  15:13  torch.cuda._no_such_name: cuda-only: is not replaced" in lines
    assert lines[-1] == "7 CUDA-only place(s): 6 redirected, 1 cuda-only, 0 differs, 0 covered"


def test_the_command_as_json(script: Path) -> None:
    done = CliRunner().invoke(
        cli, ["redirect", "explain", "--target", "cpu", "--json", "--no-run", str(script)]
    )
    assert done.exit_code == 0
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["counts"] == {"redirected": 0, "cuda-only": 1, "differs": 0, "covered": 5}
    assert found["places"][0] == {
        "path": str(script),
        "line": 6,
        "column": 23,
        "name": "cuda:0",
        "kind": "string",
        "state": "covered",
        "outcomes": {},
        "note": "where PyTorch takes a device or a backend",
    }


def test_a_script_that_changes_the_directory(
    script: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(script.parent)
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    script.write_text(f"import os; os.chdir({str(elsewhere)!r})\n{TRAIN}")
    found = explain(Program("train.py"), (), CPU)
    assert _states(found)["train.py", 12, "cuda"] == "redirected"
    assert _states(found)["moves_of_train.py", 2, "pin_memory"] == "redirected"


def test_a_module(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(script.parent)
    found = explain(Program("train", is_module=True), (), CPU)
    assert ("train.py", 11, "cuda") in _states(found)


@pytest.mark.parametrize("source", ["def f(:\n", "x = 1\0\n"])
def test_a_script_that_is_no_python(tmp_path: Path, source: str) -> None:
    path = tmp_path / "train.py"
    path.write_text(source)
    with pytest.raises(ScriptError, match="is not Python"):
        explain(Program(str(path)), (), CPU, run=False)


def test_a_script_that_is_not_there() -> None:
    with pytest.raises(ScriptError, match="nowhere"):
        explain(Program("nowhere.py"), (), CPU, run=False)


def test_the_type_of_a_device_is_told_on_the_cpu_only() -> None:
    """Tensors on an accelerator report the accelerator's own type."""
    (site,) = [one for one in scan_source('x.device.type == "cuda"\n') if one.kind is SiteKind.DEVICE_TYPE]
    assert _from_tables(site, {}, tells_cuda=True)[1] is None
    assert _from_tables(site, {}, tells_cuda=False)[1] is State.DIFFERS
