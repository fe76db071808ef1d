"""The faults: possible errors of a broken lowering, each a change of its calls, operands or results.

A fault that ``optest faults`` has too has the same name. Not here: for which operators a fault
cannot matter (``rules``), and how a lowering is broken (``broken``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ... import hlo
from ...dtypes import INT64
from ...hlo import Value
from ...lowering import Lowering, Spec
from ...torch_internals.operators import schema_of
from .siblings import sibling_of

Arguments = Mapping[str, Any]
Change = Callable[[Arguments], Arguments]
"""Returns changed arguments for a call, or the same ones if it cannot change them.

Tensors among them are values or fake tensors.
"""


@dataclass(frozen=True)
class Fault:
    """One kind of error.

    ``instead`` is a lowering that is called in place of the right one. ``arguments`` changes the
    arguments of the call, ``operand`` changes each tensor among them, and ``result`` changes each
    result for which ``concerns`` returns true. A result keeps its shape and dtype.
    """

    name: str
    doc: str
    instead: Lowering | None = None
    arguments: Change | None = None
    operand: Callable[[Value], Value] | None = None
    result: Callable[[Value], Value] | None = None
    concerns: Callable[[Spec | Value], bool] = lambda one: True
    needs: str = ""
    """A description of what ``concerns`` requires."""
    phases: tuple[str, ...] = ("forward", "reference")
    """The phases of the suite whose samples can show it, in the order of trial."""

    @property
    def calls(self) -> bool:
        """Whether the fault changes the call of the lowering, rather than operands or results."""
        return self.arguments is not None or self.instead is not None

    @property
    def kind(self) -> str:
        """The name without the argument or operator that it concerns."""
        return self.name.partition(":")[0]


ABOUT_ARGUMENTS = (
    "wrong-axis",
    "ignores-attribute",
    "wrong-choice",
    "ignores-operand",
    "wrong-order",
    "wrong-number",
    "swapped-operands",
)
"""The kinds of faults that change a lowering's arguments."""


def kinds() -> list[str]:
    """The kinds of all faults."""
    return [*(one.kind for one in (*RESULT_FAULTS, *OPERAND_FAULTS)), "wrong-operator", *ABOUT_ARGUMENTS]


def faults_of(lowering: Lowering) -> tuple[Fault, ...]:
    """Every fault that is possible for the lowering's schema."""
    return (*RESULT_FAULTS, *OPERAND_FAULTS, *_siblings(lowering), *_argument_faults(lowering))


def _siblings(lowering: Lowering) -> list[Fault]:
    other = sibling_of(lowering)
    if other is None:
        return []
    return [Fault(f"wrong-operator:{other.name}", "another operator is lowered", instead=other)]


# Results and operands ---------------------------------------------------------------------


def _size(one: Spec | Value) -> int:
    """The number of elements, or 0 if it is unknown."""
    return int(hlo.product(one.shape)) if hlo.is_static(one.shape) else 0


def _signed(one: Spec | Value) -> bool:
    return _size(one) > 0 and one.dtype.kind in ("int", "float", "complex")


def _wide(one: Spec | Value) -> bool:
    return _size(one) > 0 and one.dtype.name in ("float32", "float64", "complex64", "complex128")


def _whole(one: Spec | Value) -> bool:
    return _size(one) > 0 and one.dtype.is_integer


def _truth(one: Spec | Value) -> bool:
    return _size(one) > 0 and one.dtype.is_bool


def _complex(one: Spec | Value) -> bool:
    return _size(one) > 0 and one.dtype.is_complex


def _some(one: Spec | Value) -> bool:
    return (_size(one) > 0 and one.dtype.bits >= 8) or _truth(one)


def _several(one: Spec | Value) -> bool:
    return _some(one) and _size(one) > 1


def _longest(x: Value) -> int:
    return max(range(x.rank), key=lambda axis: int(x.shape[axis]))


def _rotated(x: Value) -> Value:
    axis = _longest(x)
    size = x.shape[axis]
    parts = [hlo.slice_axis(x, axis, size - 1, size), hlo.slice_axis(x, axis, 0, size - 1)]
    return hlo.concatenate(parts, axis)


