"""Tensors that code of a step refers to and that are not state: programs read them again in each call.

They are arguments of the program after those of the batch, so writes that PyTorch does not count are seen
too: through ``tensor.data``, or through a NumPy array over the same memory.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch
from torch.fx import GraphModule

from ..torch_internals.dynamo import TensorGuards
from ..torch_internals.operators import namespace
from ..torch_internals.tensors import version_of
from .origins import Origins

aten = namespace("aten")
_FRESH = (aten.lift_fresh.default, aten.lift_fresh_copy.default)


class Constants:
    """The ``tensors`` that a program takes after those of the batch, and their forms when it was made.

    ``seen`` are tensors whose values the trace depends on, with their versions.
    """

    def __init__(
        self, tensors: Sequence[torch.Tensor] = (), seen: Sequence[tuple[torch.Tensor, int]] = ()
    ) -> None:
        self.tensors = list(tensors)
        self._seen, self._versions = [one for one, _ in seen], [version for _, version in seen]
        self._guards = (
            TensorGuards(*tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None) if tensors else None
        )

    def hold(self) -> bool:
        """Whether the tensors have the forms, and those that were seen the values, of the trace."""
        if self._seen and list(map(version_of, self._seen)) != self._versions:
            return False
        return self._guards is None or bool(self._guards.check(*self.tensors))


def constants_as_arguments(module: GraphModule, made: Collection[int], origins: Origins) -> Constants:
    """Make the tensors that ``module`` has as constants its last arguments, and return them.

    Tensors that the step itself makes remain constants: what ``torch.tensor(...)`` makes, and those whose
    identities are in ``made``. So do those that cannot be arguments, such as sparse ones: the program depends
    on their values, which ``origins`` notes.
    """
    nodes: dict[int, torch.fx.Node] = {}
    tensors: list[torch.Tensor] = []
    last = module.graph.find_nodes(op="placeholder")[-1]
    for node in module.graph.find_nodes(op="get_attr"):
        tensor = getattr(module, str(node.target))
        if id(tensor) in made or all(user.target in _FRESH for user in node.users):
            continue
        if not _is_plain(tensor):
            origins.look([tensor])
            continue
        origins.look_if_unknown(tensor)
        if id(tensor) not in nodes:
            with module.graph.inserting_after(last):
                last = nodes[id(tensor)] = module.graph.placeholder(f"constant{len(tensors)}")
            last.meta = dict(node.meta)
            tensors.append(tensor)
        node.replace_all_uses_with(nodes[id(tensor)])
        module.graph.erase_node(node)
    module.recompile()
    return Constants(tensors, origins.seen())


def _is_plain(tensor: object) -> bool:
    return (
        type(tensor) in (torch.Tensor, torch.nn.Parameter)
        and isinstance(tensor, torch.Tensor)
        and tensor.layout is torch.strided
        and not (tensor.is_quantized or tensor.is_conj() or tensor.is_neg() or tensor.is_inference())
        and tensor.numel() > 0
    )
