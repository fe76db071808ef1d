"""The error that rounding alone explains in each element, measured by running eager PyTorch repeatedly.

Each run rounds in another way. Eager's own result is only one such draw: where a call amplifies rounding
errors, as a softmax of scores in the hundreds does, that result may be close to the truth by chance. Twice
its error would then be too strict a limit. Not here: how values are changed (``optest.torch.roundings``),
and what follows from the errors (``verdict``).
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
"""An element's error may be this many times the largest error of the runs there."""


def rounding_errors(case: Case, truths: Sequence[Tensor | None]) -> list[Errors | None]:
    """Return, for each result, the largest errors that rounding explains; None where no run measures them.

    A run does not count if its error exceeds the square root of a rounding, relative to the largest element.
    Either a rounding decided there which of several results is computed, or the call amplifies roundings so
    much that no result is meaningful.
    """
    runs = [run for seed in range(_RUNS) if (run := _run(case, seed)) is not None]
    found: list[Errors | None] = []
    for place, truth in enumerate(truths):
        errors = [] if truth is None else [_errors(run[place], truth) for run in runs if place < len(run)]
        measured = [one for one in errors if one is not None]
        found.append(_SLACK * np.max(measured, axis=0) if measured else None)
    return found


def _run(case: Case, seed: int) -> list[Tensor] | None:
    """Return eager's results with other roundings; None if it cannot run that way."""
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
    """Return the errors of a run's result; None if they are too large to come from rounding.

    Where the true value is NaN or infinite, the error is 0.
    """
    if run.shape != truth.shape or not is_rounded(run):
        return None
    wide, exact = to_array(run.to(truth.dtype)), to_array(truth)
    finite = np.isfinite(exact)
    with np.errstate(invalid="ignore"):
        errors = np.where(finite, np.abs(wide - exact), 0.0)
        largest = np.max(np.abs(exact), where=finite, initial=0.0)
    most = math.sqrt(torch.finfo(run.dtype).eps / 2) * largest
    return errors if bool(np.all(errors <= most)) else None
