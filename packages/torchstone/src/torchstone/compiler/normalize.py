"""From a captured graph to one that only calls operators the registry can lower.

PyTorch's own decompositions are used for everything that has no lowering;
overloads with a lowering are kept whole.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import torch
from torch.export import ExportedProgram, default_decompositions

from ..config import config
from ..errors import CaptureError, TorchstoneError
from ..lowering import load
from ..lowering.checks import asserting
from ..lowering.operators import traced_losses_and_solvers
from ..torch_internals.decompositions import decomposition_table
from ..torch_internals.dispatch import (
    DispatchKey,
    call_compiled,
    is_composite_implicit,
    kernels,
    python_kernels,
)
from ..torch_internals.export import exporting_here, kept_in_graphs, without_effect
from ..torch_internals.fake import rules
from ..torch_internals.operators import OpOverload, namespace, schema_of
from ..torch_internals.patches import patched, tracing
from ..torch_internals.tracing import derivative_in_progress
from .graphs import is_inplace_view, location_text
from .overrides import quick_overrides

aten = namespace("aten")


@cache
def _all_decompositions() -> dict[Any, Callable[..., Any]]:
    return {**decomposition_table.get(), **dict(default_decompositions().items())}


def decompositions(*, training: bool = False) -> dict[Any, Callable[..., Any]]:
    """PyTorch's decompositions of every overload that has no lowering, and the registry's own (a fresh dict).

    ``training`` leaves out composite-implicit operators, which AOTAutograd expands by
    itself. The references that PyTorch's table has for some take other arguments:
    the one of ``nll_loss`` reads the reduction as ``size_average``.
    """
    registry = load()
    native = registry.overloads()
    table = decomposition_table.get() if training else _all_decompositions()
    theirs = {
        overload: function
        for overload, function in table.items()
        if overload not in native and not _mutates(overload) and not (training and _is_implicit(overload))
    }
    return theirs | _BY_HAND | registry.decompositions


def _scatter_2d(grad: torch.Tensor, x: torch.Tensor, *arguments: Any) -> torch.Tensor:
    if derivative_in_progress() == "MaxPool2DWithIndicesBackward0":
        return NotImplemented
    return torch.ops.aten.adaptive_max_pool2d_backward(grad, x, arguments[-1])


def _scatter_3d(grad: torch.Tensor, x: torch.Tensor, *arguments: Any) -> torch.Tensor:
    if derivative_in_progress() == "MaxPool3DWithIndicesBackward0":
        return NotImplemented
    return torch.ops.aten.adaptive_max_pool3d_backward(grad, x, arguments[-1])


_BY_HAND: dict[Any, Callable[..., Any]] = {
    torch.ops.aten.max_pool2d_with_indices_backward.default: _scatter_2d,
    torch.ops.aten.max_pool3d_with_indices_backward.default: _scatter_3d,
}
"""Operators whose lowerings rely on what autograd passes, as expansions that take what a user passes.

The lowerings look for a window's maximum inside the window, where autograd finds it. A call that is not
part of that derivative may have any indices.
"""


def _mutates(overload: Any) -> bool:
    """True for in-place and ``out=`` overloads: functionalization replaces them before decomposition."""
    return isinstance(overload, OpOverload) and bool(schema_of(overload).is_mutable)


def _is_implicit(overload: Any) -> bool:
    if not isinstance(overload, OpOverload):
        return False
    composite = DispatchKey.CompositeImplicitAutograd
    return is_composite_implicit(overload) or composite in python_kernels(overload)


@contextmanager
def factorization_checks(*, kept: bool) -> Iterator[None]:
    """Trace PyTorch's check that a factorization succeeded as an operator without effect.

    It is registered as one that must stay in order, which threads tokens through
    the whole graph; a program cannot raise, so that nothing would be kept by them.
    ``kept`` leaves its calls in the graph, and those of expansions, for ``config.check_values``.
    """
    check = aten._linalg_check_errors.default
    with (
        tracing(),
        asserting(kept),
        patched(without_effect("aten::_linalg_check_errors"), *(kept_in_graphs(check) if kept else ())),
    ):
        yield


_PASSING = {
    # that a loss does not depend on the phases of complex singular vectors
    aten.allclose.default: True,
    # that the windows of istft vanish somewhere
    aten.equal.default: False,
}
"""What PyTorch's derivatives ask about values while they are traced, and the answer with which they go on."""


