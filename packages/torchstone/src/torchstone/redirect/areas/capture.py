"""Recording dispatched operators and running them again into the same storages.

A :class:`Tape` takes the place of a CUDA graph on a redirected device. While it records, every operator that
reaches the backend runs once and is kept with its arguments and results. At the end, everything that the
recorded work had overwritten is restored, because capturing on CUDA does not execute. :meth:`Tape.replay`
runs the operators again in order. If an operator makes new tensors, they are copied into the recorded
results, so that code that holds an output sees the new value.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from ...torch_internals import pytree
from ...torch_internals.dispatch import (
    TorchDispatchMode,
    below_autograd,
    versions_uncounted,
    without_function_modes,
)
from ...torch_internals.operators import namespace, schema_of
from ...torch_internals.tensors import storage_identity

aten = namespace("aten")

_HIDDEN_WRITES: dict[Any, tuple[int, ...]] = {aten.native_batch_norm.default: (3, 4)}
"""Operators that write to arguments (running statistics) that their schema does not mark as written."""

_FORBIDDEN = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}


@dataclass(frozen=True)
class Call:
    """One recorded operator: its arguments, and the tensors that its new results must be copied into."""

    operator: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outputs: tuple[torch.Tensor | None, ...]

    def run(self) -> None:
        results = pytree.tree_leaves(self.operator(*self.args, **self.kwargs))
        for recorded, made in zip(self.outputs, results, strict=True):
            if recorded is not None:
                recorded.copy_(made)


class Tape:
    """The recorded work of one graph; ``get_state`` and ``set_state`` access the random state to preserve."""

    def __init__(
        self, get_state: Callable[[], torch.Tensor], set_state: Callable[[torch.Tensor], None]
    ) -> None:
        self.calls: list[Call] = []
        self._get_state, self._set_state = get_state, set_state
        self._mode = _Recorder(self)
        self._undo: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._saved: set[tuple[Any, ...]] = set()
        self._made: set[int] = set()
        self._keep: list[torch.UntypedStorage] = []

    def start(self) -> None:
        """Begin to record the operators of this thread."""
        self._random_state = self._get_state()
        self._mode.__enter__()

    def stop(self) -> None:
        """End the recording and restore what the recorded work had overwritten."""
        self._mode.__exit__(None, None, None)
        with _below_autograd():
            for tensor, before in reversed(self._undo):
                tensor.copy_(before)
        self._undo.clear()
        self._set_state(self._random_state)

    def replay(self) -> None:
        """Run the recorded operators again, in order, into the recorded storages."""
        with _below_autograd(), without_function_modes():
            for call in self.calls:
                call.run()

    def add(self, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run one operator and record it; raise ``RuntimeError`` if it needs a value from the device."""
        if operator.namespace == "profiler":
            return operator(*args, **kwargs)
        if _FORBIDDEN & set(operator.tags):
            raise RuntimeError(
                f"operation not permitted when stream is capturing: {operator} needs a value of the device"
            )
        for tensor in _written(operator, args, kwargs):
            self._save(tensor)
        with without_function_modes():  # the outer call places the tensors
            result = operator(*args, **kwargs)
        leaves = pytree.tree_leaves(result)
        new = _is_new(operator, len(leaves))
        for leaf, fresh in zip(leaves, new, strict=True):
            if fresh and isinstance(leaf, torch.Tensor):
                storage = leaf.untyped_storage()
                self._made.add(storage_identity(storage))
                self._keep.append(storage)
        if any(new) or any(True for _ in _written(operator, args, kwargs)):
            outputs = tuple(
                leaf if fresh and isinstance(leaf, torch.Tensor) else None
                for leaf, fresh in zip(leaves, new, strict=True)
            )
            self.calls.append(Call(operator, args, dict(kwargs), outputs))
        return result

    def _save(self, tensor: torch.Tensor) -> None:
        """Save the value of a tensor from before the capture, once per offset, shape and stride."""
        storage = tensor.untyped_storage()
        if storage_identity(storage) in self._made:
            return
        place = (storage_identity(storage), tensor.storage_offset(), tensor.shape, tensor.stride())
        if place not in self._saved:
            self._saved.add(place)
            self._keep.append(storage)
            self._undo.append((tensor, tensor.clone()))


class _Recorder(TorchDispatchMode):
    def __init__(self, tape: Tape) -> None:
        super().__init__()
        self._tape = tape

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._tape.add(func, args, kwargs or {})


@contextlib.contextmanager
def _below_autograd() -> Iterator[None]:
    """Hide the block from autograd: nothing is recorded for backward or counted as an in-place change."""
    with below_autograd(), versions_uncounted():
        yield


def _written(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[torch.Tensor]:
    """Yield the tensors that an operator writes to."""
    for position, argument in enumerate(schema_of(operator).arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[position] if position < len(args) else kwargs.get(argument.name)
            yield from (leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor))
    for position in _HIDDEN_WRITES.get(operator, ()):
        if position < len(args) and isinstance(args[position], torch.Tensor):
            yield args[position]


def _is_new(operator: Any, leaves: int) -> list[bool]:
    """Return, for each result, whether it is a new tensor rather than an argument or a view of one."""
    returns = schema_of(operator).returns
    if not returns:
        return [False] * leaves
    if len(returns) == leaves:
        return [one.alias_info is None for one in returns]
    return [returns[0].alias_info is None] * leaves
