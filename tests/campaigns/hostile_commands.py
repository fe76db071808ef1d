"""Hostile calls of both command lines: every command and option, with values and files that nobody expects.

The campaign reads the options from the commands themselves, so it tries new ones without a change here. Most
calls happen in this process. One in sixteen runs in a process of its own, with odd environments and streams.
A call must end with an exit code that means something and one clear message. It must not show a traceback or
anything that a terminal obeys, and must not touch files that it was not told to write.
"""

from __future__ import annotations

import io
import json
import os
import random
import re
import shutil
import stat
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import chdir
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import click
import numpy
from click.testing import CliRunner

CODES = {0, 1, 2, 3, 130}
_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]")
_PASSWORD = "s3cr3t"
_ESCAPE = "\x1b[31mred\x1b]0;title\x07"

NUMBERS = (
    "-1", "0", "1", "2", "nan", "inf", "-inf", "1e308", "1e-400", "-0.0", "0.5", "1e9", "9" * 25,
    "9" * 5000, "0x10", "1_000", "\uff11\uff12", "\u0663", "", " ", "+1", "1,5", "None", "true", _ESCAPE,
    "\udcff",
)  # fmt: skip
PATHS = (
    "small.stone", "damaged.stone", "empty", "text.txt", "binary", "dir", ".", "..", "", " ", "-", "~",
    "~nobody/x", "missing", "missing/deep/er", "text.txt/below", "ring", "link", "dangling", "/dev/null",
    "/dev/full", "/", "/proc/self/mem", "/proc/version", "x" * 300, "a\nb", _ESCAPE, "\udcff", "$HOME",
    "%s", "--", "*", "C:\\x", "plan.yaml", "huge.yaml", "ring.yaml", "deep.yaml", "odd.yaml", "tags.yaml",
    "expectations.toml", "odd.toml", "ledger.sqlite", "in.npy", "in.npz", "objects.npy", "huge.npy",
    "model.py:small", "snapshot.json", "odd.json", "none", "checkpoint", "damaged-checkpoint", "state.pt",
    f"postgresql://me:{_PASSWORD}@127.0.0.1:1/db",
    "sqlite://", "sqlite:///dir", "mysql://x", "://", "x://",
)  # fmt: skip
TEXTS = (
    "relu", "conv2d", "softmax", "rel", "*", "[", "]", "!", "", " ", "a" * 10_000, _ESCAPE, "\udcff",
    "\u202e", "é", "None", "../..", ":", "::", "a:", ":b", "a.b:c", "model.py:small", "model:small",
    "os:getcwd", "os.path", "sys", "model.py:fails", "model.py:leaves", "model.py:prints",
    "model.py:nothing", "model.py:odd_name", "broken.py:f", "json", "json:", "json:dir", "json:/dev/null",
    "json:/dev/full", "html:x/y.html", "junit:ring", "nothing:x", "op=relu", "op=", "=relu", "id=0",
    "!op=*", "tag=", "dtype=float99", "1/2", "0/0", "2/1", "-1/3", "9/9999999999", "stub", "numpy",
    "command", "http", "ascend", "torch:cpu", "torch:cpu:9", "torch:", "torch:nothing", "faulty:x",
    "torch-compile:x", "gpu", "float32", "float32,float32", "float99", "complex64", "int4", "backward",
    "forward", "latest", "2026", "dim=0", "dim=[", "dim=&a [*a]", "a=.nan", 'a="\\0"', "=",
    "k=" + "9" * 5000, "s0=4", "s0=", "8,2048", "scalar", "input0=", "input0=2,3", "0", "-1", "2x3",
    "9" * 30, "1," * 5000, "9223372036854775807", "backend_config.command.command=true",
    "backend_config.http.url=http://[::1", "backend_config=1",
    "backend_config.command={command: 'true', outputs: [{tensor: output0, path: ../precious.txt}]}",
    "http://[::1", "http://127.0.0.1:1", "http://h:port", f"https://me:{_PASSWORD}@127.0.0.1:1", "ftp://x",
    "//", "cpu", "cuda:99", "cpu:-1", "cpu:x", "nothing", "minimum", "0.0.0", "99.0.0", "1.2.3.4", "week_4",
    "current",
)  # fmt: skip
MODELS = (
    "model.py:small", "model.py:fails", "model.py:leaves", "model.py:prints", "model.py:nothing",
    "model.py:number", "model.py:bare", "model.py:odd_name", "model.py:inside", "broken.py:f",
    "leaves.py:f", "missing.py:f", "dir:f", "text.txt:f", "model:small", "no.module:f", "os:getcwd", "mlp",
    "MLP", "", ":", "model.py:", ":small", _ESCAPE, "\udcff.py:f", "model.py:small:small",
    "../precious.txt:f", "a" * 5000, "model.py:class", "model.py:Deep",
)  # fmt: skip
_MODEL = """\
import sys
import torch

def small(): return torch.nn.Linear(3, 2), (torch.randn(4, 3),)
def fails(): raise ValueError("\\x1b[31mred \\udcff half")
def leaves(): sys.exit(0)
def prints():
    print("{}")
    return small()
def nothing(): return None
def bare(): return torch.nn.Linear(3, 2)
def odd_name():
    class Odd(torch.nn.Module):
        def forward(self, x): raise KeyError("\\x1b]0;title\\x07")
    return Odd(), (torch.ones(2),)
def inside():
    class Leaving(torch.nn.Module):
        def forward(self, x): sys.exit(0)
    return Leaving(), (torch.ones(2),)
class Deep(Exception):
    def __str__(self): raise RuntimeError("no text")
number = 3
"""
_PLANS = {
    "plan.yaml": "cases: [{op: relu, dtypes: float32, shapes: {input0: [2, 3]}}]",
    "huge.yaml": f"cases: [{{op: relu, seed: {list(range(1100))}, shapes: {[[n] for n in range(1, 1100)]}}}]",
    "ring.yaml": "include: ring.yaml",
    "deep.yaml": "a: " + "[" * 5000,
    "odd.yaml": 'cases: [{op: "\\e[31mred", seed: .nan}, &x {<<: *x}]\noptions: {timeout: .inf}',
    "tags.yaml": "!!python/object/apply:os.system ['echo owned > owned']",
    "expectations.toml": "[[gap]]\noperator = 'relu'\nreason = 'x'",
    "odd.toml": "[[gap]]\noperator = '\\u001b'\nexpires = 9999-99-99",
    "odd.json": '{"format": 1e999, "apis": [[[]]]}',
    "snapshot.json": "{}",
}
_RUN = ("--op", "relu", "--dtype", "float32", "--shape", "2", "--backend", "stub", "--ledger", "none")
_DEFAULTS = {
    "model": "model.py:small", "artifact": "small.stone", "op": "relu", "case_id": "0", "run_a": "latest",
    "run_b": "latest", "file": "plan.yaml", "sources": "ledger.sqlite",
    "old": "snapshot.json", "new": "odd.json",
    "script": "script.py", "criterion": "audit", "words": "true", "gap_id": "G-0", "output": "written",
    "provider": "module:json=json", "url": "http://127.0.0.1:1", "evidence": "evidence.toml", "name": "plan",
    "path": "checkpoint",
}  # fmt: skip
_ALWAYS: dict[str, tuple[str, ...]] = {
    "optest run": _RUN,
    "optest replay": _RUN,
    "optest faults": ("--op", "relu", "--fault", "zeros"),
    "optest serve": ("--host", "no.such.host.invalid"),
    "torchstone faults": ("--op", "no-such-entry"),
    "torchstone demo": ("--nothing",),
    "torchstone parity": ("--quick",),
    "torchstone redirect run": ("no-such-script.py",),
    "torchstone redirect explain": ("--no-run",),
}
"""Options that keep a call short. Without them, the command would take minutes, or never end."""
_NEVER = {
    "torchstone ops": {"again"},
    "torchstone parity": {"inventory"},
    "torchstone gaps snapshot": {"everything", "branches"},
}
_READS_ALL_BELOW = {"usage"}
"""Options that read every file below a folder. They never get ``/``, since a whole disk takes too long."""
_SLOW = ("torchstone gaps", "torchstone demo", "torchstone faults", "torchstone redirect", "optest faults")
VARIABLES = (
    "TORCHSTONE_CACHE", "TORCHSTONE_CACHE_DIR", "TORCHSTONE_CACHE_MAX_BYTES", "TORCHSTONE_DEVICE", "HOME",
    "TORCHSTONE_ENGINE", "TORCHSTONE_PLUGIN", "TORCHSTONE_WORKER_TIMEOUT_S", "OPTEST_HOME", "OPTEST_LEDGER",
    "OPTEST_PLUGINS", "OPTEST_TRACEBACK", "COLUMNS", "TERM", "PYTHONIOENCODING", "LC_ALL", "TMPDIR",
    "NO_COLOR",
)  # fmt: skip


