"""The descriptor of an operator: what optest knows about it, as data and two rules.

Not here: the built-in operators (``builtin`` and its category modules), their
reference implementations (``reference_impls``) and the table of all of them
(``registry``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from ..core.roundoff import Rounding
from ..core.tolerance import ANY_DTYPE, Tolerance, ToleranceTable, default_tolerance
from ..errors import AttributeMismatch, ShapeError, UsageError
from ..names import listing, near_misses
from .domain import Domain

DTypes = tuple[str, ...]
"""One dtype name per input (or output), in the order of the descriptor's names."""
Shape = tuple[int, ...]
Shapes = Mapping[str, Shape]


Types = tuple[type, ...]


class _Required:
    def __repr__(self) -> str:
        return "REQUIRED"

    def __reduce__(self) -> str:
        return "REQUIRED"


REQUIRED: Final = _Required()
"""The default of an attribute that must be given."""


@dataclass(frozen=True)
class AttributeSpec:
    """The type, default and range of one attribute.

    ``type`` may be int, float, bool, str or list (``doc`` says of what), or a tuple of
    these; ``type(None)`` in the tuple allows None. An int is accepted for a float and
    converted to one; a bool is not accepted as an int.
    """

    type: type | Types
    default: Any = REQUIRED
    choices: tuple[Any, ...] = ()
    minimum: float | None = None
    doc: str = ""

    @property
    def types(self) -> Types:
        return self.type if isinstance(self.type, tuple) else (self.type,)

    def allowed(self) -> str:
        """Return in words which values are allowed."""
        if self.choices:
            return f"one of {', '.join(map(repr, self.choices))}"
        names = ("null" if one is type(None) else one.__name__ for one in self.types)
        text = listing(names, last="or")
        return text if self.minimum is None else f"{text} of at least {self.minimum:g}"

    def accept(self, value: Any) -> Any:
        """Return ``value`` as the operator gets it; raises ``ValueError`` if it is not allowed.

        Lists become tuples, and ints become floats where only a float is allowed.
        """
        if isinstance(value, list | tuple):
            fits = list in self.types or tuple in self.types
            value = tuple(value)
        elif isinstance(value, int) and not isinstance(value, bool) and int not in self.types:
            fits = float in self.types
            value = float(value) if fits else value
        else:
            fits = type(value) in self.types
        if fits and self.choices:
            fits = value in self.choices
        if fits and self.minimum is not None and isinstance(value, int | float):
            fits = value >= self.minimum
        if not fits:
            raise ValueError(self.allowed())
        return value


@dataclass(frozen=True)
class Setup:
    """A combination of shapes and attributes in the built-in suite; ``note`` says what is special in it."""

    shapes: Shapes
    attributes: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True)
