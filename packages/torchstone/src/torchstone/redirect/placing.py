"""Running a dispatched call where its tensors are: results get the place of the inputs (:mod:`.places`).

This is for the ``cpu`` target, whose tensors are all in the same memory. If the inputs of a call have
different places, the call runs operator by operator: each ATen operator inside it is checked by CUDA's rules,
which raise PyTorch's error for tensors on different devices, and its results are placed one by one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import torch

from ..torch_internals import pytree
from ..torch_internals.dispatch import TorchDispatchMode
from ..torch_internals.operators import schema_of
from . import drawing
from .places import HOST, Place, device_of, place_of, put

Tensor = torch.Tensor
aten = torch.ops.aten


def run(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], place: Place = None) -> Any:
    """Call ``func`` and place its results: at ``place``, else where its tensors are, else on the CPU."""
    if place is None:
        place, apart = _find(args, kwargs)
        if apart:
            with _Finely():
                return func(*args, **kwargs)
    if kwargs and place is not None and "generator" in kwargs:
        drawing.check(kwargs["generator"], place)
    try:
        if place is not None and place > 0:
            result = drawing.call(func, args, kwargs, place)
        else:
            result = func(*args, **kwargs) if kwargs else func(*args)
    except RuntimeError as error:
        if place is None or place == HOST:
            raise
        raise _of_cuda(error, place) from None
    if place is not None:
        if isinstance(result, Tensor):
            put(result, place)
        else:
            put_all(result, place)
    return result


def _find(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Place, bool]:
    """Return the place of the tensors in the arguments (the CPU if none), and whether their places differ."""
    found: Place = None
    any_tensor = False
    for value in (*args, *kwargs.values()) if kwargs else args:
        if isinstance(value, Tensor):
            any_tensor = True
            one = place_of(value)
        elif type(value) is list or type(value) is tuple:
            one, apart = _find(tuple(value), {})
            if apart:
                return None, True
            if one == HOST and not _holds_tensors(value):
                continue
            any_tensor = True
        else:
            continue
        if found is None:
            found = one
        elif one is not None and one != found:
            return None, True
    return (found if any_tensor else HOST), False


def _holds_tensors(values: Any) -> bool:
    return any(
        isinstance(one, Tensor) or (type(one) in (list, tuple) and _holds_tensors(one)) for one in values
    )


def put_all(result: Any, place: int) -> None:
    """Set the place of every tensor in a result."""
    if isinstance(result, Tensor):
        put(result, place)
    elif isinstance(result, list | tuple):
        for one in result:
            put_all(one, place)


_NO_MEMORY = re.compile(r"DefaultCPUAllocator: .*you tried to allocate (\d+) bytes")


def _of_cuda(error: RuntimeError, place: int) -> RuntimeError:
    """Return the error that CUDA would raise: ``OutOfMemoryError`` if memory ran out, else the same error."""
    found = _NO_MEMORY.search(str(error))
    if found is None:
        return error
    size = int(found[1]) / 2**20
    return torch.OutOfMemoryError(
        f"CUDA out of memory. Tried to allocate {size:.2f} MiB. "
        f"GPU {place} is the CPU's memory (redirected): {error}"
    )


def transfer(tensor: Tensor, place: int, **given: Any) -> Tensor:
    """Return ``tensor.to(device)`` for the device at ``place``: a copy unless the tensor is there already."""
    if place_of(tensor) != place:
        given["copy"] = True
    return run(torch.Tensor.to, (tensor, device_of(HOST)), given, place)


# Tensors of several places in one call -------------------------------------------------------

_TAKES_ANY = {
    *(aten.copy_.default, aten._to_copy.default, aten.is_same_size.default, aten.equal.default),
    *(aten.set_.source_Tensor, aten.resize_as_.default, aten._foreach_copy_.default),
    *(aten._foreach_norm.Scalar, aten.result_type.Tensor),
}
"""Operators that accept tensors on different devices."""
_HOST_ARGUMENTS = {
    "lengths": "_pack_padded_sequence",
    **dict.fromkeys(("min_seqlen", "max_seqlen"), "_nested_view_from_jagged _nested_view_from_jagged_copy"),
    **dict.fromkeys(
        ("nested_size", "nested_strides", "offsets"),
        "_nested_view_from_buffer _nested_view_from_buffer_copy",
    ),
    "batch_sizes": "lstm gru rnn_tanh rnn_relu _pad_packed_sequence _pack_padded_sequence_backward",
}
"""Arguments that may, or must, stay on the CPU, with the operators that take them."""
_INDEXES = {"index", "_index_put_impl_", "index_put", "index_put_", "_unsafe_index", "_unsafe_index_put"}
_MAY_STAY = {name: set(operators.split()) for name, operators in _HOST_ARGUMENTS.items()}


class _Finely(TorchDispatchMode):
    """A mode that checks every operator and places its results, one operator at a time."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        place = _common_place(func, args, kwargs)
        result = func(*args, **kwargs)
        if place is not None:
            put_all(result, place)
        return result


