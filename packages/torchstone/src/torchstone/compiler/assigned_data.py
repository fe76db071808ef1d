"""Follows ``tensor.data`` in a forward pass that is traced, which PyTorch's trace ignores or refuses.

``tensor.data`` is traced as ``tensor.detach()``, so writes into it are writes into the tensor. After
``tensor.data = value`` the graph uses the node of ``value`` for the tensor. Earlier views of the tensor keep
the old memory, and ``value`` shares the new memory, as in eager PyTorch.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ..errors import CaptureError
from ..torch_internals.fake import FakeTensor
from ..torch_internals.tracing import continue_as
from .graphs import is_users_file

Tensor = torch.Tensor

_READ, _ASSIGN = torch.Tensor.data.__get__, torch.Tensor.data.__set__  # type: ignore[attr-defined]


class AssignedData:
    """What a traced call assigns to ``.data``. Each call begins with :meth:`begin`."""

    def __init__(self) -> None:
        self.active = False
        self._held: dict[int, Tensor] = {}
        self._memory: dict[int, Tensor] = {}

    def begin(self, held: Iterable[Tensor]) -> None:
        """Forget earlier calls. ``held`` are the tensors that outlive the call: its inputs and its state."""
        self._held = {id(tensor): tensor for tensor in held}
        self._memory = {}
        self.active = True

    def end(self) -> Iterator[Tensor]:
        """End the call. Yields the tensors of :meth:`begin` whose data was assigned."""
        self.active = False
        yield from (self._held[key] for key in self._memory)

    def memory(self, tensor: Tensor) -> Tensor:
        """Return a tensor on the memory that ``tensor`` had at the beginning of the call."""
        return self._memory.get(id(tensor), tensor)

    @contextmanager
    def followed(self) -> Iterator[None]:
        """Follow reads of ``.data`` and assignments to it inside the block."""
        with _Following(self):
            yield

    def assign(self, tensor: Tensor, value: Tensor) -> None:
        """Do ``tensor.data = value`` in the trace.

        Raises :class:`CaptureError` for a tensor that is neither an input, a part of the model nor computed.
        """
        if not isinstance(tensor, FakeTensor):
            raise CaptureError(
                f"the forward pass assigns to .data of a tensor outside of the model{users_line()}",
                hint="register the tensor as a buffer, or pass it as an input",
            )
        if id(tensor) in self._held and id(tensor) not in self._memory:
            self._memory[id(tensor)] = tensor.detach()
        value = value.detach() if isinstance(value, FakeTensor) else value.detach().clone()
        _ASSIGN(tensor, value)
        continue_as(tensor, value)


class _Following(TorchFunctionMode):
    def __init__(self, data: AssignedData) -> None:
        super().__init__()
        self._data = data

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func == _READ and self._data.active:
            return args[0].detach()
        if func == _ASSIGN and self._data.active:
            return self._data.assign(*args)
        return func(*args, **(kwargs or {}))


def users_line() -> str:
    """Return `` at FILE:LINE`` of the user's innermost frame that runs now; empty if there is none."""
    frames = [one for one in traceback.extract_stack() if is_users_file(one.filename)]
    return f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
