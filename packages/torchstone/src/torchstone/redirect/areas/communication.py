"""``torch.cuda.comm`` (``torch.nn.parallel.comm``): copies between devices, written in C only in CUDA builds.

``DataParallel`` and the rest of ``torch.nn.parallel`` run unchanged on top of these functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn.parallel import comm

from ..mirror import Implementation
from ..rows import Row
from ..scope import Scope

Tensors = Sequence[torch.Tensor]


def _broadcast(scope: Scope, tensor: torch.Tensor, devices: Any = None, *, out: Any = None) -> Any:
    if (devices is None) == (out is None):
        raise RuntimeError(
            f"Exactly one of 'devices' and 'out' must be specified, but got devices={devices} and out={out}"
        )
    if out is None:
        return tuple(_copies(scope, [tensor], scope.ordinal(device))[0] for device in devices)
    for one in out:
        one.copy_(tensor)
    return tuple(out)


def _broadcast_coalesced(scope: Scope, tensors: Tensors, devices: Any, buffer_size: int = 0) -> list[Any]:
    """Return a list of copies for each device; a tensor that is already on a device is not copied for it."""
    return [_copies(scope, tensors, scope.ordinal(device)) for device in devices]


def _copies(scope: Scope, tensors: Tensors, index: int) -> list[torch.Tensor]:
    device = scope.target.device(index)
    return [tensor if scope.index_of(tensor) == index else tensor.to(device) for tensor in tensors]


def _reduce_add_coalesced(
    scope: Scope, inputs: Sequence[Tensors], destination: Any = None, buffer_size: int = 0
) -> tuple[torch.Tensor, ...]:
    return tuple(comm.reduce_add(tensors, destination) for tensors in zip(*inputs, strict=True))


def _scatter(
    scope: Scope,
    tensor: torch.Tensor,
    devices: Any = None,
    chunk_sizes: Any = None,
    dim: int = 0,
    streams: Any = None,
    *,
    out: Any = None,
) -> tuple[torch.Tensor, ...]:
    if out is not None:
        if devices is not None or chunk_sizes is not None:
            raise RuntimeError("'devices' and 'chunk_sizes' must not be specified when 'out' is specified")
        chunks = tensor.split([one.size(dim) for one in out], dim)
        return tuple(one.copy_(chunk) for one, chunk in zip(out, chunks, strict=True))
    chunks = tensor.chunk(len(devices), dim) if chunk_sizes is None else tensor.split(list(chunk_sizes), dim)
    return tuple(
        chunk.to(scope.place(scope.ordinal(device)))
        for chunk, device in zip(chunks, devices[: len(chunks)], strict=True)
    )


def _gather(
    scope: Scope, tensors: Tensors, dim: int = 0, destination: Any = None, *, out: Any = None
) -> torch.Tensor:
    if out is not None:
        if destination is not None:
            raise RuntimeError(
                f"'destination' must not be specified when 'out' is specified, but got {destination}"
            )
        for one, tensor in zip(out.split([one.size(dim) for one in tensors], dim), tensors, strict=True):
            one.copy_(tensor)
        return out
    to_host = destination == -1 or str(destination) == "cpu"
    device = "cpu" if to_host else scope.place(scope.ordinal(destination))
    with torch.autocast(scope.target.type, enabled=False):  # as in CUDA's C++
        return torch.cat([tensor.to(device) for tensor in tensors], dim)


_NOTE = "copies between the redirected devices"
_FUNCTIONS: dict[str, Implementation] = {
    "broadcast": _broadcast,
    "broadcast_coalesced": _broadcast_coalesced,
    "reduce_add_coalesced": _reduce_add_coalesced,
    "scatter": _scatter,
    "gather": _gather,
}

ROWS = (
    *(Row(f"torch.nn.parallel.comm.{name}", "wraps", _NOTE, one) for name, one in _FUNCTIONS.items()),
    *(Row(f"torch.cuda.comm.{name}", "wraps", _NOTE, one) for name, one in _FUNCTIONS.items()),
    Row("torch.nn.parallel.comm.reduce_add", "wraps", "unchanged over the redirected copies"),
    Row("torch.nn.parallel.DataParallel", "wraps", "unchanged over the redirected copies"),
)
