"""One entered redirection, and which one a thread is in.

A scope belongs to the thread that entered it and to the threads started inside; autograd's own threads
find it on PyTorch's mode stack. Not here: entering and leaving (:mod:`.context`).
"""

from __future__ import annotations

import threading
from functools import cached_property
from typing import Any

import torch

from ..torch_internals import dispatch
from .callers import Callers, user_frame
from .policy import Policy
from .recorder import Event, Log
from .targets import Target, visible


class Scope:
    """The target, the policy and the log of one ``redirected`` block."""

    def __init__(self, target: Target, policy: Policy, callers: Callers, log: Log | None) -> None:
        self.asked = target
        self.policy = policy
        self.callers = callers
        self.log = log
        self.active = True
        self.settings: dict[str, Any] = {}
        self._places: dict[Any, str | torch.device] = {}

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
        """The device that ``asked`` (a string, an index or a device) means; what is not CUDA's is returned.

        An index that the target has not is an invalid device ordinal: the policy says what happens, and
        the last device is used.
        """
        kind = type(asked)
        if kind is not str and kind is not torch.device and kind is not int:
            return asked
        found = self._places.get(asked)
        if found is None:
            found = self._places[asked] = self._find(asked)
        if self.log is not None and found is not asked:
            self.record(f"torch.device({str(asked)!r})", f"is {found}")
        return found

    def _find(self, asked: str | int | torch.device) -> str | torch.device:
        if isinstance(asked, int):
            return self._numbered(asked)
        kind, _, index = str(asked).partition(":")
        if kind != "cuda":
            return asked
        return self._numbered(int(index) if index.isdecimal() else None)

    def _numbered(self, index: int | None) -> torch.device:
        count = len(self.target.indices)
        if not count:
            raise RuntimeError("No CUDA GPUs are available: CUDA_VISIBLE_DEVICES hides the redirected device")
        if index is not None and index >= count:
            self.policy.meaningless(
                f"cuda:{index}", f"{self.asked} offers {count} device(s); the last one is used instead"
            )
            index = count - 1
        return self.target.device(index)

    def ordinal(self, asked: Any = None) -> int:
        """The CUDA index of ``asked`` (None: the current device), the inverse of :meth:`place`."""
        device = self.current() if asked is None else self.place(asked)
        if type(device) is not torch.device or device.type != self.target.type:
            raise ValueError(f"Expected a cuda device, but got: {asked}")
        if device.index is None or self.target.is_cpu:
            return 0 if self.target.is_cpu else self.ordinal()
        return self.target.indices.index(device.index)

    def current(self) -> torch.device:
        """The current device of the target, with its index (``cpu`` has none)."""
        if self.target.is_cpu:
            return self.place("cuda")
        current = getattr(self.target.module, "current_device", None)
        index = int(current()) if current is not None else self.target.indices[0]
        return torch.device(self.target.type, index)

    def holds(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor lies where CUDA tensors lie."""
        return bool(tensor.device.type == self.target.type)

    def record(self, name: str, outcome: str) -> None:
        """Tells the log, if there is one, what became of ``name`` at the user's current line."""
        if self.log is not None and not torch.compiler.is_compiling():
            frame = user_frame()
            if frame is not None:
                self.log(Event(name, frame.f_code.co_filename, frame.f_lineno, outcome))


ACTIVE: list[Scope] = []
"""Every scope of the process that is entered, oldest first."""

_own = threading.local()


def own_scopes() -> list[Scope]:
    """The scopes of this thread, outermost first; the caller may push and pop."""
    if not hasattr(_own, "scopes"):
        _own.scopes = []
    found: list[Scope] = _own.scopes
    return found


def current_scope() -> Scope | None:
    """The scope that this thread is in, or None."""
    if torch.compiler.is_compiling():
        return ACTIVE[-1] if ACTIVE else None
    own = getattr(_own, "scopes", None)
    if own:
        scope: Scope = own[-1]
        return scope if scope.active else None
    return scope_of_mode() if dispatch.function_mode_count() else None


def told_of_cuda(scope: Scope) -> bool:
    """Whether the calling code is told of CUDA; compiled code is the user's own."""
    return torch.compiler.is_compiling() or scope.callers.see_cuda()


def scope_of_mode() -> Scope | None:
    """The scope of the innermost redirecting mode: autograd's threads inherit modes, not Python's locals."""
    for mode in reversed(dispatch.function_modes()):
        scope = getattr(mode, "redirect_scope", None)
        if scope is not None and scope.active:
            return scope
    return None
