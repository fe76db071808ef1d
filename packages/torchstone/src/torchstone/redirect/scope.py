"""The scope of one redirection, and the lookup of the scope that the running code is in.

A scope belongs to the code that entered it and to the threads and asyncio tasks that this code starts. Each
asyncio task has its own scopes, so a task that waits inside a scope does not redirect other tasks of its
thread. Autograd's own threads find a scope on PyTorch's mode stack. :mod:`.context` enters and leaves scopes.
"""

from __future__ import annotations

import threading
from contextvars import ContextVar
from functools import cached_property
from typing import Any

import torch

from ..torch_internals import dispatch, redirection
from . import places
from .callers import Callers, user_frame
from .policy import Policy
from .recorder import Event, Log
from .targets import Target, visible


class _Current(threading.local):
    """The CUDA index of each thread's current device, for a target that has no current device itself."""

    index = 0


@redirection.called_while_tracing
def _current_while_tracing() -> int:
    """Return the current device's index, which blocks in traced code change without Dynamo's knowledge."""
    return ACTIVE[-1]._current.index


class Scope:
    """The target, the policy and the log of one ``redirected`` block."""

    def __init__(self, target: Target, policy: Policy, callers: Callers, log: Log | None) -> None:
        self.asked = target
        self.policy = policy
        self.callers = callers
        self.log = log
        self.active = True
        self.tracks = target.is_cpu
        """Whether CUDA tensors share the CPU's memory, so that the device of each must be tracked."""
        self.settings: dict[str, Any] = {}
        self._places: dict[Any, Any] = {}
        self._current = _Current()

    @cached_property
    def target(self) -> Target:
        """The target under ``CUDA_VISIBLE_DEVICES``, which is read at first use, as CUDA does."""
        target, note = visible(self.asked)
        if note is not None:
            self.policy.meaningless("CUDA_VISIBLE_DEVICES", note)
        return target

    @property
    def device(self) -> torch.device:
        """The device that ``torch.device("cuda")`` means here."""
        found: torch.device = self.place("cuda")
        return found

    def place(self, asked: Any) -> Any:
        """Return the target's device for ``asked`` (a string, index or device), or ``asked`` if not CUDA's.

        On the ``cpu`` target the result is a device that only :mod:`.places` can tell from the CPU. An index
        that the target does not have is an invalid device ordinal: the policy says what happens, and the last
        device is used. Raises ``RuntimeError`` for a string that names no device, as PyTorch does.
        """
        kind = type(asked)
        if kind is places.MeshType:
            kind, asked = str, "cuda"
        if kind is not str and kind is not torch.device and kind is not int:
            return asked
        found = self._places.get(asked)
        if found is None:
            found = self._find(asked)
            if (
                len(self.target.indices) == 1 or str(asked) != "cuda"
            ):  # "cuda" is the current device, which changes
                self._places[asked] = found
        if self.log is not None and found is not asked:
            self.record(f"torch.device({str(asked)!r})", f"is {self.shown(found)}")
        return found

    def _find(self, asked: str | int | torch.device) -> str | torch.device:
        if isinstance(asked, int):
            return self._numbered(asked)
        if str(asked).partition(":")[0] != "cuda":
            return asked
        return self._numbered(places.parsed(str(asked)).index)

    def _numbered(self, index: int | None) -> torch.device:
        count = len(self.target.indices)
        if not count:
            raise RuntimeError("No CUDA GPUs are available: CUDA_VISIBLE_DEVICES hides the redirected device")
        if index is not None and index < 0:
            raise RuntimeError(f"Invalid device: cuda:{index}: device indices are counted from 0")
        if index is not None and index >= count:
            self.policy.meaningless(
                f"cuda:{index}", f"{self.asked} offers {count} device(s); the last one is used instead"
            )
            index = count - 1
        if index is None and self.target.is_cpu:
            index = self._current.index  # also in a graph, which then works for this device only
            if torch.compiler.is_dynamo_compiling():
                index = _current_while_tracing()
        return self.target.device(index)

    def ordinal(self, asked: Any = None) -> int:
        """Return the CUDA index of ``asked`` (None: the current device); the inverse of :meth:`place`."""
        device = self.current() if asked is None else self.place(asked)
        found = self.index_of_device(device) if type(device) is torch.device else None
        if found is None:
            raise ValueError(f"Expected a cuda device, but got: {asked}")
        return found

    def index_of_device(self, device: torch.device) -> int | None:
        """Return the CUDA index of a device of the target; None if the device stands for no CUDA device."""
        if self.tracks:
            place = places.place_of_device(device)
            return None if place == places.HOST else place
        if device.type != self.target.type:
            return None
        return self.ordinal() if device.index is None else self.target.indices.index(device.index)

    def index_of_storage(self, storage: torch.UntypedStorage) -> int | None:
        """Like :meth:`index_of`, for a storage."""
        if not self.tracks:
            return self.index_of_device(storage.device)
        place = places.place_of_storage(storage)
        return None if place == places.HOST else place

    def index_of(self, tensor: torch.Tensor) -> int | None:
        """Return the CUDA index of the device that a tensor was put on; None if it is not a CUDA device."""
        if not self.tracks:
            return self.index_of_device(tensor.device)
        place = places.place_of(tensor)
        return None if place == places.HOST else place

    def shown(self, device: Any) -> str:
        """Return the name of a device for messages, which say where the work really runs."""
        return self.target.type if type(device) is torch.device and self.target.is_cpu else str(device)

    def current(self) -> torch.device:
        """The current device of the target, with its index."""
        if self.target.is_cpu:
            return self.place("cuda")
        current = getattr(self.target.module, "current_device", None)
        index = int(current()) if current is not None else self.target.indices[0]
        return places.parsed(f"{self.target.type}:{index}")

    def select(self, index: int) -> None:
        """Make the device with CUDA index ``index`` this thread's current one."""
        if self.target.is_cpu:
            self._current.index = index
            return
        select = getattr(self.target.module, "set_device", None)
        if select is not None:
            select(self.target.indices[index])

    def has_used_devices(self) -> bool:
        """Whether this thread has selected a device, or any memory was ever put on one."""
        return "index" in vars(self._current) or any(one.all.number_ever for one in places.ACCOUNTS)

    def holds(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor is on a CUDA device, as the redirected code sees it."""
        return self.index_of(tensor) is not None

    def record(self, name: str, outcome: str) -> None:
        """Report the outcome of ``name`` at the user's current line to the log, if there is one."""
        if self.log is not None and not torch.compiler.is_dynamo_compiling():
            frame = user_frame()
            if frame is not None:
                self.log(Event(name, frame.f_code.co_filename, frame.f_lineno, outcome))


ACTIVE: list[Scope] = []
"""All open scopes of the process, oldest first."""


class _Joined(threading.local):
    """The scopes whose mode is on each thread's stack."""

    def __init__(self) -> None:
        self.scopes: list[Scope] = []


_joined = _Joined()
_own: ContextVar[tuple[Scope, ...]] = ContextVar("torchstone_scopes", default=())
"""The scopes of the running code, outermost first; an asyncio task starts with a copy of its creator's."""


def push(scope: Scope) -> None:
    """Make ``scope`` the innermost scope of the running code."""
    _joined.scopes.append(scope)
    _own.set((*_own.get(), scope))


def pop(scope: Scope) -> None:
    """Undo :func:`push`; call this in the same thread."""
    _joined.scopes.remove(scope)
    own = list(reversed(_own.get()))
    if scope in own:  # else popped in another context: a fixture set up and torn down in two tasks
        own.remove(scope)
        _own.set(tuple(reversed(own)))


def current_scope() -> Scope | None:
    """The scope that the running code is in, or None."""
    if torch.compiler.is_dynamo_compiling():
        return ACTIVE[-1] if ACTIVE else None
    joined = _joined.scopes
    if not joined:
        return scope_of_mode() if dispatch.function_mode_count() else None
    for scope in reversed(_own.get()):
        if scope.active and scope in joined:
            return scope
    return None


def is_innermost(scope: Scope) -> bool:
    """Whether ``scope`` is the innermost scope of the running code, the only one whose mode acts."""
    if torch.compiler.is_dynamo_compiling():
        return True
    return not _joined.scopes or current_scope() is scope


def told_of_cuda(scope: Scope) -> bool:
    """Whether the calling code is told of CUDA; code that Dynamo traces is the user's own."""
    return torch.compiler.is_dynamo_compiling() or scope.callers.see_cuda()


def scope_of_mode() -> Scope | None:
    """Return the scope of the innermost redirecting mode: autograd's threads inherit only PyTorch's modes."""
    for mode in reversed(dispatch.function_modes()):
        scope = getattr(mode, "redirect_scope", None)
        if scope is not None and scope.active:
            return scope
    return None
