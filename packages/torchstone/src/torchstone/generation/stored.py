"""The file of a generator: several programs, the weights that they share, and the generator's settings.

Its members are ``generation.json`` (format version, settings, signatures, checksums), one ``NAME.stablehlo``
for each program, and ``weights.safetensors``. This module needs neither torch nor JAX.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..archive import WEIGHTS, reading, writing
from ..artifact import GENERATION, Artifact
from ..dtypes import BOOL, FLOAT32, INT64, UINT64, DType
from ..errors import ArtifactError
from ..signature import (
    SIGNATURE,
    OutputSpec,
    Signature,
    check_targets,
    describe_program,
    describe_weights,
    get,
    parse_signature,
    require,
    versioned_json,
)
from ..trees import unflatten

FORMAT_VERSION = 2
"""Version 2 added decoding programs for shorter parts of the cache."""

GREEDY, SAMPLE = "greedy", "sample"
"""The ways in which decoding programs choose tokens."""


def prefill_name(bucket: int) -> str:
    return f"prefill_{bucket}"


@dataclass(frozen=True)
class Settings:
    """The sizes that the programs are made for, and the default options of calls.

    Options have the names that transformers gives them. A ``pad_token_id`` of None stands for the first of
    ``eos_token_id``. A ``top_k`` of 0 keeps all tokens.
    """

    max_length: int
    batch_size: int
    buckets: tuple[int, ...]
    decode_lengths: tuple[int, ...]
    tokens_per_call: int
    vocab_size: int
    eos_token_id: tuple[int, ...]
    pad_token_id: int | None
    do_sample: bool
    temperature: float
    top_k: int
    top_p: float

    @property
    def programs(self) -> tuple[str, ...]:
        decoding = (self.decoder(kind, one) for one in self.decode_lengths for kind in (GREEDY, SAMPLE))
        return (*map(prefill_name, self.buckets), *decoding)

    def decoder(self, kind: str, length: int) -> str:
        """Return the name of the program that decodes with the first ``length`` columns of the cache."""
        return kind if length == self.max_length else f"{kind}_{length}"


@dataclass
class StoredGenerator:
    """The settings of a generator, its programs by name, and the weights that all of them share."""

    settings: Settings
    programs: dict[str, Artifact]
    weights: dict[str, Any]


def save_generator(path: str | Path, stored: StoredGenerator) -> Path:
    """Write ``stored`` to ``path``, completely or not at all. Raises :class:`ArtifactError`."""
    target = Path(path)
    with writing(target) as writer:
        for name, program in stored.programs.items():
            writer.add(_member(name), program.module)
        forms = writer.add_weights(stored.weights)
        description = {
            "generation_version": FORMAT_VERSION,
            "settings": asdict(stored.settings),
            "sha256": writer.checksums,
            "programs": {name: describe_program(one.signature) for name, one in stored.programs.items()},
            "weights": describe_weights(forms),
        }
        writer.add(GENERATION, json.dumps(description, indent=1).encode())
    return target


def load_stored(path: str | Path) -> StoredGenerator:
    """Load a file that :func:`save_generator` wrote; large weights are memory-mapped from the file.

    Raises :class:`ArtifactVersionError` for a newer format, and :class:`ArtifactError` for anything
    that is not a complete, unaltered file of a generator.
    """
    with reading(path) as reader:
        if SIGNATURE in reader.members and GENERATION not in reader.members:
            raise ArtifactError(
                f"{path} is one program, not the file of a generator", hint="load it with torchstone.load"
            )
        require(GENERATION in reader.members, f"it has no {GENERATION}")
        content = reader.read(GENERATION)
        what = ("generator", "model")
        description, _ = versioned_json(content, GENERATION, "generation_version", FORMAT_VERSION, what)
        settings = _settings(get(description, "settings", dict))
        signatures = get(description, "programs", dict)
        require(set(signatures) == set(settings.programs), f"its programs are {sorted(signatures)}")
        members = [*map(_member, signatures), WEIGHTS]
        reader.require_members([*members, GENERATION])
        checksums = get(description, "sha256", dict)
        for name in members:
            same = get(checksums, name, str) == reader.checksum(name)
            require(same, f"{name} is not what {GENERATION} says")
        weights = reader.weights(get(description, "weights", dict))
        programs = {}
        for name in signatures:
            signature = parse_signature(get(signatures, name, dict))
            check_targets(signature, weights)
            programs[name] = Artifact(reader.read(_member(name)), signature, weights)
        _check_calls(settings, {name: one.signature for name, one in programs.items()})
        return StoredGenerator(settings, programs, weights)


def results_by_name(signature: Signature, values: Sequence[Any]) -> dict[str, Any]:
    """Return a program's results by name; the parts of the cache are ``caches_0``, ``caches_1``, …"""
    named: dict[str, Any] = dict(unflatten(signature.output_tree, values))
    return named | {f"caches_{i}": one for i, one in enumerate(named.pop("caches"))}


