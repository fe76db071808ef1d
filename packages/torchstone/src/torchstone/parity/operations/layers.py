"""Operators of layers: convolution, pooling, normalization, padding."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F

from .operation import FLOATS, operation


def _layer(
    family: str, name: str, function: Any, *shapes: tuple[int, ...], calls: str = "", dtypes: Any = FLOATS
) -> None:
    operation(
        family,
        name,
        function,
        lambda make: tuple(make(*shape) for shape in shapes),
        dtypes=dtypes,
        calls=calls or f"torch.nn.functional.{name}",
    )


def _separable(x: torch.Tensor, depth: torch.Tensor, point: torch.Tensor) -> torch.Tensor:
    return F.conv2d(F.conv2d(x, depth, groups=x.shape[1]), point)


for _rank in (1, 2, 3):
    _size = (6, 5, 4)[:_rank]
    _layer(
        "convolution",
        f"conv{_rank}d",
        getattr(F, f"conv{_rank}d"),
        (2, 3, *_size),
        (4, 3, *[2] * _rank),
        (4,),
    )
    _layer(
        "convolution",
        f"conv_transpose{_rank}d",
        getattr(F, f"conv_transpose{_rank}d"),
        (2, 3, *_size),
        (3, 4, *[2] * _rank),
        (4,),
    )
_layer(
    "convolution",
    "depthwise_conv2d",
    lambda x, w: F.conv2d(x, w, groups=3),
    (2, 3, 6, 5),
    (3, 1, 2, 2),
    calls="torch.nn.functional.conv2d(groups=channels)",
)
_layer(
    "convolution",
    "separable_conv2d",
    _separable,
    (2, 3, 6, 5),
    (3, 1, 2, 2),
    (4, 3, 1, 1),
    calls="torch.nn.functional.conv2d(groups=channels), torch.nn.functional.conv2d(1 × 1)",
)

for _kind in ("max_pool", "avg_pool"):
    for _rank in (1, 2):
        _name = f"{_kind}{_rank}d"
        _layer("pooling", _name, lambda x, _name=_name: getattr(F, _name)(x, 2), (2, 3, *(6, 5)[:_rank]))
for _name in ("adaptive_avg_pool2d", "adaptive_max_pool2d"):
    _layer("pooling", _name, lambda x, _name=_name: getattr(F, _name)(x, (2, 3)), (2, 3, 6, 5))
_layer("pooling", "adaptive_max_pool1d", lambda x: F.adaptive_max_pool1d(x, 3), (2, 3, 8))


def _batch_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return F.batch_norm(x, None, None, weight, bias, training=True)


_layer("normalization", "batch_norm", _batch_norm, (4, 3, 5), (3,), (3,))
_layer("normalization", "layer_norm", lambda x, w, b: F.layer_norm(x, (5,), w, b), (4, 3, 5), (5,), (5,))
_layer("normalization", "instance_norm", F.instance_norm, (4, 3, 5))
_layer("normalization", "group_norm", lambda x, w, b: F.group_norm(x, 2, w, b), (4, 6, 5), (6,), (6,))
_layer("normalization", "local_response_norm", lambda x: F.local_response_norm(x, 3), (2, 4, 5))

_layer("padding", "pad", lambda x: F.pad(x, (1, 2)), (2, 3, 4))
_layer(
    "padding",
    "constant_pad",
    lambda x: F.pad(x, (1, -1), value=2.0),
    (2, 3, 4),
    calls="torch.nn.functional.pad",
)
for _mode in ("reflect", "circular"):
    _layer(
        "padding",
        f"{_mode}_pad",
        lambda x, _mode=_mode: F.pad(x, (1, 2), mode=_mode),
        (2, 3, 4),
        calls=f"torch.nn.functional.pad(mode={_mode!r})",
    )