class OperatorDescriptor:
    """One operator.

    ``dtypes`` lists the supported input dtype tuples. ``reference`` names
    ``reference(inputs, attributes) -> outputs`` as ``module:function``: it takes the
    arrays in their own dtypes and returns them in wider ones. ``generator`` names a
    class with ``generate(case, rng)``.

    ``output_dtypes(dtypes, attributes)`` and ``output_shapes(shapes, attributes)``
    are the rules for the results; the latter raises :class:`ShapeError` for shapes
    that the operator does not accept. ``domain`` describes inputs whose values are
    restricted. ``tolerances`` has the tolerances that differ from the defaults, by output
    dtype; ``rounding`` is the rule that bounds the rounding errors of an operator that consists
    of many operations (see ``core.roundoff``).
    ``aliases`` are other names for inputs and outputs in plans: ``{"weight": "input1"}``.
    ``mutates`` names the inputs that a backend may update, such as running statistics; it must
    not write to any other.
    """

    name: str
    category: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    dtypes: tuple[DTypes, ...]
    reference: str
    output_dtypes: Callable[[DTypes, Mapping[str, Any]], DTypes]
    output_shapes: Callable[[Shapes, Mapping[str, Any]], dict[str, Shape]]
    attributes: Mapping[str, AttributeSpec] = field(default_factory=dict)
    generator: str = "optest.generators:RandomTensorGenerator"
    domain: Mapping[str, Domain] = field(default_factory=dict)
    tolerances: Mapping[str, Tolerance] = field(default_factory=dict)
    rounding: Rounding | None = None
    tags: frozenset[str] = frozenset()
    setups: tuple[Setup, ...] = ()
    doc: str = ""
    aliases: Mapping[str, str] = field(default_factory=dict)
    mutates: tuple[str, ...] = ()

    def complete_attributes(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return ``given``, checked and with defaults filled in, in the descriptor's order.

        Raises :class:`AttributeMismatch`.
        """
        unknown = [name for name in given if name not in self.attributes]
        if unknown:
            near = near_misses(unknown[0], self.attributes) or list(self.attributes)
            known = f"did you mean {listing(near, last='or')}?" if near else "it has none"
            raise AttributeMismatch(f"{self.name} has no attribute {unknown[0]!r}: {known}")
        complete = {}
        for name, spec in self.attributes.items():
            if name not in given:
                if spec.default is REQUIRED:
                    raise AttributeMismatch(f"{self.name} needs the attribute {name!r}: {spec.allowed()}")
                complete[name] = tuple(spec.default) if isinstance(spec.default, list) else spec.default
                continue
            try:
                complete[name] = spec.accept(given[name])
            except ValueError as error:
                raise AttributeMismatch(
                    f"{self.name}: attribute {name!r} is {given[name]!r}; it takes {error}"
                ) from None
        return complete

    def match_dtypes(self, given: Sequence[str]) -> tuple[DTypes, ...]:
        """Return the supported dtype tuples that ``given`` stands for.

        A single name selects the tuples that start with it and repeat it as often as any tuple
        does; the other dtypes, such as those of indices, may be any. As many names as inputs
        select exactly that tuple. Raises :class:`UsageError`.
        """
        given = tuple(given)
        if len(given) == 1:
            matching = tuple(one for one in self.dtypes if one and one[0] == given[0])
            most = max((one.count(given[0]) for one in matching), default=0)
            matching = tuple(one for one in matching if one.count(given[0]) == most)
        else:
            matching = tuple(one for one in self.dtypes if one == given)
        if not matching:
            heads = list(dict.fromkeys("/".join(one) if len(given) > 1 else one[0] for one in self.dtypes))
            raise UsageError(f"{self.name} does not take {'/'.join(given)}; it takes {listing(heads)}")
        return matching

    def canonical_name(self, name: str) -> str:
        """Return the name of an input or output with aliases resolved; raises :class:`UsageError`."""
        name = self.aliases.get(name, name)
        known = self.inputs + self.outputs
        if name not in known:
            raise UsageError(f"{self.name} has no tensor {name!r}; it has {listing([*known, *self.aliases])}")
        return name

    def check_shapes(self, shapes: Shapes, attributes: Mapping[str, Any]) -> dict[str, Shape]:
        """Return the output shapes for ``shapes``, one per input; raises :class:`ShapeError`."""
        missing = [name for name in self.inputs if name not in shapes]
        if missing:
            raise ShapeError(
                f"{self.name} needs a shape for {listing(missing)}; its inputs are {listing(self.inputs)}"
            )
        return self.output_shapes(shapes, attributes)

    def tolerance(self, dtype: str, table: ToleranceTable | None = None) -> Tolerance:
        """Return the tolerance of results of ``dtype``.

        Entries of ``table`` (from a plan) for this operator come first, then the descriptor's own
        tolerance, then the table's for the dtype and category, then the default.
        """
        own = self.tolerances.get(dtype)
        if table is None:
            return own or default_tolerance(dtype)
        if own is None:
            return table.lookup(dtype, operator=self.name, category=self.category)
        layers = table.operators.get(self.name, {})
        changes: dict[str, Any] = {**layers.get(ANY_DTYPE, {}), **layers.get(dtype, {})}
        return replace(own, **changes)
