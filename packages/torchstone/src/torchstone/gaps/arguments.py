"""Making up arguments for a trial from a signature: small tensors, and numbers chosen by parameter name."""

from __future__ import annotations

import copy
import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .signatures import Parameter, Signature
from .surface import Api

_OVERLOADS = 4
"""The most overloads of an API that are tried; further ones differ in types only."""


_clone, _to = torch.Tensor.clone, torch.Tensor.to  # read before a package can change them


@dataclass(frozen=True)
class Arguments:
    """The arguments of one call; tensors are on the CPU, and calls get copies of them (:func:`placed`)."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


def placed(value: Any, device: Any, place: Any) -> Any:
    """Return a copy of ``value`` with every tensor on ``place`` and :data:`DEVICE` replaced by ``device``."""
    if value is DEVICE:
        return device
    if isinstance(value, torch.Tensor):
        return _to(_clone(value), place)
    if isinstance(value, torch.nn.Linear):
        return _placed_layer(value, place)
    if isinstance(value, list | tuple):
        return type(value)(placed(one, device, place) for one in value)
    if isinstance(value, dict):
        return {name: placed(one, device, place) for name, one in value.items()}
    return value


def _placed_layer(layer: torch.nn.Linear, place: Any) -> torch.nn.Linear:
    made = copy.copy(layer)
    parameters = {name: _to(_clone(one.data), place) for name, one in layer.named_parameters()}
    vars(made)["_parameters"] = {name: torch.nn.Parameter(one) for name, one in parameters.items()}
    return made


DEVICE = object()
"""A placeholder for the device that a side runs on."""


_TENSOR, _TENSORS = object(), object()
"""Placeholders for a tensor of the current family, and for a list of two such tensors."""
_MASK = torch.tensor([[True, False, True]] * 3)
_OFFSETS = torch.arange(3)
"""Always one-dimensional: with other offsets ``embedding_bag`` reads out of bounds, with random results."""


def _ramp(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return a tensor with values from 0.1 to 0.9, where every function is defined and none is flat."""
    return torch.linspace(0.1, 0.9, math.prod(shape)).reshape(shape).to(dtype)


def _whole(*shape: int) -> torch.Tensor:
    """Return an int64 tensor with the values 0 to 2, which can also serve as indices."""
    return (torch.arange(math.prod(shape)) % 3).reshape(shape)


def _layer() -> torch.nn.Linear:
    """Return a module whose methods can be called."""
    layer = torch.nn.Linear(3, 3)
    layer.weight.data, layer.bias.data = _ramp(3, 3), _ramp(3)
    return layer


_FAMILIES: tuple[Callable[[], tuple[torch.Tensor, torch.Tensor]], ...] = (
    lambda: (_ramp(3, 3), _ramp(3, 3)),
    lambda: (_ramp(3, 3), _whole(3, 3)),
    lambda: (_whole(3, 3), _whole(3, 3)),
    lambda: (_ramp(3), _ramp(3)),
    lambda: (_ramp(3, 3), _ramp(3)),
    lambda: (_ramp(2, 3, 3), _ramp(2, 3, 3)),
    lambda: (_ramp(1, 2, 4, 4), _ramp(2, 2, 1, 1)),
    lambda: (_ramp(3, 3) > 0.5, _ramp(3, 3) > 0.5),
    lambda: (_ramp(1, 2, 4), _ramp(2, 2, 1)),
    lambda: (_ramp(1, 2, 4, 4, 4), _ramp(2, 2, 1, 1, 1)),
    lambda: (_ramp(3, 3, dtype=torch.complex64), _ramp(3, 3, dtype=torch.complex64)),
    lambda: (_ramp(3, 3), _whole(3)),
    lambda: (_whole(3), _ramp(3, 3)),
)
"""Pairs (first tensor, every other tensor) for a call, as most operators take them, the most common first."""