def _common_place(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Place:
    """Return the place for an operator's results; raise ``RuntimeError`` if its tensors are apart."""
    if func in _TAKES_ANY or schema_of(func).name.startswith("aten::_foreach_"):
        return place_of(args[0]) if isinstance(args[0], Tensor) else None
    name = schema_of(func).name.partition("::")[2]
    is_pointwise = torch.Tag.pointwise in func.tags
    if name in _INDEXES:
        return _place_of_indexed(args)
    first: tuple[str, int] | None = None
    scalar: Place = None
    for argument, tensor in _tensors(func, args, kwargs):
        place = place_of(tensor)
        if place is None or name in _MAY_STAY.get(argument, ()):
            continue
        if place == HOST and tensor.dim() == 0 and (is_pointwise or argument != "self"):
            scalar = place
        elif first is None:
            first = argument, place
        elif first[1] != place:
            raise RuntimeError(_apart(name, is_pointwise, first, (argument, place)))
    return scalar if first is None else first[1]


def _place_of_indexed(args: tuple[Any, ...]) -> Place:
    """Return the place of an indexed tensor; the indices and a stored scalar may be on the CPU."""
    place = place_of(args[0])
    for index in args[1]:
        if isinstance(index, Tensor) and place_of(index) not in (None, HOST, place):
            raise RuntimeError(
                "indices should be either on cpu or on the same device as the indexed tensor "
                f"({'cpu' if place is None else cuda_name(place)})"
            )
    for value in args[2:3]:
        if place is not None and isinstance(value, Tensor) and value.dim():
            other = place_of(value)
            if other is not None and other != place:
                raise RuntimeError(_apart("index_put_", True, ("self", place), ("values", other)))
    return place


def _tensors(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[str, Tensor]]:
    named = zip((one.name for one in schema_of(func).arguments), args, strict=False)
    for name, value in (*named, *kwargs.items()):
        yield from ((name, leaf) for leaf in pytree.tree_leaves(value) if isinstance(leaf, Tensor))


def _apart(name: str, is_pointwise: bool, first: tuple[str, int], other: tuple[str, int]) -> str:
    """Return PyTorch's message about tensors on different devices, which depends on the kind of operator."""
    here, there = cuda_name(first[1]), cuda_name(other[1])
    start = "Expected all tensors to be on the same device, but"
    if is_pointwise or name in ("cat", "stack"):
        return f"{start} found at least two devices, {here} and {there}!"
    return (
        f"{start} got {other[0]} is on {there}, different from other tensors on {here} "
        f"(when checking argument in method wrapper_CUDA_{name})"
    )


def cuda_name(place: int) -> str:
    """Return the name of a place in the redirected code: ``cpu`` or ``cuda:N``."""
    return "cpu" if place == HOST else f"cuda:{place}"
