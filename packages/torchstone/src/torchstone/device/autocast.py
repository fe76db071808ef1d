"""The operators that ``torch.autocast("pjrt")`` runs in the lower precision, in float32, or promotes.

The lists are CUDA's (aten/src/ATen/autocast_mode.h), because users expect them of a device with autocast.
Casts of weights are not cached: casting a small tensor costs less than looking it up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from ..torch_internals import pytree
from ..torch_internals.dispatch import is_dispatched
from ..torch_internals.operators import OpOverload
from ..torch_internals.private_device import below_autocast, full_name
from .storage import DEVICE_TYPE


def _names(text: str) -> list[str]:
    return text.split()


LOWER_PRECISION = _names(
    """
    _convolution conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d
    convolution prelu addmm addmv addr matmul einsum mm mv linalg_vecdot linear addbmm baddbmm bmm
    chain_matmul linalg_multi_dot _thnn_fused_lstm_cell _thnn_fused_gru_cell lstm_cell gru_cell
    rnn_tanh_cell rnn_relu_cell scaled_dot_product_attention
    """
)
FLOAT32 = _names(
    """
    __rpow__ __rtruediv__ acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan
    pow softplus layer_norm native_layer_norm group_norm frobenius_norm nuclear_norm cosine_similarity
    poisson_nll_loss cosine_embedding_loss nll_loss nll_loss2d hinge_embedding_loss kl_div l1_loss
    smooth_l1_loss huber_loss mse_loss margin_ranking_loss multilabel_margin_loss soft_margin_loss
    triplet_margin_loss multi_margin_loss binary_cross_entropy_with_logits dist pdist cdist renorm
    logsumexp upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_linear1d
    upsample_bilinear2d upsample_trilinear3d upsample_bicubic2d norm prod softmax log_softmax cumprod
    cumsum sum
    """
)
WIDEST = _names(
    """
    addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put tensordot scatter_add cat stack
    """
)
REFUSED = "binary_cross_entropy"
_REASON = (
    "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.\n"
    "  next: use binary_cross_entropy_with_logits or BCEWithLogitsLoss, which are safe to autocast"
)
Dtype = Callable[[Sequence[Any]], torch.dtype]


def _lower(_: Sequence[Any]) -> torch.dtype:
    return torch.get_autocast_dtype(DEVICE_TYPE)


def _float32(_: Sequence[Any]) -> torch.dtype:
    return torch.float32


def _widest(values: Sequence[Any]) -> torch.dtype:
    wide = any(one.dtype is torch.float32 for one in pytree.tree_leaves(values) if _is_cast(one))
    return torch.float32 if wide else torch.get_autocast_dtype(DEVICE_TYPE)


def _kernel(overload: OpOverload, dtype: Dtype) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        wanted = dtype((*args, *kwargs.values()))
        given = [_cast(one, wanted) for one in args]
        named = {name: _cast(one, wanted) for name, one in kwargs.items()}
        with below_autocast():
            return overload(*given, **named)

    return kernel


def _cast(value: Any, dtype: torch.dtype) -> Any:
    """Return an argument, which may be a list, with its tensors cast to ``dtype``."""
    if type(value) in (list, tuple):
        return [_cast(one, dtype) for one in value]
    return value.to(dtype) if _is_cast(value) and value.dtype is not dtype else value


def _is_cast(value: Any) -> bool:
    """Whether autocast may cast ``value``: a floating-point tensor of the device that is not float64."""
    return (
        isinstance(value, torch.Tensor)
        and value.device.type == DEVICE_TYPE
        and value.is_floating_point()
        and value.dtype is not torch.float64
    )


def _refuse(*_: Any, **__: Any) -> Any:
    raise RuntimeError(_REASON)


def kernels() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield the autocast kernels, each with its operator's name without the namespace."""
    for names, dtype in ((LOWER_PRECISION, _lower), (FLOAT32, _float32), (WIDEST, _widest)):
        for name in names:
            packet = getattr(torch.ops.aten, name, None)
            for overload in () if packet is None else packet.overloads():
                found = getattr(packet, overload)
                named = "out" in overload.split("_") or overload in ("dimname", "names_dim")
                if not named and is_dispatched(found):
                    yield full_name(found), _kernel(found, dtype)
    yield REFUSED, _refuse
