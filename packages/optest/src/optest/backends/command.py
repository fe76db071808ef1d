"""The driver ``command``: any program that reads and writes files can be a backend.

A case's ``backend_config.command`` names the program and the files (``driver_settings`` has the schema).
``ascend`` is the same driver under another name, kind and key.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import math
import os
import re
import shlex
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from numpy.typing import NDArray

from ..driver_settings import COMMAND_FIELDS, check_settings
from ..errors import InputWritten, UsageError
from ..files import real_path
from ..names import listing
from .driver import BackendDriver, ProgramFailed
from .process import run_program
from .tensor_files import BadOutput, fitted, holds, make_room, read, stored, write

if TYPE_CHECKING:
    from ..core.case import TestCase

CASE_VARIABLE = "OPTEST_CASE"
_FIELD = re.compile(r"\{([a-zA-Z_]\w*(?:\.\w+)?)\}")


@dataclass(frozen=True)
class TensorFile:
    """One tensor of a case and its file; ``path`` is written as in the settings."""

    tensor: str
    path: str
    dtype: str
    shape: tuple[int, ...]
    own_dtype: str
    """The tensor's dtype in the case; ``dtype`` is that of the file."""


class CommandDriver(BackendDriver):
    """Runs a case by writing its inputs to binary files, running a program and reading its output files."""

    kind = "command"
    name = "command"
    key: ClassVar[str] = "command"
    """The key of this driver's settings in ``backend_config``."""
    settings = COMMAND_FIELDS
    not_identifying = frozenset({"timeout", "workdir", "inputs", "outputs"})

    def check(self, case: TestCase) -> None:
        check_settings(self.key, case.backend_config.get(self.key, {}), COMMAND_FIELDS, "command")
        settings = case.backend_config[self.key]
        files = _files(case, settings, "inputs") + _files(case, settings, "outputs")
        somewhere = Path(os.sep, "workdir")
        fields = _fields(case, files, somewhere, somewhere / "case.json")
        for one in files:
            _place(one, somewhere, fields)

    def run(self, case: TestCase, inputs: Sequence[NDArray[Any]]) -> tuple[NDArray[Any], ...]:
        """Return the outputs that the program wrote.

        Raises :class:`UsageError` for unusable settings. Raises :class:`ProgramFailed` if the program fails,
        or if an output file is missing, has the wrong size or holds a value that the output's dtype cannot
        represent. Raises :class:`Unsupported` if a file's dtype cannot hold an input, and
        :class:`InputWritten` if the program wrote into an input file that it must only read.
        """
        self.check(case)
        settings = case.backend_config[self.key]
        given, wanted = _files(case, settings, "inputs"), _files(case, settings, "outputs")
        with tempfile.TemporaryDirectory(prefix="optest-") as scratch, _workdir(settings, scratch) as workdir:
            description = Path(scratch) / "case.json"
            fields = _fields(case, given + wanted, workdir, description)
            sources = [_place(one, workdir, fields) for one in given]
            targets = [_place(one, workdir, fields) for one in wanted]
            for target in targets:  # an old file must not be taken for an output
                make_room(target)
            contents = [
                stored(array, one.dtype, one.tensor) for one, array in zip(given, inputs, strict=True)
            ]
            for source, content in zip(sources, contents, strict=True):
                write(source, content)
            description.write_text(json.dumps(_described(case, given, wanted, workdir, fields), indent=1))
            tail = run_program(
                _command(settings["command"], fields),
                workdir=workdir,
                env=_environment(settings.get("env", {}), fields) | {CASE_VARIABLE: str(description)},
                timeout=settings.get("timeout"),
            )
            for one, source, content in zip(given, sources, contents, strict=True):
                if source not in targets and one.tensor not in case.written and not holds(source, content):
                    raise InputWritten(
                        f"the command wrote into {one.path}, the file of {one.tensor}: it must only read it",
                        "let it work on a copy, or, if it works in place, name the file as an output too",
                    )
            try:
                return tuple(
                    fitted(read(target, one.dtype, one.shape, one.path), one.own_dtype, one.path)
                    for one, target in zip(wanted, targets, strict=True)
                )
            except BadOutput as error:
                raise ProgramFailed(error.message, exit_code=0, stderr_tail=tail) from None


def _files(case: TestCase, settings: Mapping[str, Any], side: str) -> list[TensorFile]:
    """Return the files of all inputs or all outputs, in the descriptor's order."""
    names = getattr(case.descriptor, side)
    shapes: Mapping[str, Any] = case.shapes if side == "inputs" else case.output_shapes
    dtypes = dict(zip(names, case.dtypes if side == "inputs" else case.output_dtypes, strict=True))
    where = side[:-1]
    entries = settings.get(side) or [{"tensor": name, "path": f"{where}/{name}.bin"} for name in names]
    by_name = {case.descriptor.canonical_name(entry["tensor"]): entry for entry in entries}
    if set(by_name) != set(names) or len(entries) != len(names):
        raise UsageError(
            f"{side} of the settings name {listing([entry['tensor'] for entry in entries])}; "
            f"{case.op} has the {side} {listing(names)}, each once"
        )
    return [
        TensorFile(name, entry["path"], entry.get("dtype", dtypes[name]), tuple(shapes[name]), dtypes[name])
        for name, entry in ((name, by_name[name]) for name in names)
    ]


