"""``torchstone gaps``: what each command prints and writes, its JSON, its exit code, its errors."""

from __future__ import annotations

import csv
import json
import runpy
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from torchstone.errors import GapsError
from torchstone.gaps.analysis import analyze
from torchstone.gaps.answers import GapKind
from torchstone.gaps.decisions import Severity
from torchstone.gaps.log import Entry, Log, identify
from torchstone.gaps.providers import redirection
from torchstone.gaps.scaffold import scaffold
from torchstone.gaps.settings import SETTINGS, Setting
from torchstone.gaps.surface import read_surface
from torchstone.redirect import patches

SHOP = """
import torch
from torch.linalg import *
del lu, cholesky
def cross(self, other, *, dim=-1):
    return torch.linalg.cross(self, other, dim=dim).double()
"""
MIRROR = "module:shop=torch.linalg"


@pytest.fixture(scope="module")
def gaps() -> Callable[..., Result]:
    """``gaps("log", …)`` in this process."""
    from torchstone.cli.main import cli

    def call(*arguments: object) -> Result:
        result = CliRunner().invoke(cli, ["gaps", *map(str, arguments)])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return call


@pytest.fixture
def shop_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of the module ``shop``."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "shop", raising=False)
    return tmp_path / "shop.py"


@pytest.fixture
def shop(shop_file: Path) -> tuple[str, ...]:
    """Return options for a module that lacks names and has one wrong result."""
    shop_file.write_text(SHOP)
    return ("--provider", MIRROR, "--namespace", "torch.linalg")


def test_the_commands_explain_themselves(gaps: Callable[..., Result]) -> None:
    text = gaps("--help").stdout
    for command in ("snapshot", "diff", "log", "check", "plan", "scaffold"):
        assert f"\n  {command} " in text
        assert "--json" in gaps(command, "--help").stdout
    assert "redirect[:DEVICE]" in text


def test_help_loads_no_torch() -> None:
    program = (
        "import sys\nfrom torchstone.cli.main import cli\n"
        "cli.main(['gaps', 'log', '--help'], standalone_mode=False)\n"
        "assert 'torch' not in sys.modules\n"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60).returncode == 0


def test_snapshot_and_diff(gaps: Callable[..., Result], tmp_path: Path) -> None:
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    assert gaps("snapshot", "--namespace", "torch.mps", "-o", old).exit_code == 0
    text = old.read_text("utf-8")
    assert gaps("snapshot", "--namespace", "torch.mps").stdout == text
    done = gaps("snapshot", "--namespace", "torch.mps", "-o", new, "--json")
    assert json.loads(done.stdout)["apis"]["function"] > 5
    named = '"name": "torch.mps.'
    new.write_text(text.replace(f"{named}synchronize", f"{named}wait").replace(f"{named}seed", f"{named}sow"))
    done = gaps("diff", old, new)
    assert (done.exit_code, "0 new, 0 removed, 2 moved, 0 called differently" in done.stdout) == (0, True)
    assert json.loads(gaps("diff", old, new, "--json").stdout)["moved"] == [
        {"from": "torch.mps.seed", "to": "torch.mps.sow"},
        {"from": "torch.mps.synchronize", "to": "torch.mps.wait"},
    ]


def test_log_check_and_plan_of_a_module(
    gaps: Callable[..., Result], shop: tuple[str, ...], tmp_path: Path
) -> None:
    done = gaps("check", *shop)
    assert done.exit_code == 1
    assert "torch.linalg.cross (behaviour) is not explained: result: dtype torch.float32 there" in done.stdout
    assert "torch.linalg.lu (unpatched) is not explained" in done.stdout
    plan = json.loads(gaps("plan", *shop, "--limit", 2, "--json").stdout)["plan"]
    assert [(one["api"], one["severity"], one["priority"]) for one in plan] == [
        ("torch.linalg.cross", "high", 2),
        ("torch.linalg.cholesky", "medium", 3),
    ]
    assert "torch.linalg.cross" in gaps("plan", *shop, "--limit", 1).stdout
    for form in ("markdown", "csv", "json", "html"):
        path = tmp_path / f"log.{form}"
        assert gaps("log", *shop, "--format", form, "-o", path).exit_code == 0
        assert "torch.linalg.cross" in path.read_text("utf-8")
    rows = list(csv.DictReader((tmp_path / "log.csv").open()))
    assert {row["kind"] for row in rows} == {"behaviour", "signature", "unpatched"} & {
        row["kind"] for row in rows
    }


