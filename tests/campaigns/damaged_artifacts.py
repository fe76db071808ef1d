"""Artifacts that were damaged or tampered with: refused with one error, or as good as before.

*Damage* happens to a file (flipped, lost or doubled bytes): if the file still loads, it must give the
original's outputs. *Tampering* keeps every checksum right: then the file may describe something else than the
original, but its outputs must have the shapes and dtypes that it describes. An altered module is code, which
no checksum makes safe, so it is called as `torchstone run --isolated` calls it, in a process that may crash.
"""

from __future__ import annotations

import copy
import hashlib
import io
import json
import random
import struct
import subprocess
import sys
import warnings
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy

Members = dict[str, bytes]
MODULE, SIGNATURE, WEIGHTS = "module.stablehlo", "signature.json", "weights.safetensors"


@dataclass(frozen=True)
class Made:
    """One file. If ``trusted``, its module is the original's, so it may be called in this process."""

    what: str
    content: bytes
    original: str
    damaged: bool
    trusted: bool


def prepare(seed: int, folder: Path) -> Tries:
    """Export the original artifacts, once per folder."""
    from torchstone import export

    if not (folder / "done").exists():
        for name, (model, args, options) in _originals().items():
            export(model, args, **options).save(folder / f"{name}.stone")
        (folder / "done").touch()
    return Tries(seed, folder)


def _originals() -> dict[str, tuple[Any, tuple[Any, ...], dict[str, Any]]]:
    import torch

    class Counting(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(3, 2)
            self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

        def forward(self, x: Any, scale: Any) -> Any:
            self.calls += 1
            return {"y": self.linear(x) * scale, "n": x.shape[0], "calls": self.calls.clone()}

    def mixed(x: Any, index: Any) -> Any:
        return x.to(torch.complex128) * 2, x[index], (x > 0).sum()

    rows = torch.export.Dim("rows", min=1, max=64)
    return {
        "linear": (torch.nn.Linear(3, 2), (torch.randn(4, 3),), {}),
        "counting": (
            Counting(),
            (torch.randn(4, 3), torch.tensor(2.0)),
            {"dynamic_shapes": ({0: rows}, None)},
        ),
        "mixed": (mixed, (torch.randn(5, 2), torch.tensor([0, 3])), {}),
    }


class Tries:
    """Makes and tries the files of one seed."""

    def __init__(self, seed: int, folder: Path) -> None:
        from torchstone.artifact import load_artifact
        from torchstone.parity.replay import random_inputs

        self.seed, self.folder = seed, folder
        files = sorted(folder.glob("*.stone"))
        self.originals = {file.stem: file.read_bytes() for file in files}
        self.inputs = {file.stem: random_inputs(load_artifact(file).signature) for file in files}
        self.outputs = {file.stem: self._call(file, self.inputs[file.stem]) for file in files}
        self.place = folder / "tried"

    def make(self, number: int) -> Made:
        rng = random.Random(f"{self.seed} {number}")
        name = rng.choice(sorted(self.originals))
        how = rng.choice(DAMAGES)
        content, damaged, trusted = how(rng, self.originals[name])
        text = (how.__doc__ or "").partition("\n")[0]
        return Made(f"{name}: {text}", content, name, damaged, trusted)

    def attempt(self, made: Made) -> tuple[str, str]:
        """Load and call a file. Return how that ended, and the defect, if any."""
        from torchstone.artifact import load_artifact
        from torchstone.errors import TorchstoneError
        from torchstone.parity.replay import output_specs, random_inputs
        from torchstone.shapes import bind

        self.place.write_bytes(made.content)
        try:
            signature = load_artifact(self.place).signature
            same = made.damaged or made.content == self.originals[made.original]
            inputs = self.inputs[made.original] if same else random_inputs(signature)
        except (TorchstoneError, MemoryError) as error:
            return f"refused by load: {type(error).__name__}", _odd(error)
        if sum(one.nbytes for one in inputs) > 1 << 26:
            return "loads, with inputs that are too large to try", ""
        if not made.trusted:
            return self._isolated()
        try:
            outputs = self._call(self.place, inputs)
        except (TorchstoneError, MemoryError) as error:
            return f"refused by the call: {type(error).__name__}", _odd(error)
        if made.damaged:
            wrong = [
                key for key, one in self.outputs[made.original].items() if not _equal(one, outputs.get(key))
            ]
            return "gives outputs", f"wrong answer: {wrong}" if wrong else ""
        specs = output_specs(signature)
        declared = [(s.name, s.shape) for s in signature.inputs if s.kind == "input"]
        symbols = bind(declared, [one.shape for one in inputs], signature.symbols)
        from torchstone.shapes import evaluate

        wrong = [
            key
            for key, spec in specs.items()
            if outputs[key].shape != tuple(evaluate(dim, symbols) for dim in spec.shape)
            or outputs[key].dtype != spec.dtype.numpy
        ]
        return "gives outputs", f"other shapes or dtypes than its signature says: {wrong}" if wrong else ""

    @staticmethod
    def _call(file: Path, inputs: list[Any]) -> dict[str, Any]:
        from torchstone import load
        from torchstone.parity.replay import call

        return call(load(file), inputs)

    def _isolated(self) -> tuple[str, str]:
        """Call the file as a user would call one that is not trusted."""
        command = [sys.executable, "-m", "torchstone", "run", str(self.place), "--isolated"]
        done = subprocess.run([*command, "--timeout", "60"], capture_output=True, text=True, timeout=150)
        defect = (
            "" if done.returncode in (0, 1, 2, 3) else f"exit code {done.returncode}: {done.stderr[-300:]}"
        )
        if "Traceback" in done.stderr:
            defect = f"a traceback: {done.stderr[-1000:]}"
        return f"isolated: exit code {done.returncode}", defect


def _odd(error: BaseException) -> str:
    """Return what is wrong with an error's text. It must be short and not empty."""
    text = str(error)
    if not text.strip() or len(text) > 3000:
        return f"an error of {len(text)} characters: {text[:200]!r}"
    return ""


def _equal(expected: Any, found: Any) -> bool:
    return (
        found is not None
        and found.dtype == expected.dtype
        and numpy.array_equal(found, expected, equal_nan=expected.dtype.kind in "fc")
    )


# --- damage: what happens to files ------------------------------------------------------

Damaged = tuple[bytes, bool, bool]


def flip(rng: random.Random, content: bytes) -> Damaged:
    """some bits flipped"""
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 8, 64))):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(data), True, True