@contextmanager
def passing_value_checks() -> Iterator[None]:
    """Trace derivatives as if their checks of values passed: a program cannot raise.

    For graphs alone: to the same question in a user's code there is no answer.
    """
    with tracing(), patched(*rules(dict.fromkeys(_PASSING, _answer))):
        yield


def _answer(_: Any, operator: OpOverload, *args: Any, **kwargs: Any) -> bool:
    """A rule for fake tensors."""
    return _PASSING[operator]


_WRONG_EXPANSIONS = (
    # counts places behind the first -1 as targets (torch/_decomp/decompositions.py)
    aten.multilabel_margin_loss_forward.default,
)


def _written(functional: OpOverload) -> Callable[..., Any]:
    """``functional`` as an expansion of its ``out=`` form."""

    def expansion(*args: Any, out: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        return out.copy_(functional(*args, **kwargs))

    return expansion


def _polygamma_(self: torch.Tensor, n: int) -> torch.Tensor:
    return self.copy_(torch.polygamma(n, self))


def _batch_norm_out(
    *args: Any, out: torch.Tensor, save_mean: torch.Tensor, save_invstd: torch.Tensor, **kwargs: Any
) -> tuple[torch.Tensor, ...]:
    made = aten._native_batch_norm_legit.default(*args, **kwargs)
    return tuple(into.copy_(one) for into, one in zip((out, save_mean, save_invstd), made, strict=True))


_RANK = aten.linalg_matrix_rank
_WRITING: dict[Any, Callable[..., Any]] = {
    # for tensor subclasses, which traced tensors are, the result goes to a local name and not into ``out``
    # (aten/src/ATen/native/LinearAlgebra.cpp, matrix_rank_impl)
    _RANK.atol_rtol_tensor_out: _written(_RANK.atol_rtol_tensor),
    _RANK.atol_rtol_float_out: _written(_RANK.atol_rtol_float),
    _RANK.out: _written(_RANK.default),
    _RANK.out_tol_tensor: _written(_RANK.tol_tensor),
    # functionalization hands the results out in the order of arguments: the output as running statistics
    aten._native_batch_norm_legit.out: _batch_norm_out,
    # functionalization knows no polygamma_
    aten.polygamma_.default: _polygamma_,
}
"""Overloads that write and that PyTorch traces wrongly or not at all, and their expansions."""


@contextmanager
def mended_operators() -> Iterator[None]:
    """Inside, this thread traces as they are meant the operators that PyTorch traces wrongly or not at all.

    Those with wrong expansions stay whole and have their own derivatives; some that write have
    expansions; some have rules for fake tensors.
    """
    implicit = DispatchKey.CompositeImplicitAutograd
    with (
        tracing(),
        patched(
            *(
                kernels(one, {DispatchKey.Autograd: partial(call_compiled, one, DispatchKey.Autograd)})
                for one in _WRONG_EXPANSIONS
                if DispatchKey.Autograd in python_kernels(one)
            ),
            *(
                kernels(one, {implicit: written})
                for one, written in _WRITING.items()
                if implicit not in python_kernels(one)
            ),
            *traced_losses_and_solvers(),
        ),
    ):
        yield


def decomposed(program: ExportedProgram) -> ExportedProgram:
    """A functional program that calls only operators with a lowering, as far as decompositions reach.

    Raises :class:`CaptureError` where PyTorch finds no functional form.
    """
    for node in program.graph.nodes:
        if is_inplace_view(node.target) and node.args[0].op == "placeholder":
            name, place = node.args[0].name, location_text(node)
            raise CaptureError(
                f"{node.target} at {place} changes the shape of input {name} in place",
                hint="change the shape of a view of it instead: squeeze in place of squeeze_",
            )
    try:
        return _functional(program)
    except TorchstoneError:
        raise
    except Exception as error:
        raise CaptureError(
            f"PyTorch finds no functional form of this program: {type(error).__name__}: {error}",
            hint="run it in eager with the same inputs first",
        ) from error


def _functional(program: ExportedProgram) -> ExportedProgram:
    with (
        torch.no_grad(),
        factorization_checks(kept=config.check_values),
        patched(*exporting_here()),
        mended_operators(),
        quick_overrides(),
        warnings.catch_warnings(),
    ):
        # PyTorch copies its own tree specs in a way that it has deprecated.
        warnings.filterwarnings("ignore", message=".*treespec, LeafSpec.*", category=FutureWarning)
        return program.run_decompositions(decompositions())
