"""The optest drivers: artifacts (``torchstone``, ``torchstone:ENGINE``) and the device (``torch:pjrt``).

optest finds them by the entry point group ``optest.backends``, so importing this module
loads neither PyTorch nor JAX.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from optest.backends import Answer, CallDriver, Unsupported, backend_manager
from optest.backends.manager import Family
from optest.errors import BackendError
from optest.torch.compiled import report_fallbacks
from optest.torch.device import TorchDevice

if TYPE_CHECKING:
    from optest.core.case import TestCase
    from optest.torch.opinfo.calls import Call


class ArtifactDriver(CallDriver):
    """A driver that exports the case's PyTorch call, saves and loads the artifact, and runs it on arrays.

    The driver ``torchstone:ENGINE`` uses that engine (``pjrt``, ``reference``, ``iree``, ``jax``). The driver
    ``torchstone`` uses the engine that the case's chip names, or the default one.
    """

    kind = "stablehlo"
    name = "torchstone"
    packages: tuple[str, ...] = ("torchstone", "torch", "jaxlib")
    expectations = Path(__file__).with_suffix(".toml")

    def __init__(self, engine: str | None = None) -> None:
        self.engine = engine
        if engine:
            self.name = f"torchstone:{engine}"
        if engine == "iree":
            self.packages = (*self.packages, "iree-base-compiler", "iree-base-runtime")

    def setup(self) -> None:
        """Start the engine; raises :class:`BackendError` if it is missing."""
        from ..errors import TorchstoneError
        from ..runtime import get_engine

        try:
            get_engine(self.engine)
        except TorchstoneError as error:
            raise BackendError(error.message, error.hint) from None

    def run(self, case: TestCase, inputs: Sequence[NDArray[Any]]) -> tuple[NDArray[Any], ...]:
        """Return the outputs of the loaded program; raises :class:`Unsupported` if it cannot be exported."""
        import torch

        from optest.torch.calls import call_of
        from optest.torch.tensors import to_tensor

        from ..api import export, load
        from ..errors import CaptureError, UnsupportedDtype, UnsupportedOperators

        try:
            with torch.no_grad():
                program = export(call_of(case), [to_tensor(one) for one in inputs])
        except (NotImplementedError, UnsupportedOperators, UnsupportedDtype, CaptureError) as error:
            raise Unsupported(str(error).strip().splitlines()[0]) from None
        with tempfile.TemporaryDirectory(prefix="torchstone-") as folder:
            file = program.save(Path(folder, "case.stone"))
            loaded = load(file, engine=self.engine or case.backend.chip)
        return tuple(loaded(*inputs))

    def answer(self, calls: Sequence[Call], repeats: int = 1) -> list[Answer]:
        """Return one answer per call of a suite (see ``optest.torch.opinfo``); calls share artifacts."""
        from .answers import answer

        return answer(calls, repeats, self.engine)


@contextmanager
def fallbacks() -> Iterator[list[str]]:
    """Collect the overloads that the ``torch.compile`` backend leaves to eager PyTorch inside the block."""
    from ..backend.records import recorded

    left: list[str] = []
    with recorded() as records:
        yield left
    left += [node.overload for record in records for node in record.fallbacks]


class PjrtDevice(TorchDevice):
    """A driver that calls operators eagerly on the device ``pjrt``; those left to the CPU are fallbacks."""

    packages = ("torchstone", "torch", "jaxlib")

    def __init__(self) -> None:
        super().__init__("pjrt")

    def setup(self) -> None:
        """Register the device with PyTorch."""
        from .. import device

        device.register()
        super().setup()

    def answer(self, calls: Sequence[Call], repeats: int = 1) -> list[Answer]:
        """Return one answer per call, with the operators that were computed on the CPU."""
        from ..config import override
        from ..device.fallback import counts

        answers = []
        with override(device_fallback="silent"):
            for call in calls:
                counts.clear()
                (answer,) = super().answer([call], repeats)
                answers.append(replace(answer, fallback=(*answer.fallback, *sorted(counts))))
        return answers


def register() -> None:
    """Make the drivers and the backend's fallbacks known to optest; the entry point calls this."""
    backend_manager.register(ArtifactDriver())
    backend_manager.register_family(Family("torchstone", ArtifactDriver))
    backend_manager.register(PjrtDevice())
    report_fallbacks("torchstone", fallbacks)
