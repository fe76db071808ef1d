"""Finds out whether a program is right for the sizes 0 and 1, which tracing treats like larger sizes.

``torch.export`` decides branches on a dynamic size as if it were at least 2, and no shape function knows
which kernels refuse empty tensors. So eager PyTorch runs the model on the example inputs, cut to the small
size, once per symbol and small size that the program allows. If this raises, or returns tensors of other
shapes or dtypes than the program says, the program refuses that size and gives the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from itertools import zip_longest
from textwrap import shorten
from typing import Any

import torch
from torch.export import ExportedProgram

from ..errors import InputMismatch
from ..shapes import bind, evaluate, names_in
from ..signature import Signature
from ..torch_internals.caches import caches_as_trees
from ..torch_internals.dispatch import TorchDispatchMode
from ..torch_internals.patches import no_other_traces
from ..torch_internals.pytree import tree_leaves, tree_map_only
from ..trees import Tree, flatten
from .eager_calls import called_eagerly
from .function_modules import as_module
from .rules.registry import pads

Arguments = tuple[Sequence[Any], Mapping[str, Any]]

_SMALL = (0, 1)
_ANY_NUMBERS = (0, 1)
"""The values tried in place of integers: 0 fails as a divisor, and 1 fails as an index of a single row."""
_LONGEST_REASON = 300


@caches_as_trees()
def with_small_sizes(
    signature: Signature,
    model: torch.nn.Module | Callable[..., Any] | ExportedProgram,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> Signature:
    """Return ``signature`` with a relation, and its reason, for each small size that the program refuses.

    Size 0 is not tried if the model calls gradients: some of PyTorch's kernels divide by the size and
    crash the process.
    """
    if not signature.symbols or isinstance(model, ExportedProgram) or _is_told_sizes(signature.input_tree):
        return signature
    given = _own_leaves(args, kwargs)
    if given is None:
        return signature
    refused, module = {}, as_module(model)
    for symbol, size in _allowed(signature):
        reason = _why_not(signature, module, given, {symbol: size})
        if reason is not None:
            refused[f"{symbol} != {size}"] = reason
    return replace(
        signature, relations=(*signature.relations, *refused), reasons={**signature.reasons, **refused}
    )


def _is_told_sizes(tree: Tree) -> bool:
    """Whether an input is a dynamic size as a Python number, which would have to be cut too."""
    ((kind, content),) = tree.items()
    parts = content["values"] if kind in ("dict", "record") else content if kind in ("tuple", "list") else ()
    return kind == "dim" or any(map(_is_told_sizes, parts))


def _own_leaves(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Arguments | None:
    """Return the example inputs with each tensor copied; None if eager PyTorch cannot compute with them."""
    leaves = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    if any(type(leaf) is not torch.Tensor or leaf.is_meta for leaf in leaves):
        return None
    own: Arguments = tree_map_only(torch.Tensor, lambda leaf: _copy(leaf, leaf), (tuple(args), dict(kwargs)))
    return own


def _allowed(signature: Signature) -> Iterator[tuple[str, int]]:
    """Yield each symbol of an input size with each small size that its range allows."""
    for symbol, (low, high) in signature.symbols.items():
        for size in _SMALL if symbol not in signature.bounds else ():
            if low <= size and (high is None or size <= high):
                yield symbol, size


def _why_not(
    signature: Signature, module: torch.nn.Module, given: Arguments, small: Mapping[str, int]
) -> str | None:
    """Return why the program cannot take ``small`` sizes, with others as in the example; None if it can."""
    leaves = flatten(signature.input_tree, given)
    tensors = [leaves[place] for place in range(len(leaves))]
    specs = [spec for spec in signature.inputs if spec.kind == "input"]
    declared = [(spec.name, spec.shape) for spec in specs]
    symbols = {
        **bind(declared, [tuple(one.shape) for one in tensors], signature.symbols, signature.relations),
        **small,
    }
    try:
        shapes = [tuple(evaluate(dim, symbols) for dim in spec.shape) for spec in specs]
        bind(declared, shapes, signature.symbols, signature.relations)
    except InputMismatch:
        return None  # the program refuses it already
    cut = [_cut(tensor, shape) for tensor, shape in zip(tensors, shapes, strict=True)]
    mutated = {str(spec.target) for spec in signature.outputs if spec.kind == "buffer_mutation"}

    def called(inputs: Sequence[torch.Tensor]) -> Any:
        by_leaf = {id(leaf): one for leaf, one in zip(tensors, inputs, strict=True)}
        args, kwargs = tree_map_only(torch.Tensor, lambda leaf: _copy(by_leaf[id(leaf)], leaf), given)
        with _without_gradients() if 0 in small.values() else nullcontext():
            return called_eagerly(module, args, kwargs, mutated)

    result = called(cut)
    if isinstance(result, _Gradient):
        return None
    if not isinstance(result, Exception):
        return None if pads() else _difference(signature, result, symbols)
    # An index of the example may be out of range for a smaller axis, while other values are in range.
    for number in _ANY_NUMBERS:
        if not isinstance(called([_filled(tensor, number) for tensor in cut]), Exception):
            return None
    if isinstance(called(tensors), Exception):
        return None  # the error is not about sizes
    return f"eager PyTorch raises {type(result).__name__}: {shorten(str(result), _LONGEST_REASON)}"


class _Gradient(Exception):
    """Raised when the model calls a gradient."""


class _NoGradients(TorchDispatchMode):
    """Raises :class:`_Gradient` before a gradient is called, even one whose result is not used."""

    supports_higher_order_operators = True

    def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if "_backward" in str(operator):
            raise _Gradient
        return operator(*args, **(kwargs or {}))


@contextmanager
def _without_gradients() -> Iterator[None]:
    # PyTorch runs Dynamo for operators that take functions, and Dynamo keeps what it compiles under a mode.
    # All threads share one stance, so no two of our threads may set it at the same time.
    with no_other_traces(), torch.compiler.set_stance("force_eager"), _NoGradients():
        yield


def _cut(tensor: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """Return the first elements of ``tensor`` along each axis, repeated if the axis gets longer."""
    for axis, size in enumerate(shape):
        old = tensor.shape[axis]
        if size != old:
            if old == 0:
                return torch.zeros(shape, dtype=tensor.dtype, device=tensor.device)
            tensor = tensor.index_select(axis, torch.arange(size, device=tensor.device) % old)
    return tensor


def _copy(values: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    return values.detach().clone().requires_grad_(like.requires_grad)


def _filled(tensor: torch.Tensor, number: int) -> torch.Tensor:
    """Return ``tensor``, with each value replaced by ``number`` if it has an integer or bool dtype."""
    exact = not tensor.dtype.is_floating_point and not tensor.dtype.is_complex
    return torch.full_like(tensor, number) if exact else tensor


def _difference(signature: Signature, result: Any, symbols: Mapping[str, int]) -> str | None:
    """Return how the tensors of ``result`` differ from what the program returns at these sizes, or None."""
    outputs, unknown = signature.outputs, signature.bounds.keys()
    found = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
    if any(leaf.layout is not torch.strided for leaf in found):
        return None
    expected = [spec for spec in outputs if spec.kind == "output"]
    if len(found) != len(expected):
        return f"the model returns {len(found)} tensors there, and the program {len(expected)}"
    for tensor, spec in zip(found, expected, strict=True):
        try:
            shape = tuple(
                size if names_in(str(dim)) & unknown else evaluate(dim, symbols)
                for dim, size in zip_longest(spec.shape, tensor.shape)
            )
        except InputMismatch as error:
            return error.message
        if (tuple(tensor.shape), tensor.dtype) != (shape, spec.dtype.torch):
            real = f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
            return f"the model returns {real} there, and the program {spec.dtype}{list(shape)}"
    return None
