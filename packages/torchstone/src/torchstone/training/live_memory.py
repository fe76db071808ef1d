"""How much memory the values of a graph take at most at once."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch.fx import GraphModule, Node

from ..torch_internals import pytree
from ..torch_internals.tensors import memory_identity


class LiveMemory(NamedTuple):
    """Bytes of the arguments of a graph, and of the values it makes that exist at once, at most."""

    arguments: int
    values: int


def live_memory(module: GraphModule) -> LiveMemory:
    """Return what ``module`` takes if it runs operator by operator and frees each value after its last use.

    Its nodes have their results as fake tensors in ``meta["val"]``. Symbolic sizes count as nothing, and so
    does memory that a kernel takes only while it runs.
    """
    sizes: dict[int, int] = {}
    last: dict[int, int] = {}
    made: list[list[int]] = []
    given: set[int] = set()
    for place, node in enumerate(module.graph.nodes):
        own = _memories(node)
        made.append([] if node.op == "placeholder" else [one for one in own if one not in sizes])
        given.update(own if node.op == "placeholder" else ())
        sizes |= {one: size for one, size in own.items() if one not in sizes}
        for one in (own, *map(_memories, node.all_input_nodes)):
            last.update(dict.fromkeys(one, place))
    freed: list[list[int]] = [[] for _ in made]
    for memory, place in last.items():
        if memory not in given:
            freed[place].append(memory)
    now = most = 0
    for new, old in zip(made, freed, strict=True):
        now += sum(sizes[one] for one in new)
        most = max(most, now)
        now -= sum(sizes[one] for one in old)
    return LiveMemory(sum(sizes[one] for one in given), most)


def _memories(node: Node) -> dict[int, int]:
    """Return the sizes in bytes of the memories that the results of ``node`` are in, by identity."""
    found = {}
    for one in pytree.tree_leaves(node.meta.get("val")):
        memory = memory_identity(one) if isinstance(one, torch.Tensor) else None
        if memory is not None:
            size = one.untyped_storage().nbytes()
            found[memory] = size if isinstance(size, int) else 0
    return found