def test_decisions_and_usage_are_the_user_s(
    gaps: Callable[..., Result], shop: tuple[str, ...], tmp_path: Path
) -> None:
    decisions, code = tmp_path / "gaps.toml", tmp_path / "train.py"
    decisions.write_text('format = 1\n[[gap]]\napi = "torch.linalg.*"\nnote = "not ours"\n')
    code.write_text("import torch\ntorch.linalg.lu(x)\n")
    options = (*shop, "--decisions", decisions, "--usage", code)
    done = gaps("check", *options, "--json")
    assert (done.exit_code, json.loads(done.stdout)["problems"]) == (0, [])
    entries: list[Any] = json.loads(gaps("log", *options, "--json").stdout)["entries"]
    assert {one["status"] for one in entries} == {"accepted"}
    assert {one["api"]: one["uses"] for one in entries if one["uses"]} == {"torch.linalg.lu": 1}
    assert decisions.read_text() == 'format = 1\n[[gap]]\napi = "torch.linalg.*"\nnote = "not ours"\n'


def test_a_scaffold_fails_until_the_gap_is_fixed(
    gaps: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "torch.cuda.memory_allocated"
    table = tuple(patch for patch in patches() if patch.name != name)
    options = ("--namespace", "torch.cuda", "--decisions", tmp_path / "none.toml")
    (tmp_path / "none.toml").write_text("format = 1\n")
    with monkeypatch.context() as patched:
        patched.setattr(redirection, "patches", lambda: table)
        path = tmp_path / "test_scaffold.py"
        done = gaps("scaffold", identify(name, GapKind.UNPATCHED), *options, "-o", path)
        assert (done.exit_code, done.stdout) == (0, "")
        test = runpy.run_path(str(path))["test_cuda_memory_allocated"]
        with pytest.raises(AssertionError, match=r"memory_allocated, cuda-on-cpu: unpatched"):
            test(Setting.FALLBACK)
    test(Setting.FALLBACK)
    ids = [mark.args[0] for mark in test.pytestmark]
    assert (ids, SETTINGS) == (["setting"], test.pytestmark[0].args[1])


def test_a_refinement_has_no_test() -> None:
    entry = Entry(
        "gap-1", "torch.a", "torch", GapKind.REFINEMENT, "", "", Severity.LOW, 4, 0, "", "open", "", ""
    )
    with pytest.raises(GapsError, match="is a refinement"):
        scaffold(entry, "redirect:cpu")
    with pytest.raises(GapsError, match=r"of torch\.a is gone since 2"):
        scaffold(replace(entry, kind=GapKind.BEHAVIOUR, fixed_in="2"), "redirect:cpu")


def failures_of_scaffolds(log: Log, tmp_path: Path) -> dict[str, bool]:
    """Return, for each gap of ``log`` that a test can show, whether its scaffold fails."""
    found = {}
    for entry in log.entries:
        if entry.kind is GapKind.REFINEMENT:
            continue
        path = tmp_path / f"test_{entry.id.replace('-', '_')}.py"
        path.write_text(scaffold(entry, log.provider))
        (test,) = (value for name, value in runpy.run_path(str(path)).items() if name.startswith("test_"))
        arguments = (Setting.FALLBACK,) if log.provider.startswith("redirect") else ()
        try:
            test(*arguments)
            found[f"{entry.api} {entry.kind}"] = False
        except AssertionError as error:
            found[f"{entry.api} {entry.kind}"] = entry.api in str(error)
    return found


@pytest.mark.usefixtures("shop")
def test_every_scaffold_fails_with_the_provider_that_it_was_written_for(tmp_path: Path) -> None:
    found = failures_of_scaffolds(analyze(MIRROR), tmp_path)
    assert set(found.values()) == {True}
    assert {"torch.linalg.cross behaviour", "torch.linalg.cross signature", "torch.linalg.lu unpatched"} <= (
        found.keys()
    )


def test_every_scaffold_of_an_explained_gap_of_the_redirection_fails(tmp_path: Path) -> None:
    found = failures_of_scaffolds(analyze("redirect", namespaces=["torch.cuda"]), tmp_path)
    assert len(found) > 50
    assert [name for name, fails in found.items() if not fails] == []


def test_a_module_is_compared_with_its_own_namespace(
    gaps: Callable[..., Result], shop: tuple[str, ...]
) -> None:
    """Without --namespace, all of PyTorch used to be read, and the module seemed to offer none of it."""
    named, unnamed = gaps("check", *shop, "--json"), gaps("check", "--provider", MIRROR, "--json")
    assert named.exit_code == unnamed.exit_code == 1
    assert json.loads(named.stdout) == json.loads(unnamed.stdout)
    assert json.loads(unnamed.stdout)["names"] == len(read_surface(["torch.linalg"]).apis)


def test_a_class_may_stand_for_a_class(gaps: Callable[..., Result], shop_file: Path) -> None:
    shop_file.write_text("import torch\nclass Tensor(torch.Tensor):\n    pass\n")
    done = gaps("check", "--provider", "module:shop.Tensor=torch.Tensor", "--json")
    assert (done.exit_code, json.loads(done.stdout)["problems"]) == (0, [])
    assert json.loads(done.stdout)["called"] > 300


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("1 / 0", "shop cannot be imported: ZeroDivisionError: division by zero"),
        ("import sys\nsys.exit(0)", "shop cannot be imported: SystemExit: 0"),
        ("def", "shop cannot be imported: SyntaxError"),
        ("import gone", "shop cannot be imported: ModuleNotFoundError: No module named 'gone'"),
    ],
)
def test_a_module_that_cannot_be_imported_is_one_clear_error(
    gaps: Callable[..., Result], shop_file: Path, source: str, says: str
) -> None:
    shop_file.write_text(source)
    done = gaps("check", "--provider", MIRROR)
    assert (done.exit_code, done.stdout) == (2, "")
    assert says in done.stderr


