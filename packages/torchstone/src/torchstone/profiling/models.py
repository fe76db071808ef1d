"""Profile a model: its compilation, and calls of the compiled program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ..errors import ModelError
from ..runtime import get_engine
from ..torch_internals import pytree
from ..training import compile_step
from .roofline import Peaks
from .session import Profile, profile

_WARM_UP = 2


def profile_model(
    model: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    train: bool = False,
    calls: int = 10,
    peaks: Peaks | None = None,
) -> Profile:
    """Profile the compilation of ``model``, and ``calls`` calls of its program after a few warm-up calls.

    With ``train``, each call is a whole step of :func:`torchstone.compile_step`: forward, backward, and an
    update by SGD with momentum. The loss is the :func:`mean_square` of the results. Training changes the
    model. Raises what :func:`~torchstone.runtime.get_engine` raises if there is no such engine or device.
    """
    get_engine()
    call = _step(model, args, kwargs or {}) if train else _inference(model, args, kwargs or {})
    with profile(peaks=peaks) as found:
        for _ in range(1 + _WARM_UP):
            call()
        found.settle()
        for _ in range(calls):
            call()
    return found


def _inference(
    model: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Callable[[], object]:
    if isinstance(model, torch.nn.Module):
        model.eval()
    # Without tuning: a graph that tuning leaves to eager PyTorch has no program to profile.
    compiled = torch.compile(model, backend="torchstone", options={"tuning": False})

    def call() -> object:
        with torch.no_grad():
            return compiled(*args, **kwargs)

    return call


def _step(model: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Callable[[], object]:
    parameters = list(model.parameters()) if isinstance(model, torch.nn.Module) else []
    if not isinstance(model, torch.nn.Module) or not parameters:
        raise ModelError("there is nothing to train: the model has no parameters", hint="leave --train out")
    model.train()
    optimizer = torch.optim.SGD(parameters, lr=1e-4, momentum=0.9)
    step = compile_step(model, optimizer, lambda own, batch: mean_square(own(*batch[0], **batch[1])))
    batch = (tuple(args), dict(kwargs))
    return lambda: step(batch)


def mean_square(outputs: Any) -> torch.Tensor:
    """Return the sum of the mean squares of all results that require a gradient, as a loss for any model."""
    leaves = [one for one in pytree.tree_leaves(outputs) if isinstance(one, torch.Tensor)]
    known = [one.float().square().mean() for one in leaves if one.requires_grad]
    if not known:
        raise ModelError(
            "there is nothing to train: no result depends on a parameter", hint="leave --train out"
        )
    return torch.stack(known).sum()
