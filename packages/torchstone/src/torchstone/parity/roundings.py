"""Runs of a model in eager PyTorch with other roundings.

Each run slightly moves the results of operators, and the parameters, buffers and inputs that it starts with.
Not here: how values are moved (``optest.torch.roundings``), and the verdict that follows (:mod:`.judge`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Generic, TypeVar

import torch

from optest.torch.roundings import OtherRoundings, is_rounded

from .subject import Subject

T = TypeVar("T")
RUNS = 8
"""The number of runs with other roundings."""


class Reruns(Generic[T]):
    """The results of ``run`` on fresh copies, each with other roundings, made when first asked for.

    Without ``onednn``, PyTorch uses its own kernels in place of oneDNN's. They add in another order, so their
    results lie around another result than that of a plain run.
    """

    def __init__(
        self, copied: Callable[[], Subject], run: Callable[[Subject], T], *, onednn: bool = True
    ) -> None:
        self.copied, self.run, self.onednn = copied, run, onednn
        self.found: list[T] = []

    def __call__(self) -> list[T]:
        """Return :data:`RUNS` results."""
        for seed in range(len(self.found), RUNS):
            roundings = OtherRoundings(seed)
            subject = started(self.copied(), roundings)
            with roundings, nullcontext() if self.onednn else without_onednn():
                self.found.append(self.run(subject))
        return self.found


def started(subject: Subject, roundings: OtherRoundings) -> Subject:
    """Move the parameters, buffers and inputs of ``subject`` in place, and return it."""
    leaves = subject.inputs()
    if isinstance(subject.model, torch.nn.Module):
        leaves += [*subject.model.parameters(), *subject.model.buffers()]
    with torch.no_grad():
        for one in filter(is_rounded, leaves):
            one.copy_(roundings.moved(one))
    return subject


def without_onednn() -> AbstractContextManager[None]:
    """Make PyTorch use its own kernels in the block, in every thread."""
    flags: Any = torch.backends.mkldnn.flags  # None leaves a flag as it is
    found: AbstractContextManager[None] = flags(
        enabled=False, deterministic=None, allow_tf32=None, fp32_precision=None
    )
    return found
