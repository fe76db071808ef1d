"""The function that computes ``associative_scan`` for any combining function."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch

from . import pytree
from .patches import Patch, functions
from .probing import Internal

_public = Internal("torch._higher_order_ops.associative_scan", "linear recurrences in training steps")

Scan = Callable[[Callable[..., Sequence[Any]], Sequence[torch.Tensor]], Sequence[torch.Tensor] | None]


def replacing(scan: Scan) -> list[Patch]:
    """Return patches that let ``scan`` compute associative scans along axis 0, unless it returns None.

    ``scan`` gets a function of ``(*earlier, *later)``, for leaves of any shape, and the leaves to scan.
    """
    module = sys.modules[_public.get().__module__]  # the function hides the module of its name
    theirs = getattr(module, "generic_associative_scan", None)
    if theirs is None:
        return []

    def scanned(operator: Any, leaves: Any, dim: int = 0, additional_inputs: Any = ()) -> Any:
        combine = _without_batches(operator)
        found = None if dim or additional_inputs or combine is None else scan(combine, leaves)
        return theirs(operator, leaves, dim, additional_inputs) if found is None else found

    return [functions(module, generic_associative_scan=scanned)]


def _without_batches(operator: Any) -> Callable[..., Sequence[Any]] | None:
    """Return what the user's function computes of single elements; None if it cannot be found."""
    given = getattr(operator, "keywords", {})
    batched, spec = given.get("combine_fn"), given.get("spec")
    function = inspect.getclosurevars(batched).nonlocals.get("func") if inspect.isfunction(batched) else None
    if function is None or spec is None:
        return None

    def combine(*leaves: Any) -> Sequence[Any]:
        half = len(leaves) // 2
        earlier, later = (pytree.tree_unflatten(list(part), spec) for part in (leaves[:half], leaves[half:]))
        return pytree.tree_leaves(function(earlier, later))

    return combine
