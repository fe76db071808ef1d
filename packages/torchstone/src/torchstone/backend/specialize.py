"""Graphs with symbolic dimensions: one compiled region per concrete set of shapes, bounded."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

import torch
from torch.fx import GraphModule

from ..compiler.graphs import settle_inplace_views
from ..compiler.normalize import mended_operators
from ..torch_internals.fake import FakeTensorMode
from ..torch_internals.tracing import make_fx
from .options import Options
from .records import GraphRecord
from .region import Run, compile_region


def is_symbolic(module: GraphModule) -> bool:
    """True if a placeholder is a symbolic number or has a symbolic dimension."""
    for node in module.graph.nodes:
        if node.op != "placeholder":
            continue
        value = node.meta.get("val")
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return True
        if isinstance(value, torch.Tensor) and any(
            isinstance(size, torch.SymInt) for size in (*value.shape, *value.stride())
        ):
            return True
    return False


class SpecializingRegion:
    """A symbolic graph that is specialised at call time; least recently used shapes are dropped."""

    def __init__(self, module: GraphModule, options: Options, record: GraphRecord) -> None:
        self._module = module
        self._options = options
        self._record = record
        self._regions: OrderedDict[Any, Run] = OrderedDict()
        self._lock = threading.Lock()

    def __call__(self, inputs: list[Any]) -> list[Any]:
        key = tuple(
            (tuple(value.shape), value.stride()) if isinstance(value, torch.Tensor) else value
            for value in inputs
        )
        with self._lock:
            region = self._regions.get(key)
            if region is None:
                region = compile_region(self._specialized(inputs), self._options, self._record)
                self._regions[key] = region
                while len(self._regions) > max(self._options.specializations, 1):
                    self._regions.popitem(last=False)
            else:
                self._regions.move_to_end(key)
        return region([value for value in inputs if isinstance(value, torch.Tensor)])

    def _specialized(self, inputs: list[Any]) -> GraphModule:
        """The graph retraced with concrete shapes; numbers become constants of it."""
        mode = FakeTensorMode(allow_non_fake_inputs=True)
        fakes = [
            mode.from_tensor(v.detach(), static_shapes=True) for v in inputs if isinstance(v, torch.Tensor)
        ]

        def concrete(*tensors: torch.Tensor) -> Any:
            feed = iter(tensors)
            return self._module(*[next(feed) if isinstance(v, torch.Tensor) else v for v in inputs])

        with mended_operators(), mode, torch.no_grad():
            traced = make_fx(concrete, tracing_mode="real")(*fakes)
        settle_inplace_views(traced)  # matmul of a vector makes one
        return traced
