"""The driver ``company-npu``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from optest.backends import BackendDriver, Unsupported, backend_manager
from optest.core.case import TestCase

from .runtime import KERNELS, Device


class CompanyNpu(BackendDriver):
    """Launches the runtime library's kernel of the operator's name."""

    kind = "npu"
    name = "company-npu"
    chips = ("c1", "c2")

    def __init__(self) -> None:
        self.device: Device | None = None  # opened in setup(): drivers are copied to worker processes

    def setup(self) -> None:
        self.device = Device()

    def reset(self) -> None:
        self.device = Device()

    def teardown(self) -> None:
        self.device = None

    def supports(self, case: TestCase) -> str | None:
        if case.op not in KERNELS:
            return f"the runtime has no kernel {case.op}"
        if case.backend.chip == "c1" and "float64" in case.dtypes:
            return "c1 has no float64"
        return super().supports(case)

    def run(self, case: TestCase, inputs: Sequence[np.ndarray[Any, Any]]) -> tuple[np.ndarray[Any, Any], ...]:
        assert self.device is not None
        try:
            return (self.device.launch(case.op, *inputs, **case.attributes),)
        except MemoryError as error:
            raise Unsupported(f"too large for the chip: {error}") from None


backend_manager.register(CompanyNpu())
