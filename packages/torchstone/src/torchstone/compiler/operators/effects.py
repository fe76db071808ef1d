"""Operators that no program contains: some have no effect, others are impossible in a program."""

from __future__ import annotations

import torch

from ...lowering.checks import ValueRule
from ...lowering.linear_algebra.failures import failure_of
from ...torch_internals import tensors
from ...torch_internals.operators import namespace
from .declaring import declare

aten = namespace("aten")


def _succeeded(info: torch.Tensor) -> torch.Tensor:
    return info == 0


def _is_true(self: torch.Tensor) -> torch.Tensor:
    return self != 0


_NO_RAISING = "it raises or does nothing, and a program cannot raise"
declare(
    aten._linalg_check_errors.default,
    no_effect=f"{_NO_RAISING}: results are NaN or infinite instead",
    assertion=ValueRule(lambda given: failure_of(given["api_name"]), _succeeded),
)
declare(
    aten._assert_async.msg,
    no_effect=_NO_RAISING,
    assertion=ValueRule(lambda given: given["assert_msg"], _is_true),
)
declare(
    aten._assert_scalar.default,
    aten._assert_tensor_metadata.default,
    aten.sym_constrain_range.default,
    aten.sym_constrain_range_for_size.default,
    torch.sym_constrain_range,
    tensors.check.find(),
    no_effect="it says something about sizes, which are known when a program is made",
)
declare(
    aten._local_scalar_dense.default,
    aten.item.default,
    excluded="it turns a tensor's value into a Python number, and a program is made before values are known;"
    " compute with the tensor itself: index_select, torch.where, arithmetic with a 0-d tensor",
)
