"""The faults: each wraps a correct kernel and imitates a broken one.

Not here: to which operators a fault applies (``rules``), the driver (``driver``), and the
mutation test that checks whether the suite notices (``campaign``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..core.dtypes import kind_of, real_part
from ..errors import OptestError, UnknownName
from ..operators.descriptor import REQUIRED, OperatorDescriptor
from .reductions import truncated

if TYPE_CHECKING:
    from ..core.case import TestCase

Array = NDArray[Any]
Arrays = tuple[Array, ...]
Run = Callable[["TestCase", Sequence[Array]], Sequence[Array]]
"""The function that computes the right outputs: a driver's ``run``."""


@dataclass(frozen=True)
class Fault:
    """One kind of error; ``spoil(run, case, inputs)`` returns the wrong outputs.

    If a fault has no effect in a case, such as reversing a single element, it returns the right
    outputs.
    """

    name: str
    doc: str
    spoil: Callable[[Run, TestCase, Sequence[Array]], Arrays]


def _each_output(change: Callable[[Array], Array]) -> Callable[[Run, TestCase, Sequence[Array]], Arrays]:
    return lambda run, case, inputs: tuple(change(np.array(one)) for one in run(case, inputs))


def _copied(run: Run, case: TestCase, inputs: Sequence[Array]) -> Arrays:
    """Return the first input's elements in order, repeated to the size of each output."""
    first = inputs[0]
    if not first.size:
        return tuple(run(case, inputs))
    return tuple(
        np.resize(first if one.dtype.kind == "c" else first.real, one.shape).astype(one.dtype)
        for one in run(case, inputs)
    )


def _negated(values: Array) -> Array:
    """Return −x; bools and unsigned integers stay unchanged."""
    return values if values.dtype.kind in "bu" else np.asarray(np.negative(values), values.dtype)


def _longest(values: Array) -> int | None:
    axis = int(np.argmax(values.shape)) if values.ndim else None
    return axis if axis is not None and values.shape[axis] > 1 else None


def _shifted(values: Array) -> Array:
    axis = _longest(values)
    return values if axis is None else np.roll(values, 1, axis)


def _reversed(values: Array) -> Array:
    axis = _longest(values)
    return values if axis is None else np.flip(values, axis)


def _unwritten(values: Array) -> Array:
    if values.size:
        values.reshape(-1)[-1] = 0
    return values


_KEPT_BITS = {"float64": 23, "float32": 10, "float16": 7, "bfloat16": 3}
"""How many fraction bits are kept: those of float32, TF32, bfloat16 and an 8-bit format."""


def _coarse(values: Array) -> Array:
    """Round values to fewer bits than the dtype has."""
    if values.dtype.kind == "c":
        return np.asarray(_coarse(values.real) + 1j * _coarse(values.imag), values.dtype)
    bits = _KEPT_BITS.get(values.dtype.name)
    if bits is None:
        return values
    fractions, exponents = np.frexp(values.astype(np.float64))
    scale = 2.0 ** (bits + 1)
    return np.asarray(np.ldexp(np.rint(fractions * scale) / scale, exponents)).astype(values.dtype)


def _blind_to_nan(run: Run, case: TestCase, inputs: Sequence[Array]) -> Arrays:
    """Compute with every NaN in the inputs replaced by 0."""
    floating = [kind_of(one.dtype) == "float" for one in inputs]
    return tuple(
        run(
            case,
            [
                np.where(np.isnan(one), one.dtype.type(0), one) if is_float else one
                for one, is_float in zip(inputs, floating, strict=True)
            ],
        )
    )


def _saturated(run: Run, case: TestCase, inputs: Sequence[Array]) -> Arrays:
    """Compute in int64, and clamp the results to their integer dtypes."""
    dtypes = tuple("int64" if _is_integer(name) else name for name in case.dtypes)
    attributes = dict(case.attributes)
    if _is_integer(attributes.get("dtype")):
        attributes["dtype"] = "int64"
    if dtypes not in case.descriptor.dtypes:
        return tuple(run(case, inputs))
    wide = [one.astype(dtype) for one, dtype in zip(inputs, dtypes, strict=True)]
    found = run(replace(case, dtypes=dtypes, attributes=attributes), wide)
    return tuple(_clamped(one, dtype) for one, dtype in zip(found, case.output_dtypes, strict=True))


