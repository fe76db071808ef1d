"""Weights of linear layers, transposed for products with several rows.

``nn.Linear`` stores its weight as ``[out, in]``. A product with one row reads it in that order. For a few
rows, kernels rearrange the weight in every call, which takes longer than the product itself. A weight stored
as ``[in, out]`` needs no rearranging.
"""

from __future__ import annotations

import copy
from collections import defaultdict

from torch import Tensor, nn


class _Transposed(nn.Module):
    """A module that stores the transpose of its ``weight``, as the parameter ``transposed_weight``."""

    transposed_weight: nn.Parameter

    @property
    def weight(self) -> Tensor:
        """A view of the parameter with the order of axes that the module's class expects."""
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
    """Return a copy of ``model`` with transposed linear layers; it shares everything else with ``model``.

    An embedding that shares the weight of a linear layer reads the transposed one, so there is still only one
    copy of the weight. A weight that a module of any other class also uses is not transposed.
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
    """Whether ``module``, which owns ``weight``, can be replaced by a class that stores it transposed."""
    if module._parameters.get("weight") is not weight or getattr(module, "max_norm", None) is not None:
        return False
    return type(module) in _TRANSPOSED
