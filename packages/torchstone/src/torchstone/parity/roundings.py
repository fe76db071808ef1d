"""Runs of a model in eager PyTorch with other roundings.

Each run slightly moves the results of operators, and the parameters, buffers and inputs that it starts with.
Not here: how values are moved (``optest.torch.roundings``), and the verdict that follows (:mod:`.judge`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch

from optest.torch.roundings import OtherRoundings, is_rounded

from .subject import Subject

T = TypeVar("T")


def reruns(count: int, copied: Callable[[], Subject], run: Callable[[Subject], T]) -> list[T]:
    """Return the results of ``run`` on ``count`` fresh copies, each with other roundings."""
    found = []
    for seed in range(count):
        roundings = OtherRoundings(seed)
        subject = started(copied(), roundings)
        with roundings:
            found.append(run(subject))
    return found


def started(subject: Subject, roundings: OtherRoundings) -> Subject:
    """Move the parameters, buffers and inputs of ``subject`` in place, and return it."""
    leaves = subject.inputs()
    if isinstance(subject.model, torch.nn.Module):
        leaves += [*subject.model.parameters(), *subject.model.buffers()]
    with torch.no_grad():
        for one in filter(is_rounded, leaves):
            one.copy_(roundings.moved(one))
    return subject
