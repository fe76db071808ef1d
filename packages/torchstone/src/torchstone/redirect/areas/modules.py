"""``torch.nn.Module`` and autograd: moving a module, and user code that runs inside ``backward()``."""

from __future__ import annotations

from typing import Any

import torch

from ...torch_internals.devices import MODULE_APPLY, RUN_BACKWARD
from ...torch_internals.tensors import same_storage_layout
from ..mirror import adapted
from ..mode import RedirectMode
from ..rows import Row
from ..scope import Scope, scope_of_mode


def _map_first(scope: Scope, arguments: dict[str, Any]) -> None:
    """``Module.to(0)`` and ``Module.to("cuda:0")``, which PyTorch parses in C."""
    positional = arguments.get("args", ())
    if positional:
        arguments["args"] = (scope.place(positional[0]), *positional[1:])
    if "device" in arguments.get("kwargs", {}):
        arguments["kwargs"] = {**arguments["kwargs"], "device": scope.place(arguments["kwargs"]["device"])}


def _around_apply(original: Any) -> Any:
    """A module that moves keeps its parameters: an optimizer that was made before must go on seeing them.

    PyTorch assigns a moved parameter's data in place between CPU and CUDA. Some targets have tensors of
    another kind, for which it makes new parameters unless it is asked to swap.
    """

    def implementation(scope: Scope, self: torch.nn.Module, fn: Any, recurse: bool = True) -> Any:
        swaps = torch.__future__.get_swap_module_params_on_conversion()
        if swaps or _assigns_in_place(scope):
            return original(self, fn, recurse)
        torch.__future__.set_swap_module_params_on_conversion(True)
        try:
            return original(self, fn, recurse)
        finally:
            torch.__future__.set_swap_module_params_on_conversion(swaps)

    return implementation


def _assigns_in_place(scope: Scope) -> bool:
    """Whether a tensor of the target can become the data of one on the CPU (tried once for a scope)."""
    if "assigns_in_place" not in scope.settings:
        here, there = torch.empty(0, device="cpu"), torch.empty(0, device=scope.device)
        scope.settings["assigns_in_place"] = same_storage_layout(here, there)
    return bool(scope.settings["assigns_in_place"])


def _around_backward(original: Any) -> Any:
    """PyTorch leaves the mode before ``backward()``, whose hooks and functions are user code."""

    def implementation(scope: Scope, *args: Any, **kwargs: Any) -> Any:
        if scope_of_mode() is scope:
            return original(*args, **kwargs)
        with RedirectMode(scope):
            return original(*args, **kwargs)

    return implementation


ROWS = (
    Row(
        "torch.nn.Module.to",
        "wraps",
        "the device is mapped",
        around=lambda original: adapted(original, _map_first),
    ),
    Row(
        MODULE_APPLY,
        "wraps",
        "parameters keep their identity when they move",
        around=_around_apply,
    ),
    Row(
        RUN_BACKWARD,
        "wraps",
        "hooks and custom functions run inside the scope",
        around=_around_backward,
    ),
)
