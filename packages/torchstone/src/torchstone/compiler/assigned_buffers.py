"""Turns assignments to buffers (``self.count = self.count + 1``) into writes to the buffers they replace.

PyTorch's export follows such assignments in the root module only, and confuses buffers if one of them was
None before. Here the new values are copied into the old buffers at the end of each traced call. These copies
become updates of the program's state. The same is done for parameters, and for buffers, parameters and inputs
whose ``.data`` is assigned (:mod:`.assigned_data`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.modules.module import register_module_buffer_registration_hook

from ..errors import CaptureError
from ..torch_internals.patches import is_tracing
from ..torch_internals.pytree import tree_leaves, tree_map
from ..torch_internals.tensors import is_saved, members, memory_identity
from .assigned_data import AssignedData, users_line
from .containers import Contents

Tensor = torch.Tensor


@contextmanager
def written_at_the_end(module: torch.nn.Module) -> Iterator[None]:
    """Turn assignments to buffers and parameters into writes in calls of ``module`` inside the block.

    After the block, all modules have the buffers and parameters that they had before it, even if tracing
    failed. A buffer that was None and is not saved with the model is None again in each call. Calls raise
    :class:`CaptureError` for other buffers that were None, and for new values of another shape or dtype.
    """
    before: list[_Kept] = []
    names: dict[int, tuple[str, Tensor]] = {}
    given: list[Contents] = []
    data = AssignedData()

    def begin(_: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        given[:] = [Contents()]
        for label, value in _labeled(args, kwargs):
            given[0].add_all(label, value)
        before[:] = _kept(module)
        names.clear()
        names.update((id(one), (name, one)) for name, one in _named(before, args, kwargs))
        data.begin(one for _, one in names.values())

    def end(_: Any, __: Any, result: Any) -> Any:
        for path in given[0].changed():
            raise CaptureError(
                f"the forward pass adds, removes or replaces entries of {path}, a container that a program"
                " does not give back",
                hint="copy the container first, as in batch = dict(batch), and return what callers need",
            )
        written = {id(one): (one, one) for one in data.end()}
        written |= {id(old): (old, new) for old, new in _assigned(before)}
        values = [(old, new.detach().clone()) for old, new in written.values()]  # one may be another's memory
        result = _apart(result, [data.memory(old) for old, _ in values])
        for old, new in values:
            memory = data.memory(old)
            _require_form(names[id(old)][0], memory, new)
            memory.detach().copy_(new)
        return result

    parts = {id(part): part for part in module.modules()}

    def refuse_others(part: torch.nn.Module, name: str, _: Any) -> None:
        if not is_tracing() or id(part) in parts:
            return
        if name not in members(part)[1]:  # the call makes the module
            parts[id(part)] = part
            return
        raise CaptureError(
            f"the forward pass assigns the buffer {name} of a {type(part).__name__} outside of the exported"
            f" model{users_line()}",
            hint="export the module, its method, or a function that uses it by name",
        )

    handles = [
        register_module_buffer_registration_hook(refuse_others),
        module.register_forward_pre_hook(begin, with_kwargs=True),
        module.register_forward_hook(end),
    ]
    try:
        with members_kept(module), data.followed():
            yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def members_kept(module: torch.nn.Module) -> Iterator[None]:
    """After the block, ``module`` and its submodules have the same parameters and buffers as before it."""
    own = _kept(module)
    try:
        yield
    finally:
        for _, part, *kept in own:
            _put_back(part, *kept)


def _apart(result: Any, written: Sequence[Tensor]) -> Any:
    """Return ``result`` with copies of the tensors that lie in memory that is written after the call."""
    memory = {memory_identity(one) for one in written} - {None}

    def lies_there(leaf: Any) -> bool:
        return isinstance(leaf, Tensor) and memory_identity(leaf) in memory

    if not memory or not any(map(lies_there, tree_leaves(result))):
        return result  # a copy of some containers would compute their contents again
    return tree_map(lambda leaf: leaf.clone() if lies_there(leaf) else leaf, result)


_Members = dict[str, Tensor | None]
_Kept = tuple[str, torch.nn.Module, _Members, _Members]
"""A module with its path, and the parameters and buffers that it has itself."""


def _kept(module: torch.nn.Module) -> list[_Kept]:
    return [(path, part, *map(dict, members(part))) for path, part in module.named_modules()]


def _put_back(module: torch.nn.Module, *kept: _Members) -> None:
    for now, before in zip(members(module), kept, strict=True):
        now.clear()
        now.update(before)


def _named(
    kept: Sequence[_Kept], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors that outlive a call, each with a name for messages."""
    for label, value in _labeled(args, kwargs):
        yield from ((label, one) for one in tree_leaves(value) if isinstance(one, Tensor))
    for path, _, *kinds in kept:
        for kind, own in zip(("parameter", "buffer"), kinds, strict=True):
            yield from (
                (f"the {kind} {_full(path, name)}", one) for name, one in own.items() if one is not None
            )


def _labeled(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the arguments of a call, each with a name for messages."""
    yield from ((f"input {place}", value) for place, value in enumerate(args))
    yield from ((f"input {name!r}", value) for name, value in kwargs.items())


def _full(path: str, name: str) -> str:
    return f"{path}.{name}".lstrip(".")


def _assigned(before: Sequence[_Kept]) -> Iterator[tuple[Tensor, Tensor]]:
    """Put the members of ``before`` back, and yield those that were assigned, each with its new value."""
    for path, part, *kinds in before:
        current = [dict(one) for one in members(part)]
        _put_back(part, *kinds)
        for kind, kept, now in zip(("parameter", "buffer"), kinds, current, strict=True):
            for name, old in kept.items():
                new = now.get(name)
                if new is old:
                    continue
                full = f"the {kind} {_full(path, name)}"
                if old is not None:
                    if new is None:
                        raise _other_form(full, old, new)
                    yield old, new
                elif is_saved(part, name):
                    raise CaptureError(
                        f"the forward pass assigns {full}, which is None",
                        hint="register it with a tensor, or with persistent=False if each call computes it",
                    )


def _require_form(name: str, old: Tensor, new: Tensor) -> None:
    if _form(new) != _form(old):
        raise _other_form(name, old, new)


def _other_form(name: str, old: Tensor, new: Tensor | None) -> CaptureError:
    hint = "a program keeps the shape and dtype of its state: register the buffer with them"
    if name.startswith("input"):
        hint = "a program keeps the shape and dtype of its inputs: return the new value"
    return CaptureError(
        f"the forward pass assigns {_described(new)} to {name}, which is {_described(old)}", hint=hint
    )


def _form(buffer: Tensor) -> tuple[list[str], torch.dtype]:
    """Return shape and dtype; symbolic sizes are equal only if their texts are."""
    return [*map(str, buffer.shape)], buffer.dtype


def _described(buffer: Tensor | None) -> str:
    if buffer is None:
        return "None"
    sizes, dtype = _form(buffer)
    return f"a {str(dtype).removeprefix('torch.')} tensor of shape [{', '.join(sizes)}]"