@dataclass(frozen=True)
class Made:
    """One call: the program and its words. With ``shell``, it is a process with these redirections."""

    program: str
    words: list[str]
    variables: dict[str, str] = field(default_factory=dict)
    shell: str | None = None

    @property
    def what(self) -> str:
        text = " ".join([self.program, *(word[:80] for word in self.words)])
        return ascii(f"{text} {self.variables or ''} {self.shell or ''}".strip())


def prepare(seed: int, folder: Path) -> Tries:
    """Make the files that the calls can use, once per folder."""
    kept = folder / "files"
    if not (folder / "done").exists():
        shutil.rmtree(kept, ignore_errors=True)
        (kept / "work").mkdir(parents=True)
        with chdir(kept / "work"):
            _make_files()
        (folder / "done").touch()
    return Tries(seed, kept, folder / "sandbox")


def _make_files() -> None:
    import torch

    from torchstone import checkpoint, export

    for name, text in {**_PLANS, "model.py": _MODEL, "broken.py": "def f(:", "text.txt": "text\n"}.items():
        Path(name).write_text(text)
    for name, text in {"leaves.py": "import sys; sys.exit(0)", "script.py": "print(1)", "empty": ""}.items():
        Path(name).write_text(text)
    Path("../precious.txt").write_text("precious")
    Path("binary").write_bytes(bytes(range(256)) * 10)
    Path("dir").mkdir()
    for name, target in {"ring": "ring", "link": "target", "dangling": "nowhere"}.items():
        Path(name).symlink_to(target)
    Path("target").write_text("target")
    numpy.save("in.npy", numpy.ones((4, 3), numpy.float32))
    numpy.savez("in.npz", numpy.ones((4, 3), numpy.float32))
    numpy.save("objects.npy", numpy.array([{}], object), allow_pickle=True)
    header = io.BytesIO()
    numpy.lib.format.write_array_header_1_0(  # it claims more data than there is
        header, {"descr": "<f8", "fortran_order": False, "shape": (10**15,)}
    )
    Path("huge.npy").write_bytes(header.getvalue())
    export(torch.nn.Linear(3, 2), (torch.randn(4, 3),)).save("small.stone")
    with zipfile.ZipFile("small.stone") as archive, zipfile.ZipFile("damaged.stone", "w") as damaged:
        for name in archive.namelist():
            damaged.writestr(name, archive.read(name)[:-1])
    checkpoint.save("checkpoint", model=torch.nn.Linear(3, 2), note="\x1b[31mred")
    shutil.copytree("checkpoint", "damaged-checkpoint")
    for file in Path("damaged-checkpoint").rglob("*.safetensors"):
        file.write_bytes(file.read_bytes()[:-1])
    torch.save({"weight": torch.ones(2)}, "state.pt")
    words = ["run", *_RUN[:-2], "--ledger", "ledger.sqlite"]
    subprocess.run([sys.executable, "-m", "optest", *words], check=True, stdout=subprocess.DEVNULL)


