"""Refusals (``refuses=``) of calls whose tensors do not fit together although eager PyTorch accepts them.

Kernels that only autograd calls check few shapes and dtypes. For tensors that do not fit, they return
whatever lies in memory, or a result that differs from what PyTorch's own shape function says.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from .record import Check

Arguments = Mapping[str, Any]


def other_shape(name: str, shape: Sequence[Any], wanted: Sequence[Any]) -> str | None:
    """Return the error text if ``shape`` of the argument ``name`` is not ``wanted``; None if it is.

    If sizes are symbolic, their equality becomes an assumption of the trace.
    """
    try:
        if len(shape) == len(wanted) and all(map(operator.eq, shape, wanted)):
            return None
    except RuntimeError:  # sizes that depend on values
        return None
    return f"{name} has shape {list(shape)}; expected {list(wanted)}"


def other_shapes(given: Arguments, names: Sequence[str], wanted: Sequence[Any]) -> str | None:
    """:func:`other_shape` of the first argument among ``names`` whose shape is not ``wanted``."""
    return next(filter(None, (other_shape(name, given[name].shape, wanted) for name in names)), None)


def at_most(size: Any, limit: Any) -> bool:
    """Whether ``size <= limit``. For symbolic sizes, the answer becomes an assumption of the trace."""
    try:
        return bool(size <= limit)
    except RuntimeError:  # sizes that depend on values
        return True


def broadcasts(shape: Sequence[Any], wanted: Sequence[Any]) -> bool:
    """Whether a tensor of ``shape`` can be expanded to the shape ``wanted``."""
    try:
        return list(torch.broadcast_shapes(shape, wanted)) == list(wanted)
    except RuntimeError:
        return False


def misfit_of_mask(mask: Sequence[Any], shape: Sequence[Any]) -> str | None:
    """Return the error text if a mask does not fit a tensor of ``shape`` that is written, else None."""
    if not all(isinstance(size, int) for size in (*mask, *shape)) or broadcasts(mask, shape):
        return None
    return f"mask of shape {list(mask)} does not broadcast to the tensor's shape {list(shape)}"


def other_images(rank: int) -> Check:
    """Return a check that gradients and ``self`` have the same axes before the ``rank`` spatial ones."""

    def refuses(given: Arguments) -> str | None:
        """Refuse gradients with other leading axes: kernels read one image per image of the input."""
        grad, x = given["grad_output"].shape, given["self"].shape
        if len(grad) != len(x):
            return None  # eager PyTorch refuses it
        return other_shape("grad_output", grad, (*x[:-rank], *grad[-rank:]))

    return refuses


def other_dtypes(*names: str) -> Check:
    """Return a check that refuses calls whose tensors ``names`` differ in dtype."""

    def refuses(given: Arguments) -> str | None:
        """Refuse tensors of different dtypes, which eager PyTorch accepts here and a program does not."""
        found = {name: given[name].dtype for name in names}
        if len(set(found.values())) == 1:
            return None
        told = ", ".join(f"{name} {dtype}" for name, dtype in found.items())
        return f"its arguments differ in dtype ({told}): convert them to one"

    return refuses
