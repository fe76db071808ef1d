"""``torch.nn.Module`` and autograd: moving a module, and running user code inside ``backward()``."""

from __future__ import annotations

from typing import Any

import torch

from ...torch_internals import dispatch, redirection
from ...torch_internals.devices import MODULE_APPLY, RUN_BACKWARD
from ...torch_internals.tensors import same_storage_layout
from .. import places
from ..joining import inside_mode
from ..mirror import adapting
from ..rows import Row
from ..scope import Scope


def _map_first(scope: Scope, arguments: dict[str, Any]) -> None:
    """``Module.to(0)``: make the index a CUDA device; in C, it would be the real accelerator's."""
    positional, named = arguments.get("args", ()), arguments.get("kwargs", {})
    if positional and type(positional[0]) is int:
        arguments["args"] = (places.cuda(positional[0]), *positional[1:])
    if type(named.get("device")) is int:
        arguments["kwargs"] = {**named, "device": places.cuda(named["device"])}


def _around_apply(original: Any) -> Any:
    """Keep a module's parameter objects when it moves, so that an existing optimizer still refers to them.

    Between CPU and CUDA, PyTorch assigns a moved parameter's data in place. For targets whose tensors have
    another layout, PyTorch makes new parameters unless the setting to swap them is on.
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
    """Whether a tensor of the target can become the ``data`` of a CPU tensor (tried once per scope)."""
    if "assigns_in_place" not in scope.settings:
        here, there = torch.empty(0, device="cpu"), torch.empty(0, device=scope.device)
        scope.settings["assigns_in_place"] = same_storage_layout(here, there)
    return bool(scope.settings["assigns_in_place"])


def _around_backward(original: Any) -> Any:
    """Enter the mode in ``backward()``: PyTorch leaves it first, but hooks and functions are user code."""

    def implementation(scope: Scope, *args: Any, **kwargs: Any) -> Any:
        with inside_mode(scope):
            return original(*args, **kwargs)

    return implementation


def _around_forward(original: Any) -> Any:
    """Record the places of a custom function's outputs on its node; its gradients have the same places."""

    def implementation(scope: Scope, cls: Any, *args: Any, **kwargs: Any) -> Any:
        outputs = original(cls, *args, **kwargs)
        if scope.tracks:
            found = [outputs] if isinstance(outputs, torch.Tensor) else outputs
            tensors = [one for one in found if isinstance(one, torch.Tensor)] if found is not None else []
            node = next((one.grad_fn for one in tensors if one.grad_fn is not None), None)
            if isinstance(node, torch.autograd.function.BackwardCFunction):
                redirection.note_places(node, [places.place_of(one) for one in tensors])
        return outputs

    return implementation


def _around_backward_of_function(original: Any) -> Any:
    """Place the gradients of a custom function, which are arguments or, for ``apply_boxed``, one list."""

    def implementation(scope: Scope, self: Any, *gradients: Any) -> Any:
        boxed = len(gradients) == 1 and isinstance(gradients[0], list)
        found = redirection.places_noted(self)
        for gradient, place in zip(gradients[0] if boxed else gradients, found, strict=False):
            if gradient is not None and place is not None:
                places.put(gradient, place)
        if not redirection.runs_compiled_code(self):
            return original(self, *gradients)
        with dispatch.without_function_modes():  # the graph already contains what the thread's modes do
            return original(self, *gradients)

    return implementation


def _around_checks(original: Any) -> Any:
    """Describe tensors without the mode: checkpointing compares them with saved ones without a place."""

    def described(x: torch.Tensor) -> dict[str, Any]:
        with dispatch.without_function_modes():
            found: dict[str, Any] = original["default"](x)
        return found

    return {**original, "default": described}


ROWS = (
    Row(
        "torch.autograd.function.Function.apply",
        "wraps",
        "the gradients are where the outputs are",
        around=_around_forward,
    ),
    *(
        Row(
            f"torch.autograd.function.BackwardCFunction.{name}",
            "wraps",
            "the gradients are where the outputs are",
            around=_around_backward_of_function,
            optional=True,
        )
        for name in ("apply", "apply_boxed")
    ),
    Row(
        redirection.CHECKPOINT_CHECKS,
        "wraps",
        "tensors that autograd made are compared as they are",
        replacement=_around_checks,
        optional=True,
    ),
    Row(
        "torch.nn.Module.to",
        "wraps",
        "the device is mapped",
        around=adapting(_map_first),
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
