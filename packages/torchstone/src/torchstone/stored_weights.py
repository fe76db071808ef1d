"""Weights in a safetensors member: laid out for memory-mapping, written one at a time, read without copies.

The data of each weight whose size is a multiple of :data:`ALIGNMENT` begins at a multiple of it, so that an
engine on the host can use a mapped file directly. The other weights follow, the widest elements first. A
weight that is in memory under two names is stored once.

A dtype that safetensors lacks (complex128, the 4-bit integers) is stored as bytes, with one more dimension;
``signature.json`` has the real dtype. Not here: the zip file around the member (:mod:`torchstone.archive`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy

from . import dtypes
from .signature import Damage, StoredForm, dtype_of, get, require, shape_of

ALIGNMENT = 64
"""Bytes: the alignment that PJRT requires of memory that it uses without a copy."""

Array = numpy.ndarray[Any, Any]

_AS_BYTES = frozenset({dtypes.COMPLEX128, dtypes.INT4, dtypes.UINT4})
_LENGTH = 8
"""Size in bytes of the length field at the start of a safetensors file."""


@dataclass(frozen=True)
class Layout:
    """Where each weight goes. ``header`` comes first, then the data of the weights in ``order``."""

    forms: Mapping[str, StoredForm]
    order: tuple[str, ...]
    header: bytes
    size: int

    def write(self, weights: Mapping[str, Any], write: Callable[[Any], object]) -> None:
        """Call ``write`` with the header, then with the data of each weight."""
        write(self.header)
        for name in self.order:
            write(numpy.asarray(weights[name], order="C").reshape(-1).view(numpy.uint8).data)


def lay_out(weights: Mapping[str, Any]) -> Layout:
    """Return the layout of ``weights``, NumPy arrays by name; it does not depend on their order."""
    forms: dict[str, StoredForm] = {}
    first: dict[Any, str] = {}
    for name, array in sorted(weights.items()):
        dtype, shape = dtypes.from_numpy(array.dtype), tuple(array.shape)
        memory = (array.__array_interface__["data"][0], array.strides, shape, dtype)
        other = first.setdefault(memory, name) if array.nbytes else name
        forms[name] = StoredForm(dtype, shape, None if other == name else other)
    own = [name for name, form in forms.items() if form.same_as is None]
    order = sorted(own, key=lambda name: _place(forms[name]))
    entries: dict[str, Any] = {}
    at = 0
    for name in order:
        form = forms[name]
        end = at + form.size
        entries[name] = {
            "dtype": dtypes.SAFETENSORS.get(form.dtype, "U8"),
            "shape": _stored_shape(form),
            "data_offsets": [at, end],
        }
        at = end
    text = json.dumps(entries, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-(_LENGTH + len(text)) % ALIGNMENT)
    header = len(text).to_bytes(_LENGTH, "little") + text
    return Layout(forms, tuple(order), header, len(header) + at)


def _place(form: StoredForm) -> tuple[bool, int]:
    return form.size % ALIGNMENT != 0, -form.dtype.itemsize


def _stored_shape(form: StoredForm) -> list[Any]:
    return [*form.shape, *([form.dtype.itemsize] if form.dtype in _AS_BYTES else [])]


def read_weights(content: Array, declared: Mapping[str, Any]) -> dict[str, Array]:
    """Return the weights in ``content``, the bytes of a safetensors file, as views of it.

    ``declared`` is the signature's description of them. Raises :class:`Damage` if the two disagree.
    """
    found = _read_header(content)
    forms = {name: _declared(entry) for name, entry in declared.items()}
    own = {name for name, form in forms.items() if form.same_as is None}
    require(found.keys() == own, "weights.safetensors has other names than signature.json")
    weights: dict[str, Array] = {}
    for name in own:
        form, (shape, data) = forms[name], found[name]
        require(shape == _stored_shape(form), f"weight {name!r}: shape")
        require(len(data) == form.size, f"weight {name!r}: size")
        weights[name] = data.view(form.dtype.numpy).reshape(form.shape)
    for name, form in forms.items():
        if form.same_as is not None:
            other = forms.get(form.same_as)
            same = other is not None and other == StoredForm(form.dtype, form.shape)
            require(same, f"weight {name!r} cannot be the same as {form.same_as!r}")
            weights[name] = weights[form.same_as]
    return {name: weights[name] for name in declared}


def _declared(entry: Any) -> StoredForm:
    dtype, shape = dtype_of(get(entry, "dtype", str)), shape_of(get(entry, "shape", list))
    return StoredForm(dtype, shape, get(entry, "same_as", str) if "same_as" in entry else None)


def _read_header(content: Array) -> dict[str, tuple[list[Any], Array]]:
    """Return the shape and bytes of each weight; raise :class:`Damage` if they leave bytes unused."""
    begin = _LENGTH + int.from_bytes(content[:_LENGTH].tobytes(), "little")
    require(len(content) >= _LENGTH and begin <= len(content), "weights.safetensors: the header is cut off")
    try:
        entries = json.loads(content[_LENGTH:begin].tobytes())
    except (ValueError, RecursionError) as error:
        raise Damage("weights.safetensors: the header is not JSON") from error
    require(isinstance(entries, dict), "weights.safetensors: the header is not a mapping")
    entries.pop("__metadata__", None)
    found: dict[str, tuple[list[Any], Array]] = {}
    places = []
    for name, entry in entries.items():
        offsets = get(entry, "data_offsets", list)
        good = len(offsets) == 2 and all(type(offset) is int for offset in offsets)
        require(good and 0 <= offsets[0] <= offsets[1], f"weight {name!r}: offsets")
        places.append(offsets)
        found[name] = get(entry, "shape", list), content[begin + offsets[0] : begin + offsets[1]]
    at = 0
    for start, end in sorted(places):
        require(start == at, "weights.safetensors: the header leaves gaps")
        at = end
    require(begin + at == len(content), "weights.safetensors: the header says another size")
    return found
