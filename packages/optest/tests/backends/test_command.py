"""The command driver: what it passes to programs, and what they may do wrong."""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from optest.backends.command import CommandDriver
from optest.core.case import BackendTarget, TestCase
from optest.core.result import CaseResult, Status
from optest.errors import UsageError
from optest.operators import operator_registry
from optest.running.execution import run_case

COPY = (
    "import os, shutil; os.makedirs('output', exist_ok=True); "
    "shutil.copy('input/input0.bin', 'output/output0.bin')"
)
"""A program that is right for ``roll`` by 0."""


def case_of(
    op: str, dtypes: tuple[str, ...], shape: tuple[int, ...], settings: Any, **attributes: Any
) -> TestCase:
    descriptor = operator_registry.get(op)
    shapes = dict.fromkeys(descriptor.inputs, shape)
    target = BackendTarget("command", "command", "x1")
    complete = descriptor.complete_attributes(attributes)
    return TestCase(
        descriptor, dtypes, shapes, complete, target, None, 0, backend_config={"command": settings}
    )


def python(code: str, *arguments: str, **settings: Any) -> dict[str, Any]:
    return {"command": [sys.executable, "-c", code, *arguments], **settings}


def copied(
    code: str = COPY, dtype: str = "float32", shape: tuple[int, ...] = (3, 4), **settings: Any
) -> CaseResult:
    """Return the result of a ``roll`` by 0 that a program computes."""
    return run_case(CommandDriver(), case_of("roll", (dtype,), shape, python(code, **settings), shifts=0))


DTYPES = [types[0] for types in operator_registry.get("roll").dtypes]


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_goes_through_files(dtype: str) -> None:
    result = copied(dtype=dtype)
    assert result.status is Status.PASSED, result.reason


@pytest.mark.parametrize("shape", [(), (0, 3), (1,)])
def test_shapes_without_or_with_few_elements(shape: tuple[int, ...]) -> None:
    assert copied(shape=shape).status is Status.PASSED


def test_the_program_is_told_everything(tmp_path: Path) -> None:
    """Words, paths and variables may have placeholders, and OPTEST_CASE names a file with all facts."""
    code = (
        "import json, os, sys; json.dump([sys.argv[1:], os.environ['N'], os.getcwd(), "
        "json.load(open(os.environ['OPTEST_CASE']))], open('told.json', 'w')); "
        "open('normalize.out', 'wb').write(open('x_float32.bin', 'rb').read())"
    )
    words = (
        "{op}",
        "{chip}",
        "{input.shape}",
        "{input0.dtype}",
        "{attributes.dim}",
        "{output0.path}",
        "{print $1}",
        "{one}",
    )
    settings = python(
        code,
        *words,
        workdir=str(tmp_path),
        env={"N": "{input.size}"},
        inputs=[{"tensor": "input", "path": "x_{input.dtype}.bin"}],
        outputs=[{"tensor": "output0", "path": "{op}.out"}],
    )
    case = case_of("normalize", ("float32",), (2, 5), settings, dim=-1)
    result = run_case(CommandDriver(), case)
    assert result.status is Status.MISMATCH, result.reason
    arguments, size, folder, facts = json.loads((tmp_path / "told.json").read_text())
    assert arguments == ["normalize", "x1", "2,5", "float32", "-1", "normalize.out", "{print $1}", "{one}"]
    assert (size, Path(folder)) == ("10", tmp_path.resolve())
    assert (facts["op"], facts["chip"], facts["id"]) == ("normalize", "x1", case.id)
    assert facts["attributes"] == {"p": 2.0, "dim": -1, "eps": 1e-12}
    assert facts["inputs"] == [
        {"tensor": "input0", "path": str(tmp_path / "x_float32.bin"), "dtype": "float32", "shape": [2, 5]}
    ]


def test_a_failing_program_is_reported_with_its_words_and_code() -> None:
    result = copied("import sys; print('no device 3', file=sys.stderr); sys.exit(42)")
    assert (result.status, result.exit_code) == (Status.ERROR, 42)
    assert result.reason.endswith("exited with 42")
    assert result.stderr_tail == "no device 3"


def test_standard_output_counts_where_stderr_is_silent() -> None:
    assert copied("print('went wrong'); raise SystemExit(1)").stderr_tail == "went wrong"


