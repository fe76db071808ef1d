"""Tries calls in eager PyTorch on small tensors, to find out which calls it refuses.

Eager PyTorch refuses some calls whatever values their tensors have, and its shape functions do not
report these refusals:

- a number that does not fit into a tensor's dtype (``full_like(int32, 2**40)``, ``int32 // 0``)
- a call whose tensors are all empty (``empty(0).max()``), and indices of an axis without elements
- a composite operator on a dtype for which one of its parts has no kernel (``einsum`` of bools)
- operands of different dtypes (``layer_norm``, ``index_put``)
- a result whose dtype does not fit into the tensor that it is written into (``bools.mul_(2)``)

Such a call is made once, in eager PyTorch, on small tensors of the same dtypes. If it raises, the
real call is refused with the same error. This covers all overloads without a list of them.

Not here: checks that are written down for one operator (:mod:`.argument_checks`).
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeGuard

import torch
from torch.fx import Node

from ..torch_internals.dispatch import is_composite_implicit, without_modes
from ..torch_internals.operators import OpOverload, namespace, schema_of
from ..torch_internals.pytree import tree_leaves, tree_map_only
from ..torch_internals.tracing import traced_size
from .graphs import bind_schema, fake_arguments
from .operators import registry

aten = namespace("aten")

Arguments = Mapping[str, Any]
Make = Callable[[torch.Tensor], torch.Tensor]
"""Makes a tensor with values from a fake tensor."""

_BY_ZERO = "ZeroDivisionError"
_ABOUT_NUMBERS = ("without overflow", _BY_ZERO, "to negative integer powers")
"""Parts of PyTorch's errors about a number that it refuses whatever values the tensors have."""
_ABOUT_DTYPES = re.compile(
    r"dtype|datatype|scalar type|same type|should be the same|output type|[Pp]romotion"
    r"|not supported for complex"
    r"|not implemented for '(?!Half|BFloat16)"
)
"""PyTorch's errors about dtypes. Missing kernels for 16-bit floats do not count: programs have these."""
_INDICES = ("index", "indices")
"""Parameters that choose elements of an axis; 0 is valid for every axis that is not empty."""
_COMPUTED_WITH = frozenset(
    wrapped for kind in ("number", "float", "Tensor") for wrapped in (kind, f"Optional[{kind}]")
)
"""Schema types of the parameters whose Python numbers take part in the computation."""
_SELDOM_TAKEN = frozenset({torch.bool, torch.uint16, torch.uint32, torch.uint64})
"""Dtypes for which many kernels are missing."""
_NAMESPACES = frozenset({"aten", "torch_nn", "quantized_decomposed", "torchstone"})
"""Namespaces of operators that run no user code."""
_UNREHEARSED = frozenset(registry.table("eager")) | {
    aten.as_strided.default,
    aten.as_strided_copy.default,
    aten._ctc_loss_backward.default,
    aten._ctc_loss_backward.Tensor,
}
"""Operators whose operands cannot be made up: other kernels' results, or memory behind a tensor."""
_SIZES = ("size", "steps")
"""Parameters that only say how large a new tensor is."""
_MOST_ELEMENTS = 1 << 16
"""The most elements of a tensor that a rehearsal may make."""


def refusal(node: Node) -> Exception | None:
    """Return what eager PyTorch raises for the call of ``node``; None if nothing, or if it is not tried."""
    overload = node.target
    if not _is_rehearsed(overload):
        return None
    given = fake_arguments(bind_schema(overload, node.args, node.kwargs))
    tensors = _tensors(given)
    results = _tensors(node.meta.get("val"))
    if _finds_nothing(given, tensors) and all(map(_is_small, (*tensors, *results))):
        said = _rehearse(overload, given, _filled(0))
        return None if isinstance(said, NotImplementedError) else said
    if _is_mixed(overload, given) or _writes_integers(overload, given):
        whole = all(map(_is_small, tensors))
        said = _rehearse(
            overload, tree_map_only(torch.SymInt, _shrunk, dict(given)), _filled(0) if whole else _small
        )
        if _ABOUT_DTYPES.search(str(said)):
            return said
    dtypes = {tensor.dtype for tensor in (*tensors, *results)}
    if dtypes & _SELDOM_TAKEN and tensors and is_composite_implicit(overload):
        said = _rehearse(overload, tree_map_only(torch.SymInt, _shrunk, dict(given)))
        if isinstance(said, NotImplementedError) and "not implemented for" in str(said):
            return said
    if all(_fits(number, dtype) for number in _numbers(overload, given) for dtype in dtypes):
        return None
    shrunk = {name: _shrunk(value) if name in _SIZES else value for name, value in given.items()}
    if not tensors and "size" not in given and not all(map(_is_small, results)):
        return None
    said = _rehearse(overload, shrunk)
    if not any(part in str(said) for part in _ABOUT_NUMBERS):
        return None
    # If the tensor is the divisor, PyTorch refused its zeros and not the number: try again with ones.
    return said if _BY_ZERO not in str(said) or _rehearse(overload, shrunk, _small_ones) else None