def overwrite(rng: random.Random, content: bytes) -> Damaged:
    """a block overwritten"""
    start, size = rng.randrange(len(content)), rng.choice((1, 4, 64, 512))
    block = rng.choice((bytes(size), b"\xff" * size, rng.randbytes(size)))
    return (content[:start] + block + content[start + size :])[: len(content)], True, True


def truncate(rng: random.Random, content: bytes) -> Damaged:
    """cut off"""
    return content[: rng.randrange(len(content))], True, True


def lose(rng: random.Random, content: bytes) -> Damaged:
    """a block lost or doubled"""
    start, size = rng.randrange(len(content)), rng.choice((1, 16, 512))
    block = content[start : start + size]
    return content[:start] + rng.choice((b"", block + block)) + content[start + size :], True, True


def surround(rng: random.Random, content: bytes) -> Damaged:
    """something before or after it"""
    more = rng.choice((b"\0", b"PK\x05\x06" + bytes(18), rng.randbytes(50), bytes(3000), content))
    return rng.choice((content + more, more + content)), True, True


def replace(rng: random.Random, content: bytes) -> Damaged:
    """another file altogether"""
    arrays = io.BytesIO()
    numpy.savez(arrays, a=numpy.arange(3))
    empty = io.BytesIO()
    zipfile.ZipFile(empty, "w").close()
    others = (b"", b"PK", rng.randbytes(200), arrays.getvalue(), empty.getvalue(), b"{}", bytes(1000))
    return rng.choice(others), True, True


# --- tampering: every checksum is right -------------------------------------------------


