"""Weights of linear layers, transposed for products with several rows.

``nn.Linear`` keeps its weight as ``[out, in]``. A product with one row reads that as it lies. With a few
rows, kernels rearrange the weight first, in every call, which takes longer than the product. A weight that
is stored as ``[in, out]`` needs no rearranging.
"""

from __future__ import annotations

import copy
from collections import Counter
from itertools import chain

from torch import Tensor, nn


class TransposedLinear(nn.Linear):
    """A linear layer whose parameter is ``transposed_weight``, ``[in, out]``."""

    transposed_weight: nn.Parameter

    @property
    def weight(self) -> Tensor:  # type: ignore[override]
        """``[out, in]``, a view."""
        return self.transposed_weight.t()


def with_transposed_weights(model: nn.Module) -> nn.Module:
    """``model`` with its linear layers transposed, as a copy that shares everything else with it.

    A weight that another module has too, as an embedding, stays what it is: there is one copy of it.
    """
    named = chain.from_iterable(module.parameters(recurse=False) for module in model.modules())
    uses = Counter(map(id, named))
    made: dict[nn.Module, nn.Module] = {}

    def copied(module: nn.Module) -> nn.Module:
        if module not in made:
            made[module] = own = copy.copy(module)
            own._modules = {name: child and copied(child) for name, child in module._modules.items()}
            if (
                type(module) is nn.Linear
                and type(module.weight) is nn.Parameter
                and uses[id(module.weight)] == 1
            ):
                _transpose(own)
        return made[module]

    return copied(model)


def _transpose(linear: nn.Module) -> None:
    """Change a copy of an ``nn.Linear``; its hooks stay."""
    parameters = dict(linear._parameters)
    weight = parameters.pop("weight")
    assert weight is not None
    turned = nn.Parameter(weight.detach().t().contiguous(), weight.requires_grad)
    linear._parameters = {"transposed_weight": turned, **parameters}
    linear.__class__ = TransposedLinear
