"""The cases of a full run of optest's own operators: every setup in every dtype, operator by operator.

Coverage is measured against these cases, not against those that happened to be run. Not here: PyTorch's
databases, whose records say what an entry has (``core.origin``).
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
    """The cases of the built-in suite that have no record yet; recorded cases are removed one by one.

    A case is identified by its dtypes, shapes, attributes and phase; the seed of its inputs does not matter.
    """

    def __init__(self) -> None:
        self._left: dict[str, dict[str, Place]] = {}
        """The remaining cases by recorded operator."""

    def take(self, row: CaseRow) -> None:
        """Remove a recorded case."""
        if row.origin is not None or row.op not in operator_registry:
            return
        if row.op not in self._left:
            self._left[row.op] = _cases_of(operator_registry.get(row.op))
        known = _known_by(row.dtypes.split(","), row.record["shapes"], row.attributes, row.phase)
        self._left[row.op].pop(known, None)

    def missing(self, op: str) -> Counter[Place]:
        """Return how many cases of a recorded operator have no record, by phase and dtype."""
        return Counter(self._left.get(op, {}).values())

    def unrecorded(self) -> Iterator[tuple[OperatorDescriptor, Counter[Place]]]:
        """Yield each operator without a record and its cases; nothing if no operator has a record."""
        for one in operator_registry if self._left else ():
            if one.name not in self._left and one.setups:
                yield one, Counter(_cases_of(one).values())


_KNOWN: dict[str, tuple[OperatorDescriptor, dict[str, Place]]] = {}
"""A cache of the cases of each operator, because a server needs them again and again."""


def _cases_of(operator: OperatorDescriptor) -> dict[str, Place]:
    """Return the cases of an operator; empty if it has no setups."""
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