def refusal_of_any_values(node: Node) -> Exception | None:
    """Return the error that eager PyTorch raises for the call of ``node`` on tensors of its shapes, or None.

    This is for calls that fail to lower: the shape functions of some operators accept arguments that no
    kernel accepts. Only a call that fails anyway is tried, since the tensors are large here. A symbolic
    size has the value that it was traced with.
    """
    overload = node.target
    if not _is_rehearsed(overload):
        return None
    given = fake_arguments(bind_schema(overload, node.args, node.kwargs))
    for tensor in (*_tensors(given), *_tensors(node.meta.get("val"))):
        sizes = [traced_size(size) for size in tensor.shape]
        if math.prod(_MOST_ELEMENTS + 1 if size is None else size for size in sizes) > _MOST_ELEMENTS:
            return None
    given = tree_map_only(torch.SymInt, traced_size, dict(given))
    zeros, ones = (_rehearse(overload, given, _filled(number)) for number in (0, 1))
    return zeros and ones  # zeros fail as divisors, and ones as indices of a single row: both must fail


def _is_rehearsed(operator: Any) -> TypeGuard[OpOverload]:
    known = isinstance(operator, OpOverload) and operator.namespace in _NAMESPACES
    return known and operator not in _UNREHEARSED


def _tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def _finds_nothing(given: Arguments, tensors: list[torch.Tensor]) -> bool:
    """Whether all tensors are empty; with indices, whether another tensor is empty but no index tensor is."""
    if not any(map(_is_empty, tensors)):
        return False
    indices = _tensors([given.get(name) for name in _INDICES])
    return not any(map(_is_empty, indices)) if indices else all(map(_is_empty, tensors))


def _is_mixed(overload: OpOverload, given: Arguments) -> bool:
    """Whether the operands have different dtypes.

    Bool tensors and indices that the operator reads do not count. A complex number counts as different
    from a real tensor, and a call that writes into its indices always counts.
    """
    written = {one.name for one in schema_of(overload).arguments if one.is_write}
    if not written.isdisjoint(_INDICES):
        return True
    tensors = _tensors({name: value for name, value in given.items() if name not in _INDICES})
    if any(isinstance(number, complex) for number in _numbers(overload, given)):
        return not all(one.dtype.is_complex for one in tensors)
    return len({one.dtype for one in tensors if one.dtype != torch.bool}) > 1


def _writes_integers(overload: OpOverload, given: Arguments) -> bool:
    """Whether a call writes into a bool or integer tensor, whose dtype does not fit every result."""
    written = {one.name for one in schema_of(overload).arguments if one.is_write}
    return any(not one.is_floating_point() for one in _tensors([given.get(name) for name in written]))


def _is_empty(tensor: torch.Tensor) -> bool:
    return any(isinstance(size, int) and size == 0 for size in tensor.shape)


def _is_small(tensor: torch.Tensor) -> bool:
    known = all(isinstance(size, int) for size in tensor.shape)
    return known and tensor.numel() <= _MOST_ELEMENTS


def _numbers(overload: OpOverload, given: Arguments) -> Iterator[Any]:
    """Yield the Python numbers that a call computes with, without sizes, dimensions and flags."""
    for argument in schema_of(overload).arguments:
        value = given.get(argument.name)
        if str(argument.type) in _COMPUTED_WITH and isinstance(value, (int, float, complex)):
            yield value


def _fits(number: complex, dtype: torch.dtype) -> bool:
    """Whether no operator of ``dtype`` refuses ``number``. Integers <= 0 fail as divisors or exponents."""
    if isinstance(number, complex):
        return dtype.is_complex
    if dtype.is_floating_point or dtype.is_complex:
        return not math.isfinite(number) or abs(number) <= torch.finfo(dtype).max
    return dtype != torch.bool and isinstance(number, int) and 0 < number <= torch.iinfo(dtype).max


def _rehearse(overload: OpOverload, given: Arguments, made: Make | None = None) -> Exception | None:
    """Return what eager PyTorch raises for the call on the tensors of ``made`` (small zeros), or None."""
    try:
        with (
            without_modes(),
            torch.no_grad(),
            torch.random.fork_rng(devices=()),
            warnings.catch_warnings(action="ignore"),
        ):
            overload(**tree_map_only(torch.Tensor, made or _small, dict(given)))
    except Exception as error:  # noqa: BLE001  # it is what PyTorch says
        return error
    return None


def _filled(number: int) -> Make:
    def made(like: torch.Tensor) -> torch.Tensor:
        sizes = [traced_size(size) or 0 for size in like.shape]
        return torch.full(sizes, number, dtype=like.dtype, device="cpu")

    return made


def _small(like: torch.Tensor) -> torch.Tensor:
    """Return zeros of the same dtype and rank, at most 2 along each axis; an empty tensor keeps its shape."""
    if _is_empty(like) and _is_small(like):  # other sizes might not fit those among the arguments
        return torch.zeros(like.shape, dtype=like.dtype, device="cpu")
    return torch.zeros([_shrunk(size) for size in like.shape], dtype=like.dtype, device="cpu")


def _small_ones(like: torch.Tensor) -> torch.Tensor:
    return torch.ones_like(_small(like))


def _shrunk(size: Any) -> Any:
    if isinstance(size, (list, tuple)):
        return [_shrunk(one) for one in size]
    return min(size, 2) if isinstance(size, int) else 2
