"""Corrections for operators that PyTorch traces wrongly or not at all."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from ...lowering import decomposes
from ...lowering.misfits import misfit_of_mask
from ...torch_internals.dispatch import call_compiled, python_kernels
from ...torch_internals.fake import PartialRule
from ...torch_internals.operators import namespace
from ...torch_internals.symbols import is_known
from ...torch_internals.tracing import derivative_in_progress
from .declaring import AUTOGRAD, COMPOSITE, declare

aten = namespace("aten")

Tensor = torch.Tensor


# Gradients of pooling, for users --------------------------------------------------------

# The lowerings look for a window's maximum inside the window, where autograd finds it. A user's own call,
# which is not part of that derivative, may have any indices.


@decomposes(aten.max_pool2d_with_indices_backward.default)
def _scatter_2d(grad: Tensor, x: Tensor, *arguments: Any) -> Tensor:
    if derivative_in_progress() == "MaxPool2DWithIndicesBackward0":
        return NotImplemented
    return torch.ops.aten.adaptive_max_pool2d_backward(grad, x, arguments[-1])


@decomposes(aten.max_pool3d_with_indices_backward.default)
def _scatter_3d(grad: Tensor, x: Tensor, *arguments: Any) -> Tensor:
    if derivative_in_progress() == "MaxPool3DWithIndicesBackward0":
        return NotImplemented
    return torch.ops.aten.adaptive_max_pool3d_backward(grad, x, arguments[-1])


ASK_AUTOGRAD: dict[Any, Callable[..., Any]] = {
    aten.max_pool2d_with_indices_backward.default: _scatter_2d,
    aten.max_pool3d_with_indices_backward.default: _scatter_3d,
}
"""Decompositions that depend on the derivative in progress.

If a graph with a backward pass is traced again, use them for the first trace only.
"""


# Wrong expansions -----------------------------------------------------------------------


def kept_whole(overload: Any) -> dict[Any, Callable[..., Any]]:
    """Return a kernel that calls the compiled derivative, if PyTorch has an expansion in its place."""
    if AUTOGRAD not in python_kernels(overload):
        return {}
    return {AUTOGRAD: partial(call_compiled, overload, AUTOGRAD)}


def _one_margin(self: Tensor, target: Tensor, reduction: int) -> bool:
    """Whether the loss of a single row is not reduced: PyTorch's metadata give it the shape ``(1,)``."""
    return reduction == 0 and self.ndim == 1 and self.shape == target.shape


def _margin_shapes(mode: Any, _: Any, self: Tensor, target: Tensor, reduction: int) -> tuple[Tensor, Tensor]:
    with mode:
        return self.new_empty(()), self.new_empty(target.shape)


_MARGIN = aten.multilabel_margin_loss_forward.default
# PyTorch's expansion counts places after the first -1 as targets (torch/_decomp/decompositions.py).
declare(_MARGIN, mended=partial(kept_whole, _MARGIN), shapes=PartialRule(_one_margin, _margin_shapes))
_MULTI_MARGIN = aten.multi_margin_loss.default
# PyTorch's expansion treats an unknown reduction as none.
declare(_MULTI_MARGIN, mended=partial(kept_whole, _MULTI_MARGIN))


@decomposes(aten.isin.Tensor_Tensor)
def _isin(elements: Tensor, among: Tensor, *, assume_unique: bool = False, invert: bool = False) -> Tensor:
    """Whether each element is one of ``among``. PyTorch's search in a sorted list fails at NaN.

    If ``among`` has few values, each is compared with all elements, as PyTorch does.
    """
    dtype = torch.promote_types(elements.dtype, among.dtype)
    wanted, values = elements.to(dtype), among.to(dtype).flatten()
    if is_known(among.numel() < 10 * elements.numel() ** 0.145):
        found = (wanted.unsqueeze(-1) == values).any(-1)
    else:
        ordered = values = values.sort().values
        if dtype.is_floating_point:  # NaN is last, and no element is equal to it
            ordered = torch.where(values.isnan(), torch.inf, values)
        place = torch.searchsorted(ordered, wanted).clamp(max=values.numel() - 1)
        found = values[place] == wanted
    return ~found if invert else found


def _dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """Apply dropout. If nothing is dropped, return the input itself, where PyTorch's expansion copies it.

    If everything is dropped, infinities and NaN become NaN, and zeros keep their signs.
    """
    empty = any(isinstance(size, int) and size == 0 for size in input.shape)
    if not train or p == 0 or empty:
        return input
    if p == 1:
        return input * input.new_zeros(())
    dropped: Tensor = aten.native_dropout(input, p, train)[0]
    return dropped


declare(aten.dropout.default, mended=lambda: {AUTOGRAD: _dropout, COMPOSITE: _dropout})


