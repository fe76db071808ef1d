"""Backward graphs under autograd's own ``vmap``, which takes many gradients in one backward pass.

``torch.autograd.grad(…, is_grads_batched=True)`` calls them with batched tensors, which have no memory, and
so does ``torch.autograd.functional.jacobian(…, vectorize=True)``. Inside the transforms of ``torch.func``
PyTorch itself runs a compiled function uncompiled, and refuses its backward graphs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, GraphModule

from ..torch_internals.tensors import under_vmap
from .part import Run


class Batchable:
    """A compiled backward graph that eager PyTorch runs under that ``vmap``.

    Make it of the graph as AOTAutograd hands it over, and set :attr:`run` to what was compiled of it.
    """

    run: Run

    def __init__(self, module: GraphModule) -> None:
        graph = Graph()
        graph.output(graph.graph_copy(module.graph, {}))
        self._module = GraphModule(module, graph)

    def __call__(self, inputs: list[Any]) -> list[Any]:
        if not under_vmap():
            return self.run(inputs)
        with torch.no_grad():
            return list(self._module.forward(*inputs))
