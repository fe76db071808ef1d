"""The artifact: signature and zip format, read and written without torch and JAX.

One zip file holds ``module.stablehlo`` (portable bytecode), ``signature.json``
and ``weights.safetensors``. Its members are stored, not compressed, so a file
can claim no more than it holds. ``signature.json`` has the format version and
the SHA-256 of the two others; reading checks every field of it, and executes
nothing. Bytes that are not an artifact are one :class:`ArtifactError`.

A weight whose dtype safetensors lacks (complex128, the 4-bit integers) is
stored as bytes; ``signature.json`` has its real dtype.

Not here: what calls a program (:mod:`torchstone.api`) or checks its module,
which the engine does when it compiles.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import stat
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeVar, get_args

import numpy
import safetensors
import safetensors.numpy

from optest.files import NewFile

from . import dtypes
from .dtypes import DType
from .errors import ArtifactError, ArtifactVersionError, UnsupportedDtype
from .shapes import Range, names_in
from .trees import Tree

FORMAT_VERSION = 1

MODULE = "module.stablehlo"
SIGNATURE = "signature.json"
WEIGHTS = "weights.safetensors"

InputKind = Literal["parameter", "buffer", "constant", "input", "seed"]
CheckKind = Literal["index_check", "value_check"]
OutputKind = Literal["output", "buffer_mutation", "input_mutation", CheckKind]


@dataclass(frozen=True)
class InputSpec:
    """One argument of the module's ``main``, in order.

    ``target`` of a parameter, buffer or constant is its name among the weights.
    A ``seed`` is uint64 ``[2]`` that the call layer draws.
    """

    kind: InputKind
    name: str
    shape: tuple[int | str, ...]
    dtype: DType
    target: str | None = None


@dataclass(frozen=True)
class OutputSpec:
    """One result of ``main``, in order.

    ``target`` of a mutation is the buffer's name among the weights, or the name
    of the input that receives the result; of a check (0-d bool, true if all is
    right) it is what is checked, as the error says it.
    """

    kind: OutputKind
    name: str
    shape: tuple[int | str, ...]
    dtype: DType
    target: str | None = None


@dataclass(frozen=True)
class Signature:
    """How to call a program; see :mod:`torchstone.trees` for the trees and
    :mod:`torchstone.shapes` for symbolic shapes."""

    inputs: tuple[InputSpec, ...]
    outputs: tuple[OutputSpec, ...]
    input_tree: Tree
    output_tree: Tree
    symbols: Mapping[str, Range] = field(default_factory=dict)
    stablehlo_version: str = ""
    producer: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Artifact:
    """A program without torch: portable StableHLO bytecode, signature, weights as NumPy arrays."""

    module: bytes
    signature: Signature
    weights: dict[str, Any]


def save_artifact(path: str | Path, artifact: Artifact) -> Path:
    """Write ``artifact`` to ``path``, whole or not at all; the same artifact gives the same bytes.

    Raises :class:`ArtifactError` where the file cannot be written, or could not be read again.
    """
    target = Path(path)
    try:
        _check_trees(artifact.signature)
    except _Damage as damage:
        raise ArtifactError(
            f"cannot write the artifact {target}: {damage}",
            hint="keys of dicts must be strings, numbers or None, and each be there once",
        ) from damage
    weights = {name: numpy.asarray(array, order="C") for name, array in sorted(artifact.weights.items())}
    members = {
        MODULE: artifact.module,
        WEIGHTS: safetensors.numpy.save({name: _storable(array) for name, array in weights.items()}),
    }
    members[SIGNATURE] = json.dumps(_describe(artifact.signature, weights, members), indent=1).encode()
    try:
        with NewFile(target) as new:
            _write_zip(new.file, members)
    except OSError as error:
        raise ArtifactError(
            f"cannot write the artifact {target}: {error.strerror or error}",
            hint="check that the folder exists, can be written to, and has room",
        ) from error
    return target


def load_artifact(path: str | Path) -> Artifact:
    """The artifact stored at ``path``.

    Raises :class:`ArtifactVersionError` for a newer format, and
    :class:`ArtifactError` for a file that is missing, truncated, altered, or no
    artifact at all.
    """
    try:
        members = _read_zip(Path(path))
        description = _parse_json(members[SIGNATURE])
        for name in (MODULE, WEIGHTS):
            _require(
                _get(_get(description, "sha256", dict), name, str)
                == hashlib.sha256(members[name]).hexdigest(),
                f"{name} is not what {SIGNATURE} says",
            )
        weights = _read_weights(members[WEIGHTS], _get(description, "weights", dict))
        signature = _parse_signature(description)
        _check_targets(signature, weights)
        return Artifact(members[MODULE], signature, weights)
    except _Damage as damage:
        raise ArtifactError(
            f"{path} is not a usable artifact: {_clipped(damage)}", hint=LOAD_HINT
        ) from damage
    except OSError as error:
        raise ArtifactError(f"cannot read the artifact {path}: {error.strerror or error}") from error


LOAD_HINT = "the file was cut off, changed or made by something else; export the program again"


_MOST_TEXT = 500


def _clipped(damage: Exception) -> str:
    """What is wrong; a file's own text may be in it, however long."""
    text = str(damage)
    half = _MOST_TEXT // 2
    return text if len(text) <= _MOST_TEXT else f"{text[:half]} … {text[-half:]}"


