"""Tensors that do not fit together, although eager PyTorch takes them: what ``refuses=`` says of them.

Kernels that only autograd calls compare few shapes and dtypes. What they return for others is whatever
lies in memory, or a result that PyTorch's own shape function does not know.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from .record import Check

Arguments = Mapping[str, Any]


def other_shape(name: str, shape: Sequence[Any], wanted: Sequence[Any]) -> str | None:
    """What to say if ``shape``, that of the argument ``name``, is not ``wanted``; None if it is.

    That symbolic sizes are equal becomes an assumption of the trace.
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
    """Whether ``size`` is not more than ``limit``, which becomes an assumption of the trace for symbols."""
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


def other_images(rank: int) -> Check:
    """A refusal of gradients whose leading axes, before ``rank`` of space, are not those of ``self``."""

    def refuses(given: Arguments) -> str | None:
        """Kernels read an image of the gradient for each of the input, whether there are so many or not."""
        grad, x = given["grad_output"].shape, given["self"].shape
        if len(grad) != len(x):
            return None  # eager PyTorch refuses it
        return other_shape("grad_output", grad, (*x[:-rank], *grad[-rank:]))

    return refuses


def other_dtypes(*names: str) -> Check:
    """A refusal of calls whose tensors ``names`` have several dtypes."""

    def refuses(given: Arguments) -> str | None:
        """Eager PyTorch takes tensors of several dtypes for these, and a program does not."""
        found = {name: given[name].dtype for name in names}
        if len(set(found.values())) == 1:
            return None
        told = ", ".join(f"{name} {dtype}" for name, dtype in found.items())
        return f"its arguments differ in dtype ({told}): convert them to one"

    return refuses
