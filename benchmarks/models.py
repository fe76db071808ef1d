"""Inference and training steps of small models: eager, Inductor and Torchstone in one run."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch.utils import _pytree as pytree

from torchstone.parity import zoo

from .measure import Row, once, paired


def inference_rows() -> Iterator[Row]:
    for name, factory in zoo.MODELS.items():
        model, args = factory()
        model.eval()
        candidates: dict[str, Callable[[], Any]] = {"eager": partial(model, *args)}
        first = {}
        torch._dynamo.reset()
        for backend in ("inductor", "torchstone"):
            compiled = torch.compile(copy.deepcopy(model), backend=backend)
            candidates[backend] = partial(compiled, *args)
            with torch.no_grad():
                first[f"first_call_{backend}_s"] = round(once(candidates[backend]), 2)
        with torch.no_grad():
            yield Row(f"{name}: inference", paired(candidates, budget_s=6.0), "eager", notes=first)
        gc.collect()


def training_rows() -> Iterator[Row]:
    for name, factory in zoo.MODELS.items():
        candidates, first = {}, {}
        torch._dynamo.reset()
        for backend in ("eager", "inductor", "torchstone"):
            model, args = factory()
            model.train()
            function = model if backend == "eager" else torch.compile(model, backend=backend)
            optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
            candidates[backend] = _step(function, args, optimizer)
            if backend != "eager":
                first[f"first_call_{backend}_s"] = round(once(candidates[backend]), 2)
        yield Row(f"{name}: training step", paired(candidates, budget_s=8.0), "eager", notes=first)
        gc.collect()


def _step(function: Any, args: Any, optimizer: torch.optim.Optimizer) -> Callable[[], None]:
    def step() -> None:
        optimizer.zero_grad()
        outputs = pytree.tree_leaves(function(*args))
        sum(
            o.float().square().mean() for o in outputs if isinstance(o, torch.Tensor) and o.requires_grad
        ).backward()
        optimizer.step()

    return step
