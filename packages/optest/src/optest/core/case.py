"""One test: an operator bound to dtypes, shapes, attributes, a seed and a backend."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from .tolerance import Tolerance

if TYPE_CHECKING:
    from ..operators.descriptor import DTypes, OperatorDescriptor, Shape


@dataclass(frozen=True, slots=True)
class BackendTarget:
    """What a case runs on: a kind (``gpu``, ``stub``, …), and a driver's name and a chip if known.

    ``config`` is anything else that tells it from other targets of the driver, such as a firmware or
    settings.
    """

    kind: str
    name: str | None = None
    chip: str | None = None
    config: str | None = None

    def __str__(self) -> str:
        """Return the key for combining results: ``ascend (ascend910b, settings 3f2a9c1b)``, for example."""
        text = self.name or self.kind
        about = ", ".join(one for one in (self.chip, self.config) if one)
        return f"{text} ({about})" if about else text

    def to_dict(self) -> dict[str, str | None]:
        """Return the target as in records; ``config`` is left out if there is none."""
        told = {"kind": self.kind, "name": self.name, "chip": self.chip}
        return told | ({"config": self.config} if self.config else {})


@dataclass(frozen=True, slots=True)
class TestCase:
    """One complete test, in which nothing is left to defaults.

    ``shapes`` has every input and ``attributes`` every attribute. ``tolerance`` is None if the operator's own
    tolerance holds. ``generator`` and ``reference`` are dotted paths, by default those of the operator.
    """

    __test__: ClassVar[bool] = False  # not a test class for pytest

    descriptor: OperatorDescriptor
    dtypes: DTypes
    shapes: Mapping[str, Shape]
    attributes: Mapping[str, Any]
    backend: BackendTarget
    tolerance: Tolerance | None
    seed: int
    phase: str = "forward"
    generator: str = ""
    reference: str = ""
    backend_config: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""
    _id: str = field(default="", init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in ("generator", "reference"):
            if not getattr(self, name):
                object.__setattr__(self, name, getattr(self.descriptor, name))

    @property
    def op(self) -> str:
        return self.descriptor.name

    @property
    def id(self) -> str:
        """A hash, of 16 hex digits, of everything that determines the inputs and the correct results.

        It is the same on every machine and for every backend, so that runs can be merged and compared.
        """
        if not self._id:
            content = [
                self.descriptor.name,
                self.dtypes,
                self.shapes,
                self.attributes,
                self.seed,
                self.phase,
                self.generator,
                self.reference,
            ]
            text = json.dumps(content, sort_keys=True, separators=(",", ":"))
            object.__setattr__(self, "_id", hashlib.sha256(text.encode()).hexdigest()[:16])
        return self._id

    @property
    def written(self) -> tuple[str, ...]:
        """The inputs that a driver may write into: mutated ones, and the first one in phase ``inplace``."""
        first = self.descriptor.inputs[:1] if self.phase == "inplace" else ()
        return self.descriptor.mutates + first

    @property
    def output_shapes(self) -> dict[str, Shape]:
        return self.descriptor.output_shapes(self.shapes, self.attributes)

    @property
    def output_dtypes(self) -> DTypes:
        return self.descriptor.output_dtypes(self.dtypes, self.attributes)

    def describe(self) -> str:
        """Return one line such as ``relu float16 [8, 2048]``, with attributes that are not defaults."""
        names = dict.fromkeys(self.dtypes)
        shapes = " ".join(str(list(self.shapes[name])) for name in self.descriptor.inputs)
        specs = self.descriptor.attributes
        changed = (
            f"{name}={_text(value)}"
            for name, value in self.attributes.items()
            if name not in specs or specs[name].default != value
        )
        phase = () if self.phase == "forward" else (f"[{self.phase}]",)
        return " ".join(part for part in (self.op, "/".join(names), shapes, *changed, *phase) if part)


def _text(value: Any) -> str:
    return str(list(value)) if isinstance(value, tuple) else str(value)