class Tries:
    """Makes and tries the calls of one seed."""

    def __init__(self, seed: int, files: Path, sandbox: Path) -> None:
        from optest.cli.app import cli as optest
        from torchstone.cli.main import cli as torchstone

        self.seed, self.files, self.sandbox = seed, files, sandbox
        self.groups = {"optest": optest, "torchstone": torchstone}
        self.commands = [
            (name, path, command)
            for name, group in self.groups.items()
            for path, command in _commands(group, ())
        ]

    def make(self, number: int) -> Made:
        rng = random.Random(f"{self.seed} {number}")
        program, path, command = rng.choice(self.commands)
        full = " ".join((program, *path))
        while full.startswith(_SLOW) and rng.random() < 0.7:
            program, path, command = rng.choice(self.commands)
            full = " ".join((program, *path))
        words = [*path, *_some_words(rng, full, command)]
        if rng.random() < 0.02:
            words = [*path[:1], rng.choice(TEXTS), *words[1:]]
        if number % 16:
            return Made(program, words)
        shell = rng.choice(
            ("", "", ">/dev/full", ">&-", "2>&-", "<&- >&- 2>&-", ">/dev/full 2>/dev/full", "2>/dev/full")
        )
        names = rng.sample(VARIABLES, rng.choice((0, 1, 1, 2)))
        values = {name: rng.choice(_OWN_VALUES.get(name, _VALUES)) for name in names}
        return Made(program, words, values, shell)

    def attempt(self, made: Made) -> tuple[str, str]:
        """Make a call in a fresh folder. Return how it ended, and what is wrong with that."""
        shutil.rmtree(self.sandbox, ignore_errors=True)
        shutil.copytree(self.files, self.sandbox, symlinks=True)
        work = self.sandbox / "work"
        if made.shell is None:
            code, stdout, stderr, raised = self._here(made, work)
        else:
            code, stdout, stderr, raised = self._process(made, work)
        problems = list(_problems(made, code, stdout, stderr, raised, self.sandbox))
        return f"exit code {code}", "; ".join(problems)

    def _here(self, made: Made, work: Path) -> tuple[int, str, str, str]:
        before, modules = list(sys.path), set(sys.modules)
        variables = {"OPTEST_HOME": str(work / "home"), "OPTEST_LEDGER": "ledger.sqlite"}
        with chdir(work), patch.dict(os.environ, variables):
            try:
                done = CliRunner().invoke(self.groups[made.program], made.words)
            finally:
                sys.path[:] = before
                for name in set(sys.modules) - modules:
                    if name in ("model", "leaves", "broken", "script"):
                        del sys.modules[name]
        raised = ""
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            import traceback

            raised = "".join(traceback.format_exception(done.exception, limit=-6))
        return done.exit_code, done.stdout, done.stderr, raised

    @staticmethod
    def _process(made: Made, work: Path) -> tuple[int, str, str, str]:
        home = {"OPTEST_HOME": str(work / "home"), "OPTEST_LEDGER": "ledger.sqlite"}
        known = {**os.environ, **home, "PYTHONPATH": os.pathsep.join(sys.path)}
        script = f'exec "$0" -m {made.program} "$@" {made.shell}'
        words = [os.fsencode(word) for word in ("sh", "-c", script, sys.executable, *made.words)]
        variables = {os.fsencode(k): os.fsencode(v) for k, v in {**known, **made.variables}.items()}
        done = subprocess.run(words, cwd=work, env=variables, capture_output=True, stdin=subprocess.DEVNULL)
        encoding = made.variables.get("PYTHONIOENCODING", "").partition(":")[0] or "utf-8"
        out, err = (part.decode(encoding, "replace") for part in (done.stdout, done.stderr))
        return done.returncode, out, err, ""