def _is_integer(name: Any) -> bool:
    return isinstance(name, str) and kind_of(np.dtype(name)) == "int"


def _clamped(values: Array, dtype: str) -> Array:
    if values.dtype.kind != "i" or dtype == "bool":
        return values.astype(dtype)
    limits = np.iinfo(dtype)
    return np.clip(values, limits.min, limits.max).astype(dtype)


_NOT_POSSIBLE = (OptestError, IndexError, ValueError)
"""Exceptions that mean that the usual value of an attribute does not fit the case's shapes or indices."""


def _fixed(name: str) -> Callable[[Run, TestCase, Sequence[Array]], Arrays]:
    """Return a fault that uses the usual value of the attribute ``name``, whatever the case says."""

    def spoil(run: Run, case: TestCase, inputs: Sequence[Array]) -> Arrays:
        usual = usual_value(case.descriptor, name)
        altered = replace(case, attributes={**case.attributes, name: usual})
        try:
            altered.descriptor.check_shapes(case.shapes, altered.attributes)
            return tuple(run(altered, inputs))
        except _NOT_POSSIBLE:
            return tuple(run(case, inputs))

    return spoil


def usual_value(descriptor: OperatorDescriptor, name: str) -> Any:
    """Return the default of an attribute or, if it is required, its value in the operator's first setup."""
    given = dict(descriptor.setups[0].attributes)
    if descriptor.attributes[name].default is not REQUIRED:
        given.pop(name, None)
    return descriptor.complete_attributes(given)[name]


IGNORES = "ignores-attribute"
"""The prefix of faults that ignore one attribute, like ``ignores-attribute:dim``."""

FAULTS: Mapping[str, Fault] = {
    one.name: one
    for one in (
        Fault("zeros", "every result is zero", _each_output(np.zeros_like)),
        Fault("copies-input", "the first input comes back", _copied),
        Fault("wrong-sign", "every result is negated", _each_output(_negated)),
        Fault("off-by-one", "results are one place too far along the longest axis", _each_output(_shifted)),
        Fault("reversed-axis", "the longest axis is written backwards", _each_output(_reversed)),
        Fault("drops-last", "the last result is never written", _each_output(_unwritten)),
        Fault("truncates-reduction", "the last element of a sum is left out", truncated),
        Fault("wrong-rounding", "results are rounded to a narrower format", _each_output(_coarse)),
        Fault("swaps-nan", "NaN counts as a number: as 0", _blind_to_nan),
        Fault("saturates", "integers stop at their limits instead of wrapping", _saturated),
    )
}
"""All faults except those that ignore an attribute, which depend on the operator."""


def find_fault(name: str) -> Fault:
    """Return the fault ``name``, which may be ``ignores-attribute:NAME``; raises :class:`UnknownName`."""
    prefix, colon, attribute = name.partition(":")
    if prefix == IGNORES and colon and attribute:
        return Fault(name, f"the attribute {attribute} is ignored", _fixed(attribute))
    if name not in FAULTS:
        raise UnknownName("fault", name, [*FAULTS, f"{IGNORES}:NAME"])
    return FAULTS[name]


def faults_of(descriptor: OperatorDescriptor) -> tuple[Fault, ...]:
    """Return all faults, and one for each attribute of the operator, whether or not they apply."""
    ignored = (find_fault(f"{IGNORES}:{name}") for name in descriptor.attributes)
    return (*FAULTS.values(), *ignored)


def is_floating(dtype: str) -> bool:
    """Whether results of ``dtype`` are rounded."""
    return kind_of(real_part(np.dtype(dtype))) == "float"
