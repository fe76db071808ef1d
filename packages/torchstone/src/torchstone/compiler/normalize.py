"""Turns a captured graph into one that calls only operators that the registry can lower.

Overloads with a lowering stay as they are. The others are replaced by PyTorch's
decompositions, or by Torchstone's.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch.export import ExportedProgram, default_decompositions

from ..config import config
from ..errors import CaptureError, TorchstoneError
from ..lowering import load
from ..torch_internals.caches import caches_as_trees
from ..torch_internals.decompositions import decomposition_table
from ..torch_internals.dispatch import DispatchKey, is_composite_implicit, python_kernels
from ..torch_internals.distributed import dtensors_in_graphs, makes_dtensors
from ..torch_internals.export import (
    copies_into_state,
    exporting_here,
    kept_in_graphs,
    without_effect,
    without_guards_on_bases,
)
from ..torch_internals.operators import OpOverload, namespace
from ..torch_internals.patches import patched, tracing
from .assertions import asserting
from .dynamic_sizes import unknown_expression
from .graphs import is_inplace_view, location_text, widen_strided_reads, writes
from .operators.experts import expert_decompositions
from .operators.implementations import implementations_in
from .operators.lists import list_decompositions
from .operators.tracing import mended_operators
from .overrides import quick_overrides
from .transforms import refusal_of

aten = namespace("aten")


@cache
def _all_decompositions() -> dict[Any, Callable[..., Any]]:
    with mended_operators():  # PyTorch takes the expansions that operators have at this moment
        return {**decomposition_table.get(), **dict(default_decompositions().items())}


def decompositions(*, training: bool = False) -> dict[Any, Callable[..., Any]]:
    """Return a new dict of our decompositions, and of PyTorch's for overloads without a lowering.

    ``training`` leaves out composite-implicit operators: AOTAutograd expands them by
    itself, and some of the references in PyTorch's table take other arguments. The one
    for ``nll_loss`` takes the reduction as ``size_average``.
    """
    registry = load()
    native = registry.overloads()
    # Operators that write are not needed: functionalization replaces them before decompositions run.
    table = decomposition_table.get() if training else _all_decompositions()
    theirs = {
        overload: function
        for overload, function in table.items()
        if overload not in native and not writes(overload) and not (training and _is_implicit(overload))
    }
    return {**theirs, **list_decompositions(), **expert_decompositions(), **registry.decompositions}


def _is_implicit(overload: Any) -> bool:
    if not isinstance(overload, OpOverload):
        return False
    composite = DispatchKey.CompositeImplicitAutograd
    return is_composite_implicit(overload) or composite in python_kernels(overload)


@contextmanager
def factorization_checks(*, kept: bool) -> Iterator[None]:
    """Trace PyTorch's check that a factorization succeeded as an operator without effect.

    PyTorch registers it as an operator whose calls must stay in order, and so threads tokens
    through the whole graph. A program cannot raise, so these tokens would be of no use.
    With ``kept``, its calls and those that expansions make stay in the graph, for
    ``config.check_values``.
    """
    check = aten._linalg_check_errors.default
    with (
        tracing(),
        asserting(kept),
        patched(without_effect("aten::_linalg_check_errors"), *(kept_in_graphs(check) if kept else ())),
    ):
        yield


def decomposed(program: ExportedProgram) -> ExportedProgram:
    """Return a functional program that calls only operators with a lowering, as far as decompositions reach.

    Raises :class:`CaptureError` if PyTorch finds no functional form.
    """
    for node in program.graph.nodes:
        refusal = refusal_of(node)
        if refusal is not None:
            raise refusal
        if is_inplace_view(node.target) and node.args[0].op == "placeholder":
            name, place = node.args[0].name, location_text(node)
            raise CaptureError(
                f"{node.target} at {place} changes the shape of input {name} in place",
                hint="change the shape of a view of it instead: squeeze in place of squeeze_",
            )
    try:
        functional = _functional(program)
    except TorchstoneError:
        raise
    except Exception as error:
        unknown = unknown_expression(error)
        if unknown is not None:
            raise CaptureError(
                f"PyTorch decomposes an operator only if it knows a size that depends on values: {unknown}",
                hint="say what holds of the size with torch._check(…), or write that operator with others",
            ) from error
        raise CaptureError(
            f"PyTorch finds no functional form of this program: {type(error).__name__}: {error}",
            hint="run it in eager with the same inputs first; if that works, replace the call that is named",
        ) from error
    widen_strided_reads(functional.graph_module)
    _name_local_tensors(functional, program.state_dict)
    return functional


def _name_local_tensors(program: ExportedProgram, before: Mapping[str, Any]) -> None:
    """Rename the local tensors that PyTorch puts in place of DTensors to the names of those DTensors."""
    state = program.state_dict
    plain = {name: _PART.sub(r"\1", name) for name in state if _PART.search(name)}
    renamed = {name: known for name, known in plain.items() if name not in before and known in before}
    for name, known in renamed.items():
        state[known] = state.pop(name)
    signature = program.graph_signature
    for spec in (*signature.input_specs, *signature.output_specs):
        spec.target = renamed.get(str(spec.target), spec.target)


_PART = re.compile(r"parametrizations\.(\w+)\.original0$")


@caches_as_trees()
def _functional(program: ExportedProgram) -> ExportedProgram:
    with (
        torch.no_grad(),
        dtensors_in_graphs(),
        factorization_checks(kept=config.check_values),
        patched(*exporting_here(), *copies_into_state()),
        mended_operators(),
        quick_overrides(),
        warnings.catch_warnings(),
    ):
        # PyTorch copies its own tree specs in a way that it has deprecated.
        warnings.filterwarnings("ignore", message=".*treespec, LeafSpec.*", category=FutureWarning)
        program = without_guards_on_bases(program)
        if makes_dtensors(program):  # DTensors take the operators that composites expand to, not composites
            program = program.run_decompositions(_expansions())
        kept = decompositions() | implementations_in(program.graph_module)
        return program.run_decompositions(kept)


def _expansions() -> dict[Any, Callable[..., Any]]:
    """Return PyTorch's own expansions of composite-implicit operators."""
    return {one: rule for one, rule in default_decompositions().items() if _is_implicit(one)}
