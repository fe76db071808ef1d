"""Nested Python values as JSON, with their tensors kept separately. No pickle is used; reading runs no code.

None, booleans, strings, small integers, finite floats and lists are written as themselves. Every JSON object
has one tag that says what it is:

======================  ==========================================================================
``{"tensor": i}``       the i-th tensor; two places with the same number share one tensor
``{"array": i}``        the same as a NumPy array; ``{"scalar": i}`` as a NumPy scalar
``{"dict": {…}}``       a dict whose keys are strings
``{"items": [[k, v]]}`` a dict with other keys
``{"tuple": […]}``      a tuple; ``set``, ``frozenset`` and ``size`` (``torch.Size``) alike
``{"float": "nan"}``    a float that JSON lacks: ``nan``, ``inf``, ``-inf``
``{"int": "0x…"}``      an integer beyond 64 bits
``{"complex": [r, i]}`` a complex number
``{"bytes": "…"}``      bytes in base64
``{"dtype": "…"}``      a ``torch.dtype``; ``device``, ``layout`` and ``memory_format`` alike
======================  ==========================================================================

A dict may also have ``class`` (``OrderedDict`` or ``Counter``) and ``versions`` (the versions of modules that
a module's state dict carries). The state of an optimizer has ``shapes``, the shapes of its parameters.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy
import torch

from ..errors import CheckpointUnstorable, described
from ..torch_internals import tensors as internals
from .states import state_of

Node = Any
"""JSON."""
_WORDS: Mapping[str, type] = {
    "dtype": torch.dtype,
    "device": torch.device,
    "layout": torch.layout,
    "memory_format": torch.memory_format,
}
_SEQUENCES: Mapping[str, Callable[[list[Any]], Any]] = {
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "size": torch.Size,
}
_DICTS: Mapping[str, type] = {"OrderedDict": OrderedDict, "Counter": Counter}
_SMALL = 1 << 63
_DEEPEST = 100
_NEXT = (
    "store a tensor, number, string, None, or lists, tuples and dicts of these; "
    "turn other objects into such values, or leave them out"
)


@dataclass
class Encoder:
    """Turns values into JSON and collects their tensors. ``places`` says where each one was found first."""

    tensors: list[torch.Tensor] = field(default_factory=list)
    places: list[tuple[str, ...]] = field(default_factory=list)
    _numbers: dict[Any, int] = field(default_factory=dict)

    def encode(self, value: Any, place: tuple[str, ...]) -> Node:
        """Return ``value`` as JSON. Raises :class:`CheckpointUnstorable`, which names the key at fault."""
        if len(place) > _DEEPEST:
            raise CheckpointUnstorable(
                f"cannot store {_name(place[:6])} …: it is nested too deeply, or contains itself", hint=_NEXT
            )
        kind = type(value)
        if value is None or kind in (bool, str):
            return value
        if kind is int:
            return value if -_SMALL <= value < _SMALL else {"int": hex(value)}
        if kind is float:
            return value if math.isfinite(value) else {"float": repr(value)}
        if kind is complex:
            return {"complex": [self.encode(value.real, place), self.encode(value.imag, place)]}
        if kind in (bytes, bytearray):
            return {"bytes": base64.b64encode(value).decode()}
        if isinstance(value, torch.Tensor):
            return {"tensor": self._number(value, place)}
        if isinstance(value, numpy.ndarray | numpy.generic):
            return {"array" if isinstance(value, numpy.ndarray) else "scalar": self._array(value, place)}
        for tag, cls in _WORDS.items():
            if isinstance(value, cls):
                return {tag: str(value).removeprefix("torch.")}
        if kind is list:
            return list(self._parts(value, place))
        for tag, make in _SEQUENCES.items():
            if kind is make:
                ordered = sorted(value, key=repr) if tag in ("set", "frozenset") else value
                return {tag: list(self._parts(ordered, place))}
        if kind in (dict, defaultdict, *_DICTS.values()):
            return self._dict(value, place)
        state = state_of(value)
        if state is None:
            raise CheckpointUnstorable(
                f"cannot store {_name(place)} without pickle: it is a {kind.__module__}.{kind.__qualname__}",
                hint=_NEXT,
            )
        node = self.encode(state, place)
        if isinstance(value, torch.optim.Optimizer):
            node["shapes"] = [[list(one.shape) for one in group["params"]] for group in value.param_groups]
        return node

    def _parts(self, values: Sequence[Any], place: tuple[str, ...]) -> Iterator[Node]:
        return (self.encode(one, (*place, str(i))) for i, one in enumerate(values))

    def _dict(self, value: Mapping[Any, Any], place: tuple[str, ...]) -> Node:
        if all(type(key) is str for key in value):
            node: Node = {"dict": {key: self.encode(one, (*place, key)) for key, one in value.items()}}
        else:
            pairs = [
                [self.encode(key, (*place, f"key {key!r}")), self.encode(one, (*place, str(key)))]
                for key, one in value.items()
            ]
            node = {"items": pairs}
        if type(value).__name__ in _DICTS:
            node["class"] = type(value).__name__
        versions = internals.module_versions(value)
        if versions is not None:
            node["versions"] = self.encode(dict(versions), place)
        return node

    def _number(self, value: torch.Tensor, place: tuple[str, ...]) -> int:
        reason = _unstorable(value)
        if reason is not None:
            raise CheckpointUnstorable(f"cannot store the tensor {_name(place)}: {reason[0]}", hint=reason[1])
        storage = value.untyped_storage()
        known = (
            internals.storage_identity(storage),
            value.storage_offset(),
            value.dtype,
            value.shape,
            value.stride(),
            value.is_conj(),
            value.is_neg(),
        )
        if known not in self._numbers:
            self._numbers[known] = len(self.tensors)
            self.tensors.append(value.detach())
            self.places.append(place)
        return self._numbers[known]

    def _array(self, value: Any, place: tuple[str, ...]) -> int:
        native = numpy.array(value, order="C", copy=True)
        native = native.astype(native.dtype.newbyteorder("="), copy=False)
        try:
            return self._number(torch.from_numpy(native), place)
        except TypeError:
            raise CheckpointUnstorable(
                f"cannot store {_name(place)} without pickle: it is a NumPy array of {value.dtype}",
                hint=_NEXT,
            ) from None


def decode(node: Node, tensor: Callable[[int], torch.Tensor]) -> Any:
    """Return the value of ``node``. Raises ``ValueError``, ``TypeError`` or ``LookupError`` if not valid."""
    if isinstance(node, list):
        return [decode(one, tensor) for one in node]
    if not isinstance(node, dict):
        return node
    tag, content = next(iter(node.items()))
    if tag == "tensor":
        return tensor(content)
    if tag == "array":
        return tensor(content).numpy()
    if tag == "scalar":
        return tensor(content).numpy()[()]
    if tag in ("dict", "items"):
        return _decode_dict(node, tensor)
    if tag in _SEQUENCES:
        return _SEQUENCES[tag]([decode(one, tensor) for one in content])
    if tag in _WORDS:
        found = torch.device(content) if tag == "device" else getattr(torch, content, None)
        if not isinstance(found, _WORDS[tag]):
            raise ValueError(f"this PyTorch has no {tag} {content!r}")
        return found
    if tag == "float":
        return float(content)
    if tag == "int":
        return int(content, 16)
    if tag == "complex":
        return complex(*(decode(one, tensor) for one in content))
    if tag == "bytes":
        try:
            return base64.b64decode(content, validate=True)
        except binascii.Error as error:
            raise ValueError(str(error)) from error
    raise ValueError(f"unknown kind of value {tag!r}")


def _decode_dict(node: Node, tensor: Callable[[int], torch.Tensor]) -> Any:
    if "dict" in node:
        made: Any = {key: decode(one, tensor) for key, one in node["dict"].items()}
    else:
        made = {decode(key, tensor): decode(one, tensor) for key, one in node["items"]}
    if "class" in node:
        made = _DICTS[node["class"]](made)
    if "versions" in node:
        made = internals.with_module_versions(made, decode(node["versions"], tensor))
    return made


def tensors_in(node: Node) -> Iterator[int]:
    """Yield the number of every tensor that ``node`` names."""
    if isinstance(node, list):
        for one in node:
            yield from tensors_in(one)
    elif isinstance(node, dict):
        for tag, content in node.items():
            if tag in ("tensor", "array", "scalar"):
                yield content
            elif tag == "dict":
                yield from tensors_in(list(content.values()))
            else:
                yield from tensors_in(content)


def _unstorable(value: torch.Tensor) -> tuple[str, str] | None:
    """Return why a tensor cannot be stored and what to do about it, or None if it can be stored."""
    if value.layout != torch.strided:
        return f"its layout is {value.layout}", "store its dense form, or its indices and values"
    if value.is_nested:
        return "it is a nested tensor", "store its parts"
    if value.is_quantized:
        return f"its dtype is {value.dtype}", "store int_repr() with the scale and the zero point"
    if value.device.type == "meta":
        return "it is on the meta device and has no data", "give it data first: to_empty, then initialize it"
    if internals.is_traceable_wrapper_subclass(value):
        return f"it is {described(value)}", "store the plain tensors inside it"
    return None


def _name(place: tuple[str, ...]) -> str:
    """Return a place as a user writes it: ``optimizer['state']['0']``."""
    return (place[0] if place else "the value") + "".join(f"[{one!r}]" for one in place[1:])