@contextlib.contextmanager
def _workdir(settings: Mapping[str, Any], scratch: str) -> Iterator[Path]:
    """Yield the folder to run in, locked so that only this case uses it during the block."""
    if "workdir" not in settings:
        folder = Path(scratch, "work")
        folder.mkdir()
        yield folder
        return
    folder = real_path(settings["workdir"])
    if not folder.is_dir():
        raise UsageError(f"the workdir {folder} is not a folder", "workdir is relative to the plan's folder")
    locks = Path(tempfile.gettempdir(), f"optest-locks-{os.getuid()}")
    locks.mkdir(mode=0o700, exist_ok=True)
    with (locks / hashlib.sha256(bytes(folder)).hexdigest()[:32]).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # other workers use the same files; closing unlocks
        yield folder


def _fields(case: TestCase, files: Sequence[TensorFile], workdir: Path, description: Path) -> dict[str, str]:
    """Return the values of ``{name}`` fields in commands, paths and environment variables."""
    fields = {
        "op": case.op,
        "chip": case.backend.chip or "",
        "phase": case.phase,
        "seed": str(case.seed),
        "id": case.id,
        "workdir": str(workdir),
        "case": str(description),
    }
    names = {name: [name] for name in (*case.descriptor.inputs, *case.descriptor.outputs)}
    for alias, name in case.descriptor.aliases.items():
        names[name].append(alias)
    for one in files:
        for name in names[one.tensor]:
            fields |= {
                f"{name}.shape": ",".join(map(str, one.shape)),
                f"{name}.size": str(math.prod(one.shape)),
                f"{name}.dtype": one.dtype,
            }
    fields |= {f"attributes.{name}": _text(value) for name, value in case.attributes.items()}
    return fields | {f"{name}.path": _filled(one.path, fields) for one in files for name in names[one.tensor]}


def _place(one: TensorFile, workdir: Path, fields: Mapping[str, str]) -> Path:
    """Return the path of a tensor's file.

    Raises :class:`UsageError` if it is outside ``workdir``, where the driver could replace another file.
    """
    path = workdir / _filled(one.path, fields)
    if real_path(workdir) not in real_path(path).parents:
        raise UsageError(
            f"the file of {one.tensor}, {one.path!r}, is not inside the workdir: there it could replace "
            "a file that is not a tensor",
            "give a path relative to the workdir, or another workdir",
        )
    return path


def _filled(text: str, fields: Mapping[str, str]) -> str:
    """Return ``text`` with the value of each ``{field}``; other braces are left unchanged.

    Raises :class:`UsageError` for a tensor or ``attributes`` with an unknown part after the dot.
    """
    heads = {name.partition(".")[0] for name in fields if "." in name} | {"attributes"}

    def value(match: re.Match[str]) -> str:
        name = match[1]
        head, dot, _ = name.partition(".")
        if dot and name not in fields and head in heads:
            raise UsageError(f"{match[0]} is not a field of this case; there are {listing(fields, limit=60)}")
        return fields.get(name, match[0])

    return _FIELD.sub(value, text)


def _text(value: Any) -> str:
    """Return an attribute as a command-line word: lists joined by commas, bools and None as in JSON."""
    if isinstance(value, list | tuple):
        return ",".join(map(_text, value))
    return value if isinstance(value, str) else json.dumps(value)


def _command(given: str | Sequence[str], fields: Mapping[str, str]) -> list[str]:
    try:
        words = shlex.split(given) if isinstance(given, str) else list(given)
    except ValueError as error:
        raise UsageError(f"the command {given!r} cannot be split into words: {error}") from None
    if not words:
        raise UsageError(f"the command {given!r} is empty")
    return [_filled(word, fields) for word in words]


def _environment(given: Mapping[str, Any], fields: Mapping[str, str]) -> dict[str, str]:
    return {**os.environ, **{name: _filled(str(value), fields) for name, value in given.items()}}


def _described(
    case: TestCase,
    given: Sequence[TensorFile],
    wanted: Sequence[TensorFile],
    workdir: Path,
    fields: Mapping[str, str],
) -> dict[str, Any]:
    """Return the content of the JSON file that ``OPTEST_CASE`` names, which describes the case."""

    def files(some: Sequence[TensorFile]) -> list[dict[str, Any]]:
        return [
            {
                "tensor": one.tensor,
                "path": str(workdir / _filled(one.path, fields)),
                "dtype": one.dtype,
                "shape": list(one.shape),
            }
            for one in some
        ]

    return case_facts(case) | {"inputs": files(given), "outputs": files(wanted)}


def case_facts(case: TestCase) -> dict[str, Any]:
    """Return the description of a case for a program outside this process, without its tensors."""
    return {
        "id": case.id,
        "op": case.op,
        "category": case.descriptor.category,
        "attributes": dict(case.attributes),
        "phase": case.phase,
        "seed": case.seed,
        "chip": case.backend.chip,
    }