def test_a_function_that_ends_the_process_is_a_finding(gaps: Callable[..., Result], shop_file: Path) -> None:
    shop_file.write_text("from torch.linalg import *\ndef inv(A, *, out=None):\n    raise SystemExit(0)\n")
    done = gaps("check", "--provider", MIRROR)
    assert done.exit_code == 1
    assert (
        "torch.linalg.inv (behaviour) is not explained: works there, raises SystemExit: 0 here" in done.stdout
    )


def test_a_narrow_check_judges_only_what_it_read(gaps: Callable[..., Result]) -> None:
    """Decisions about other namespaces are not called stale."""
    for name in ("torch.cuda", "torch.mps"):
        done = gaps("check", "--namespace", name, "--json")
        assert (done.exit_code, json.loads(done.stdout)["problems"]) == (0, [])


def test_nested_tensors_are_compared(gaps: Callable[..., Result]) -> None:
    done = gaps("check", "--provider", "module:torch.nested=torch.nested", "--json")
    assert (done.exit_code, json.loads(done.stdout)["problems"]) == (0, [])
    assert json.loads(done.stdout)["called"] >= 1


def test_every_command_says_how_many_names_were_called(
    gaps: Callable[..., Result], shop: tuple[str, ...]
) -> None:
    log = json.loads(gaps("log", *shop, "--json").stdout)
    called, uncalled = sum(log["tried"].values()), len(log["not_called"])
    assert called > 20
    assert "torch.linalg.lu" in log["not_called"]
    names = len(read_surface(["torch.linalg"]).apis)
    assert called + uncalled == names
    says = f"{called} of {names} names were called; of the rest, only names and signatures were compared"
    for command in (("check",), ("plan",), ("log",), ("log", "--format", "html")):
        assert says in gaps(*command, *shop).stdout
    for command in ("check", "plan"):
        counts = json.loads(gaps(command, *shop, "--json").stdout)
        assert (counts["names"], counts["called"]) == (names, called)
    listed = gaps("check", *shop, "--uncalled").stdout.splitlines()
    assert [line.removeprefix("not called: ") for line in listed[:uncalled]] == log["not_called"]
    assert json.loads(gaps("check", *shop, "--uncalled", "--json").stdout)["not_called"] == log["not_called"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("log", "--provider", "rocket"), "torchstone gaps log: there is no provider rocket"),
        (
            ("check", "--provider", "device:cpu", "--namespace", "torch.nope"),
            "there is no namespace torch.nope",
        ),
        (("snapshot", "--namespace", "torch.nope"), "there is no namespace torch.nope"),
        (("log", "--namespace", "sys"), "sys is not a namespace of PyTorch"),
        (("diff", "gone.json", "gone.json"), "cannot read gone.json"),
        (("check", "--decisions", "gone.toml"), "cannot read the decisions gone.toml"),
        (("check", "--previous", "gone.json"), "cannot read the gap log gone.json"),
        (("check", "--usage", "gone"), "there is no gone to count uses in"),
        (
            ("check", "--provider", MIRROR, "--namespace", "torch.fft"),
            "module:shop=torch.linalg answers for none of the 18 public names in torch.fft",
        ),
        (("scaffold", "gap-0", "--provider", MIRROR, "--namespace", "torch.linalg"), "there is no gap gap-0"),
    ],
    ids=lambda one: " ".join(one[:2]) if isinstance(one, tuple) else "",
)
@pytest.mark.usefixtures("shop")
def test_what_is_not_there_is_a_usage_error(
    gaps: Callable[..., Result], arguments: tuple[str, ...], says: str
) -> None:
    done = gaps(*arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert says in done.stderr
    assert json.loads(gaps(*arguments, "--json").stdout)["error"]["message"] in done.stderr
