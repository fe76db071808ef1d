"""Backward graphs under autograd's own ``vmap``, which computes many gradients in one backward pass.

``torch.autograd.grad(…, is_grads_batched=True)`` and
``torch.autograd.functional.jacobian(…, vectorize=True)`` call backward graphs with batched tensors, which
have no memory. The transforms of ``torch.func`` need no support here: inside them PyTorch itself runs a
compiled function uncompiled, and refuses its backward graphs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, GraphModule

from ..torch_internals.tensors import under_vmap
from .part import Run


class Batchable:
    """A compiled backward graph that eager PyTorch runs instead when it is called under ``vmap``.

    Create it from the graph as AOTAutograd hands it over, then set :attr:`run` to the compiled graph.
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
