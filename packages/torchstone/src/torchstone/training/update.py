"""The part of a trace from gradients to an update: unscaling, clipping, the optimizer and the scaler."""

from __future__ import annotations

import inspect
import sys
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import torch

from ..torch_internals.patches import Patch, attributes, functions, patched
from .numbers import STAND_INS, Number
from .recipe import Recipe
from .sharing import ITSELF, kept_in
from .state import Setting, options, put_numbers

Tensor = torch.Tensor


def shadow_of(
    real: torch.optim.Optimizer, numbers: Iterator[Number], counters: Collection[Setting] = ()
) -> torch.optim.Optimizer:
    """Return a copy of an optimizer with numbers of the trace; its ``step`` does not change the real one.

    ``counters`` are the integers of groups that become numbers of the trace.
    """
    shadow = object.__new__(type(real))
    shadow.__dict__.update({name: value for name, value in vars(real).items() if name != "step"})
    shadow.param_groups = []
    for place, group in enumerate(real.param_groups):
        own = {
            name: put_numbers(value, numbers, (place, name) in counters)
            for name, value in options(group).items()
        }
        shadow.param_groups.append({**own, "params": group["params"], "foreach": False, "fused": False})
    shadow.state = defaultdict(dict)
    for p, kept in real.state.items():
        own = {name: put_numbers(value, numbers, integers=True) for name, value in kept_in(kept).items()}
        shadow.state[p] = own if isinstance(kept, dict) else own[ITSELF]
    return shadow


def optimizer_modules(optimizer: torch.optim.Optimizer) -> Iterator[Patch]:
    """Yield patches that replace ``min``, ``max`` and ``math`` in the modules that define the optimizer."""
    # A class may name the package that exports it as its module; its functions name the module they are in.
    functions = (function for kind in type(optimizer).__mro__ for function in vars(kind).values())
    for name in {one.__module__ for one in functions if inspect.isfunction(one)} & sys.modules.keys():
        module = sys.modules[name]
        entries = {
            one: stand_in for one, stand_in in STAND_INS.items() if one != "math" or hasattr(module, "math")
        }
        yield attributes(module, **entries)


def run_optimizer(optimizer: torch.optim.Optimizer) -> None:
    """Call the ``step`` of the optimizer's class."""
    with patched(functions(torch.compiler, is_compiling=_not_compiling)):
        type(optimizer).step(optimizer)


def _not_compiling() -> bool:
    """Return False: otherwise optimizers keep step counters in single precision, unlike eager PyTorch's."""
    return False


def unscale(grads: dict[Tensor, Tensor], scale: Tensor) -> None:
    """Divide gradients by the scale of the loss, as ``GradScaler.unscale_`` does."""
    inverse = scale.double().reciprocal().float()
    for p, grad in grads.items():
        grads[p] = (grad.float() * inverse).to(grad.dtype)


def clip(grads: dict[Tensor, Tensor], recipe: Recipe, numbers: Mapping[str, Any]) -> None:
    """Clip each element, or all gradients by their norm, as ``torch.nn.utils`` does."""
    if recipe.clip_value is not None:
        bound = numbers["clip_value"]
        for p, grad in grads.items():
            grads[p] = grad.clamp(min=-bound, max=bound)
    if recipe.clip_norm is not None and grads:
        norms = [torch.linalg.vector_norm(grad) for grad in grads.values()]
        norm = torch.linalg.vector_norm(torch.stack([one.to(norms[0].dtype) for one in norms]))
        factor = torch.clamp(numbers["clip_norm"] / (norm + 1e-6), max=1.0)
        for p, grad in grads.items():
            grads[p] = grad * factor.to(grad.dtype)


def next_scale(state: Mapping[str, Tensor], fine: Tensor, recipe: Recipe, numbers: Mapping[str, Any]) -> None:
    """Do what ``GradScaler.update`` does: shrink the scale after an overflow, grow it after good steps."""
    assert recipe.scaler is not None
    scale, tracker = state["scale"], state["growth_tracker"]
    good = tracker + 1
    grown = scale * numbers["growth"]
    due = good == recipe.scaler.get_growth_interval()
    larger = torch.where(due & torch.isfinite(grown), grown, scale)
    scale.copy_(torch.where(fine, larger, scale * numbers["backoff"]))
    tracker.copy_(torch.where(fine & ~due, good, torch.zeros_like(good)))
