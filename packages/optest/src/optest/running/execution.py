"""Runs one case from inputs to verdict, in the current process.

Generator → reference → driver → comparator. Not here: which cases there are, how
processes are kept apart (``executor``) and what happens to results (``runner``).
"""

from __future__ import annotations

import math
import time
import traceback
from collections.abc import Sequence
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ..backends.driver import BackendDriver, ProgramFailed, Unsupported
from ..core.case import TestCase
from ..core.inputs import copies, hash_of, require_unwritten
from ..core.interrupt import is_ctrl_c
from ..core.memory import free_bytes
from ..core.reference import reference_outputs, rounded
from ..core.result import CaseResult, Status
from ..core.verdict import judge
from ..driver_settings import hash_of_settings
from ..errors import InputWritten, OptestError, told
from ..generators.base import load_generator

Array = NDArray[Any]
Arrays = tuple[Array, ...]
_TAIL = 20
"""How many lines of stderr or of a traceback a record keeps."""


class CaseFailed(Exception):
    """A step of a case failed; holds the fields of the case's record."""

    def __init__(self, reason: str, **fields: Any) -> None:
        self.fields = {"status": Status.ERROR, "reason": reason, **fields}
        super().__init__(reason)


def record(case: TestCase, status: Status, reason: str = "", **fields: Any) -> CaseResult:
    """Return the record of ``case``; ``fields`` are further fields of :class:`CaseResult`."""
    return CaseResult(
        case_id=case.id,
        op=case.op,
        category=case.descriptor.category,
        dtypes=case.dtypes,
        shapes=case.shapes,
        attributes=case.attributes,
        phase=case.phase,
        seed=case.seed,
        backend=case.backend.to_dict(),
        status=status,
        reason=reason,
        settings=hash_of_settings(case.backend_config.get(case.backend.name or case.backend.kind, {})),
        **fields,
    )


def run_case(driver: BackendDriver, case: TestCase, inputs: Sequence[Array] | None = None) -> CaseResult:
    """Run ``case`` on ``driver``, judge the outputs, and return the record, also if something failed.

    If ``inputs`` are given, they replace generated ones and must have the case's shapes and dtypes.
    """
    try:
        fields = _judged(driver, case, inputs)
    except Unsupported as declined:
        fields = {"status": Status.UNSUPPORTED, "reason": declined.reason}
    except CaseFailed as failed:
        fields = failed.fields
    return record(case, **fields)


def generate(case: TestCase) -> tuple[Arrays, Arrays | None]:
    """Return the case's inputs and, if its generator knows them, the expected outputs.

    They are the same on every machine: all randomness comes from the case's id, which covers its seed.
    """
    with _step(f"the generator {case.generator}"):
        rng = np.random.default_rng(int(case.id, 16))
        inputs, expected = load_generator(case.generator).generate(case, rng)
        _check_inputs(case, inputs)
        return inputs, None if expected is None else _apart(expected, inputs)


def _check_inputs(case: TestCase, inputs: Sequence[Array]) -> None:
    """Raise :class:`CaseFailed` unless the inputs have the number, dtypes and shapes that the case has."""
    wanted = [
        (name, dtype, tuple(case.shapes[name]))
        for name, dtype in zip(case.descriptor.inputs, case.dtypes, strict=True)
    ]
    if len(inputs) != len(wanted):
        raise CaseFailed(
            f"the generator {case.generator} gave {len(inputs)} inputs; the case has {len(wanted)}"
        )
    for (name, dtype, shape), one in zip(wanted, inputs, strict=True):
        if one.dtype != dtype or one.shape != shape:
            raise CaseFailed(
                f"the generator {case.generator} gave {one.dtype} {list(one.shape)} for {name}; "
                f"the case has {dtype} {list(shape)}"
            )


def expect(case: TestCase, inputs: Sequence[Array]) -> tuple[Arrays, Arrays]:
    """Return the expected outputs for ``inputs``, and the wide reference outputs before rounding."""
    with _step(f"the reference {case.reference}"):
        wide = reference_outputs(case, inputs)
        return rounded(case, wide), wide


def _judged(driver: BackendDriver, case: TestCase, inputs: Sequence[Array] | None) -> dict[str, Any]:
    with _step(f"supports() of the driver {driver.name}"):
        declined = driver.supports(case)
    if declined is not None:
        return {"status": Status.UNSUPPORTED, "reason": declined}
    with _step("the shape rule"):
        _require_memory(case)
    expected = None
    if inputs is None:
        inputs, expected = generate(case)
    kept = copies(inputs)
    try:
        return {**_compared(driver, case, inputs, kept, expected), "inputs": hash_of(kept)}
    except CaseFailed as failed:
        failed.fields["inputs"] = hash_of(kept)
        raise