def members_of(content: bytes) -> Members:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def packed(members: list[tuple[str, bytes]], compression: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(file, "w", compression) as archive:
        warnings.simplefilter("ignore")  # about duplicate members
        for name, content in members:
            archive.writestr(zipfile.ZipInfo(name), content, compression)
    return file.getvalue()


def signed(members: Members, change: Callable[[Any], None] | None = None) -> bytes:
    """Return a file of ``members``. Its signature gets the right checksums and then is changed."""
    description = json.loads(members[SIGNATURE])
    description["sha256"] = {name: hashlib.sha256(members[name]).hexdigest() for name in (MODULE, WEIGHTS)}
    if change is not None:
        change(description)
    members = {**members, SIGNATURE: json.dumps(description).encode()}
    return packed([(name, members[name]) for name in (SIGNATURE, MODULE, WEIGHTS)])


def change_members(rng: random.Random, content: bytes) -> Damaged:
    """members renamed, doubled, left out, exchanged or compressed"""
    members = list(members_of(content).items())
    kind = rng.randrange(5)
    place = rng.randrange(len(members))
    name, data = members[place]
    if kind == 0:
        members[place] = (rng.choice(("../x", "/etc/x", name.upper(), "", "\u00e9", "x" * 300)), data)
    elif kind == 1:
        members.append((name, rng.choice((data, b"", data[::-1]))))
    elif kind == 2:
        del members[place]
    elif kind == 3:
        names = [one for one, _ in members]
        rng.shuffle(names)
        members = list(zip(names, [one for _, one in members], strict=True))
    else:
        return packed(members, zipfile.ZIP_DEFLATED), True, True
    return packed(members), True, True


def change_zip(rng: random.Random, content: bytes) -> Damaged:
    """a number in a zip header replaced"""
    data = bytearray(content)
    marks = [
        i for i in range(len(data) - 30) if data[i : i + 4] in (b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06")
    ]
    start = rng.choice(marks) + rng.randrange(4, 44)
    form = rng.choice(("<H", "<I"))
    most = 2 ** (8 * struct.calcsize(form))
    if start + 4 <= len(data):
        struct.pack_into(form, data, start, rng.choice((0, 1, 8, most - 1, most // 2, rng.randrange(most))))
    return bytes(data), True, True


def change_signature(rng: random.Random, content: bytes) -> Damaged:
    """one value of the signature replaced"""

    def change(description: Any) -> None:
        holder, key = _some_place(rng, description)
        holder[key] = _some_value(rng, holder[key])

    return signed(members_of(content), change), False, True


def restructure_signature(rng: random.Random, content: bytes) -> Damaged:
    """entries of the signature taken out, doubled, exchanged or added"""

    def change(description: Any) -> None:
        holder, key = _some_place(rng, description, lists=rng.random() < 0.7)
        value = holder[key]
        if isinstance(value, list) and value:
            place = rng.randrange(len(value))
            kind = rng.randrange(4)
            if kind == 0:
                del value[place]
            elif kind == 1:
                value.insert(place, copy.deepcopy(value[place]))
            elif kind == 2:
                rng.shuffle(value)
            else:
                value.extend(copy.deepcopy(value) * rng.choice((1, 500)))
        elif isinstance(holder, dict):
            if rng.random() < 0.5:
                del holder[key]
            else:
                holder[rng.choice(("", "new", key + "x"))] = holder.pop(key)

    return signed(members_of(content), change), False, True


def spoil_signature(rng: random.Random, content: bytes) -> Damaged:
    """the text of the signature is odd JSON"""
    members = members_of(content)
    text = members[SIGNATURE]
    flipped = bytearray(text)
    flipped[rng.randrange(len(text))] = rng.randrange(256)
    odd = rng.choice(
        (
            bytes(flipped),
            b"[" * 100_000,
            b'{"a":' * 50_000,
            text.replace(b"{", b'{"format_version": 1, ', 1),
            b"\xef\xbb\xbf" + text,
            text.decode().encode("utf-16"),
            text.replace(b"1", b"1" * 5000, 1),
            text.replace(b'"float32"', b'"float\\ud800"', 1),
            text.replace(b'"float32"', b'"bfloat16"', 1),
            text.replace(b"null", b"NaN", 1),
            b"null",
            b"",
        )
    )
    return packed([(SIGNATURE, odd), *((one, members[one]) for one in (MODULE, WEIGHTS))]), False, True


def change_weights(rng: random.Random, content: bytes) -> Damaged:
    """the weights' header changed"""
    members = members_of(content)
    stored = members[WEIGHTS]
    size = int.from_bytes(stored[:8], "little")
    header = json.loads(stored[8 : 8 + size])
    data = stored[8 + size :]
    if header and rng.random() < 0.8:
        holder, key = _some_place(rng, header)
        holder[key] = _some_value(rng, holder[key])
    else:
        data = rng.choice((data[:-1], data + b"\0", b""))
    text = json.dumps(header).encode()
    length = rng.choice((len(text), len(text), len(text), 0, len(text) - 1, 2**63, 2**64 - 1, 100_000_001))
    return signed({**members, WEIGHTS: length.to_bytes(8, "little") + text + data}), False, True


def flip_weights(rng: random.Random, content: bytes) -> Damaged:
    """bytes of the weights' file replaced"""
    members = members_of(content)
    data = bytearray(members[WEIGHTS])
    for _ in range(rng.choice((1, 2, 16))):
        data[rng.randrange(len(data))] = rng.randrange(256)
    return signed({**members, WEIGHTS: bytes(data)}), False, True


def flip_module(rng: random.Random, content: bytes) -> Damaged:
    """bytes of the module replaced"""
    members = members_of(content)
    data = bytearray(members[MODULE])
    for _ in range(rng.choice((1, 1, 2, 16))):
        data[rng.randrange(len(data))] = rng.randrange(256)
    return signed({**members, MODULE: bytes(data)}), False, False


def unsigned_module(rng: random.Random, content: bytes) -> Damaged:
    """a module that its checksum does not know"""
    members = members_of(content)
    data = bytearray(members[MODULE])
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    members[MODULE] = rng.choice((bytes(data), data + b"\0", b"", bytes(data[:-1])))
    return packed([(one, members[one]) for one in (SIGNATURE, MODULE, WEIGHTS)]), True, True


_OFTEN = (flip, overwrite, change_signature, restructure_signature, change_weights)
_SELDOM = (truncate, lose, surround, replace, change_members, change_zip, spoil_signature, flip_weights)
DAMAGES = _OFTEN * 8 + _SELDOM * 4 + (unsigned_module,) * 4 + (flip_module,)
"""Altered modules are rare, because each takes a process of its own."""


def _some_place(rng: random.Random, tree: Any, *, lists: bool = False) -> tuple[Any, Any]:
    """Return a container inside ``tree`` and one of its keys. With ``lists``, prefer a key of a list."""
    places: list[tuple[Any, Any]] = []
    waiting = [tree]
    while waiting:
        one = waiting.pop()
        keys = list(one) if isinstance(one, dict) else range(len(one))
        for key in keys:
            places.append((one, key))
            if isinstance(one[key], dict | list):
                waiting.append(one[key])
    chosen = [one for one in places if isinstance(one[0][one[1]], list)] if lists else places
    return rng.choice(chosen or places)


def _some_value(rng: random.Random, old: Any) -> Any:
    """Return a value to put in place of ``old``."""
    values = [
        None,
        True,
        0,
        1,
        -1,
        2,
        2**31,
        2**62,
        2**63,
        2**64,
        10**400,
        1.5,
        "",
        "x",
        "s0",
        "s0*s0",
        "-s0",
    ]
    values += [
        "s0**9",
        "1//0",
        "9**9**9",
        "(" * 400,
        "__import__('os')",
        "float64",
        "int4",
        "complex64",
        "F64",
    ]
    values += ["output", "seed", "input_mutation", "index_check", [], {}, [[]], [0, 1], [4, 3], {"leaf": 0}]
    values += [{"const": 1}, {"dim": "s0"}, {"tuple": []}, "\ud800", "\0", "a" * 10_000]
    if isinstance(old, int) and not isinstance(old, bool):
        values += [old + 1, old - 1, -old] * 5
    return copy.deepcopy(rng.choice(values))
