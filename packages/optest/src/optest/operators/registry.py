"""The table of operators: built-in ones and those that users and plugins add.

``operator_registry`` is the registry that plans, the runner and the command line use.
It loads the built-in operators on first use, from ``descriptors()`` of
``optest.operators.builtin``.
"""

from __future__ import annotations

import copyreg
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from ..core.tolerance import Tolerance
from ..errors import RegistrationError, UnknownName
from .descriptor import AttributeSpec, DTypes, OperatorDescriptor, Setup


class OperatorRegistry:
    """Operators by name, in the order of registration."""

    def __init__(self, builtins: Callable[[], Iterable[OperatorDescriptor]] = tuple) -> None:
        self._builtins: Callable[[], Iterable[OperatorDescriptor]] | None = builtins
        self._descriptors: dict[str, OperatorDescriptor] = {}

    def register(self, descriptor: OperatorDescriptor) -> OperatorDescriptor:
        """Add a new operator. Raises :class:`RegistrationError` if the name is taken."""
        if descriptor.name in self._table():
            raise RegistrationError(
                f"the operator {descriptor.name!r} is registered already",
                "change it with extend(), or replace it with override()",
            )
        return self._put(descriptor)

    def override(self, descriptor: OperatorDescriptor) -> OperatorDescriptor:
        """Replace an operator of the same name. Raises :class:`UnknownName` if there is none."""
        self.get(descriptor.name)
        return self._put(descriptor)

    def extend(
        self,
        name: str,
        *,
        dtypes: Iterable[DTypes] = (),
        attributes: Mapping[str, AttributeSpec] | None = None,
        setups: Iterable[Setup] = (),
        tolerances: Mapping[str, Tolerance] | None = None,
        tags: Iterable[str] = (),
        **replacements: Any,
    ) -> OperatorDescriptor:
        """Extend fields of an operator; ``replacements`` replace whole fields, such as ``reference=…``."""
        old = self.get(name)
        if "name" in replacements:
            raise RegistrationError(f"extend() keeps the name {name!r}: register() a copy under another one")
        known = set(OperatorDescriptor.__dataclass_fields__)
        if unknown := sorted(set(replacements) - known):
            raise RegistrationError(f"an operator has no field {unknown[0]!r}")
        return self._put(
            replace(
                old,
                dtypes=tuple(dict.fromkeys((*old.dtypes, *dtypes))),
                attributes={**old.attributes, **(attributes or {})},
                setups=(*old.setups, *setups),
                tolerances={**old.tolerances, **(tolerances or {})},
                tags=old.tags | frozenset(tags),
                **replacements,
            )
        )

    def get(self, name: str) -> OperatorDescriptor:
        """Return the operator ``name``; raises :class:`UnknownName` with similar names."""
        found = self._table().get(name)
        if found is None:
            raise UnknownName("operator", name, self._table(), "`optest list` shows every operator")
        return found

    def peek(self, name: str) -> OperatorDescriptor | None:
        """Return the operator ``name``, or None."""
        return self._table().get(name)

    def names(self) -> list[str]:
        return list(self._table())

    def categories(self) -> list[str]:
        return list(dict.fromkeys(one.category for one in self))

    def __iter__(self) -> Iterator[OperatorDescriptor]:
        return iter(list(self._table().values()))

    def __len__(self) -> int:
        return len(self._table())

    def __contains__(self, name: object) -> bool:
        return name in self._table()

    def _table(self) -> dict[str, OperatorDescriptor]:
        if self._builtins is not None:
            load, self._builtins = self._builtins, None
            for descriptor in load():
                self.register(descriptor)
        return self._descriptors

    def _put(self, descriptor: OperatorDescriptor) -> OperatorDescriptor:
        for one in descriptor.dtypes:
            if len(one) != len(descriptor.inputs):
                raise RegistrationError(
                    f"{descriptor.name}: the dtype tuple {one} has {len(one)} entries for "
                    f"{len(descriptor.inputs)} inputs"
                )
        self._table()[descriptor.name] = descriptor
        return descriptor


def _builtin_descriptors() -> Iterable[OperatorDescriptor]:
    from .builtin import descriptors

    return descriptors()


operator_registry = OperatorRegistry(_builtin_descriptors)
"""The registry of this process."""


def registered(name: str) -> OperatorDescriptor:
    """Return the operator ``name`` of this process's registry; used to unpickle descriptors."""
    return operator_registry.get(name)


def _reduced(descriptor: OperatorDescriptor) -> Any:
    """Pickle a descriptor by name if the registry holds this very object: its rules need not be picklable."""
    if operator_registry.peek(descriptor.name) is descriptor:
        return registered, (descriptor.name,)
    return descriptor.__reduce_ex__(2)


copyreg.pickle(OperatorDescriptor, _reduced)
