"""Entries of a plan, the command line or the built-in suite, and the cases they stand for.

An entry is expanded lazily into the product of its dtypes, shapes, attributes, seeds and
phases. Each rule of the operator is called once per combination of shapes and
attributes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from ..core.case import BackendTarget, TestCase
from ..core.tolerance import Tolerance, ToleranceTable
from ..dotted import load_reference
from ..driver_settings import merge_config
from ..errors import AttributeMismatch, OptestError, ShapeError, UsageError
from ..generators.base import load_generator
from ..operators.descriptor import DTypes, OperatorDescriptor, Shape
from ..operators.registry import operator_registry
from .document import Document, Keys

MOST_CASES = 1_000_000
"""The largest number of cases of a run; all are planned before the first one runs."""

Alternatives = Mapping[str, Sequence[Any]]
"""The alternative values of each name; a combination has one value for each name."""
Combination = tuple[dict[str, Shape], dict[str, Any], str]
"""The input shapes, the complete attributes, and a note."""


@dataclass(frozen=True)
class Flags:
    """The flags of the command line that describe cases; empty or None means not given.

    ``dtypes`` are tuples of one name or of one per input; ``shapes`` maps input names
    to alternatives, with "" for all inputs; ``attributes`` maps names to alternatives.
    """

    ops: tuple[str, ...] = ()
    dtypes: tuple[DTypes, ...] = ()
    shapes: Mapping[str, Sequence[Shape]] = field(default_factory=dict)
    attributes: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    rtol: float | None = None
    atol: float | None = None
    seed: int | None = None
    generator: str | None = None
    reference: str | None = None
    phase: str | None = None

    def fields(self) -> dict[str, Any]:
        """Return the flags as fields of a plan's case, without shapes and attributes."""
        given = {
            name: getattr(self, name)
            for name in ("rtol", "atol", "seed", "generator", "reference", "phase")
            if getattr(self, name) is not None
        }
        return given | ({"dtypes": [list(one) for one in self.dtypes]} if self.dtypes else {})


@dataclass(frozen=True)
class Place:
    """Where an entry is, for messages: in a file or, without a document, on the command line."""

    document: Document | None = None
    keys: Keys = ()

    def error(self, key: str, error: OptestError) -> UsageError:
        """Return ``error`` with file, line and key, or unchanged for the command line."""
        if self.document is None:
            return error if isinstance(error, UsageError) else UsageError(error.message, error.hint)
        candidates: tuple[Keys, ...] = ((*self.keys, key), ("defaults", key), self.keys)
        keys = next(one for one in candidates if one in self.document.lines)
        found = self.document.data
        for part in keys:
            found = found[part]
        return self.document.error(keys, error.message, found=found, hint=error.hint)


