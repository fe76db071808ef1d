"""Weights of linear layers, transposed for products with several rows.

``nn.Linear`` keeps its weight as ``[out, in]``. A product with one row reads that as it lies. With a few
rows, kernels rearrange the weight first, in every call, which takes longer than the product. A weight that
is stored as ``[in, out]`` needs no rearranging.
"""

from __future__ import annotations

import copy
from collections import defaultdict

from torch import Tensor, nn


class _Transposed(nn.Module):
    """A module whose parameter is ``transposed_weight``, in the other order of axes than its ``weight``."""

    transposed_weight: nn.Parameter

    @property
    def weight(self) -> Tensor:
        """In the order that the module's class expects, a view."""
        return self.transposed_weight.t()


class TransposedLinear(_Transposed, nn.Linear):  # type: ignore[override]
    """A linear layer whose weight is stored as ``[in, out]``."""


class TransposedEmbedding(_Transposed, nn.Embedding):  # type: ignore[override]
    """An embedding whose weight is stored as ``[features, rows]``, because a linear layer shares it."""


_TRANSPOSED: dict[type[nn.Module], type[nn.Module]] = {
    nn.Linear: TransposedLinear,
    nn.Embedding: TransposedEmbedding,
}


def with_transposed_weights(model: nn.Module) -> nn.Module:
    """``model`` with its linear layers transposed, as a copy that shares everything else with it.

    An embedding that has the weight of a linear layer reads the transposed one: there is one copy of it. A
    weight that any other module has too stays what it is.
    """
    users = defaultdict(list)
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            users[parameter].append(module)
    turned = {
        weight: nn.Parameter(weight.detach().t().contiguous(), weight.requires_grad)
        for weight, modules in users.items()
        if type(weight) is nn.Parameter
        and any(type(module) is nn.Linear for module in modules)
        and all(_is_turnable(module, weight) for module in modules)
    }
    made: dict[nn.Module, nn.Module] = {}

    def copied(module: nn.Module) -> nn.Module:
        if module not in made:
            made[module] = own = copy.copy(module)
            own._modules = {name: child and copied(child) for name, child in module._modules.items()}
            weight = module._parameters.get("weight")
            if weight in turned:
                parameters = {name: one for name, one in module._parameters.items() if name != "weight"}
                own._parameters = {"transposed_weight": turned[weight], **parameters}
                own.__class__ = _TRANSPOSED[type(module)]
        return made[module]

    return copied(model)


def _is_turnable(module: nn.Module, weight: nn.Parameter) -> bool:
    """Whether ``module`` is of a class that reads ``weight``, its own, in either order of axes."""
    if module._parameters.get("weight") is not weight or getattr(module, "max_norm", None) is not None:
        return False
    return type(module) in _TRANSPOSED