# The schemas of these operators say that the results are new tensors, but they share memory with the input.
# To autograd, they are not views, and a write into one part does not invalidate what was saved of another.
# GRU cells rely on this: they write into parts that they differentiate.


class _Parts(torch.autograd.Function):
    """A split of an axis into ranges, each a tensor with its own version counter."""

    @staticmethod
    def forward(self: Tensor, sizes: Sequence[int], dim: int) -> tuple[Tensor, ...]:
        return tuple(part.data for part in ranges(self, sizes, dim))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        _, ctx.sizes, ctx.dim = inputs

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return torch.cat(gradients, ctx.dim), None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: None) -> tuple[Tensor, ...]:
        return ranges(tangent, ctx.sizes, ctx.dim)


def ranges(self: Tensor, sizes: Sequence[int], dim: int) -> tuple[Tensor, ...]:
    """Return consecutive views of ``sizes`` rows each along axis ``dim``."""
    starts = itertools.accumulate(sizes, initial=0)
    return tuple(self.narrow(dim, start, size) for start, size in zip(starts, sizes, strict=False))


def equal_sizes(self: Tensor, split_size: int, dim: int) -> list[int]:
    """Return the sizes of parts with ``split_size`` rows of axis ``dim``; the last part may be smaller."""
    size = self.shape[dim]
    before = max((size - 1) // split_size, 0) if split_size else 0
    return [split_size] * int(before) + [size - split_size * int(before)]


def _unsafe_split_with_sizes(self: Tensor, split_sizes: Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    parts: tuple[Tensor, ...] = _Parts.apply(self, split_sizes, dim)
    return parts


def _unsafe_split(self: Tensor, split_size: int, dim: int = 0) -> tuple[Tensor, ...]:
    return _unsafe_split_with_sizes(self, equal_sizes(self, split_size, dim), dim)


declare(aten.unsafe_split.Tensor, mended=lambda: dict.fromkeys((AUTOGRAD, COMPOSITE), _unsafe_split))
declare(
    aten.unsafe_split_with_sizes.default,
    mended=lambda: dict.fromkeys((AUTOGRAD, COMPOSITE), _unsafe_split_with_sizes),
)


# Operators that write --------------------------------------------------------------------


def _writes(overload: Any, expansion: Callable[..., Any]) -> None:
    """Give an overload that writes an expansion, if it has none."""

    def mended() -> dict[Any, Callable[..., Any]]:
        return {} if COMPOSITE in python_kernels(overload) else {COMPOSITE: expansion}

    declare(overload, mended=mended)


def _written(functional: Any) -> Callable[..., Any]:
    """Return an expansion of the ``out=`` form of ``functional``."""

    def expansion(*args: Any, out: Tensor, **kwargs: Any) -> Tensor:
        return out.copy_(functional(*args, **kwargs))

    return expansion


def _polygamma_(self: Tensor, n: int) -> Tensor:
    return self.copy_(torch.polygamma(n, self))


def _masked_scatter_(self: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """Write ``source`` at ``mask``. PyTorch's expansion would grow ``self`` to the shape of the mask."""
    said = misfit_of_mask(mask.shape, self.shape)
    if said is not None:
        raise RuntimeError(said)
    return self.copy_(aten.masked_scatter.default(self, mask, source))


def _batch_norm_out(
    *args: Any, out: Tensor, save_mean: Tensor, save_invstd: Tensor, **kwargs: Any
) -> tuple[Tensor, ...]:
    made = aten._native_batch_norm_legit.default(*args, **kwargs)
    return tuple(into.copy_(one) for into, one in zip((out, save_mean, save_invstd), made, strict=True))


# For tensor subclasses such as traced tensors, PyTorch assigns the result to a local variable and does not
# write it into ``out`` (aten/src/ATen/native/LinearAlgebra.cpp, matrix_rank_impl).
_RANK = aten.linalg_matrix_rank
_writes(_RANK.atol_rtol_tensor_out, _written(_RANK.atol_rtol_tensor))
_writes(_RANK.atol_rtol_float_out, _written(_RANK.atol_rtol_float))
_writes(_RANK.out, _written(_RANK.default))
_writes(_RANK.out_tol_tensor, _written(_RANK.tol_tensor))
# Functionalization returns results in the order of arguments, so the output comes back as running statistics.
_writes(aten._native_batch_norm_legit.out, _batch_norm_out)
# Functionalization does not know polygamma_.
_writes(aten.polygamma_.default, _polygamma_)
_writes(aten.masked_scatter_.default, _masked_scatter_)


# Questions about values -----------------------------------------------------------------

# PyTorch's derivatives ask these questions while they are traced, and continue with the answer given here.
declare(aten.allclose.default, answer=True)  # a loss does not depend on the phases of singular vectors
declare(aten.equal.default, answer=False)  # the windows of istft are zero nowhere