Form = tuple[tuple[int | str, ...], DType]


def _check_calls(settings: Settings, signatures: Mapping[str, Signature]) -> None:
    """Raise :class:`Damage` if a program's inputs or results are not those that the generator expects."""
    batch, vocabulary = settings.batch_size, settings.vocab_size
    state: dict[str, Form] = {"logits": ((batch, vocabulary), FLOAT32)}
    state |= _caches(signatures[prefill_name(settings.buckets[0])])
    for bucket in settings.buckets:
        prompt: Form = ((batch, bucket), INT64)
        taken = {"input_ids": prompt, "attention_mask": prompt, "last": _NUMBER}
        _check_call(prefill_name(bucket), signatures, taken, state)
    made: dict[str, Form] = {
        **state,
        "tokens": ((batch, settings.tokens_per_call), INT64),
        "count": _NUMBER,
        "unfinished": ((batch,), BOOL),
    }
    taken = {
        **state,
        "attention_mask": ((batch, settings.max_length), INT64),
        "unfinished": ((batch,), BOOL),
        "is_end": ((vocabulary,), BOOL),
        **dict.fromkeys(("position", "limit", "padding"), _NUMBER),
    }
    for length in settings.decode_lengths:
        _check_call(settings.decoder(GREEDY, length), signatures, taken, made)
        _check_call(settings.decoder(SAMPLE, length), signatures, taken | _OPTIONS, made)


_NUMBER: Form = ((), INT64)
_OPTIONS: dict[str, Form] = {
    "options_0": ((), FLOAT32),
    "options_1": _NUMBER,
    "options_2": ((), FLOAT32),
    "seed": ((2,), UINT64),
}


def _caches(signature: Signature) -> dict[str, Form]:
    """Return the shapes and dtypes of the cache that a program returns."""
    values = unflatten(signature.output_tree, signature.outputs)
    caches = values.get("caches") if isinstance(values, dict) else None
    require(isinstance(caches, list) and all(isinstance(one, OutputSpec) for one in caches), "caches")
    return {f"caches_{i}": (one.shape, one.dtype) for i, one in enumerate(caches or ())}


def _check_call(
    name: str, signatures: Mapping[str, Signature], taken: dict[str, Form], made: dict[str, Form]
) -> None:
    signature = signatures[name]
    inputs = {spec.name: (spec.shape, spec.dtype) for spec in signature.inputs if spec.target is None}
    require(inputs == taken, f"the inputs of {name}")
    _caches(signature)
    results = results_by_name(signature, signature.outputs)
    found = {key: (one.shape, one.dtype) for key, one in results.items() if isinstance(one, OutputSpec)}
    require(found == made and len(found) == len(signature.outputs), f"the results of {name}")


def _member(program: str) -> str:
    return f"{program}.stablehlo"


def _settings(entries: Mapping[str, Any]) -> Settings:
    sizes = {
        name: get(entries, name, int)
        for name in ("max_length", "batch_size", "tokens_per_call", "vocab_size")
    }
    buckets, ends = get(entries, "buckets", list), get(entries, "eos_token_id", list)
    pad, vocabulary = entries.get("pad_token_id"), sizes["vocab_size"]
    lengths = entries.get("decode_lengths", [sizes["max_length"]])
    require(isinstance(lengths, list), "decode_lengths")
    settings = Settings(
        **sizes,
        buckets=tuple(buckets),
        decode_lengths=tuple(lengths),
        eos_token_id=tuple(ends),
        pad_token_id=pad,
        do_sample=get(entries, "do_sample", bool),
        temperature=get(entries, "temperature", float),
        top_k=get(entries, "top_k", int),
        top_p=get(entries, "top_p", float),
    )
    require(min(sizes.values()) >= 1, "a size of the settings")
    for name, some in (("buckets", buckets), ("decode_lengths", lengths)):
        require(all(type(one) is int and 1 <= one <= settings.max_length for one in some), name)
        require(bool(some) and some == sorted(set(some)), name)
    require(lengths[-1] == settings.max_length, "decode_lengths")
    tokens = ends if pad is None else [*ends, pad]
    require(all(type(one) is int and 0 <= one < vocabulary for one in tokens), "a token of the settings")
    require(math.isfinite(settings.temperature) and settings.temperature > 0, "temperature")
    require(settings.top_k >= 0 and 0 <= settings.top_p <= 1, "top_k or top_p")
    return settings
