"""How far rounding alone takes each element of a result: runs of eager PyTorch with other roundings.

Eager's result is one draw of its roundings. Where a call amplifies them, as a softmax of scores in the
hundreds does, it can happen to be close to the truth, and twice its error is no measure then. Not here: how
values are moved (``optest.torch.roundings``), and what follows from it (``verdict``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from ..roundings import OtherRoundings, is_rounded
from ..tensors import to_array
from .calls import copied, evaluate
from .phases import Case

Tensor = torch.Tensor
Errors = NDArray[np.float64]

_RUNS = 32
_SLACK = 2.0
"""An element may be off by so many times what the runs' are at most."""


def rounding_errors(case: Case, truths: Sequence[Tensor | None]) -> list[Errors | None]:
    """For each result the largest errors that rounding explains; None where no run measures them.

    A run that is off by more than the square root of a rounding, relative to the largest element, does not
    count: a rounding decided there which of several results is computed, or the call amplifies
    roundings so much that no result says anything.
    """
    runs = [run for seed in range(_RUNS) if (run := _run(case, seed)) is not None]
    found: list[Errors | None] = []
    for place, truth in enumerate(truths):
        errors = [] if truth is None else [_errors(run[place], truth) for run in runs if place < len(run)]
        measured = [one for one in errors if one is not None]
        found.append(_SLACK * np.max(measured, axis=0) if measured else None)
    return found


def _run(case: Case, seed: int) -> list[Tensor] | None:
    """What eager gives with other roundings; None where it cannot run so."""
    roundings = OtherRoundings(seed)

    def started(tensor: Tensor) -> Tensor:
        own = copied(tensor)
        return roundings.moved(own) if is_rounded(own) else own

    call = case.call.run.map(started)
    try:
        with roundings:
            return evaluate(call)
    except Exception:  # noqa: BLE001  # some operators refuse to be watched
        return None


def _errors(run: Tensor, truth: Tensor) -> Errors | None:
    """The errors of a run's result, NaN and infinities as 0; None if they are not those of rounding."""
    if run.shape != truth.shape or not is_rounded(run):
        return None
    wide, exact = to_array(run.to(truth.dtype)), to_array(truth)
    finite = np.isfinite(exact)
    with np.errstate(invalid="ignore"):
        errors = np.where(finite, np.abs(wide - exact), 0.0)
        largest = np.max(np.abs(exact), where=finite, initial=0.0)
    most = math.sqrt(torch.finfo(run.dtype).eps / 2) * largest
    return errors if bool(np.all(errors <= most)) else None
