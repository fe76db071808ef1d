"""Tensors that a call makes itself go to the driver's device, also where PyTorch's sample names the CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_MAKERS = (torch.linspace, torch.logspace)
"""Functions that make a tensor where they are told, though they may take their numbers from tensors."""


class _Elsewhere(TorchFunctionMode):
    """Replaces ``device="cpu"`` in calls without tensors; ``left``: one with tensors asked for the CPU."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self._device = device
        self.left = False

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = dict(kwargs or {})
        named = given.get("device")
        alone = function in _MAKERS or not any(isinstance(one, torch.Tensor) for one in args)
        if alone and named is not None and torch.device(named).type == "cpu":
            given["device"] = self._device
        elif any(map(_is_cpu, (*args, named))):
            self.left = True
        return function(*args, **given)


def _is_cpu(value: Any) -> bool:
    return isinstance(value, (str, torch.device)) and str(value).partition(":")[0] == "cpu"


@contextmanager
def made_on(device: str) -> Iterator[Callable[[], bool]]:
    """Inside, tensors are made on ``device`` by default, and where the CPU is named.

    Gives a function that says whether a call moved a tensor to the CPU because it named the CPU.
    """
    if torch.device(device).type == "cpu":
        yield lambda: False
        return
    with torch.device(device), _Elsewhere(device) as placing:
        yield lambda: placing.left