def _reversed(x: Value) -> Value:
    return hlo.reverse(x, [_longest(x)])


def _without_last(x: Value) -> Value:
    flat = hlo.reshape(x, (_size(x),))
    last = hlo.eq(hlo.iota(flat.shape, 0, INT64), _size(x) - 1)
    return hlo.reshape(hlo.select(last, hlo.zeros_like(flat), flat), x.shape)


def _coarse(x: Value) -> Value:
    if x.dtype.is_complex:
        return hlo.complex_(_coarse(hlo.real(x)), _coarse(hlo.imag(x)))
    return hlo.reduce_precision(x, 8, 7)


def _coarse_operand(x: Value) -> Value:
    return _coarse(x) if _wide(x) else x


def _floating(one: Spec | Value) -> bool:
    return _size(one) > 0 and one.dtype.is_floating


def _blind_to_nan(x: Value) -> Value:
    return hlo.select(hlo.is_nan(x), hlo.zeros_like(x), x) if _floating(x) else x


RESULT_FAULTS = (
    Fault("wrong-sign", "every result is negated", result=lambda x: -x, concerns=_signed, needs="a sign"),
    Fault("inverted", "true and false are swapped", result=lambda x: ~x, concerns=_truth, needs="bools"),
    Fault(
        "next-integer",
        "every result is one too large",
        result=lambda x: x + 1,
        concerns=_whole,
        needs="integers",
    ),
    Fault(
        "off-by-one",
        "results are one place too far along the longest axis",
        result=_rotated,
        concerns=_several,
        needs="several elements",
    ),
    Fault(
        "reversed-axis",
        "the longest axis is written backwards",
        result=_reversed,
        concerns=_several,
        needs="several elements",
    ),
    Fault(
        "drops-last",
        "the last result is never written",
        result=_without_last,
        concerns=_some,
        needs="elements",
    ),
    Fault(
        "wrong-rounding",
        "results are rounded to bfloat16",
        result=_coarse,
        concerns=_wide,
        needs="float32 or wider",
    ),
    Fault(
        "conjugated",
        "every result is conjugated",
        result=hlo.conj,
        concerns=_complex,
        needs="complex numbers",
    ),
)
"""The possible faults of any lowering's results."""

OPERAND_FAULTS = (
    Fault(
        "swaps-nan",
        "NaN counts as a number: as 0",
        operand=_blind_to_nan,
        concerns=_floating,
        needs="floating-point operands",
        phases=("special",),
    ),
    Fault(
        "narrow-operands",
        "floating-point operands are rounded to bfloat16",
        operand=_coarse_operand,
        concerns=_wide,
        needs="float32 or wider",
    ),
)


# Arguments ----------------------------------------------------------------------------------

AXES = frozenset({"dim", "dims", "dim0", "dim1", "dim2", "axis", "axis0", "axis1", "dimension"})
"""Parameters that name axes of the first tensor."""

CHOICES: Mapping[str, tuple[str, ...]] = {
    "approximate": ("none", "tanh"),
    "mode": ("reflect", "replicate", "constant", "circular"),
    "reduce": ("sum", "prod", "mean", "amax", "amin", "add", "multiply"),
    "rounding_mode": ("floor", "trunc"),
    "side": ("left", "right"),
    "UPLO": ("L", "U"),
}
"""The words that a parameter accepts, by its name."""

_NUMBERS = ("int", "float", "number", "Optional[int]", "Optional[float]", "Optional[number]")


def _argument_faults(lowering: Lowering) -> list[Fault]:
    taken = [one for one in schema_of(lowering.overload).arguments if one.name in lowering.parameters]
    return [fault for one in taken if (fault := _about(one)) is not None] + _swap(lowering)


