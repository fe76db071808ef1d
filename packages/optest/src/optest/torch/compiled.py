"""The drivers ``torch-compile:BACKEND``: operators through any backend of ``torch.compile``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..backends.driver import Unsupported
from ..errors import BackendError
from ..names import listing, near_misses
from .device import TorchDriver, gaps_of, need_torch

if TYPE_CHECKING:
    from ..core.case import TestCase


class TorchCompile(TorchDriver):
    """Compiles each case into one graph and calls it; on the device that the chip names, else the CPU."""

    def __init__(self, backend: str) -> None:
        self.backend = backend
        self.name = f"torch-compile:{backend}"
        self.expectations = gaps_of(backend)

    def setup(self) -> None:
        """Import PyTorch and look the backend up; raises :class:`BackendError` if there is none."""
        need_torch(self.name)
        import torch

        known = torch.compiler.list_backends(exclude_tags=())
        if self.backend not in known:
            near = near_misses(self.backend, known) or known
            raise BackendError(
                f"torch.compile has no backend {self.backend!r}; there are {listing(sorted(near))}"
            )

    def device_of(self, case: TestCase) -> str:
        return case.backend.chip or "cpu"

    def prepare(self, call: Any) -> Any:
        """``call`` compiled for one set of shapes; what breaks the graph is unsupported."""
        import torch
        from torch._dynamo.exc import Unsupported as GraphBreak

        torch.compiler.reset()  # one case's guards and limits are no business of the next
        compiled = torch.compile(call, backend=self.backend, fullgraph=True, dynamic=False)

        def run(*inputs: Any) -> Any:
            try:
                return compiled(*inputs)
            except GraphBreak as error:
                reason = str(error).strip().splitlines()[0]
                raise Unsupported(f"it does not become one graph: {reason}") from None

        return run
