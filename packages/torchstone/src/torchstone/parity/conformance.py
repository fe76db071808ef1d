"""The optest driver ``torchstone``: every case as an artifact that is saved, loaded and run.

optest finds it by the entry point group ``optest.backends``, so importing this module
loads neither PyTorch nor JAX.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from optest.backends import Answer, CallDriver, Unsupported, backend_manager
from optest.torch.compiled import report_fallbacks

if TYPE_CHECKING:
    from optest.core.case import TestCase
    from optest.torch.opinfo.calls import Call


class ArtifactDriver(CallDriver):
    """Exports what PyTorch calls for the case, saves the artifact, loads it and runs it on NumPy arrays.

    The case's chip names the engine (``pjrt``, ``reference``); the default engine otherwise.
    """

    kind = "stablehlo"
    name = "torchstone"
    packages = ("torchstone", "torch", "jaxlib")

    def run(self, case: TestCase, inputs: Sequence[NDArray[Any]]) -> tuple[NDArray[Any], ...]:
        """The outputs of the loaded program; :class:`Unsupported` for what does not lower."""
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
            loaded = load(file, engine=case.backend.chip)
        return tuple(loaded(*inputs))

    def answer(self, calls: Sequence[Call], repeats: int = 1) -> list[Answer]:
        """One answer per call of a suite (see ``optest.torch.opinfo``), many of them by one artifact."""
        from .answers import answer

        return answer(calls, repeats)


@contextmanager
def fallbacks() -> Iterator[list[str]]:
    """Collects the overloads that the ``torch.compile`` backend leaves to eager PyTorch inside the block."""
    from ..backend.records import recorded

    left: list[str] = []
    with recorded() as records:
        yield left
    left += [node.overload for record in records for node in record.fallbacks]


def register() -> None:
    """What the entry point calls: make the driver and the backend's fallbacks known to optest."""
    backend_manager.register(ArtifactDriver())
    report_fallbacks("torchstone", fallbacks)
