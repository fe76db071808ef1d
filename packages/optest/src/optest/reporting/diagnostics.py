"""Describes a result in words, the same in every report. Nothing here judges."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ..text import clean

if TYPE_CHECKING:
    from ..core.result import CaseResult


def title(result: CaseResult) -> str:
    """Return a short title of the case, like ``relu float16 [8, 2048]``, without the usual phase."""
    shapes = " ".join(str(list(shape)) for shape in result.shapes.values())
    phase = "" if result.phase == "forward" else f" [{result.phase}]"
    return f"{result.op} {'/'.join(dict.fromkeys(result.dtypes))} {shapes}".rstrip() + phase


def backend(result: CaseResult) -> str:
    """Return the driver with its kind, chip and configuration."""
    name, kind, chip, config = (result.backend.get(key) for key in ("name", "kind", "chip", "config"))
    about = ", ".join(
        part for part in (kind if kind != name else None, f"chip {chip}" if chip else None, config) if part
    )
    return f"{name or kind} ({about})" if about else str(name or kind)


def details(result: CaseResult) -> Iterator[tuple[str, str]]:
    """Yield a label and a text for everything that helps to understand a failure."""
    yield "case", result.case_id
    yield "backend", backend(result)
    yield "seed", str(result.seed)
    yield "dtypes", ", ".join(result.dtypes)
    yield "shapes", ", ".join(f"{name} {list(shape)}" for name, shape in result.shapes.items())
    if result.attributes:
        yield "attributes", ", ".join(f"{name}={_value(value)}" for name, value in result.attributes.items())
    if result.origin is not None:
        yield "origin", result.origin.describe()
    for tolerance in dict.fromkeys(_tolerance(one) for one in result.comparisons):
        yield "tolerance", tolerance
    for one in result.comparisons:
        yield str(one["output"]), comparison(one)
    if result.reason and not any(not one["passed"] for one in result.comparisons):
        yield "reason", clean(result.reason)
    if result.exit_code is not None:
        yield "exit code", str(result.exit_code)
    if result.signal:
        yield "signal", result.signal
    if result.attempts > 1:
        yield "attempts", str(result.attempts)
    if result.stderr_tail:
        yield "stderr", clean(result.stderr_tail)
    if result.rerun:
        yield "rerun", result.rerun


def comparison(one: Mapping[str, Any]) -> str:
    """Describe the comparison of one output: mismatches, largest errors, the worst element."""
    if one["shape"] != one["expected_shape"] or one["dtype"] != one["expected_dtype"]:
        return (
            f"is {one['dtype']} {list(one['shape'])}, expected {one['expected_dtype']} "
            f"{list(one['expected_shape'])}"
        )
    verdict = f"passed by {one['passed_by']}" if one["passed"] else "mismatch"
    share = f"{100 * one['mismatch_share']:.3g} %"
    text = f"{verdict}: {one['mismatches']} of {one['count']} elements differ ({share})"
    if one["mismatches"]:
        text += f"; max abs {_number(one['max_abs'])}, rel {_number(one['max_rel'])}"
        text += "" if one["max_ulp"] is None else f", {one['max_ulp']} ULP"
    if worst := one["worst"]:
        text += f"; worst at {list(worst['index'])}: actual {_value(worst['actual'])}"
        text += f", expected {_value(worst['expected'])}"
    odd = {"NaN": "nan", "infinity": "inf", "sign": "sign", "sign of zero": "signed_zero"}
    counts = [f"{name} {one[f'{key}_mismatches']}" for name, key in odd.items() if one[f"{key}_mismatches"]]
    return text + (f"; disagreements: {', '.join(counts)}" if counts else "")


def _tolerance(one: Mapping[str, Any]) -> str:
    tolerance = one["tolerance"]
    extra = "" if tolerance["equal_nan"] else ", NaN never equal"
    extra += ", signed zeros told apart" if tolerance["signed_zero"] else ""
    return f"rtol {tolerance['rtol']:g}, atol {tolerance['atol']:g}{extra}"


def _number(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{value['real']}{'' if str(value['imag']).startswith('-') else '+'}{value['imag']}j"
    return str(list(value)) if isinstance(value, tuple) else str(value)
