"""PyTorch's error messages for failed factorizations (aten/src/ATen/native/LinearAlgebraUtils.h)."""

from __future__ import annotations

from typing import Any

import torch

from ..checks import ValueRule

_REASONS = {
    "cholesky_inverse": "The diagonal element is zero, the inversion could not be completed"
    " because the input matrix is singular.",
    "cholesky": "The factorization could not be completed because the input is not positive-definite.",
    "inv": "The diagonal element is zero, the inversion could not be completed"
    " because the input matrix is singular.",
    "solve": "The solver failed because the input matrix is singular.",
    "lu_factor": "U has a zero on its diagonal and using it on lu_solve would result in a division by zero.",
    "svd": "The algorithm failed to converge because the input matrix contained non-finite values.",
    "ldl_factor": "The factorization could not be completed because a block of D is singular.",
}


def failure_of(function: str) -> str:
    """Return the error message of a function such as ``linalg.inv``, without the position of the failure.

    Only a running kernel knows that position.
    """
    for part, reason in _REASONS.items():
        if part in function:
            return f"{function}: {reason}"
    return f"{function}: The algorithm failed."


def succeeds(function: str) -> ValueRule:
    """Return the rule that ``info``, a factorization's last result, is zero if ``check_errors`` is set."""

    def holds(result: tuple[torch.Tensor, ...], check_errors: bool) -> torch.Tensor | None:
        return result[-1] == 0 if check_errors else None

    return ValueRule(failure_of(function), holds)


def _diagonal(matrices: torch.Tensor) -> torch.Tensor:
    return torch.diagonal(matrices, dim1=-2, dim2=-1)


def _in_rows(pivots: torch.Tensor, rows: Any) -> torch.Tensor:
    return (pivots >= 1) & (pivots <= rows)


# The lowering returns NaN where the factorization fails.
CHOLESKY = ValueRule(failure_of("cholesky"), lambda result: ~torch.isnan(_diagonal(result)))
CHOLESKY_INVERSE = ValueRule(failure_of("cholesky_inverse"), lambda self: _diagonal(self) != 0)
SOLVE_PIVOTS = ValueRule(
    "Pivots given to lu_solve must all be greater or equal to 1 and smaller or equal to LU.size(-2)."
    " Did you properly pass the result of lu_factor?",
    lambda LU, pivots: _in_rows(pivots, LU.shape[-2]),
)
UNPACK_PIVOTS = ValueRule(
    "pivots passed to lu_unpack must be between 1 and LU.size(-2) inclusive."
    " Did you properly pass the result of lu_factor?",
    lambda LU_data, LU_pivots, unpack_pivots: (
        _in_rows(LU_pivots, LU_data.shape[-2]) if unpack_pivots else None
    ),
)
EIGENVALUES = ValueRule(
    "torch.linalg.eig: input tensor should not contain infs or NaNs.", lambda self: torch.isfinite(self)
)
# Only NaN is tested: whether LAPACK fails on infinities depends on how many there are and where.
SINGULAR_VALUES = ValueRule(failure_of("linalg.svd"), lambda A: ~torch.isnan(A))
PSEUDO_INVERSE = ValueRule(failure_of("linalg.svd"), lambda self: ~torch.isnan(self))
