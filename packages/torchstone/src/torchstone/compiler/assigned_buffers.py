"""Turns assignments to buffers (``self.count = self.count + 1``) into writes to the buffers they replace.

PyTorch's export follows such assignments in the root module only, and confuses buffers if one of them was
None before. Here the new values are copied into the old buffers at the end of each traced call. These copies
become updates of the program's state.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from ..errors import CaptureError
from ..torch_internals.tensors import is_saved, members

Tensor = torch.Tensor


@contextmanager
def written_at_the_end(module: torch.nn.Module) -> Iterator[None]:
    """Turn assignments to buffers into writes in calls of ``module`` inside the block.

    After the block, all modules have the buffers that they had before it, even if tracing failed. A buffer
    that was None and is not saved with the model is None again in each call. Calls raise
    :class:`CaptureError` for other buffers that were None, and for new values of another shape or dtype.
    """
    own = _kept(module)
    before: list[_Kept] = []

    def begin(*_: Any) -> None:
        before[:] = _kept(module)

    def end(*_: Any) -> None:
        for old, new in [*_assigned(before)]:
            old.copy_(new)

    handles = [module.register_forward_pre_hook(begin), module.register_forward_hook(end)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
        for _, part, kept in own:
            _put_back(part, kept)


_Kept = tuple[str, torch.nn.Module, dict[str, Tensor | None]]
"""A module with its path and the buffers that it has itself."""


def _kept(module: torch.nn.Module) -> list[_Kept]:
    return [(path, part, dict(members(part)[1])) for path, part in module.named_modules()]


def _put_back(module: torch.nn.Module, kept: dict[str, Tensor | None]) -> None:
    buffers = members(module)[1]
    buffers.clear()
    buffers.update(kept)


def _assigned(before: Sequence[_Kept]) -> Iterator[tuple[Tensor, Tensor]]:
    """Put the buffers of ``before`` back, and yield those that were assigned, each with its new value."""
    for path, part, kept in before:
        now = dict(members(part)[1])
        _put_back(part, kept)
        for name, old in kept.items():
            new = now.get(name)
            if new is old:
                continue
            full = f"{path}.{name}".lstrip(".")
            if old is None:
                if is_saved(part, name):
                    raise CaptureError(
                        f"the forward pass assigns the buffer {full}, which is None",
                        hint="register it with a tensor, or with persistent=False if each call computes it",
                    )
            elif new is None or _form(new) != _form(old):
                raise CaptureError(
                    f"the forward pass assigns {_described(new)} to the buffer {full}, which is"
                    f" {_described(old)}",
                    hint="a program keeps the shape and dtype of its state: register the buffer with them",
                )
            else:
                yield old, new.detach().clone()  # another buffer may be the new value


def _form(buffer: Tensor) -> tuple[list[str], torch.dtype]:
    """Return shape and dtype; symbolic sizes are equal only if their texts are."""
    return [*map(str, buffer.shape)], buffer.dtype


def _described(buffer: Tensor | None) -> str:
    if buffer is None:
        return "None"
    sizes, dtype = _form(buffer)
    return f"a {str(dtype).removeprefix('torch.')} tensor of shape [{', '.join(sizes)}]"
