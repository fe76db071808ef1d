"""The driver ``stub``: gives the references' own answers, so that optest can check itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from numpy.typing import NDArray

from ..core.reference import reference_outputs, rounded
from .driver import BackendDriver

if TYPE_CHECKING:
    from ..core.case import TestCase


class StubDriver(BackendDriver):
    """Calls each case's reference and rounds to the output dtypes."""

    kind = "stub"
    name = "stub"
    isolated = False
    settings: ClassVar[Mapping[str, Any]] = {}

    def run(self, case: TestCase, inputs: Sequence[NDArray[Any]]) -> tuple[NDArray[Any], ...]:
        """The rounded reference."""
        return rounded(case, reference_outputs(case, inputs))
