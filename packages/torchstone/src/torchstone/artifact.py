"""The artifact: signature and zip format, read and written without torch and JAX.

One file holds ``module.stablehlo`` (portable bytecode), ``signature.json`` and
``weights.safetensors``. ``signature.json`` has the format version and the SHA-256
of the other two. Reading checks every field of it, and executes nothing.

Not here: the zip file (:mod:`torchstone.archive`), calls of a program
(:mod:`torchstone.program`), and the check of its module, which the engine makes when it compiles.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .archive import WEIGHTS, reading, writing
from .errors import ArtifactError
from .signature import (
    SIGNATURE,
    Damage,
    Signature,
    check_targets,
    check_trees,
    describe,
    get,
    parse_json,
    parse_signature,
    require,
)

MODULE = "module.stablehlo"

GENERATION = "generation.json"
"""The member that only a generator's file has (:mod:`torchstone.generation`)."""


@dataclass
class Artifact:
    """A program without torch: portable StableHLO bytecode, signature, weights as NumPy arrays."""

    module: bytes
    signature: Signature
    weights: dict[str, Any]


def save_artifact(path: str | Path, artifact: Artifact) -> Path:
    """Write ``artifact`` to ``path``, completely or not at all; the same artifact gives the same bytes.

    Weights are written one at a time; contiguous ones are not copied. Raises
    :class:`ArtifactError` if the file cannot be written, or could not be read back.
    """
    target = Path(path)
    try:
        check_trees(artifact.signature)
    except Damage as damage:
        raise ArtifactError(
            f"cannot write the artifact {target}: {damage}",
            hint="keys of dicts must be strings, numbers or None, and each be there once",
        ) from damage
    with writing(target) as writer:
        writer.add(MODULE, artifact.module)
        forms = writer.add_weights(artifact.weights)
        # last, because it has the checksums of the others
        description = describe(artifact.signature, forms, writer.checksums)
        writer.add(SIGNATURE, json.dumps(description, indent=1).encode())
    return target


def load_artifact(path: str | Path) -> Artifact:
    """Load the artifact stored at ``path``.

    Large weights are memory-mapped: all processes that read the file share their memory, and writing to
    them does not change the file. Raises :class:`ArtifactVersionError` for a newer format, and
    :class:`ArtifactError` for a file that is missing, truncated, altered, a generator's, or not an
    artifact at all.
    """
    with reading(path) as reader:
        if GENERATION in reader.members:
            raise ArtifactError(
                f"{path} is the file of a generator, not of one program",
                hint="load it with torchstone.load_generation",
            )
        reader.require_members((SIGNATURE, MODULE, WEIGHTS))
        description = parse_json(reader.read(SIGNATURE))
        checksums = get(description, "sha256", dict)
        for name in (MODULE, WEIGHTS):
            same = get(checksums, name, str) == reader.checksum(name)
            require(same, f"{name} is not what {SIGNATURE} says")
        signature = parse_signature(description)
        weights = reader.weights(get(description, "weights", dict))
        check_targets(signature, weights)
        return Artifact(reader.read(MODULE), signature, weights)