class _Damage(Exception):
    """What is wrong with a file, for the one error that its reader gets."""


def _require(condition: bool, what: str) -> None:
    if not condition:
        raise _Damage(what)


# --- the zip file ----------------------------------------------------------------------

_ZIP_OVERHEAD = 1024
"""Bytes; more than the headers of three members, less than room to hide something."""


class _Stream(io.BufferedIOBase):
    """A file without places, as pipes are; a device's are all 0, which misleads :mod:`zipfile`."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def write(self, content: Any) -> int:
        return self._file.write(content)


def _write_zip(file: BinaryIO, members: Mapping[str, bytes]) -> None:
    seekable = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
    with zipfile.ZipFile(file if seekable else _Stream(file), "w", zipfile.ZIP_STORED) as archive:
        for name in (SIGNATURE, MODULE, WEIGHTS):
            archive.writestr(zipfile.ZipInfo(name), members[name])


def _read_zip(path: Path) -> dict[str, bytes]:
    """The members' bytes, their checksums verified by :mod:`zipfile`."""
    try:
        with open(path, "rb") as file, zipfile.ZipFile(file) as archive:
            entries = archive.infolist()
            names = sorted(entry.filename for entry in entries)
            _require(names == sorted((SIGNATURE, MODULE, WEIGHTS)), f"it contains {names}")
            _require(
                all(entry.compress_type == zipfile.ZIP_STORED for entry in entries),
                "its members are compressed",
            )
            held = sum(entry.file_size for entry in entries)
            size = os.fstat(file.fileno()).st_size
            _require(held <= size <= held + _ZIP_OVERHEAD, "its size is not that of its members")
            return {entry.filename: archive.read(entry) for entry in entries}
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, ValueError) as error:
        raise _Damage(str(error) or "it is cut off") from error


# --- weights ---------------------------------------------------------------------------

_AS_BYTES = frozenset({dtypes.COMPLEX128, dtypes.INT4, dtypes.UINT4})
"""Stored with one more dimension, of the bytes of an element."""


def _storable(array: numpy.ndarray[Any, Any]) -> numpy.ndarray[Any, Any]:
    if dtypes.from_numpy(array.dtype) in _AS_BYTES:
        return numpy.frombuffer(array.tobytes(), numpy.uint8).reshape(*array.shape, array.itemsize)
    return array


def _read_weights(content: bytes, declared: Mapping[str, Any]) -> dict[str, numpy.ndarray[Any, Any]]:
    try:
        stored = dict(safetensors.deserialize(content))
    except safetensors.SafetensorError as error:
        raise _Damage(f"{WEIGHTS}: {error}") from error
    _require(stored.keys() == declared.keys(), f"{WEIGHTS} has other names than {SIGNATURE}")
    weights = {}
    for name, entry in declared.items():
        dtype, shape = _dtype(_get(entry, "dtype", str)), _shape(_get(entry, "shape", list))
        found = list(stored[name]["shape"])
        _require(
            found == [*shape, *([dtype.itemsize] if dtype in _AS_BYTES else [])], f"weight {name!r}: shape"
        )
        data = stored[name]["data"]
        _require(len(data) == dtype.itemsize * int(numpy.prod(shape, dtype=object)), f"weight {name!r}: size")
        weights[name] = numpy.frombuffer(data, dtype.numpy).reshape(shape)
    return weights