def _commands(group: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name, command in sorted(group.commands.items()):
        if isinstance(command, click.Group):
            yield from _commands(command, (*path, name))
        else:
            yield (*path, name), command


def _some_words(rng: random.Random, full: str, command: click.Command) -> list[str]:
    """Return arguments and options of ``command``: a few of them hostile, and mostly the required ones."""
    options = [one for one in command.params if isinstance(one, click.Option)]
    arguments = [one for one in command.params if isinstance(one, click.Argument)]
    never = _NEVER.get(full, set())
    chosen = rng.sample(
        [one for one in options if one.name not in never], min(len(options), rng.choice((0, 1, 1, 2, 3)))
    )
    chosen = [one for one in chosen if one.name not in never]
    words: list[str] = []
    for one in options:
        if one in chosen:
            words.append(rng.choice([*one.opts, *one.secondary_opts]))
            if not one.is_flag:
                words.append(_some_value(rng, one))
        elif one.required and rng.random() < 0.95:
            words += [one.opts[0], _DEFAULTS[str(one.name)]]
    spoiled = rng.choice(arguments) if arguments and (not chosen or rng.random() < 0.4) else None
    given = []
    for argument in arguments:
        if argument is spoiled:
            given += [_some_value(rng, argument) for _ in range(rng.choice((0, 1, 1, 1, 1, 2)))]
        elif argument.required or rng.random() < 0.5:
            given.append(_DEFAULTS.get(str(argument.name), "x"))
    always = _ALWAYS.get(full, ())
    return [*always, *words, *given] if full.startswith("optest") else [*words, *always, *given]


def _some_value(rng: random.Random, parameter: click.Parameter) -> str:
    """Return a value for the parameter, mostly of a kind that it expects."""
    value = _any_value(rng, parameter)
    return "dir" if value == "/" and parameter.name in _READS_ALL_BELOW else value


def _any_value(rng: random.Random, parameter: click.Parameter) -> str:
    kind = parameter.type
    if rng.random() < 0.08:
        return rng.choice(rng.choice((NUMBERS, PATHS, TEXTS)))
    if isinstance(kind, click.Choice):
        return rng.choice((*kind.choices, str(kind.choices[0]).upper(), "", _ESCAPE))
    if isinstance(kind, click.types.FloatParamType | click.types.IntParamType):
        return rng.choice(NUMBERS)
    if isinstance(kind, click.Path) or parameter.name in ("ledger", "sources"):
        return rng.choice(PATHS)
    return rng.choice(MODELS if parameter.name == "model" else TEXTS)


_VALUES = (
    *NUMBERS,
    *(one for one in PATHS if len(one) < 100),
    *("stub", "prints", "leaves", "model", "ascii", "C"),
)

_OWN_VALUES = {"PYTHONIOENCODING": ("ascii", "latin-1", "utf-16", "utf-8:strict", ":replace", "cp037", "")}
"""Values of variables that Python itself reads. With other values, Python exits before it runs our code."""


def _problems(made: Made, code: int, out: str, err: str, raised: str, sandbox: Path) -> Iterator[str]:
    """Yield what is wrong with how a call ended."""
    if raised:
        yield f"it raised {raised}"
    if code not in CODES:
        yield f"exit code {code} means nothing: {err[-500:]}"
    both = out + err
    if "Traceback (most recent call last)" in both and "--traceback" not in made.words:
        yield f"a traceback: {both[-1500:]}"
    if (found := _OBEYED.search(both)) is not None:
        yield f"{found[0]!a} is shown: {both[max(0, found.start() - 100) : found.end() + 50]!a}"
    if _PASSWORD in both:
        yield "a password is shown"
    shown = made.shell is None or made.shell == ""
    if code and shown and not both.strip():
        yield "no message"
    if "--json" in made.words and shown and code in (0, 1) and out.strip():
        try:
            json.loads(out)
        except ValueError:
            yield f"stdout is not JSON: {out[:300]!a}"
    yield from _damage(sandbox)


def _damage(sandbox: Path) -> Iterator[str]:
    """Yield what a call did to files that it was not told to write."""
    precious = sandbox / "precious.txt"
    if not precious.is_file() or precious.read_text() != "precious":
        yield "a file outside was changed"
    if not all(stat.S_ISCHR(os.stat(device).st_mode) for device in ("/dev/null", "/dev/full")):
        yield "a device was replaced"
    if not (sandbox / "work" / "link").is_symlink():
        yield "a link was replaced"
    if (sandbox / "work" / "owned").exists():
        yield "a file ran code"
    left = [one.name for one in sandbox.rglob(".*.tmp")]
    if left:
        yield f"files are left behind: {left}"
