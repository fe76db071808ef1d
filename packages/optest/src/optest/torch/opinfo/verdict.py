"""The verdict on one answer: compares its values, its form or its error with eager PyTorch's.

``optest.core.comparator`` compares the arrays; this module only chooses what they are compared
with. Not here: random entries (``distribution``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ...backends.driver import Answer
from ...core.comparator import compare
from ...core.comparison import Comparison
from ...core.dtypes import is_narrow, kind_of
from ...core.result import Status
from ..internals import has_memory
from ..tensors import to_array
from .calls import Tensor
from .per_element import bounds_of, is_elementwise
from .phases import Case, raised
from .rounded import rounding_errors
from .samples import WIDER

Fields = dict[str, Any]
"""Fields of a :class:`CaseResult`: its status, its reason, its comparisons."""


def by_value(case: Case, outputs: Sequence[Any], *, exact: bool = False) -> Fields:
    """Compare every output with eager's; where the tolerance is missed, the wider result decides."""
    if len(outputs) != len(case.expected):
        return mismatch(f"{len(outputs)} results; there must be {len(case.expected)}")
    truths = [None] * len(outputs) if exact else _truths(case)
    found = [
        _compared(got, want, truth, exact)
        for got, want, truth in zip(outputs, case.expected, truths, strict=True)
    ]
    excused = [place for place, one in enumerate(found) if _excused(one)]
    missed = [place for place, one in enumerate(found) if _missed(one)]
    if not (excused or missed):
        return told(found)
    bounds: Sequence[NDArray[Any] | None]
    apiece = is_elementwise(case)
    if apiece:
        places, bounds = excused, bounds_of(case, [one.dtype for one in case.expected])
    else:
        places, bounds = missed, rounding_errors(case, truths)
    for place in places:
        got, want = outputs[place], case.expected[place]
        found[place] = _compared(got, want, truths[place], exact, bounds[place], apiece=apiece)
    return told(found)


def _excused(found: Comparison) -> bool:
    """Whether a narrow float passed only because of the largest error of the whole result."""
    return found.passed_by == "accuracy" and is_narrow(np.dtype(found.dtype))


def _missed(found: Comparison) -> bool:
    """Whether a float of at least 32 bits misses the wider result by more than twice eager's error."""
    return not found.passed and found.accuracy is not None and not is_narrow(np.dtype(found.dtype))


def by_form(case: Case, outputs: Sequence[Any]) -> Fields:
    """Compare shapes and dtypes, which are all that is determined if the memory was never written."""
    if len(outputs) != len(case.expected):
        return mismatch(f"{len(outputs)} results; there must be {len(case.expected)}")
    for place, (got, want) in enumerate(zip(outputs, case.expected, strict=True)):
        for what in ("shape", "dtype"):
            if getattr(got, what) != getattr(want, what):
                text = f"output{place}: {what} {getattr(got, what)}, expected {getattr(want, what)}"
                return mismatch(text)
    return {"status": Status.PASSED}


def by_error(case: Case, answer: Answer) -> Fields:
    """Pass if the exception, or one in its cause chain, has the type and message that the case requires."""
    assert case.raises is not None
    kind, pattern = case.raises
    wanted = f"{kind.__name__} that matches {pattern!r}"
    if answer.error is None:
        if answer.unsupported:
            return {"status": Status.UNSUPPORTED, "reason": answer.unsupported}
        return mismatch(f"nothing was raised; there must be a {wanted}")
    if raised(answer.error, kind, pattern):
        return {"status": Status.PASSED}
    first = answer.error_text.partition("\n")[0]
    return mismatch(f"{first}; there must be a {wanted}")


def told(found: Sequence[Comparison]) -> Fields:
    """Return the comparisons as fields of a record."""
    comparisons = tuple({"output": f"output{place}", **one.to_dict()} for place, one in enumerate(found))
    failures = [(place, one) for place, one in enumerate(found) if not one.passed]
    if not failures:
        return {"status": Status.PASSED, "comparisons": comparisons}
    more = f" (and {len(failures) - 1} more outputs)" if len(failures) > 1 else ""
    place, first = failures[0]
    reason = f"output{place}: {first.summary().removeprefix('mismatch: ')}{more}"
    return {"status": Status.MISMATCH, "reason": reason, "comparisons": comparisons}


def mismatch(reason: str) -> Fields:
    return {"status": Status.MISMATCH, "reason": reason}


def array_of(value: Any) -> NDArray[Any]:
    """Return a tensor or array as an array; complex32 becomes pairs of float16, since NumPy lacks it."""
    if not isinstance(value, Tensor):
        return np.asarray(value)
    if not has_memory(value):
        value = value.clone()
    return to_array(torch.view_as_real(value.resolve_conj()) if value.dtype is torch.complex32 else value)


def _truths(case: Case) -> Sequence[Tensor | None]:
    """Return eager's results in wider dtypes; None for a result that has no usable wider one."""
    if not any(one.dtype in WIDER for one in case.expected):
        return [None] * len(case.expected)
    try:
        found = case.truth()
    except Exception:  # noqa: BLE001  # eager has no wider kernel for it
        return [None] * len(case.expected)
    if len(found) != len(case.expected):
        return [None] * len(case.expected)
    return [
        truth if want.dtype in WIDER and truth.shape == want.shape and truth.is_complex() <= want.is_complex()
        else None
        for truth, want in zip(found, case.expected, strict=True)
    ]  # fmt: skip


def _compared(
    got: Any,
    want: Tensor,
    truth: Tensor | None,
    exact: bool,
    bound: NDArray[Any] | None = None,
    *,
    apiece: bool = False,
) -> Comparison:
    """Compare one output; include both errors against the wider result even if the verdict needs none.

    Errors up to ``bound`` are excused. With ``apiece``, each element is judged by eager's error there.
    """
    actual, expected = array_of(got), array_of(want)
    if exact:
        return compare(actual, expected, mode="exact")
    if truth is None:
        return compare(actual, expected)
    if want.dtype is torch.complex32:
        truth = torch.view_as_real(truth.resolve_conj())
    reference = array_of(truth)
    found = compare(actual, expected, reference=reference, bound=bound, apiece=apiece)
    if found.accuracy is None and found.same_form and kind_of(expected.dtype) not in ("bool", "int"):
        judged = compare(actual, expected, reference=reference, mode="accuracy")
        found = replace(found, accuracy=judged.accuracy)
    return found
