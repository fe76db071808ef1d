"""Result dtypes of calls with operands of different dtypes, if PyTorch's metadata and kernels disagree.

The rules here follow the kernels. These losses, their gradients and the gradient of ``mish`` have the
dtype of their input. The gradient of softmax has the dtype of the incoming gradient. Normalizations of
16-bit inputs with float32 parameters have float32 statistics. Not here: calls that the kernels refuse
(``compiler.rehearsal``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from functools import wraps
from typing import Any

import torch

from ...torch_internals.fake import PartialRule
from ...torch_internals.operators import OpOverload, namespace
from .declaring import declare

aten = namespace("aten")

Tensor = torch.Tensor
DTypes = Sequence[torch.dtype | None] | None
"""The dtype of each result, or None for a result whose metadata are right; None if all metadata are right."""

_asking: ContextVar[bool] = ContextVar("asking", default=False)
"""Whether a rule is computing PyTorch's own metadata at the moment."""


def _declare(dtypes: Callable[..., DTypes], *overloads: Any) -> None:
    def concerns(*args: Any, **kwargs: Any) -> bool:
        return not _asking.get() and dtypes(*args, **kwargs) is not None

    @wraps(dtypes)
    def rule(mode: Any, overload: OpOverload, *args: Any, **kwargs: Any) -> Any:
        right = dtypes(*args, **kwargs)
        assert right is not None
        token = _asking.set(True)
        try:
            with mode:
                made = overload(*args, **kwargs)
                if isinstance(made, Tensor):
                    return torch.empty_like(made, dtype=right[0])
                return tuple(
                    one if dtype is None else torch.empty_like(one, dtype=dtype)
                    for one, dtype in zip(made, right, strict=True)
                )
        finally:
            _asking.reset(token)

    declare(*overloads, shapes=PartialRule(concerns, rule))


def _of_loss(first: Tensor, second: Tensor, *_: Any, **__: Any) -> DTypes:
    return None if first.dtype == second.dtype else (first.dtype,)


def _of_loss_gradient(grad: Tensor, first: Tensor, second: Tensor, *_: Any, **__: Any) -> DTypes:
    return None if grad.dtype == first.dtype == second.dtype else (first.dtype,)


def _of_activation_gradient(grad: Tensor, x: Tensor) -> DTypes:
    return None if grad.dtype == x.dtype else (x.dtype,)


def _of_softmax_gradient(grad: Tensor, _: Tensor, __: int, dtype: torch.dtype) -> DTypes:
    # On accelerators, results for 16-bit inputs are float32; the gradient has the dtype of the input again.
    widened = grad.dtype == torch.float32 and dtype in (torch.float16, torch.bfloat16)
    return None if grad.dtype == dtype or widened else (grad.dtype,)


def _of_layer(x: Tensor, _: Any, weight: Any, bias: Any, *__: Any) -> DTypes:
    return _of_statistics(x, weight, bias)


def _of_groups(x: Tensor, weight: Any, bias: Any, *_: Any) -> DTypes:
    return _of_statistics(x, weight, bias)


def _of_batch(x: Tensor, weight: Any, bias: Any, mean: Any, var: Any, *_: Any) -> DTypes:
    return _of_statistics(x, weight, bias, mean, var)


def _of_update(*args: Any) -> DTypes:
    right = _of_batch(*args)
    return None if right is None else (*right, None)


def _of_functional(*args: Any) -> DTypes:
    x, _, _, mean, var = args[:5]
    right = _of_batch(*args)
    if right is None:
        if x.dtype.itemsize > 2:
            return None
        right = (None, x.dtype, x.dtype)
    return (*right, mean.dtype, var.dtype)


def _of_functional_update(*args: Any) -> DTypes:
    right = _of_functional(*args)
    return None if right is None else (*right[:3], None, *right[3:])


def _of_statistics(x: Tensor, *parameters: Tensor | None) -> DTypes:
    """Return dtypes: of ``x`` for the result, and of the parameters for the mean and inverse deviation."""
    dtype = next((one.dtype for one in parameters if one is not None), x.dtype)
    return None if dtype == x.dtype else (None, dtype, dtype)


_declare(_of_loss, aten.huber_loss.default, aten.soft_margin_loss.default, aten.normal.Tensor_Tensor)
_declare(
    _of_loss_gradient,
    aten.mse_loss_backward.default,
    aten.smooth_l1_loss_backward.default,
    aten.soft_margin_loss_backward.default,
)
_declare(_of_activation_gradient, aten.mish_backward.default)
_declare(
    _of_softmax_gradient,
    aten._softmax_backward_data.default,
    aten._log_softmax_backward_data.default,
)
_declare(_of_layer, aten.native_layer_norm.default)
_declare(_of_groups, aten.native_group_norm.default, aten._native_batch_norm_legit.no_stats)
_declare(
    _of_batch,
    aten.native_batch_norm.default,
    aten._native_batch_norm_legit.default,
    aten._native_batch_norm_legit_no_training.default,
)
_declare(_of_update, aten._batch_norm_with_update.default, aten._batch_norm_no_update.default)
_declare(_of_functional, aten._native_batch_norm_legit_functional.default)
_declare(_of_functional_update, aten._batch_norm_with_update_functional.default)
