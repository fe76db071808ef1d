"""Puts the tensors that a call creates on the driver's device, even if PyTorch's sample names the CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_MAKERS = (torch.linspace, torch.logspace)
"""Functions that create a tensor on the given device, even though their arguments may be tensors."""


class _Elsewhere(TorchFunctionMode):
    """A mode that replaces ``device="cpu"`` in calls without tensor arguments.

    ``left`` says whether a call with tensor arguments named the CPU.
    """

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
    """Create tensors on ``device`` inside the context, by default and where a call names the CPU.

    Yields a function that says whether a call named the CPU to move a tensor there.
    """
    if torch.device(device).type == "cpu":
        yield lambda: False
        return
    with torch.device(device), _Elsewhere(device) as placing:
        yield lambda: placing.left