_BY_NAME: Mapping[str, Any] = {
    # values that such a parameter usually accepts, for tensors of the sizes above
    "condition": _MASK,
    "cutoffs": (1,),
    "dim": 0,
    "dim0": 0,
    "dim1": 1,
    "dims": (0, 1),
    "destination": 0,
    "end": 3,
    "high": 4,
    "index": 0,
    "k": 1,
    "length": 1,
    "low": 0,
    "kernel_size": 1,
    "mask": _MASK,
    "mode": "LSTM",
    "names": None,
    "num_classes": 4,
    "num_heads": 2,
    "num_samples": 2,
    "offsets": _OFFSETS,
    "p": 0.5,
    "physical_layout": (0, 1),
    "reduce": "sum",
    "res": 0,
    "shape": (3, 3),
    "shifts": 1,
    "size": (3, 3),
    "source": 0,
    "split_size_or_sections": 1,
    "start": 0,
    "steps": 3,
}
_DEVICES = frozenset({"device", "device_type", "map_location"})
_NEEDED = frozenset({"steps"})
"""Parameters that are optional in the signature but needed by the call."""

_BY_ANNOTATION: tuple[tuple[str, Any], ...] = (
    # the first pattern that matches the annotation counts
    (r"(Sequence|tuple|list)\[.*Tensor", _TENSORS),
    (r"Tensor", _TENSOR),
    (r"dtype", torch.float32),
    (r"[Dd]evice", DEVICE),
    (r"_bool|\bbool", True),
    (r"_size|Sequence|tuple|list", (3, 3)),
    (r"_int|\bint|SymInt", 4),
    (r"Number|_float|\bfloat|_complex", 0.5),
    (r"_layout", torch.strided),
    (r"memory_format", torch.contiguous_format),
    (r"str", "mean"),
)
_TENSOR_NAMES = frozenset({"input", "other", "self", "target", "tensor", "x", "y"})


def argument_sets(api: Api, *, device: bool = False) -> Iterator[Arguments]:
    """Yield calls to try, the likeliest first: the required arguments and, if ``device``, the device, too."""

    def takes_none(signature: Signature) -> bool:
        return not any(one.name in _DEVICES for one in signature.parameters)

    signatures = sorted(api.signatures, key=takes_none) if device else api.signatures
    for family in _FAMILIES:
        if api.kind == "property":
            yield Arguments(family()[:1], {})
        for signature in signatures[:_OVERLOADS]:
            owner = [_layer()] if api.namespace == "torch.nn.Module" else []
            yield _arguments(signature.parameters[len(owner) :], family(), device, owner)


def _arguments(
    parameters: Sequence[Parameter],
    tensors: tuple[torch.Tensor, torch.Tensor],
    device: bool,
    args: list[Any],
) -> Arguments:
    """Return a call with ``args`` followed by values for ``parameters``."""
    kwargs: dict[str, Any] = {}
    left = itertools.chain(tensors[:1], itertools.repeat(tensors[1]))
    by_name = False
    for one in parameters:
        takes_device = device and one.name in _DEVICES
        if one.kind == "variadic positional" and one.annotation and "int" in one.annotation:
            args += [3, 3]
        elif (one.default is not None and not takes_device and one.name not in _NEEDED) or one.variadic:
            by_name = True
        else:
            value = DEVICE if takes_device else _value(one, left)
            if one.kind == "keyword-only" or by_name:
                kwargs[one.name] = value
            else:
                args.append(value)
    return Arguments(tuple(args), kwargs)


def _value(one: Parameter, tensors: Iterator[torch.Tensor]) -> Any:
    annotation = one.annotation or ""
    named = _BY_NAME.get(one.name, one)
    if named is not one and (isinstance(named, torch.Tensor) or "Tensor" not in annotation):
        return named
    found = next((value for pattern, value in _BY_ANNOTATION if re.search(pattern, annotation)), None)
    if found is _TENSOR or (found is None and one.name in _TENSOR_NAMES):
        return next(tensors)
    if found is _TENSORS:
        return [next(tensors)] * 2
    return 4 if found is None else found