@dataclass(frozen=True)
class Entry:
    """An operator and the fields of a plan's case.

    ``flags`` override the fields. If ``strict``, combinations that the operator does not accept are
    errors; otherwise (in the suite, or in a plan with flags) they are left out. ``whole`` says that
    no flag narrows the entry.
    """

    op: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    place: Place = Place()
    flags: Flags = Flags()
    strict: bool = True
    whole: bool = True

    @classmethod
    def of_flags(cls, op: str, flags: Flags) -> Entry:
        return cls(op, flags=flags, whole=False)

    @classmethod
    def of_suite(cls, flags: Flags) -> list[Entry]:
        """Return one entry per registered operator."""
        return [cls(one.name, strict=False).with_flags(flags) for one in operator_registry]

    def with_flags(self, flags: Flags) -> Entry:
        """Return this entry with command line flags."""
        narrowing = bool(flags.dtypes or flags.shapes or flags.attributes)
        return replace(
            self, flags=flags, strict=self.strict and not narrowing, whole=self.whole and not narrowing
        )

    def with_config(self, config: Mapping[str, Any]) -> Entry:
        """Return this entry with further driver settings, which override its own key by key."""
        if not config:
            return self
        merged = merge_config(self.fields.get("backend_config", {}), config)
        return replace(self, fields={**self.fields, "backend_config": merged})

    def expand(self, backend: BackendTarget, seed: int, table: ToleranceTable) -> Iterator[TestCase]:
        """Yield the cases in a fixed order; raises :class:`PlanError` or another :class:`UsageError`."""
        fields = {**self.fields, **self.flags.fields()}
        descriptor = self._at("op", lambda: operator_registry.get(self.op))
        dtypes = self._dtypes(descriptor, fields.get("dtypes"))
        if "dtypes" not in fields:
            settings = fields.get("backend_config", {}).get(backend.name or backend.kind, {})
            dtypes = _as_stored(descriptor, dtypes, settings)
        if not dtypes:
            return
        for key, check in (("generator", load_generator), ("reference", load_reference)):
            if key in fields:
                self._at(key, partial(check, fields[key]))
        common = {
            "backend_config": fields.get("backend_config", {}),
            "generator": fields.get("generator", ""),
            "reference": fields.get("reference", ""),
        }
        seeds, phases = _several(fields.get("seed", seed)), _several(fields.get("phase", "forward"))
        times = len(dtypes) * len(seeds) * len(phases)
        for shapes, attributes, note in self._combinations(descriptor, fields, times):
            for types in dtypes:
                tolerance = self._tolerance(descriptor, types, attributes, fields, table)
                for one_seed, phase in itertools.product(seeds, phases):
                    yield TestCase(
                        descriptor, types, shapes, attributes, backend, tolerance, int(one_seed), phase,
                        note=fields.get("note", note), **common,
                    )  # fmt: skip

    def _at(self, key: str, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except UsageError as error:
            raise self.place.error(key, error) from None

    def _dtypes(self, descriptor: OperatorDescriptor, given: Any) -> list[DTypes]:
        if given is None:
            return list(descriptor.dtypes)
        found: dict[DTypes, None] = {}
        for one in [given] if isinstance(given, str) else given:
            try:
                found |= dict.fromkeys(descriptor.match_dtypes([one] if isinstance(one, str) else one))
            except UsageError as error:
                if self.strict:
                    raise self.place.error("dtypes" if "dtypes" in self.fields else "op", error) from None
        return list(found)

    def _tolerance(
        self,
        descriptor: OperatorDescriptor,
        dtypes: DTypes,
        attributes: Mapping[str, Any],
        fields: Mapping[str, Any],
        table: ToleranceTable,
    ) -> Tolerance | None:
        """Return the tolerance that the fields and table set; None if the operator's own tolerance holds."""
        changes = dict(fields.get("tolerance", {}))
        changes |= {name: fields[name] for name in ("rtol", "atol") if name in fields}
        result = descriptor.output_dtypes(dtypes, attributes)[0]
        base = descriptor.tolerance(result, table)
        if not changes and base == descriptor.tolerance(result):
            return None
        try:
            return replace(base, **changes)
        except ValueError as error:
            key = "tolerance" if "tolerance" in fields else "rtol" if "rtol" in fields else "atol"
            raise self.place.error(key, UsageError(str(error))) from None

    def _combinations(
        self, descriptor: OperatorDescriptor, fields: Mapping[str, Any], times: int
    ) -> Iterator[Combination]:
        """Yield combinations of shapes and attributes: the product of the given ones, or the built-in setups.

        Raises :class:`PlanError` if there are too many, with each counted ``times`` times.
        """
        choices = list(self._attributes(descriptor, fields.get("attributes", {})))
        given = fields.get("shapes")
        if given is None and not self.flags.shapes:
            self._bound("attributes", times * len(descriptor.setups) * _count(choices))
            yield from self._setups(descriptor, list(_combined(choices)))
            return
        key = "shapes" if "shapes" in self.fields and not self.flags.shapes else "op"
        alternatives = self._at(key, lambda: list(_shapes(descriptor, given, self.flags.shapes)))
        self._bound(key, times * _count(alternatives) * _count(choices))
        attributes = list(_combined(choices))
        for shapes in map(partial(_everywhere, descriptor), _combined(alternatives)):
            for one in attributes:
                try:
                    yield _checked(descriptor, shapes, one, "")
                except AttributeMismatch as error:
                    if self.strict:
                        raise self.place.error("attributes", error) from None
                except ShapeError as error:
                    if self.strict:
                        raise self.place.error(key, error) from None

    def _bound(self, key: str, cases: int) -> None:
        if cases > MOST_CASES:
            problem = UsageError(f"this stands for {cases:,} cases; a run may have {MOST_CASES:,}")
            raise self.place.error(key, problem)

    def _setups(
        self, descriptor: OperatorDescriptor, attributes: list[dict[str, Any]]
    ) -> Iterator[Combination]:
        """Yield the built-in setups with ``attributes``, except those that the operator then rejects."""
        if not descriptor.setups:
            problem = UsageError(f"{descriptor.name} has no built-in shapes", "give shapes")
            raise self.place.error("op", problem)
        refused: UsageError | None = None
        some = False
        for setup, one in itertools.product(descriptor.setups, attributes):
            try:
                yield _checked(descriptor, setup.shapes, {**setup.attributes, **one}, setup.note)
                some = True
            except (AttributeMismatch, ShapeError) as error:
                if not one:  # the setup itself is wrong, not the user's attributes
                    raise
                refused = error
        if not some and refused is not None and self.strict:
            raise self.place.error("attributes", refused)

    def _attributes(self, descriptor: OperatorDescriptor, given: Any) -> Iterator[Alternatives]:
        """Yield the given attributes, overridden by flags."""
        for one in [given] if isinstance(given, Mapping) else given:
            alternatives: dict[str, Sequence[Any]] = {}
            for name, value in one.items():
                spec = descriptor.attributes.get(name)
                takes_list = spec is None or list in spec.types or tuple in spec.types
                many = isinstance(value, list) and not takes_list
                alternatives[name] = value if many else [value]
            yield alternatives | dict(self.flags.attributes)


def _count(several: Sequence[Alternatives]) -> int:
    """Return the number of combinations without making them."""
    return sum(math.prod(map(len, one.values())) for one in several)


def _combined(several: Sequence[Alternatives]) -> Iterator[dict[str, Any]]:
    """Yield every combination."""
    for one in several:
        for values in itertools.product(*one.values()):
            yield dict(zip(one, values, strict=True))


def _as_stored(
    descriptor: OperatorDescriptor, dtypes: list[DTypes], settings: Mapping[str, Any]
) -> list[DTypes]:
    """Return those of ``dtypes`` that match the input files in a driver's settings; all if none match."""
    files = settings.get("inputs")
    stored = {
        descriptor.aliases.get(one["tensor"], one["tensor"]): one["dtype"]
        for one in (files if isinstance(files, list) else ())
        if isinstance(one, Mapping) and {"tensor", "dtype"} <= one.keys()
    }
    held = [
        one
        for one in dtypes
        if all(stored.get(name, dtype) == dtype for name, dtype in zip(descriptor.inputs, one, strict=True))
    ]
    return held or dtypes


def _checked(
    descriptor: OperatorDescriptor, shapes: Mapping[str, Shape], attributes: Mapping[str, Any], note: str
) -> Combination:
    complete = descriptor.complete_attributes(attributes)
    inputs = {name: tuple(shapes[name]) for name in descriptor.inputs if name in shapes}
    outputs = descriptor.check_shapes(inputs, complete)
    for name, shape in shapes.items():
        if name in outputs and outputs[name] != tuple(shape):
            raise ShapeError(
                f"{descriptor.name}: {name} is given as {list(shape)}, but the operator makes "
                f"{list(outputs[name])}"
            )
    return inputs, complete, note


def _shapes(
    descriptor: OperatorDescriptor, given: Any, flags: Mapping[str, Sequence[Shape]]
) -> Iterator[Alternatives]:
    """Yield alternative shapes by tensor name; "" stands for all inputs."""
    if "" in flags:  # shapes for all inputs replace all of the plan's
        given = None
    for one in given if isinstance(given, list) else [given or {}]:
        alternatives: dict[str, Sequence[Any]] = {}
        for name, value in {"": one}.items() if isinstance(one, list) else one.items():
            many = bool(value) and isinstance(value[0], list)
            alternatives[_tensor(descriptor, name)] = value if many else [value]
        yield alternatives | {_tensor(descriptor, name): shapes for name, shapes in flags.items()}


def _everywhere(descriptor: OperatorDescriptor, given: Mapping[str, Sequence[int]]) -> dict[str, Shape]:
    """Return one shape by tensor name; inputs without a shape of their own get that of ""."""
    chosen = {name: tuple(int(size) for size in shape) for name, shape in given.items()}
    everywhere = chosen.pop("", None)
    return chosen if everywhere is None else dict.fromkeys(descriptor.inputs, everywhere) | chosen


def _tensor(descriptor: OperatorDescriptor, name: str) -> str:
    return name and descriptor.canonical_name(name)


def _several(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
