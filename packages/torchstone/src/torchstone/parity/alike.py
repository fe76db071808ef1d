"""Properties of tensors besides their values: strides, offsets, shared memory, views, lazy bits."""

from __future__ import annotations

from typing import Any

import torch

from ..torch_internals import pytree
from ..torch_internals.caches import caches_as_trees
from ..torch_internals.tensors import overlaps, storage_identity


@caches_as_trees()
def tensors(*values: Any) -> list[torch.Tensor]:
    """Return the tensors in nested values and in caches, in pytree order."""
    return [leaf for leaf in pytree.tree_leaves(values) if isinstance(leaf, torch.Tensor)]


def form(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Return the properties that must be equal for tensors of eager PyTorch and of a compiled function."""
    return (
        tensor.dtype,
        tuple(tensor.shape),
        tensor.stride(),
        tensor.storage_offset(),
        tensor.is_conj(),
        tensor.is_neg(),
        tensor.requires_grad,
    )


def sharing(found: list[torch.Tensor]) -> list[int]:
    """Return for each tensor the index of the first tensor that shares its memory."""
    first: dict[int, int] = {}
    return [
        first.setdefault(storage_identity(one.untyped_storage()), place) for place, one in enumerate(found)
    ]


def assert_alike(ours: list[torch.Tensor], eager: list[torch.Tensor]) -> None:
    """Assert that values, forms and shared memory are eager PyTorch's, and so are the effects of writes.

    ``_is_view`` is not compared if a tensor requires a gradient: results of a custom autograd function are
    never views.
    """
    torch.testing.assert_close(ours, eager, equal_nan=True)
    assert [form(one) for one in ours] == [form(one) for one in eager]
    assert sharing(ours) == sharing(eager)
    if not any(one.requires_grad for one in eager):
        assert [one._is_view() for one in ours] == [one._is_view() for one in eager]
    assert_written_alike(ours, eager)


def assert_written_alike(ours: list[torch.Tensor], eager: list[torch.Tensor]) -> None:
    """Assert that a write through each tensor changes the same elements of the others as in eager PyTorch."""
    with torch.no_grad():
        for place, (one, other) in enumerate(zip(ours, eager, strict=True)):
            for target in (one, other):
                if not overlaps(target) and not target.is_inference():
                    target.detach().copy_(torch.full_like(target, place + 2))
            torch.testing.assert_close(ours, eager, equal_nan=True)
