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
    """What a case runs on: a kind (``gpu``, ``stub``, …), a driver's name and a chip where known.

    ``config`` is what else tells it from other targets of the driver: a firmware, settings.
    """

    kind: str
    name: str | None = None
    chip: str | None = None
    config: str | None = None

    def __str__(self) -> str:
        """``ascend (ascend910b, settings 3f2a9c1b)``: what results of one target are put together by."""
        text = self.name or self.kind
        about = ", ".join(one for one in (self.chip, self.config) if one)
        return f"{text} ({about})" if about else text

    def to_dict(self) -> dict[str, str | None]:
        """As records have it; ``config`` only where there is one."""
        told = {"kind": self.kind, "name": self.name, "chip": self.chip}
        return told | ({"config": self.config} if self.config else {})


@dataclass(frozen=True, slots=True)
class TestCase:
    """One test, complete: nothing is left to defaults.

    ``shapes`` has every input; ``attributes`` every attribute; ``tolerance`` is None
    where the operator's own holds. ``generator`` and ``reference`` are dotted paths,
    the operator's own if not given.
    """

    __test__: ClassVar[bool] = False  # no test class of pytest's

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
        """16 hex digits over everything that decides the inputs and the right answer.

        Equal on every machine and for every backend, so that runs merge and diff.
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
        """The inputs that a driver may write into: what the operator mutates; the first in ``inplace``."""
        first = self.descriptor.inputs[:1] if self.phase == "inplace" else ()
        return self.descriptor.mutates + first

    @property
    def output_shapes(self) -> dict[str, Shape]:
        return self.descriptor.output_shapes(self.shapes, self.attributes)

    @property
    def output_dtypes(self) -> DTypes:
        return self.descriptor.output_dtypes(self.dtypes, self.attributes)

    def describe(self) -> str:
        """One line: ``relu float16 [8, 2048]``, with attributes that differ from their defaults."""
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
