"""The drivers ``torch-compile:BACKEND``: operators through any backend of ``torch.compile``."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ..backends.driver import Answer, Unsupported
from ..errors import BackendError
from ..names import listing, near_misses
from .device import TorchDriver, gaps_of
from .internals import need_torch

if TYPE_CHECKING:
    from ..core.case import TestCase
    from .opinfo.calls import Call

_TOGETHER = 24
"""The largest number of a suite's calls in one graph."""

FallbackRecorder = Callable[[], AbstractContextManager[list[str]]]
"""A function that returns a context; at its end, its list names the operators that ran in eager PyTorch."""

_recorders: dict[str, FallbackRecorder] = {}


def report_fallbacks(backend: str, recorder: FallbackRecorder) -> None:
    """Use ``recorder`` to learn what the torch.compile backend ``backend`` leaves to eager PyTorch.

    Without a recorder, only what Dynamo itself leaves out of graphs is known.
    """
    _recorders[backend] = recorder


class TorchCompile(TorchDriver):
    """Compiles each case into one graph and calls it on the device named by the chip, or on the CPU."""

    def __init__(self, backend: str) -> None:
        self.backend = backend
        self.name = f"torch-compile:{backend}"
        self.packages = ("torch", backend)
        self.expectations = gaps_of(backend)

    def setup(self) -> None:
        """Import PyTorch and look the backend up; raises :class:`BackendError` if there is none."""
        need_torch(f"the driver {self.name!r}")
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
        """Return ``call`` compiled for one set of shapes; a graph break makes the case unsupported."""
        import torch

        from .internals import GraphBreak

        torch.compiler.reset()  # one case's guards and limits must not reach the next
        compiled = torch.compile(call, backend=self.backend, fullgraph=True, dynamic=False)

        def run(*inputs: Any) -> Any:
            try:
                return compiled(*inputs)
            except GraphBreak as error:
                reason = str(error).strip().splitlines()[0]
                raise Unsupported(f"it does not become one graph: {reason}") from None

        return run

    def answer(self, calls: Sequence[Call], repeats: int = 1) -> list[Answer]:
        """Return one answer per call of a suite; it names what ran in eager PyTorch."""
        from .opinfo.calls import halved

        answers: list[Answer] = []
        for start in range(0, len(calls), _TOGETHER):
            run = partial(self._run_together, repeats)
            answers += halved(calls[start : start + _TOGETHER], run, _failed)
        return answers

    def _run_together(self, repeats: int, calls: Sequence[Call]) -> tuple[Sequence[Sequence[Any]], Answer]:
        """Return the calls' outputs from one compiled function; raise if one of several calls fell back."""
        import torch

        from .internals import counters
        from .opinfo.calls import (
            FORWARD,
            GRADIENT,
            copied,
            differentiated,
            merged,
            require_unwritten,
            together,
        )

        torch.compiler.reset()
        counters.clear()
        started = time.perf_counter()
        with _recorders.get(self.backend, _no_record)() as left:
            runs = []
            if calls[0].kind == GRADIENT:
                compiled = torch.compile(merged(calls).function, backend=self.backend, dynamic=False)
                runs = differentiated(compiled, calls, repeats)
            else:
                compiled = torch.compile(
                    together(calls)[0], backend=self.backend, dynamic=bool(calls[0].resized)
                )
                for _ in range(repeats):
                    given = [call.map(copied) for call in calls]
                    with torch.no_grad() if calls[0].kind == FORWARD else nullcontext():
                        runs.append(list(compiled(*(one for call in given for one in call.run.operands))))
                    for call, original in zip(given, calls, strict=True):
                        require_unwritten("the compiled call", call, original)
        answer = _told(left, started)
        if answer.fallback and len(calls) > 1:
            raise RuntimeError("one of several calls fell back: each by itself tells which")
        return runs, answer

    def answer_in_turn(
        self, function: Callable[..., Any], turns: Sequence[tuple[Sequence[Any], Mapping[str, Any]]]
    ) -> Answer:
        """Return the results of one compiled function with PyTorch's automatic dynamic shapes."""
        import torch

        from .internals import counters

        torch.compiler.reset()
        counters.clear()
        started = time.perf_counter()
        with _recorders.get(self.backend, _no_record)() as left:
            compiled = torch.compile(function, backend=self.backend)
            results = [compiled(*args, **kwargs) for args, kwargs in turns]
        return replace(_told(left, started), outputs=results)


def _told(left: Sequence[str], started: float) -> Answer:
    """Return an answer without outputs that says what ran in eager PyTorch since the last reset."""
    from .internals import counters

    fallback = Counter(left)
    fallback.update({f"graph break: {_first(why)}": n for why, n in counters["graph_break"].items()})
    if not counters["stats"]["unique_graphs"]:
        fallback["nothing of it was compiled"] += 1
    return Answer(
        fallback=tuple(sorted(fallback)),
        form="fallback" if fallback else "native",
        seconds={"compiling and running": time.perf_counter() - started},
    )


def _failed(error: BaseException) -> Answer:
    if "does not currently support double backward" in str(error):
        return Answer(unsupported=_first(str(error)), error=error)
    return Answer(error=error)


def _no_record() -> AbstractContextManager[list[str]]:
    return nullcontext([])


def _first(text: str) -> str:
    return text.strip().partition("\n")[0]