def test_a_signal_is_named() -> None:
    result = copied("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    assert (result.status, result.signal, result.exit_code) == (Status.CRASHED, "SIGSEGV", None)


def test_a_hanging_program_is_killed_with_its_children(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    code = (
        "import os, subprocess, sys, time; "
        "child = subprocess.Popen(['sleep', '600'], start_new_session=True); "
        f"open({str(pids)!r}, 'w').write(f'{{os.getpid()}} {{child.pid}}'); time.sleep(600)"
    )
    result = copied(code, timeout=3.0)
    assert result.status is Status.TIMED_OUT
    assert "did not end within 3 s and was killed" in result.reason
    assert not [pid for pid in pids.read_text().split() if alive(int(pid))]


def alive(pid: int) -> bool:
    """Whether a process runs (a zombie that nobody has reaped does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.mark.parametrize("own_session", [False, True])
def test_children_left_behind_are_killed_and_named(
    own_session: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """This includes children that hold the program's stderr open or left its process group."""
    child = tmp_path / "child"
    code = (
        f"{COPY}; import subprocess; "
        f"child = subprocess.Popen(['sleep', '600'], start_new_session={own_session}); "
        f"open({str(child)!r}, 'w').write(str(child.pid))"
    )
    started = time.monotonic()
    assert copied(code).status is Status.PASSED
    assert time.monotonic() - started < 60
    assert not alive(int(child.read_text()))
    if own_session:
        assert f"left sleep (process {child.read_text()}) behind; killed" in caplog.text


WRONG_OUTPUTS: dict[str, tuple[str, str]] = {
    "missing": ("pass", "output/output0.bin was not written: there is no file"),
    "too short": (
        f"{COPY}; os.truncate('output/output0.bin', 20)",
        "has 20 bytes; float32 of shape [3, 4] has 48",
    ),
    "empty": ("import os; open('output/output0.bin', 'w')", "has 0 bytes"),
    "a folder": ("import os; os.makedirs('output/output0.bin')", "output/output0.bin is not a file"),
}


@pytest.mark.parametrize(("code", "message"), WRONG_OUTPUTS.values(), ids=WRONG_OUTPUTS)
def test_wrong_outputs(code: str, message: str) -> None:
    result = copied(code)
    assert result.status is Status.ERROR
    assert message in result.reason


def test_garbage_of_the_right_size_is_a_mismatch() -> None:
    result = copied("import os; open('output/output0.bin', 'wb').write(os.urandom(48))")
    assert result.status is Status.MISMATCH


def test_a_bool_is_a_byte_of_0_or_1() -> None:
    result = copied("open('output/output0.bin', 'wb').write(bytes([0, 1, 255]))", "bool", (3,))
    assert (result.status, "holds the byte 255" in result.reason) == (Status.ERROR, True)


def test_an_old_output_is_no_output(tmp_path: Path) -> None:
    assert copied(workdir=str(tmp_path)).status is Status.PASSED
    result = copied("pass", workdir=str(tmp_path))
    assert "was not written" in result.reason


def test_an_output_may_take_the_input_s_place(tmp_path: Path) -> None:
    """Kernels that work in place write the file that they read."""
    result = copied(
        "pass", workdir=str(tmp_path), outputs=[{"tensor": "output0", "path": "input/input0.bin"}]
    )
    assert result.status is Status.PASSED, result.reason


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "input").write_text("in the way")
    result = copied(workdir=str(tmp_path))
    assert result.status is Status.ERROR
    assert "input0.bin cannot be written: File exists" in result.reason


def test_a_command_that_writes_without_end() -> None:
    result = copied("while True: print('x' * 100_000)")
    assert result.status is Status.ERROR
    assert "wrote more than 64 MiB" in result.reason
    assert len(result.stderr_tail) < 20_000


def test_files_may_hold_another_dtype() -> None:
    """A file may hold bools as int32, for example, but no dtype that would change a value."""
    files = {
        "inputs": [{"tensor": "input0", "path": "input/input0.bin", "dtype": "int32"}],
        "outputs": [{"tensor": "output0", "path": "output/output0.bin", "dtype": "int32"}],
    }
    assert copied(dtype="bool", **files).status is Status.PASSED
    result = copied(dtype="float32", **files)
    assert result.status is Status.UNSUPPORTED
    assert "input0 is float32, and its values do not fit into the file's int32" in result.reason


WRITTEN = {
    "float64 for float32": ("float32", "float64", "[0.1] * 3", "0.1 at [0] would become 0.1"),
    "too large for int32": ("int32", "int64", "[1, 2**31, 3]", "2147483648 at [1] would become -2147483648"),
    "NaN for an integer": ("int32", "float32", "[1, float('nan'), 3]", "nan at [1] would become"),
    "a number for a bool": ("bool", "float32", "[0.0, 1.0, 0.5]", "0.5 at [2] would become True"),
    "complex for float32": ("float32", "complex64", "[1, 1j, 2]", "1j at [1] would become 0.0"),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_an_output_file_s_values_are_never_changed_to_fit(name: str) -> None:
    """Every value in a file must be one of the output's dtype, because rounding is the backend's job."""
    dtype, held, values, told = WRITTEN[name]
    code = f"import numpy; numpy.array({values}, '{held}').tofile('output/output0.bin')"
    files = {"outputs": [{"tensor": "output0", "path": "output/output0.bin", "dtype": held}]}
    result = copied(code, dtype=dtype, shape=(3,), **files)
    assert result.status is Status.ERROR, result.reason
    assert f"output/output0.bin holds {held} values that {dtype}, the dtype of the output" in result.reason
    assert told in result.reason


WRONG_SETTINGS: dict[str, tuple[Any, str]] = {
    "none": ({}, "needs to know its command"),
    "no command": ({"env": {}}, "needs to know its command"),
    "empty command": ({"command": ""}, "backend_config.command.command"),
    "unknown key": ({"command": "x", "comand": "y"}, "'comand' was unexpected"),
    "open quote": ({"command": "run 'x"}, "cannot be split into words: No closing quotation"),
    "no program": ({"command": ["./no-such-program"]}, "cannot be started"),
    "no folder": ({"command": ["true"], "workdir": "no/such/folder"}, "is not a folder"),
    "unknown field": ({"command": ["true", "{input0.shpae}"]}, "{input0.shpae} is not a field of this case"),
    "unknown tensor": (
        {"command": ["true"], "inputs": [{"tensor": "input9", "path": "x"}]},
        "has no tensor 'input9'",
    ),
    "missing tensor": (
        {"command": ["true"], "outputs": [{"tensor": "input0", "path": "x"}]},
        "roll has the outputs output0, each once",
    ),
    "unknown dtype": (
        {"command": ["true"], "inputs": [{"tensor": "input0", "path": "x", "dtype": "float99"}]},
        "unknown dtype 'float99'",
    ),
}


@pytest.mark.parametrize(("settings", "message"), WRONG_SETTINGS.values(), ids=WRONG_SETTINGS)
def test_wrong_settings(settings: Any, message: str) -> None:
    result = run_case(CommandDriver(), case_of("roll", ("float32",), (2,), settings, shifts=0))
    assert result.status is Status.ERROR
    assert message in result.reason


def test_a_workdir_belongs_to_one_case_at_a_time(tmp_path: Path) -> None:
    code = f"import os, time; os.mkdir('busy'); time.sleep(0.2); os.rmdir('busy'); {COPY}"
    results: list[CaseResult] = []
    threads = [
        threading.Thread(target=lambda: results.append(copied(code, workdir=str(tmp_path)))) for _ in range(3)
    ]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert [one.reason for one in results if one.status is not Status.PASSED] == []
    assert len(results) == 3


def test_without_a_workdir_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert copied().status is Status.PASSED
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", ["../precious", "{workdir}/../precious", "link", ".", "/etc/precious"])
@pytest.mark.parametrize("side", ["inputs", "outputs"])
def test_files_outside_the_workdir_are_nobodys_to_replace(tmp_path: Path, side: str, path: str) -> None:
    workdir = tmp_path / "work"
    workdir.mkdir()
    (tmp_path / "precious").write_text("kept")
    (workdir / "link").symlink_to("../precious")
    tensor = side[:-1] + "0"
    result = copied("pass", workdir=str(workdir), **{side: [{"tensor": tensor, "path": path}]})
    assert result.status is Status.ERROR
    assert f"the file of {tensor}, {path!r}, is not inside the workdir" in result.reason
    assert (tmp_path / "precious").read_text() == "kept"


def test_such_files_are_found_before_anything_runs() -> None:
    settings = python("pass", outputs=[{"tensor": "output0", "path": "../precious"}])
    with pytest.raises(UsageError, match="is not inside the workdir"):
        CommandDriver().check(case_of("roll", ("float32",), (2,), settings, shifts=0))
