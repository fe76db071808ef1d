"""Inference and training steps of small models: eager, Inductor and Torchstone in one run."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree

from torchstone.parity import zoo

from .measure import Row, once, paired

MODELS: dict[str, Callable[[], tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any]]]] = zoo.MODELS


def inference_rows() -> Iterator[Row]:
    for name in MODELS:
        model, args, kwargs = MODELS[name]()
        model.eval()
        candidates: dict[str, Callable[[], Any]] = {"eager": lambda m=model, a=args, k=kwargs: m(*a, **k)}
        first = {}
        for backend in ("inductor", "torchstone"):
            torch._dynamo.reset()
            compiled = torch.compile(copy.deepcopy(model), backend=backend)
            candidates[backend] = lambda c=compiled, a=args, k=kwargs: c(*a, **k)
            with torch.no_grad():
                first[f"first_call_{backend}_s"] = round(once(candidates[backend]), 2)
        with torch.no_grad():
            yield Row(f"{name}: inference", paired(candidates, budget_s=6.0), "eager", notes=first)
        gc.collect()


def training_rows() -> Iterator[Row]:
    for name in MODELS:
        candidates, first = {}, {}
        for backend in ("eager", "inductor", "torchstone"):
            torch._dynamo.reset()
            model, args, kwargs = MODELS[name]()
            model.train()
            function = model if backend == "eager" else torch.compile(model, backend=backend)
            optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
            candidates[backend] = _step(function, args, kwargs, optimizer)
            if backend != "eager":
                first[f"first_call_{backend}_s"] = round(once(candidates[backend]), 2)
        yield Row(f"{name}: training step", paired(candidates, budget_s=8.0), "eager", notes=first)
        gc.collect()


def _step(function: Any, args: Any, kwargs: Any, optimizer: torch.optim.Optimizer) -> Callable[[], None]:
    def step() -> None:
        optimizer.zero_grad()
        outputs = pytree.tree_leaves(function(*args, **kwargs))
        sum(
            o.float().square().mean() for o in outputs if isinstance(o, torch.Tensor) and o.requires_grad
        ).backward()
        optimizer.step()

    return step
