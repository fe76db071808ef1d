"""The driver ``stub``: it returns the results of the references, so that optest can test itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from numpy.typing import NDArray

from ..core.reference import reference_outputs, rounded
from .driver import BackendDriver

if TYPE_CHECKING:
    from ..core.case import TestCase


class StubDriver(BackendDriver):
    """Runs a case by calling its reference and rounding the results to the output dtypes."""

    kind = "stub"
    name = "stub"
    isolated = False
    settings: ClassVar[Mapping[str, Any]] = {}

    def run(self, case: TestCase, inputs: Sequence[NDArray[Any]]) -> tuple[NDArray[Any], ...]:
        """Return the rounded results of the reference."""
        return rounded(case, reference_outputs(case, inputs))
