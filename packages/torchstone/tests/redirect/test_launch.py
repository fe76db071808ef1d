"""Running programs redirected: what the program finds, how it ends, its child processes, bad input."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import torchstone
from torchstone.errors import RedirectTargetError, ScriptError
from torchstone.redirect import children
from torchstone.redirect.launch import Program, run
from torchstone.redirect.options import VARIABLE, Options

CPU = Options(target="cpu")
Write = Callable[..., Path]
Command = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """``write("train.py", source)`` is the path of a script."""

    def make(name: str, source: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(source))
        return path

    return make


@pytest.fixture
def command(tmp_path: Path) -> Command:
    """Return a function that runs Python with arguments in a process of its own, in the scripts' folder."""

    def call(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *map(str, arguments)],
            cwd=tmp_path,
            env=os.environ | environment,
            capture_output=True,
            text=True,
            timeout=120,
        )

    return call


# --- what the program finds -------------------------------------------------------------


def test_a_script_finds_itself_as_main(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    write("values_of_train.py", "VALUE = 7\n")
    path = write(
        "train.py",
        """\
        import pickle, sys
        from pathlib import Path
        import values_of_train
        import torch

        class Config:
            pass

        if __name__ == "__main__":
            assert sys.modules["__main__"].Config is Config
            assert type(pickle.loads(pickle.dumps(Config()))) is Config
            assert Path(sys.path[0]) == Path(__file__).parent.resolve()
            print(sys.argv[1:], values_of_train.VALUE, torch.ones(1).cuda().is_cuda)
        """,
    )
    before = list(sys.path), sys.argv, sys.modules["__main__"]
    assert run(Program(str(path)), ["--lr", "0.1"], CPU) == 0
    assert capsys.readouterr().out == "['--lr', '0.1'] 7 True\n"
    assert (list(sys.path), sys.argv, sys.modules["__main__"]) == before


def test_a_module_runs_as_with_minus_m(
    write: Write, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write("a_package/__main__.py", "import sys; print(__spec__.name, __package__, sys.argv[1:])\n")
    write("a_package/__init__.py", "")
    monkeypatch.chdir(path.parent.parent)
    assert run(Program("a_package", is_module=True), ["x"], CPU) == 0
    assert capsys.readouterr().out == "a_package.__main__ a_package ['x']\n"


def test_a_folder_with_a_main_runs(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    path = write("folder/__main__.py", "import torch; print(torch.cuda.is_available())\n")
    assert run(Program(str(path.parent)), (), CPU) == 0
    assert capsys.readouterr().out == "True\n"


def test_nothing_stays_redirected(write: Write) -> None:
    path = write("train.py", "import torch; before = torch.cuda.is_available(); raise SystemExit(not before)")
    original = torch.cuda.is_available
    assert run(Program(str(path)), (), CPU) == 0
    assert torch.cuda.is_available is original


# --- how it ends ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statement", "code", "said"),
    [
        ("pass", 0, ""),
        ("sys.exit()", 0, ""),
        ("sys.exit(3)", 3, ""),
        ("sys.exit('no data')", 1, "no data\n"),
        ("raise SystemExit(0)", 0, ""),
    ],
)
def test_exit_codes(
    write: Write, capsys: pytest.CaptureFixture[str], statement: str, code: int, said: str
) -> None:
    path = write("train.py", f"import sys\n{statement}\n")
    assert run(Program(str(path)), (), CPU) == code
    assert capsys.readouterr().err == said


@pytest.mark.parametrize(
    "source",
    [
        """\
        def step():
            try:
                {}["lr"]
            except KeyError as error:
                raise ValueError("bad batch") from error

        step()
        """,
        "import json\njson.loads('{')\n",
        "raise ExceptionGroup('ranks', [ValueError(1), TypeError(2)])\n",
        "def f(:\n",
    ],
)
def test_a_traceback_is_the_one_of_python(
    write: Write, command: Command, capsys: pytest.CaptureFixture[str], source: str
) -> None:
    """The traceback is word for word that of the plain script."""
    path = write("train.py", source)
    assert run(Program(str(path)), (), CPU) == 1
    plain = command(path)
    assert (capsys.readouterr().err, 1) == (plain.stderr, plain.returncode)


def test_an_error_inside_a_redirected_call_has_no_frames_of_ours(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write("train.py", "import torch\ntorch.zeros(2).cuda(device='nowhere')\n")
    assert run(Program(str(path)), (), CPU) == 1
    said = capsys.readouterr().err
    assert said.startswith("Traceback (most recent call last):\n")
    assert "train.py" in said
    assert "torchstone" not in said
    assert "runpy" not in said


def test_an_interruption_is_130(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    path = write("train.py", "raise KeyboardInterrupt\n")
    assert run(Program(str(path)), (), CPU) == 130
    assert capsys.readouterr().err.endswith("KeyboardInterrupt\n")


def test_what_outlives_the_last_line_is_redirected(write: Write, command: Command) -> None:
    path = write(
        "train.py",
        """\
        import atexit, threading, time
        import torch

        def late(name):
            time.sleep(0.05)
            print(name, torch.ones(1, device="cuda").is_cuda)

        atexit.register(late, "exit handler")
        threading.Thread(target=late, args=["thread"]).start()
        raise SystemExit(3)
        """,
    )
    done = command("-m", "torchstone", "redirect", "run", "--target", "cpu", path)
    assert done.returncode == 3, done.stderr
    assert done.stdout == "thread True\nexit handler True\n"


# --- what it says -----------------------------------------------------------------------

MOVES_TWICE = "import torch\nfor _ in range(2):\n    torch.ones(1).cuda()\n"


@pytest.mark.parametrize(("level", "times"), [("warning", 0), ("info", 1), ("debug", 2)])
def test_log_levels(write: Write, capsys: pytest.CaptureFixture[str], level: str, times: int) -> None:
    path = write("train.py", MOVES_TWICE)
    assert run(Program(str(path)), (), Options("cpu", log_level=level)) == 0
    said = capsys.readouterr().err.splitlines()
    assert said.count(f"{path}:3: torch.Tensor.cuda: moves to the target") == times
    assert bool(said) is bool(times)


@pytest.mark.parametrize(("policy", "code", "times"), [("strict", 1, 0), ("warn", 0, 1), ("quiet", 0, 0)])
def test_policies(
    write: Write,
    capsys: pytest.CaptureFixture[str],
    recwarn: pytest.WarningsRecorder,
    policy: str,
    code: int,
    times: int,
) -> None:
    path = write("train.py", "import torch\nfor _ in range(2):\n    torch.cuda.set_device(5)\n")
    assert run(Program(str(path)), (), Options("cpu", policy=policy)) == code
    assert [(one.filename, one.lineno) for one in recwarn] == [(str(path), 3)] * times
    assert ("RedirectUnsupported: cuda:5" in capsys.readouterr().err) is bool(code)


def test_the_kill_switch(write: Write) -> None:
    path = write("train.py", "import torch; raise SystemExit(torch.cuda.is_available())")
    with torchstone.config.override(redirect="off"):
        assert run(Program(str(path)), (), CPU) == 0
    assert run(Program(str(path)), (), CPU) == 1


# --- child processes --------------------------------------------------------------------


@pytest.fixture
def autoload(tmp_path: Path) -> str:
    """A folder for PYTHONPATH with the entry point that the installed package has."""
    information = tmp_path / "site" / "torchstone_children-0.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: torchstone-children\nVersion: 0\n")
    (information / "entry_points.txt").write_text(
        "[torch.backends]\ntorchstone_redirect = torchstone.redirect.children:enter_scope_of_parent\n"
    )
    return os.pathsep.join([str(information.parent), *filter(None, [os.environ.get("PYTHONPATH")])])


@pytest.mark.conformance
def test_spawned_children_are_redirected(write: Write, command: Command, autoload: str) -> None:
    path = write(
        "train.py",
        """\
        import multiprocessing
        import torch

        def work(x, answers):
            answers.put((__name__, torch.cuda.is_available(), (x.cuda() + 1).tolist()))

        if __name__ == "__main__":
            context = multiprocessing.get_context("spawn")
            answers = context.Queue()
            child = context.Process(target=work, args=(torch.ones(2), answers))
            child.start()
            print("spawned", *answers.get(timeout=90))
            child.join()
        """,
    )
    done = command("-m", "torchstone.redirect", path, TORCHSTONE_REDIRECT="cpu", PYTHONPATH=autoload)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "spawned __mp_main__ True [2.0, 2.0]\n"


def test_without_a_redirected_parent_nothing_is_entered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    original = torch.cuda.is_available
    children.enter_scope_of_parent()
    assert torch.cuda.is_available is original


def test_the_entry_point_is_declared() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    entry = project["project"]["entry-points"]["torch.backends"]["torchstone_redirect"]
    assert entry == f"{children.__name__}:{children.enter_scope_of_parent.__name__}"


# --- bad input --------------------------------------------------------------------------


def test_a_script_that_does_not_exist() -> None:
    with pytest.raises(ScriptError, match=r"the script nowhere/train\.py cannot be read: No such file"):
        run(Program("nowhere/train.py"), (), CPU)


@pytest.mark.parametrize("name", ["no_such_module", "json.no_such_module", "email"])
def test_a_module_that_cannot_be_run(name: str) -> None:
    with pytest.raises(ScriptError, match=rf"there is no module '{name}' that can be run"):
        run(Program(name, is_module=True), (), CPU)


def test_a_relative_name_is_no_module() -> None:
    with pytest.raises(ScriptError, match=r"'\.train' is not a module that can be run"):
        run(Program(".train", is_module=True), (), CPU)


def test_a_module_whose_own_import_fails_is_its_own_error(
    write: Write, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write("failing/__init__.py", "import no_such_dependency\n")
    write("failing/train.py", "")
    monkeypatch.chdir(path.parent.parent)
    assert run(Program("failing.train", is_module=True), (), CPU) == 1
    assert "ModuleNotFoundError: No module named 'no_such_dependency'" in capsys.readouterr().err


@pytest.mark.parametrize(("target", "code"), [("tpu9", 2), ("xpu", 3)])
def test_a_target_that_is_unknown_or_absent(write: Write, target: str, code: int) -> None:
    from torchstone.cli.exits import code_of

    path = write("train.py", "raise AssertionError('must not run')\n")
    with pytest.raises(RedirectTargetError, match=target) as caught:
        run(Program(str(path)), (), Options(target=target))
    assert code_of(caught.value) == code


def test_the_commands_say_what_is_wrong(command: Command) -> None:
    done = command("-m", "torchstone.redirect", "nowhere.py")
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == (
        "torchstone redirect run: the script nowhere.py cannot be read: No such file or directory"
    )


def test_a_mistyped_option_is_no_script(command: Command) -> None:
    done = command("-m", "torchstone.redirect", "--taget", "cpu", "train.py")
    assert done.returncode == 2
    assert "--taget" in done.stderr
    assert "No such option" in done.stderr


def test_nested_and_repeated_runs(write: Write) -> None:
    path = write("train.py", "import torch; assert torch.ones(1).cuda().is_cuda\n")
    with torchstone.redirected(target="cpu"):
        assert run(Program(str(path)), (), CPU) == 0
        assert torch.cuda.is_available()
        assert run(Program(str(path)), (), CPU) == 0
    assert not torch.cuda.is_available()


def test_a_script_with_threads_of_its_own_leaves_no_scope(write: Write) -> None:
    path = write(
        "train.py",
        """\
        import threading
        import torch
        seen = []
        thread = threading.Thread(target=lambda: seen.append(torch.ones(1).cuda().is_cuda))
        thread.start()
        thread.join()
        assert seen == [True]
        """,
    )
    start = threading.Thread.start
    assert run(Program(str(path)), (), CPU) == 0
    assert threading.Thread.start is start


@pytest.mark.conformance
def test_two_ranks_train_on_two_devices(write: Write, command: Command, autoload: str) -> None:
    """Train with ``DistributedDataParallel``. Ranks end at once: see docs/redirect.md on Gloo's threads."""
    path = write(
        "train.py",
        """\
        import os, pathlib, sys
        import torch
        import torch.distributed as dist

        def work(rank, folder):
            store = f"file://{folder}/store"
            dist.init_process_group("nccl", init_method=store, rank=rank, world_size=2)
            torch.cuda.set_device(rank)
            torch.manual_seed(rank)
            layer = torch.nn.Linear(3, 2).cuda()
            model = torch.nn.parallel.DistributedDataParallel(layer, device_ids=[rank])
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            x = torch.arange(12.0).view(2, 2, 3)[rank].cuda()
            for _ in range(2):
                optimizer.zero_grad()
                model(x).pow(2).mean().backward()
                optimizer.step()
            place = torch.device("cuda", rank)
            assert layer.weight.device == layer.weight.grad.device == model(x).device == place
            torch.save((layer.weight.detach().cpu(), layer.weight.grad.cpu()), f"{folder}/{rank}.pt")
            os._exit(0)

        if __name__ == "__main__":
            torch.multiprocessing.spawn(work, args=(os.getcwd(),), nprocs=torch.cuda.device_count())
            torch.manual_seed(0)
            layer = torch.nn.Linear(3, 2)
            optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
            for _ in range(2):
                optimizer.zero_grad()
                layer(torch.arange(12.0).view(4, 3)).pow(2).mean().backward()
                optimizer.step()
            for rank in range(2):
                found = torch.load(f"{rank}.pt")
                torch.testing.assert_close(found, (layer.weight.detach(), layer.weight.grad))
            print("ranks", torch.cuda.device_count())
        """,
    )
    done = command(
        *("-m", "torchstone.redirect", "--target", "cpu", "--devices", 2, path),
        PYTHONPATH=autoload,
        OMP_NUM_THREADS="1",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "ranks 2\n"


@pytest.mark.kept("child0")
@pytest.mark.parametrize(
    "child",
    [
        ["-c", "from torchstone import redirected; import torch; assert torch.ones(1).cuda().is_cuda"],
        ["-m", "torchstone.redirect", "--target", "cpu", "inner.py"],
    ],
)
def test_children_that_use_torchstone_themselves(
    write: Write, child: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = write("inner.py", "import torch; assert torch.ones(1).cuda().is_cuda\n")
    monkeypatch.chdir(inner.parent)
    path = write(
        "parent.py", f"import subprocess, sys; sys.exit(subprocess.call([sys.executable, *{child!r}]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "torchstone.redirect", "--target", "cpu", "--devices", "2", str(path)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
