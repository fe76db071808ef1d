"""Runs a failing sample again: alone, shrunk, or as a self-contained script."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from ...backends import CallDriver, backend_manager
from ...core.case import BackendTarget
from ...core.result import CaseResult
from ...errors import UsageError
from ...running.replay import assembled, write
from ...running.shrink import Attempts, attempts_on
from .calls import Tensor
from .execution import Request
from .groups import Group
from .phases import planned
from .shrinking import literal, smallest

_TASK = """\
group = Group({suite!r}, {entry!r}, {dtype!r}, {phase!r}, seed={seed!r})
target = BackendTarget({kind!r}, {driver!r}, {chip!r})
request = Request(group, target, ({sample!r},), tensors={tensors})"""
_IMPORTS = """\
import torch

from optest.core.case import BackendTarget
from optest.torch.opinfo.execution import Request, run_group
from optest.torch.opinfo.groups import Group
"""


@dataclass(frozen=True)
class Shrunk:
    """A sample with explicit tensors, and its result."""

    request: Request
    result: CaseResult


def write_script(result: CaseResult, chosen: str | None, file: Path, *, timeout: float = 30.0) -> str:
    """Shrink a recorded sample and write a script that runs the result; return a text that describes it.

    ``chosen`` is the name of a driver; None means the driver in the record. Raises :class:`UsageError` if
    the sample does not fail there, and :class:`ReportError` if ``file`` cannot be written.
    """
    driver = backend_manager.select(chosen or str(result.backend["name"]), result.backend["chip"])
    if not isinstance(driver, CallDriver):
        raise UsageError(f"the driver {driver.name!r} does not answer calls of PyTorch's tensors")
    shrunk = shrink(_request(result, driver), driver, timeout=timeout)
    write(_script(shrunk, result, driver), file)
    return _described(shrunk)


def shrink(request: Request, driver: CallDriver, *, timeout: float = 30.0) -> Shrunk:
    """Return the sample with the smallest tensors found that fail with the same status.

    ``timeout`` limits one attempt, in seconds. Raises :class:`UsageError` if the sample does not fail.
    """
    with attempts_on(driver, timeout) as attempts:
        return _Search(request, attempts).run()


class _Search:
    """A greedy search: smaller tensors that still fail the same way replace the best ones so far.

    It ends when no candidate fails or the time is up.
    """

    def __init__(self, request: Request, attempts: Attempts) -> None:
        self._attempts = attempts
        group, [number] = request.group, request.numbers or ()
        [plan] = planned(group, [number])
        found = attempts.first(request, group.case_id(number), f"{group}, sample {number}")
        tensors = plan.make().call.tensors
        self._plain = all(one.layout is torch.strided and not one.is_quantized for one in tensors)
        self._best = Shrunk(replace(request, tensors=tensors), found)

    def run(self) -> Shrunk:
        if not self._plain:  # tensors without strides can be neither cut nor written out
            return replace(self._best, request=replace(self._best.request, tensors=None))
        smallest(self._best.request.tensors or (), self._accept)
        return self._best

    def _accept(self, tensors: Sequence[Tensor]) -> bool:
        """Whether the tensors fail like the original ones; if so, they become the best ones."""
        if not self._attempts.left:
            return False
        request = replace(self._best.request, tensors=tuple(tensors))
        result = self._attempts.run(request)
        if result.status is not self._best.result.status:
            return False
        self._best = Shrunk(request, result)
        return True


def _request(result: CaseResult, driver: CallDriver) -> Request:
    """Return a recorded sample as a task on ``driver``."""
    assert result.origin is not None, "the record of a suite's case says where it comes from"
    if not isinstance(result.origin.sample, int):
        raise UsageError(
            f"the record {result.case_id} is of all samples of {result.op}, and one of them can be shrunk",
            "run them one by one: `optest run --suite … --sample N`",
        )
    group = Group(
        result.origin.suite, result.op, result.dtypes[0], result.phase, result.category, result.seed
    )
    target = BackendTarget(driver.kind, driver.name, result.backend["chip"])
    return Request(group, target, (result.origin.sample,))


def _script(shrunk: Shrunk, original: CaseResult, driver: CallDriver) -> str:
    request = shrunk.request
    group, [number] = request.group, request.numbers or ()
    tensors = request.tensors or ()
    task = _TASK.format(
        suite=group.suite, entry=group.entry, dtype=group.dtype, phase=group.phase, seed=group.seed,
        kind=driver.kind, driver=driver.name, chip=request.target.chip, sample=number,
        tensors="None" if request.tensors is None else "INPUTS",
    )  # fmt: skip
    return assembled(
        shrunk.result, driver, f"sample {number} of {group} ({original.case_id})", imports=_IMPORTS,
        inputs={f"input{place}": literal(one) for place, one in enumerate(tensors)}, task=task,
        run="run_group(driver, request).results[0]",
    )  # fmt: skip


def _described(shrunk: Shrunk) -> str:
    shapes = " ".join(str(list(one.shape)) for one in shrunk.request.tensors or ())
    return f"{shrunk.request.group} {shapes}".rstrip()
