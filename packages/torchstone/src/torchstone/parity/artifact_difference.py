"""The differences between two artifacts: their signatures, weights, and the operations of their modules.

Works without torch. Nothing in the artifacts is run.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy

from ..artifact import Artifact
from ..hlo.portable import text_of
from ..signature import InputSpec, OutputSpec, Signature

_OPERATION = re.compile(r"\b((?:stablehlo|chlo)\.\w+)(?: \"([\w.]+)\")?")
"""The name of an operation in a module's text; for a composite, its own name follows."""


@dataclass(frozen=True)
class Difference:
    """One difference in a ``part`` (signature, weights or module).

    ``first`` and ``second`` are the two sides; None if that side has nothing to show.
    """

    part: str
    what: str
    first: str | None
    second: str | None

    def __str__(self) -> str:
        sides = (("-", self.first), ("+", self.second))
        return "\n".join([f"{self.part}: {self.what}", *(f"  {mark} {text}" for mark, text in sides if text)])

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def differences(first: Artifact, second: Artifact) -> list[Difference]:
    """Return all differences, those of the signature first; empty if calls of both mean the same."""
    return [
        *_of_mappings("signature", _described(first.signature), _described(second.signature)),
        *_of_weights(first.weights, second.weights),
        *_of_modules(first.module, second.module),
    ]


def _described(signature: Signature) -> dict[str, str]:
    return {
        **{f"input {i}": _spec(one) for i, one in enumerate(signature.inputs)},
        **{f"output {i}": _spec(one) for i, one in enumerate(signature.outputs)},
        **{f"dimension {name}": str(bounds) for name, bounds in signature.symbols.items()},
        "relations of dimensions": ", ".join(signature.relations) or "none",
        "structure of the inputs": str(signature.input_tree),
        "structure of the outputs": str(signature.output_tree),
        "StableHLO version": signature.stablehlo_version,
    }


def _spec(spec: InputSpec | OutputSpec) -> str:
    target = "" if spec.target in (None, spec.name) else f" of {spec.target}"
    return f"{spec.kind} {spec.name}{target}: {spec.dtype}[{', '.join(map(str, spec.shape))}]"


def _of_mappings(part: str, first: Mapping[str, str], second: Mapping[str, str]) -> list[Difference]:
    names = dict.fromkeys([*first, *second])
    return [
        Difference(part, name, first.get(name), second.get(name))
        for name in names
        if first.get(name) != second.get(name)
    ]


def _of_weights(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[Difference]:
    found = _of_mappings("weights", _forms(first), _forms(second))
    named = {one.what for one in found}
    for name in sorted(first.keys() & second.keys() - named):
        one, other = numpy.asarray(first[name]), numpy.asarray(second[name])
        if one.tobytes() != other.tobytes():
            changed = int((one != other).sum())
            found.append(Difference("weights", f"{changed} of {one.size} values of {name}", None, None))
    return found


def _forms(weights: Mapping[str, Any]) -> dict[str, str]:
    return {name: f"{array.dtype}{list(array.shape)}" for name, array in weights.items()}


def _of_modules(first: bytes, second: bytes) -> list[Difference]:
    if first == second:
        return []
    texts = [text_of(module) for module in (first, second)]
    counts = [_operations(text) for text in texts]
    found = _of_mappings("module", *({name: str(n) for name, n in count.items()} for count in counts))
    if not found and texts[0] != texts[1]:
        found.append(
            Difference("module", "the same operations with other operands or attributes", None, None)
        )
    return found


def _operations(text: str) -> Counter[str]:
    """Count the occurrences of each operation."""
    found: Sequence[tuple[str, str]] = _OPERATION.findall(text)
    return Counter(f"{name} {composite}".strip() for name, composite in found)