# --- signature.json --------------------------------------------------------------------


def _describe(
    signature: Signature, weights: Mapping[str, numpy.ndarray[Any, Any]], members: Mapping[str, bytes]
) -> dict[str, Any]:
    return {
        "format_version": FORMAT_VERSION,
        "stablehlo_version": signature.stablehlo_version,
        "producer": dict(signature.producer),
        "sha256": {name: hashlib.sha256(content).hexdigest() for name, content in members.items()},
        "inputs": [_describe_spec(spec) for spec in signature.inputs],
        "outputs": [_describe_spec(spec) for spec in signature.outputs],
        "input_tree": signature.input_tree,
        "output_tree": signature.output_tree,
        "symbols": {name: list(bounds) for name, bounds in signature.symbols.items()},
        "weights": {
            name: {"dtype": dtypes.from_numpy(array.dtype).name, "shape": list(array.shape)}
            for name, array in weights.items()
        },
    }


def _describe_spec(spec: InputSpec | OutputSpec) -> dict[str, Any]:
    return {
        "kind": spec.kind,
        "name": spec.name,
        "shape": list(spec.shape),
        "dtype": spec.dtype.name,
        "target": spec.target,
    }


def _parse_json(content: bytes) -> dict[str, Any]:
    try:
        description = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise _Damage(f"{SIGNATURE} is not JSON") from error
    version = _get(description, "format_version", int)
    if version > FORMAT_VERSION:
        raise ArtifactVersionError(
            f"the artifact has format version {version}; this Torchstone reads up to {FORMAT_VERSION}",
            hint="update torchstone, or export the program with this version",
        )
    _require(version == FORMAT_VERSION, f"format version {version} does not exist")
    return dict(description)


def _parse_signature(description: Mapping[str, Any]) -> Signature:
    symbols = _get(description, "symbols", dict)
    inputs = tuple(_parse_spec(InputSpec, entry, symbols) for entry in _get(description, "inputs", list))
    outputs = tuple(_parse_spec(OutputSpec, entry, symbols) for entry in _get(description, "outputs", list))
    input_tree, output_tree = (_get(description, f"{role}_tree", dict) for role in ("input", "output"))
    for name, bounds in symbols.items():
        _require(
            isinstance(bounds, list)
            and len(bounds) == 2
            and type(bounds[0]) is int
            and (bounds[1] is None or type(bounds[1]) is int),
            f"the bounds of symbol {name!r}",
        )
    producer = _get(description, "producer", dict)
    _require(all(isinstance(value, str) for value in producer.values()), "producer")
    signature = Signature(
        inputs=inputs,
        outputs=outputs,
        input_tree=input_tree,
        output_tree=output_tree,
        symbols={name: (low, high) for name, (low, high) in symbols.items()},
        stablehlo_version=_get(description, "stablehlo_version", str),
        producer=producer,
    )
    _check_trees(signature)
    return signature


Spec = TypeVar("Spec", InputSpec, OutputSpec)
_KINDS: Mapping[type, tuple[str, ...]] = {InputSpec: get_args(InputKind), OutputSpec: get_args(OutputKind)}


def _parse_spec(cls: type[Spec], entry: Any, symbols: Mapping[str, Any]) -> Spec:
    kind = _get(entry, "kind", str)
    _require(kind in _KINDS[cls], f"{kind!r} is not a kind of an {cls.__name__}")
    shape = _shape(_get(entry, "shape", list), symbols)
    target = entry.get("target")
    _require(target is None or isinstance(target, str), "target")
    return cls(kind, _get(entry, "name", str), shape, _dtype(_get(entry, "dtype", str)), target)  # type: ignore[arg-type]


def _check_targets(signature: Signature, weights: Mapping[str, Any]) -> None:
    """Every target exists, and every weight is what its inputs say."""
    for spec in signature.inputs:
        if spec.kind in ("parameter", "buffer", "constant"):
            _require(spec.target in weights, f"there is no weight {spec.target!r}")
            weight = weights[str(spec.target)]
            same = weight.shape == spec.shape and dtypes.from_numpy(weight.dtype) == spec.dtype
            _require(same, f"weight {spec.target!r} is not the {spec.dtype}{list(spec.shape)} of its input")
    own = {spec.name for spec in signature.inputs if spec.kind == "input"}
    for result in signature.outputs:
        if result.kind in ("buffer_mutation", "input_mutation"):
            known = own if result.kind == "input_mutation" else weights.keys()
            _require(result.target in known, f"mutation of the unknown {result.target!r}")


