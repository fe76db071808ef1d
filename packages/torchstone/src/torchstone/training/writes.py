"""Undoes what a trace writes into real tensors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from ..torch_internals import pytree
from ..torch_internals.dispatch import without_modes
from ..torch_internals.fake import FakeTensor
from ..torch_internals.operators import OpOverload, schema_of
from ..torch_internals.tensors import storage_identity


class Writes:
    """The memory of real tensors as it was before a trace wrote it for the first time."""

    def __init__(self) -> None:
        self._saved: dict[int, tuple[Any, Any]] = {}

    def save(self, tensors: Iterable[torch.Tensor]) -> None:
        """Copy the memory of those of ``tensors`` that are real; they are about to be written."""
        for tensor in tensors:
            if not isinstance(tensor, FakeTensor):
                storage = tensor.untyped_storage()
                if storage_identity(storage) not in self._saved:
                    with without_modes():
                        self._saved[storage_identity(storage)] = storage, storage.clone()

    def put_back(self) -> None:
        """Give all memory that was saved its old values."""
        with without_modes():
            for storage, before in self._saved.values():
                storage.copy_(before)
        self._saved.clear()


def written(operator: Any, args: Sequence[Any]) -> list[torch.Tensor]:
    """Return the dense tensors that a call of ``operator`` writes."""
    leaves = arguments_written(operator, args)
    return [one for one in leaves if isinstance(one, torch.Tensor) and one.layout is torch.strided]


def arguments_written(operator: Any, args: Sequence[Any]) -> list[Any]:
    """Return those of ``args``, or of their elements, that a call of ``operator`` writes."""
    if not isinstance(operator, OpOverload) or not schema_of(operator).is_mutable:
        return []
    found = [
        value
        for argument, value in zip(schema_of(operator).arguments, args, strict=False)
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
    leaves: list[Any] = pytree.tree_leaves(found)
    return leaves