def _compared(
    driver: BackendDriver, case: TestCase, inputs: Sequence[Array], kept: Arrays, expected: Arrays | None
) -> dict[str, Any]:
    """Run the driver on ``inputs`` and judge it; return fields of the record. ``kept`` copies ``inputs``."""
    wide = None
    if expected is None:
        expected, wide = expect(case, kept)
    names = case.descriptor.outputs
    with _step("") as running:
        outputs = driver.run(case, inputs)
    with _step(""):
        require_unwritten(f"the driver {driver.name}", case, inputs, kept, case.written)
    with _step("the comparison"):
        found = judge(case, _arrays(outputs, names), expected, wide, partial(tuple, kept))
    failures = [(name, one) for name, one in zip(names, found, strict=True) if not one.passed]
    comparisons = tuple({"output": name, **one.to_dict()} for name, one in zip(names, found, strict=True))
    if not failures:
        return {"status": Status.PASSED, "comparisons": comparisons, "duration_s": running.seconds}
    more = f" (and {len(failures) - 1} more outputs)" if len(failures) > 1 else ""
    reason = f"{failures[0][0]}: {failures[0][1].summary().removeprefix('mismatch: ')}{more}"
    return {
        "status": Status.MISMATCH,
        "reason": reason,
        "comparisons": comparisons,
        "duration_s": running.seconds,
    }


def _require_memory(case: TestCase) -> None:
    """Raise :class:`CaseFailed` if the arrays of the case do not fit into free memory.

    Inputs are drawn, and right answers computed, in 8 bytes per element besides their own bytes.
    Each output exists twice: the expected one and the driver's.
    """
    one = case.descriptor
    given = sum(
        math.prod(case.shapes[name]) * (np.dtype(dtype).itemsize + 8)
        for name, dtype in zip(one.inputs, case.dtypes, strict=True)
    )
    made = sum(
        math.prod(case.output_shapes[name]) * (2 * np.dtype(dtype).itemsize + 8)
        for name, dtype in zip(one.outputs, case.output_dtypes, strict=True)
    )
    needed = given + made
    free = free_bytes()
    if free is not None and needed > free:
        raise CaseFailed(
            f"the case needs at least {needed / 2**30:.1f} GiB of memory, and {free / 2**30:.1f} GiB are "
            "free: give it smaller shapes, or a machine with more"
        )


def _arrays(outputs: Any, names: Sequence[str]) -> list[Array]:
    """Return a driver's outputs as one array each; raise :class:`CaseFailed` if they are not arrays."""
    if isinstance(outputs, np.ndarray | np.generic):
        outputs = (outputs,)
    if not isinstance(outputs, Sequence) or isinstance(outputs, str | bytes):
        raise CaseFailed(
            f"the driver returned {type(outputs).__name__}; it must return a tuple of NumPy arrays"
        )
    if len(outputs) != len(names):
        raise CaseFailed(
            f"the driver returned {len(outputs)} outputs; there must be {len(names)}: {', '.join(names)}"
        )
    for name, one in zip(names, outputs, strict=True):
        if not isinstance(one, np.ndarray | np.generic):
            raise CaseFailed(f"the driver returned {type(one).__name__} for {name}; it must be a NumPy array")
    return [np.asarray(one) for one in outputs]


def _apart(outputs: Sequence[Array], inputs: Sequence[Array]) -> Arrays:
    """Return ``outputs``, copied where they share memory with ``inputs``, which the driver may change."""
    return tuple(
        one.copy() if any(np.may_share_memory(one, other) for other in inputs) else one for one in outputs
    )


class _step:
    """A context that turns exceptions of a step into :class:`CaseFailed`.

    ``what`` says whose step it is; it is empty for the driver's.
    """

    def __init__(self, what: str) -> None:
        self.what = what
        self.seconds = 0.0

    def __enter__(self) -> Self:
        self._started = time.perf_counter()
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        self.seconds = time.perf_counter() - self._started
        taken = 0.0 if self.what else self.seconds
        if isinstance(error, ProgramFailed):
            status = Status.TIMED_OUT if error.timed_out else Status.CRASHED if error.signal else Status.ERROR
            raise CaseFailed(
                error.message,
                status=status,
                exit_code=error.exit_code,
                signal=error.signal,
                stderr_tail=tail(error.stderr_tail),
                duration_s=taken,
            ) from error
        if error is None or isinstance(error, Unsupported | CaseFailed) or is_ctrl_c(error):
            return
        if isinstance(error, InputWritten):
            raise CaseFailed(error.message, duration_s=taken) from error
        text = error.message if isinstance(error, OptestError) else told(error)
        lines = "" if isinstance(error, OptestError) else tail(_traceback(error))
        reason = f"{self.what} raised {text.strip()}" if self.what else text.strip()
        raise CaseFailed(reason, stderr_tail=lines, duration_s=taken) from error


def _traceback(error: BaseException) -> str:
    """Return the traceback, starting at the first frame of the foreign code."""
    return "".join(
        traceback.format_exception(type(error), error, error.__traceback__ and error.__traceback__.tb_next)
    )


def tail(text: str, lines: int = _TAIL) -> str:
    """The last lines of ``text``."""
    return "\n".join(text.rstrip().splitlines()[-lines:])