def _check_trees(signature: Signature) -> None:
    symbols = signature.symbols
    inputs = sum(spec.kind == "input" for spec in signature.inputs)
    outputs = sum(spec.kind == "output" for spec in signature.outputs)
    _check_tree(signature.input_tree, inputs, "input_tree", symbols)
    _check_tree(signature.output_tree, outputs, "output_tree", symbols)
    _check_call(signature.input_tree)


def _check_call(tree: Tree) -> None:
    """The tree of inputs is that of a call: positional arguments, and others by name."""
    parts = tree.get("tuple")
    kinds = [set(part) for part in parts] if isinstance(parts, list) else []
    _require(kinds in ([{"tuple"}, {"dict"}], [{"list"}, {"dict"}]), "input_tree is not that of a call")
    names = tree["tuple"][1]["dict"]["keys"]
    _require(all(isinstance(name, str) for name in names), "input_tree is not that of a call")


def _check_tree(tree: Tree, leaves: int, role: str, symbols: Mapping[str, Any]) -> None:
    """A description of :mod:`torchstone.trees` with each of the ``leaves`` once."""
    found: list[Any] = []
    pending: list[Any] = [tree]
    while pending:
        node = pending.pop()
        _require(isinstance(node, dict) and len(node) == 1, role)
        ((kind, content),) = node.items()
        if kind == "leaf":
            found.append(content)
        elif kind in ("tuple", "list"):
            pending += _get(node, kind, list)
        elif kind in ("dict", "record"):
            keys, values = _get(content, "keys", list), _get(content, "values", list)
            _require(len(keys) == len(values) == len(set(map(repr, keys))), role)
            _require(all(isinstance(key, (str, int, float, type(None))) for key in keys), role)
            if kind == "record":
                _require(isinstance(content.get("type"), str), role)
                _require(isinstance(content.get("module", ""), str), role)
                _require(all(isinstance(key, str) for key in keys), role)
            pending += values
        elif kind == "dim":
            _shape([content], symbols)
        else:
            _require(kind in ("none", "const"), f"{role} has a {kind!r}")
    _require(
        all(type(leaf) is int for leaf in found) and sorted(found) == list(range(leaves)), f"leaves of {role}"
    )


# An expression of shapes.evaluate that cannot be expensive: few powers, with one digit and not of a power.
_EXPRESSION = re.compile(r"(?!(?:.*\*\*){5})(?!.*\*\*\s*(?!\d\b(?!\s*\*\*)))[\w\s+\-*/%(),]{1,500}")


def _shape(entries: Sequence[Any], symbols: Mapping[str, Any] | None = None) -> tuple[Any, ...]:
    """Sizes and, where there may be ``symbols``, expressions of them."""
    _require(len(entries) <= _MOST_DIMENSIONS, f"{len(entries)} dimensions are too many")
    for dim in entries:
        is_size = type(dim) is int and 0 <= dim < 2**63
        is_expression = symbols is not None and isinstance(dim, str) and _EXPRESSION.fullmatch(dim)
        _require(bool(is_size or is_expression), f"{dim!r} is not a dimension")
        if is_expression:
            unknown = sorted(names_in(dim) - set(symbols or ()))
            _require(not unknown, f"there is no symbol {', '.join(unknown)}")
    return tuple(entries)


_MOST_DIMENSIONS = 64
"""As many as NumPy's arrays have."""


def _dtype(name: str) -> DType:
    try:
        return dtypes.by_name(name)
    except UnsupportedDtype as error:
        raise _Damage(f"{name!r} is not a dtype") from error


Kind = TypeVar("Kind")


def _get(mapping: Any, key: str, kind: type[Kind]) -> Kind:
    """``mapping[key]`` if it is there and of that JSON type."""
    value = mapping.get(key) if isinstance(mapping, dict) else None
    _require(type(value) is kind, f"{key!r} is missing or has the wrong type")
    return value  # type: ignore[return-value]
