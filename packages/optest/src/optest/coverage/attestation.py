"""Evidence for items that no result can show: a command, when it ran, and a hash of its output.

    [[attestation]]
    id = "security-audit"
    command = "pip-audit --requirement constraints.txt"
    date = 2026-11-21
    sha256 = "…"                  # of the output
    output = "audit.txt"          # optional: the output itself, beside this file; checked if there

Such an item is shown as attested, never as met, and the evidence expires.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import re
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ..errors import EnvironmentError_, PlanError, UsageError
from ..files import write_whole
from .stages import EVIDENCE_ID, read_toml, told


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid")

    id: str = Field(pattern=EVIDENCE_ID)
    command: str = Field(min_length=1)
    date: datetime.date
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    output: str | None = None


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    attestation: tuple[_Entry, ...] = ()


@dataclass(frozen=True)
class Attestation:
    """One piece of evidence. ``problem`` says why it does not count; empty if it does."""

    id: str
    command: str
    date: datetime.date
    sha256: str
    problem: str = ""

    def expires(self, valid_days: int) -> datetime.date:
        """The last day on which the evidence counts."""
        return self.date + datetime.timedelta(days=valid_days)


def load_attestations(path: Path | None) -> dict[str, Attestation]:
    """Return the newest evidence by id; empty without a file. Raises :class:`PlanError`."""
    if path is None:
        return {}
    try:
        entries = _File.model_validate(read_toml(path)).attestation
    except ValidationError as error:
        raise told(error, path) from error
    found: dict[str, Attestation] = {}
    for one in sorted(entries, key=lambda entry: entry.date):
        found[one.id] = Attestation(one.id, one.command, one.date, one.sha256, _problem(one, path.parent))
    return found


def attest(path: Path, criterion: str, command: Sequence[str], today: datetime.date) -> Attestation:
    """Run ``command`` and add a hash of its output to the evidence in ``path``.

    Raises :class:`UsageError` if the command fails, because a failed audit attests nothing, and if
    ``criterion`` is not a valid name.
    """
    if not re.fullmatch(EVIDENCE_ID, criterion):
        raise UsageError(
            "the criterion is not a name of letters, digits, '_', '.' and '-'",
            hint="give the id that an item of the stages has, as in security-audit",
        )
    if path.exists():
        if not path.is_file():
            raise UsageError(f"{path} is not a file that evidence can be added to")
        load_attestations(path)  # report a broken file before anything is added
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    except OSError as error:
        raise UsageError(f"{shlex.join(command)} cannot be run: {error.strerror}") from error
    if done.returncode:
        said = done.stdout.decode("utf-8", "replace").strip()[-500:]
        raise UsageError(f"{shlex.join(command)} exited with {done.returncode}: nothing is attested\n{said}")
    made = Attestation(criterion, shlex.join(command), today, hashlib.sha256(done.stdout).hexdigest())
    output = path.parent / f"{path.stem}.{made.sha256[:16]}.txt"
    entry = (
        f"\n[[attestation]]\nid = {json.dumps(made.id)}\ncommand = {json.dumps(made.command)}\n"
        f'date = {made.date}\nsha256 = "{made.sha256}"\noutput = {json.dumps(output.name)}\n'
    )
    try:
        write_whole(output, done.stdout)
        write_whole(path, (path.read_bytes() if path.exists() else b"") + entry.encode())
    except OSError as error:
        raise EnvironmentError_(f"the evidence {path} cannot be written: {error.strerror}") from error
    return made


def _problem(entry: _Entry, folder: Path) -> str:
    if entry.date > datetime.date.today():
        return f"it is dated in the future: {entry.date}"
    if entry.output is None:
        return ""
    file = folder / entry.output
    if Path(entry.output).name != entry.output:
        raise PlanError("the output lies beside its evidence file", file=folder, found=entry.output)
    if not file.exists():
        return f"its output {entry.output} is not there"
    if hashlib.sha256(file.read_bytes()).hexdigest() != entry.sha256:
        return f"its output {entry.output} is not what was attested: the hash differs"
    return ""
