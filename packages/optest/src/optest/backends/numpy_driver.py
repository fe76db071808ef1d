"""The driver ``numpy``: a second implementation of every built-in operator (see ``numpy_impl``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from numpy.typing import NDArray

from .driver import BackendDriver, Unsupported
from .numpy_impl import IMPLEMENTATIONS, compute

if TYPE_CHECKING:
    from ..core.case import TestCase


class NumpyDriver(BackendDriver):
    """Runs cases in this process, in their own dtypes, without using the references."""

    kind = "numpy"
    name = "numpy"
    isolated = False
    settings: ClassVar[Mapping[str, Any]] = {}

    def supports(self, case: TestCase) -> str | None:
        """Return why ``case`` cannot run: only the forward phase of built-in operators can."""
        if case.phase != "forward":
            return f"the numpy driver runs the forward phase only, not {case.phase}"
        if case.op not in IMPLEMENTATIONS:
            return f"the numpy driver implements the built-in operators only, not {case.op}"
        return None

    def run(self, case: TestCase, inputs: Sequence[NDArray[Any]]) -> tuple[NDArray[Any], ...]:
        """Return the outputs in the case's output dtypes. Raises :class:`Unsupported` for any other case."""
        reason = self.supports(case)
        if reason is not None:
            raise Unsupported(reason)
        return compute(case.op, tuple(inputs), case.attributes, case.output_dtypes)
