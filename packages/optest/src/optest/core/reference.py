"""Computing the correct results of a case: its reference is called, and its results are rounded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..dotted import load_reference
from ..errors import UsageError
from .inputs import copies, require_unwritten

if TYPE_CHECKING:
    from .case import TestCase

Arrays = tuple[NDArray[Any], ...]


def reference_outputs(case: TestCase, inputs: Sequence[NDArray[Any]]) -> Arrays:
    """Return the results of the case's reference for ``inputs``, one array per output, in its wide dtypes.

    The reference gets copies, so outputs never share memory with ``inputs``. Raises :class:`UsageError` if
    the number of outputs is wrong, and :class:`InputWritten` if the reference wrote into its arguments.
    """
    given = copies(inputs)
    found = load_reference(case.reference)(given, case.attributes)
    require_unwritten(f"the reference {case.reference}", case, given, inputs)
    outputs = (found,) if isinstance(found, np.ndarray | np.generic) else tuple(found)
    if len(outputs) != len(case.descriptor.outputs):
        raise UsageError(
            f"the reference {case.reference} of {case.op} gave {len(outputs)} outputs; "
            f"the operator has {len(case.descriptor.outputs)}"
        )
    return tuple(np.asarray(one) for one in outputs)


def rounded(case: TestCase, wide: Sequence[NDArray[Any]]) -> Arrays:
    """Round ``wide`` to the case's output dtypes, which gives the results of a perfect backend."""
    with np.errstate(all="ignore"):  # overflow to inf is correct in a narrow dtype
        return tuple(one.astype(dtype) for one, dtype in zip(wide, case.output_dtypes, strict=True))
