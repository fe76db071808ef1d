"""Which module each operator of a traced step belongs to, as ``torch.compile`` notes it too.

Operators of a backward pass belong to the module whose forward they differentiate; those of the loss
and of the optimizer belong to no module, and have names of their own.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.fx import traceback

from ..torch_internals import pytree

LOSS, OPTIMIZER = "(loss)", "(optimizer)"


class Origins:
    """Notes them in the metadata of a graph that is being traced, inside ``preserve_node_meta``."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model
        self._paths = [LOSS]
        self._made: dict[Any, str] = {}
        """Autograd's node for each differentiable call, and the module that made it."""
        self._thread = threading.get_ident()

    @contextmanager
    def forward(self) -> Iterator[None]:
        """What runs inside belongs to the module whose ``forward`` it runs in, else to the loss."""
        handles = []
        try:
            for path, module in self._model.named_modules():
                handles.append(module.register_forward_pre_hook(self._entering(path), with_kwargs=True))
                handles.append(module.register_forward_hook(self._leaving(path), always_call=True))
            self._note()
            yield
        finally:
            for handle in handles:
                handle.remove()
            del self._paths[1:]

    @contextmanager
    def backward(self, loss: torch.Tensor) -> Iterator[None]:
        """The derivatives of what :meth:`forward` saw belong to its modules."""
        self._claim(loss, LOSS)
        handles = [node.register_prehook(self._differentiating(path)) for node, path in self._made.items()]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()
            self.enter(LOSS)

    def enter(self, path: str) -> None:
        """What follows belongs to ``path``."""
        self._paths[:] = [path]
        self._note()

    def _entering(self, path: str) -> Any:
        def hook(module: Any, args: Any, kwargs: Any) -> None:
            if threading.get_ident() == self._thread:
                self._claim((args, kwargs), self._paths[-1])
                self._paths.append(path)
                self._note()

        return hook

    def _leaving(self, path: str) -> Any:
        def hook(module: Any, args: Any, output: Any) -> None:
            if threading.get_ident() == self._thread:
                self._claim(output, path)
                self._paths.pop()
                self._note()

        return hook

    def _differentiating(self, path: str) -> Any:
        def hook(gradients: Any) -> None:
            self.enter(path)

        return hook

    def _note(self) -> None:
        path = self._paths[-1]
        traceback.get_current_meta()["nn_module_stack"] = {path: (path, None)}

    def _claim(self, values: Any, path: str) -> None:
        """What made ``values``, and belongs to no module yet, belongs to ``path``."""
        tensors = [one for one in pytree.tree_leaves(values) if isinstance(one, torch.Tensor)]
        waiting = [one.grad_fn for one in tensors if one.grad_fn is not None]
        while waiting:
            node = waiting.pop()
            if node not in self._made:
                self._made[node] = path
                waiting += [before for before, _ in node.next_functions if before is not None]
