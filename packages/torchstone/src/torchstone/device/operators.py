"""Dispatch: from an operator's call to its plan, which is made once per key and cached."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ..config import config
from ..errors import EngineError, UnsupportedByEngine
from ..runtime.mappings import give_up_when_scarce
from ..torch_internals.operators import OpOverload
from ..torch_internals.private_device import overload_named, run_backward_here, writes_in_place
from . import lazy, numbers
from .building import build
from .calls import Call
from .drafting import Unplanned
from .fallback import ask_cpu, fall_back
from .looks import UNLIKE, Look, look_of
from .plans import Plan

_MISSES = 8
"""How many calls a look may fail to recognize until the look of another replaces it."""


class Operator:
    """The kernel of one ATen operator on the device."""

    __slots__ = ("_composed", "_last", "_looks", "_numbers", "_overload", "name", "plans")

    def __init__(
        self, name: str, overload: OpOverload | None = None, composed: Callable[..., Any] | None = None
    ) -> None:
        """Make the kernel of the operator ``name``, such as ``add.Tensor``.

        ``composed`` computes the same results for an operator that PyTorch cannot trace.
        """
        self.name = name
        self._overload = overload
        self._composed = composed
        self._numbers = numbers.of(name)
        self.plans: dict[tuple[Any, ...], Plan | str] = {}
        self._looks: dict[torch.Size | None, Look] = {}  # by the shape of the first argument
        self._last: Look | None = None  # of the last call that was recognized

    @property
    def overload(self) -> OpOverload:
        """The operator's overload, looked up at the first use because there are thousands of operators."""
        if self._overload is None:
            self._overload = overload_named(self.name)
        return self._overload

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        last = self._last
        if last is not None and not kwargs:
            result = last.call(args)
            if result is not UNLIKE:
                return result
        look = None
        if self._looks and not kwargs:
            look = self._looks.get(getattr(args[0], "shape", None))  # 5 // x passes the number first
            if look is not None:
                result = UNLIKE if look is last else look.call(args)
                if result is not UNLIKE:
                    self._last = look
                    return result
                look.missed += 1
        call = Call(self._numbers)
        key = call.describe(args, kwargs)
        plan = self.plans.get(key)
        if plan is None:
            plan = self._made(key, call, args, kwargs)
        if type(plan) is not Plan:
            run_backward_here()
            return fall_back(self.overload, call, args, kwargs, str(plan))
        if not kwargs and (look is None or look.missed > _MISSES):
            look = look_of(call, args, plan)
            if look is not None:
                self._looks[args[0].shape] = self._last = look
        return lazy.run_or_add(plan, call)

    def forget(self, key: tuple[Any, ...]) -> None:
        """Drop the plan of a key, and all that recognizes calls, since it holds plans too."""
        self.plans.pop(key, None)
        self._looks.clear()
        self._last = None

    def _made(
        self, key: tuple[Any, ...], call: Call, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Plan | str:
        """Make and cache a plan, or the reason why there is none. Raises :class:`EngineError`.

        An error in the arguments is such a reason too: :func:`fall_back` then raises the CPU kernel's error.
        """
        try:
            made = build(self.overload, call, args, kwargs, self._composed)
            # PyTorch's Python code lets a tensor grow in such a call, its kernels do not.
            grows = made.moved and writes_in_place(self.overload)
            if grows or _overlap(call, made):
                ask_cpu(self.overload, call, args, kwargs)
            if made.program is not None and not lazy.may_compile_later():
                made.program.compile()
            plan: Plan | str = made
        except UnsupportedByEngine as error:
            plan = f"the {error.engine} engine has no {', '.join(error.operations)}"
        except EngineError:
            raise
        except Unplanned as error:
            plan = str(error)
        except Exception as error:  # noqa: BLE001  # the CPU kernel knows whether the call is wrong
            plan = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        _kept.keep(self, key, plan)
        return plan


def _overlap(call: Call, plan: Plan) -> bool:
    """Whether the call has two different views (by dtype or geometry) of a box that it writes."""
    written = {place for place, _ in plan.writes}
    looks = {
        (place, one.dtype, one.shape, one.stride(), one.storage_offset())
        for place, one in zip(call.places, call.tensors, strict=True)
        if place in written
    }
    return len(looks) > len(written)


class _Kept:
    """All cached plans, oldest first; at most ``config.device_plans`` are kept."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._order: deque[tuple[Operator, tuple[Any, ...]]] = deque()

    def keep(self, operator: Operator, key: tuple[Any, ...], plan: Plan | str) -> None:
        with self._lock:
            if key not in operator.plans:
                self._order.append((operator, key))
            operator.plans[key] = plan
            while len(self._order) > max(1, config.device_plans):
                old, forgotten = self._order.popleft()
                old.forget(forgotten)

    def clear(self) -> None:
        with self._lock:
            while self._order:
                old, forgotten = self._order.popleft()
                old.forget(forgotten)

    def __len__(self) -> int:
        return len(self._order)


_kept = _Kept()
clear = _kept.clear
"""Drop all cached plans."""
give_up_when_scarce(clear)


def plan_count() -> int:
    """Return how many plans are cached."""
    return len(_kept)
