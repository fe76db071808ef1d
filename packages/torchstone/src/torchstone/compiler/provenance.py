"""Finds out where a call of an operator comes from: the user's line, the module, the phase of training.

The nodes of a graph that Dynamo made have this in their metadata. :class:`Provenance` finds it out while
operators run: in eager PyTorch, and in the trace of a whole training step. It marks the nodes of that trace
as Dynamo does.
"""

from __future__ import annotations

import sys
import threading
from contextlib import ExitStack
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any, Literal

import torch
from torch.fx import Node, traceback
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from ..torch_internals.dispatch import TorchDispatchMode
from ..torch_internals.tracing import derivative_in_progress, sequence_number
from .graphs import is_users_file, module_path, user_location

Phase = Literal["forward", "backward", "optimizer"]


LOSS, OPTIMIZER = "(loss)", "(optimizer)"
"""Module paths for operators that belong to no module of a training step's model."""


@dataclass(frozen=True)
class Origin:
    """Where a call of an operator comes from.

    ``path`` is the path of the innermost module of the model; ``module`` is that path with the module's type.
    """

    phase: Phase
    place: tuple[str, int] | None = None
    module: str | None = None
    path: str | None = None

    @property
    def line(self) -> str | None:
        return None if self.place is None else f"{self.place[0]}:{self.place[1]}"


def origin_of(node: Node, phase: Phase) -> Origin:
    """Return the origin in the metadata of a graph's node; ``phase`` is used if the metadata has none."""
    marked = node.meta.get("custom") or {}
    if "phase" in marked:
        return Origin(marked["phase"], user_location(node), marked["module"])
    stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack") or {}
    last = list(stack.values())[-1] if stack else None
    return Origin(phase, user_location(node), None if last is None else _text(module_path(node), last[1]))


def _text(path: str, kind: Any) -> str:
    """Return a module's path and type, as in ``layers.0 (Linear)``."""
    name = kind.rpartition(".")[2] if isinstance(kind, str) else kind.__name__
    return f"{path} ({name})" if path else name


class Provenance(TorchDispatchMode):
    """A mode that knows the origin of each operator while it runs. The caller sets :attr:`phase`.

    An operator of a backward pass belongs to the module whose forward it differentiates; autograd's
    sequence numbers tell which one. With ``marking``, the nodes of a graph that is being traced inside
    ``preserve_node_meta`` get the module. With ``lines``, they also get the phase and the line, which takes
    a walk over the stack for each operator.
    """

    def __init__(self, model: Any, *, marking: bool = False, lines: bool = True) -> None:
        super().__init__()
        self.phase: Phase = "forward"
        self._marking, self._lines = marking, lines
        self._active = ExitStack()
        self._modules: list[tuple[str, type]] = []
        named = model.named_modules() if isinstance(model, torch.nn.Module) else ()
        self._names: dict[torch.nn.Module, str] = {module: path for path, module in named}
        self._of_derivatives: dict[int, Origin] = {}
        self._outermost: FrameType | None = None
        self._thread = 0

    def __enter__(self) -> Any:
        self._outermost, self._thread = sys._getframe(1), threading.get_ident()
        if not self._names:  # a function: follow all modules that it calls
            self._active.callback(register_module_forward_pre_hook(self._entered).remove)
            self._active.callback(register_module_forward_hook(self._left, always_call=True).remove)
        for module in self._names:
            self._active.callback(module.register_forward_pre_hook(self._entered).remove)
            self._active.callback(module.register_forward_hook(self._left, always_call=True).remove)
        return super().__enter__()

    def __exit__(self, *exception: Any) -> None:
        super().__exit__(*exception)
        self._active.close()
        self._outermost = None

    def _entered(self, module: torch.nn.Module, _: Any) -> None:
        if threading.get_ident() == self._thread:
            self._modules.append((self._names.get(module, ""), type(module)))

    def _left(self, module: torch.nn.Module, *_: Any) -> None:
        if self._modules and threading.get_ident() == self._thread:
            self._modules.pop()

    def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self._marking:
            self._mark(self.now())
        return operator(*args, **(kwargs or {}))

    def now(self) -> Origin:
        """Return the origin of the operator that is being called."""
        if derivative_in_progress() is not None:
            known = self._of_derivatives.get(sequence_number(in_backward=True), Origin("forward"))
            found = replace(known, phase="backward")
        else:
            path, kind = self._modules[-1] if self._modules else (None, None)
            module = None if path is None else _text(path, kind)
            found = Origin(self.phase, self._place() if self._lines else None, module, path)
        if self.phase == "forward" and torch.is_grad_enabled():
            self._of_derivatives.setdefault(sequence_number(in_backward=False), found)
        return found

    def _place(self) -> tuple[str, int] | None:
        """Return the innermost line of the user's code, else that of PyTorch's modules and optimizers."""
        frame: FrameType | None = sys._getframe(1)
        inside: tuple[str, int] | None = None
        while frame is not None and frame is not self._outermost:
            file = frame.f_code.co_filename
            if is_users_file(file):
                return file, frame.f_lineno
            if inside is None and ("/torch/optim/" in file or "/torch/nn/modules/" in file):
                inside = file, frame.f_lineno
            frame = frame.f_back
        return inside

    def _mark(self, origin: Origin) -> None:
        meta = traceback.get_current_meta()
        path = origin.path
        if path is None:
            path = OPTIMIZER if origin.phase == "optimizer" else LOSS
        meta["nn_module_stack"] = {path: (path, None)}
        if self._lines:
            meta["custom"] = {"phase": origin.phase, "module": origin.module}
            meta["stack_trace"] = (
                "" if origin.place is None else f'File "{origin.place[0]}", line {origin.place[1]}'
            )
