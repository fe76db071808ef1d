"""The driver ``faulty:FAULT``: a driver that is right except for one fault."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..backends.driver import BackendDriver
from ..backends.stub import StubDriver
from .catalogue import find_fault

if TYPE_CHECKING:
    from ..core.case import TestCase


class FaultyDriver(BackendDriver):
    """Runs each case on another driver and corrupts the results."""

    kind = "faulty"
    isolated = False

    def __init__(self, fault: str, base: BackendDriver | None = None) -> None:
        """Wrap the driver ``base`` (the references, if None) with a fault named as in :func:`find_fault`."""
        find_fault(fault)
        self.fault, self.base = fault, base or StubDriver()
        self.name = f"faulty:{fault}"

    def supports(self, case: TestCase) -> str | None:
        """Return the answer of the wrapped driver."""
        return self.base.supports(case)

    def run(self, case: TestCase, inputs: Sequence[NDArray[Any]]) -> Sequence[NDArray[Any]]:
        """Return the wrong outputs."""
        attribute = self.fault.partition(":")[2]
        if attribute and attribute not in case.descriptor.attributes:
            return self.base.run(case, inputs)
        with np.errstate(all="ignore"):
            return find_fault(self.fault).spoil(self.base.run, case, inputs)
