"""What a full run of optest's own operators has: every set-up in every dtype, operator by operator.

Coverage asks for that, not for what somebody chose to run. Not here: PyTorch's databases, whose records
say themselves what an entry has (``core.origin``).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..core.case import BackendTarget
from ..core.tolerance import ToleranceTable
from ..ledger.reading import CaseRow, main_dtype
from ..operators.descriptor import OperatorDescriptor
from ..operators.registry import operator_registry
from ..plan.entries import Entry

Place = tuple[str, str]
"""Phase and dtype."""
_ANY = BackendTarget("any")


class Selection:
    """The cases of the built-in suite; what is recorded is taken off, and what is left is missing.

    A case is known by its dtypes, shapes, attributes and phase: whatever the seed of its inputs was.
    """

    def __init__(self) -> None:
        self._left: dict[str, dict[str, Place]] = {}
        """By recorded operator."""

    def take(self, row: CaseRow) -> None:
        """Take a recorded case off."""
        if row.origin is not None or row.op not in operator_registry:
            return
        if row.op not in self._left:
            self._left[row.op] = _cases_of(operator_registry.get(row.op))
        known = _known_by(row.dtypes.split(","), row.record["shapes"], row.attributes, row.phase)
        self._left[row.op].pop(known, None)

    def missing(self, op: str) -> Counter[Place]:
        """How many cases of a recorded operator have no record."""
        return Counter(self._left.get(op, {}).values())

    def unrecorded(self) -> Iterator[tuple[OperatorDescriptor, Counter[Place]]]:
        """The operators of which nothing is recorded, with their cases, if any other is recorded."""
        for one in operator_registry if self._left else ():
            if one.name not in self._left and one.setups:
                yield one, Counter(_cases_of(one).values())


_KNOWN: dict[str, tuple[OperatorDescriptor, dict[str, Place]]] = {}
"""What expanding an operator gave: a server asks again and again."""


def _cases_of(operator: OperatorDescriptor) -> dict[str, Place]:
    """The cases of an operator; none if it has no set-ups."""
    kept = _KNOWN.get(operator.name)
    if kept is None or kept[0] is not operator:
        entry = Entry(operator.name, strict=False)
        cases = entry.expand(_ANY, 0, ToleranceTable()) if operator.setups else ()
        found = {
            _known_by(one.dtypes, one.shapes, one.attributes, one.phase): (
                one.phase,
                main_dtype(",".join(one.dtypes)),
            )
            for one in cases
        }
        kept = _KNOWN[operator.name] = operator, found
    return dict(kept[1])


def _known_by(
    dtypes: Sequence[str], shapes: Mapping[str, Any], attributes: Mapping[str, Any], phase: str
) -> str:
    return json.dumps([list(dtypes), dict(shapes), dict(attributes), phase], sort_keys=True)
