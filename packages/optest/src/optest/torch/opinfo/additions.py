"""Samples for arguments that PyTorch's own samples never vary.

They follow the database's samples, so that the numbers of those do not change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch.testing import make_tensor

from .samples import Bound

_Arguments = tuple[tuple[Any, ...], dict[str, Any]]
_Make = Callable[..., torch.Tensor]


def additions(info: Any, dtype: torch.dtype) -> Iterator[Bound]:
    """Yield the samples to add to those of an entry of ``op_db``."""
    maker = _MAKERS.get(info.full_name)
    if maker is not None:
        for args, kwargs in maker(partial(make_tensor, device="cpu", dtype=dtype)):
            yield Bound(info.op, args, kwargs)


def _batch_norm(make: _Make) -> Iterator[_Arguments]:
    """Yield a sample with a scale and a shift, but without running statistics."""
    yield (make((4, 3, 5)), make((3,)), make((3,)), True, 0.1, 1e-3), {}


def _ctc_loss(make: _Make) -> Iterator[_Arguments]:
    """Yield samples whose blank is not the first class, with lengths as numbers and as tensors."""
    scores = make((9, 2, 5)).log_softmax(2)
    targets = torch.tensor([[0, 1, 3], [4, 0, 0]])
    for lengths in (tuple, torch.tensor):
        yield (scores, targets, lengths((9, 7)), lengths((3, 2))), {"blank": 2, "reduction": "none"}


def _nonzero_static(make: _Make) -> Iterator[_Arguments]:
    """Yield a sample with room for more than all elements, filled with a value other than −1."""
    yield (make((2, 3)),), {"size": 8, "fill_value": 5}


_MAKERS: Mapping[str, Callable[[_Make], Iterator[_Arguments]]] = {
    "_native_batch_norm_legit": _batch_norm,
    "nn.functional.ctc_loss": _ctc_loss,
    "nonzero_static": _nonzero_static,
}
