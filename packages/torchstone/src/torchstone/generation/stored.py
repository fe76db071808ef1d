"""The file of a generator: several programs, the weights that they share, and the settings of their caller.

Members are ``generation.json`` (format version, settings, signatures, checksums), one ``NAME.stablehlo``
for each program, and ``weights.safetensors``. Needs neither torch nor JAX.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..archive import WEIGHTS, reading, writing
from ..artifact import Artifact
from ..errors import ArtifactVersionError
from ..signature import (
    check_targets,
    describe_program,
    describe_weights,
    get,
    parse_signature,
    require,
)

FORMAT_VERSION = 1

DESCRIPTION = "generation.json"

GREEDY, SAMPLE = "greedy", "sample"
"""The two programs that decode."""


def prefill_name(bucket: int) -> str:
    return f"prefill_{bucket}"


@dataclass(frozen=True)
class Settings:
    """What the programs are made for, and what a call means that leaves an option out.

    The names of the options are those of transformers. ``pad_token_id`` of None is the first of
    ``eos_token_id``; ``top_k`` of 0 keeps all tokens.
    """

    max_length: int
    batch_size: int
    buckets: tuple[int, ...]
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
        return (*map(prefill_name, self.buckets), GREEDY, SAMPLE)


@dataclass
class StoredGenerator:
    """``programs`` by name have the same ``weights``, all of them."""

    settings: Settings
    programs: dict[str, Artifact]
    weights: dict[str, Any]


def save_generator(path: str | Path, stored: StoredGenerator) -> Path:
    """Write ``stored`` to ``path``, whole or not at all; raises :class:`ArtifactError`."""
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
        writer.add(DESCRIPTION, json.dumps(description, indent=1).encode())
    return target


def load_stored(path: str | Path) -> StoredGenerator:
    """What :func:`save_generator` wrote; large weights are the file's own pages, mapped.

    Raises :class:`ArtifactVersionError` for a newer format, and :class:`ArtifactError` for anything
    that is not a whole, unaltered file of a generator.
    """
    with reading(path) as reader:
        description = _parsed(reader.read(DESCRIPTION))
        settings = _settings(get(description, "settings", dict))
        signatures = get(description, "programs", dict)
        require(set(signatures) == set(settings.programs), f"its programs are {sorted(signatures)}")
        members = [*map(_member, signatures), WEIGHTS]
        reader.require_members([*members, DESCRIPTION])
        checksums = get(description, "sha256", dict)
        for name in members:
            same = get(checksums, name, str) == reader.checksum(name)
            require(same, f"{name} is not what {DESCRIPTION} says")
        weights = reader.weights(get(description, "weights", dict))
        programs = {}
        for name in signatures:
            signature = parse_signature(get(signatures, name, dict))
            check_targets(signature, weights)
            programs[name] = Artifact(reader.read(_member(name)), signature, weights)
        return StoredGenerator(settings, programs, weights)


def _member(program: str) -> str:
    return f"{program}.stablehlo"


def _parsed(content: bytes) -> Mapping[str, Any]:
    try:
        description = json.loads(content)
    except (ValueError, RecursionError):
        description = None
    require(isinstance(description, dict), f"{DESCRIPTION} is not JSON")
    version = get(description, "generation_version", int)
    if version > FORMAT_VERSION:
        raise ArtifactVersionError(
            f"the generator has format version {version}; this Torchstone reads up to {FORMAT_VERSION}",
            hint="update torchstone, or export the model with this version",
        )
    require(version >= 1, f"format version {version} does not exist")
    return dict(description)


def _settings(entries: Mapping[str, Any]) -> Settings:
    sizes = {
        name: get(entries, name, int)
        for name in ("max_length", "batch_size", "tokens_per_call", "vocab_size")
    }
    buckets, ends = get(entries, "buckets", list), get(entries, "eos_token_id", list)
    pad, vocabulary = entries.get("pad_token_id"), sizes["vocab_size"]
    settings = Settings(
        **sizes,
        buckets=tuple(buckets),
        eos_token_id=tuple(ends),
        pad_token_id=pad,
        do_sample=get(entries, "do_sample", bool),
        temperature=get(entries, "temperature", float),
        top_k=get(entries, "top_k", int),
        top_p=get(entries, "top_p", float),
    )
    require(min(sizes.values()) >= 1, "a size of the settings")
    require(all(type(one) is int and 1 <= one <= settings.max_length for one in buckets), "buckets")
    require(bool(buckets) and buckets == sorted(set(buckets)), "buckets")
    tokens = ends if pad is None else [*ends, pad]
    require(all(type(one) is int and 0 <= one < vocabulary for one in tokens), "a token of the settings")
    require(math.isfinite(settings.temperature) and settings.temperature > 0, "temperature")
    require(settings.top_k >= 0 and 0 <= settings.top_p <= 1, "top_k or top_p")
    return settings