def _about(argument: Any) -> Fault | None:
    """Return the fault for one parameter; None if it has none, such as a tensor or a dtype."""
    name, kind = argument.name, str(argument.type)
    if name.endswith("dtype") or kind == "Tensor":
        return None
    if name in AXES:
        return Fault(f"wrong-axis:{name}", "the next axis is taken", arguments=partial(_next_axis, name))
    if kind in ("bool", "Optional[bool]"):
        doc = "a flag is taken for its opposite"
        return Fault(f"ignores-attribute:{name}", doc, arguments=partial(_flipped, name))
    if name in CHOICES and kind in ("str", "Optional[str]"):
        return Fault(
            f"wrong-choice:{name}", "another choice is taken", arguments=partial(_other_choice, name)
        )
    if kind == "Optional[Tensor]":
        doc = "an optional tensor is left out"
        return Fault(f"ignores-operand:{name}", doc, arguments=partial(_set, name, None))
    if kind == "List[Tensor]":
        return Fault(
            f"wrong-order:{name}", "tensors are taken in reverse", arguments=partial(_backwards, name)
        )
    if argument.has_default_value():
        change = partial(_set, name, argument.default_value)
        return Fault(f"ignores-attribute:{name}", "the default is taken", arguments=change)
    if kind in (*_NUMBERS, "List[int]"):
        doc = "a number (of several, the first) is wrong by one"
        another: Change = _another_dilation if name == "dilation" else partial(_another_number, name)
        return Fault(f"wrong-number:{name}", doc, arguments=another)
    return None


def _swap(lowering: Lowering) -> list[Fault]:
    """Return the fault that swaps the first two tensors, if there are two."""
    taken = (one for one in schema_of(lowering.overload).arguments if one.name in lowering.parameters)
    names = [one.name for one in taken if str(one.type) == "Tensor"]
    if len(names) < 2:
        return []
    change = partial(_swapped, names[0], names[1])
    return [Fault("swapped-operands", "the first two tensors are taken for each other", arguments=change)]


def _set(name: str, value: Any, given: Arguments) -> Arguments:
    return {**given, name: value} if name in given else given


def _flipped(name: str, given: Arguments) -> Arguments:
    return _set(name, not given[name], given) if isinstance(given.get(name), bool) else given


def _other_choice(name: str, given: Arguments) -> Arguments:
    """Replace the word by the next one of its group."""
    words, value = CHOICES[name], given.get(name)
    return _set(name, words[(words.index(value) + 1) % len(words)], given) if value in words else given


def _backwards(name: str, given: Arguments) -> Arguments:
    return _set(name, list(reversed(given.get(name) or ())), given)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _another_number(name: str, given: Arguments) -> Arguments:
    value: Any = given.get(name)
    if isinstance(value, Sequence) and value and _is_number(value[0]):
        return _set(name, [_wrong_by_one(value[0]), *value[1:]], given)
    return _set(name, _wrong_by_one(value), given) if _is_number(value) else given


def _another_dilation(given: Arguments) -> Arguments:
    """Change the dilation along the first axis; a kernel with one tap there keeps it, as it has no effect."""
    taps = given["kernel_size"][0] if "kernel_size" in given else given["weight"].shape[2]
    return given if taps == 1 else _another_number("dilation", given)


def _wrong_by_one(number: Any) -> Any:
    """Subtract one from a positive integer, which keeps it usable as a size or position; else add one."""
    return number - 1 if isinstance(number, int) and number > 0 else number + 1


def _next_axis(name: str, given: Arguments) -> Arguments:
    """Replace an axis of the first tensor, or each of several axes, by the next one, cyclically."""
    rank, value = _rank(given), given.get(name)
    if rank < 2 or value is None or value == []:
        return given
    if isinstance(value, int):
        return _set(name, (value + 1) % rank, given)
    return _set(name, [(axis + 1) % rank for axis in value], given)


def _rank(given: Arguments) -> int:
    for value in given.values():
        first = value[0] if isinstance(value, Sequence) and value else value
        if hasattr(first, "shape"):
            return len(first.shape)
    return 0


def _swapped(one: str, other: str, given: Arguments) -> Arguments:
    if one not in given or other not in given:
        return given
    return {**given, one: given[other], other: given[one]}
