"""Private attributes of optimizers, gradient scalers, parameters and modules, for training."""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any

import torch

from .patches import Patch, functions
from .probing import Internal

_CHECKPOINTING = "activation checkpointing in training steps"
_checkpoint = Internal("torch.utils.checkpoint", _CHECKPOINTING)
HOOKS = (
    *("_forward_pre_hooks", "_forward_pre_hooks_with_kwargs", "_forward_hooks", "_forward_hooks_with_kwargs"),
    *("_forward_hooks_always_called", "_backward_pre_hooks", "_backward_hooks"),
)
"""The attributes in which a module keeps the hooks of its forward pass and of its gradients."""
NOT_FOR_FORWARD = frozenset(
    {"_non_persistent_buffers_set", "_state_dict_hooks", "_state_dict_pre_hooks"}
    | {"_load_state_dict_pre_hooks", "_load_state_dict_post_hooks"}
)
"""Attributes of a module that its forward pass does not read."""
NOT_FOR_STEPS = frozenset(
    {"state", "param_groups", "step", "_opt_called"}
    | {"_warned_capturable_if_run_uncaptured", "_need_device_dtype_check_for_fused"}
    | {
        f"_optimizer_{what}_{when}_hooks"
        for what in ("state_dict", "load_state_dict")
        for when in ("pre", "post")
    }
)
"""Attributes of an optimizer that its class's ``step`` does not read, or that are state."""
hooks_of_tensor = attrgetter("_backward_hooks")
"""The dict of a tensor's ``register_hook``, or None."""
hooks_after_accumulation = attrgetter("_post_accumulate_grad_hooks")
"""The dict of a tensor's ``register_post_accumulate_grad_hook``, or None."""
_HOOKS_OF_ALL = [
    Internal(path, "hooks of all modules and optimizers in training steps")
    for path in (
        *(
            f"torch.nn.modules.module._global{name}"
            for name in HOOKS
            if name != "_forward_pre_hooks_with_kwargs"  # only single modules have these hooks
        ),
        "torch.optim.optimizer._global_optimizer_pre_hooks",
        "torch.optim.optimizer._global_optimizer_post_hooks",
    )
]


def note_step(optimizer: torch.optim.Optimizer) -> None:
    """Record that the optimizer made a step; schedulers warn if it made none."""
    optimizer._opt_called = True  # type: ignore[attr-defined]


def own_step(optimizer: torch.optim.Optimizer) -> Callable[..., Any] | None:
    """Return the ``step`` that ``optimizer`` has in place of its class's, or None.

    A scheduler's wrapper around the ``step`` of the class does not count.
    """
    own = inspect.unwrap(vars(optimizer).get("step", type(optimizer).step))
    return None if own is inspect.unwrap(type(optimizer).step) else own


def step_without_hooks(optimizer: torch.optim.Optimizer) -> Callable[..., Any]:
    """Return the ``step`` of the optimizer's class, without PyTorch's wrappers where these would do nothing.

    They run hooks, tell profilers of the step, and set the grad mode: call this with gradients off.
    """
    step: Callable[..., Any] = type(optimizer).step
    if has_step_hooks(optimizer) or any(hooks_of_all()) or optimizer.defaults.get("differentiable"):
        return step
    own = inspect.getfile(torch.optim.Optimizer)
    found: Any = step
    while hasattr(found, "__wrapped__") and found.__code__.co_filename == own:
        found = found.__wrapped__
    return step if hasattr(found, "__wrapped__") else found  # another wrapper expects what was unwrapped


def has_step_hooks(optimizer: torch.optim.Optimizer) -> bool:
    """Whether the optimizer has functions of ``register_step_pre_hook`` or ``register_step_post_hook``."""
    return bool(optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks)


def forget_step_hooks(optimizer: torch.optim.Optimizer) -> None:
    """Remove the functions that were registered to run before and after the optimizer's step."""
    optimizer._optimizer_step_pre_hooks = OrderedDict()
    optimizer._optimizer_step_post_hooks = OrderedDict()


def scaler_state(scaler: torch.amp.GradScaler) -> dict[str, torch.Tensor]:
    """Return the scale and the number of steps since its last change; makes them if the scaler has none."""
    scaler.scale(torch.zeros(()))
    assert scaler._scale is not None
    assert scaler._growth_tracker is not None
    return {"scale": scaler._scale, "growth_tracker": scaler._growth_tracker}


def computed_by_hooks(module: torch.nn.Module) -> list[str]:
    """Return the attributes that hooks of ``torch.nn.utils`` compute before each forward pass.

    Such a hook computes its attribute from parameters. These are the hooks of ``weight_norm``, of
    ``spectral_norm`` and of pruning, but not the parametrizations with the names of the first two.
    """
    found = []
    for hook in module._forward_pre_hooks.values():
        if type(hook).__module__.startswith("torch.nn.utils."):
            name = getattr(hook, "name", None) or getattr(hook, "_tensor_name", None)
            found += [name] if isinstance(name, str) else []
    return found


def gradient_hooks(parameter: torch.Tensor) -> list[Callable[..., Any]]:
    """Return the functions that were registered with ``register_hook`` of a parameter."""
    return list((hooks_of_tensor(parameter) or {}).values())


def has_hooks_after_accumulation(parameter: torch.Tensor) -> bool:
    """Whether a parameter has functions of ``register_post_accumulate_grad_hook``."""
    return bool(hooks_after_accumulation(parameter))


def without_checkpointing() -> list[Patch]:
    """Return patches that let functions under ``torch.utils.checkpoint`` run once, as if called without it.

    If they ran again for the backward pass, random operators would draw different numbers there.
    """
    module = _checkpoint.get()
    return [
        functions(module, _checkpoint_without_reentrant_generator=_once),
        functions(module.CheckpointFunction, apply=_called),
    ]


def _once(*_: Any, **__: Any) -> Iterator[None]:
    """A generator that does nothing, which ``checkpoint`` advances before and after it calls the function."""
    yield


def _called(function: Callable[..., Any], preserve_rng_state: bool, *args: Any) -> Any:
    return function(*args)


def module_hooks(module: torch.nn.Module) -> list[dict[int, Any]]:
    """Return the dicts in which ``module`` keeps the hooks of its forward pass and of its gradients."""
    own = vars(module)
    return [own[name] for name in HOOKS if own.get(name) is not None]


def hooks_of_all() -> list[dict[int, Any]]:
    """Return the dicts of hooks that run for all modules, and around the steps of all optimizers."""
    return [one for hooks in _HOOKS_OF_ALL if (one := hooks.find()) is not None]
