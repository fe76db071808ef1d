"""Samples that PyTorch's database lacks: they vary arguments that its own samples never vary.

They come after the database's samples, whose numbers stay what they are.
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
    """The samples that are added to those of an entry of ``op_db``."""
    maker = _MAKERS.get(info.full_name)
    if maker is not None:
        for args, kwargs in maker(partial(make_tensor, device="cpu", dtype=dtype)):
            yield Bound(info.op, args, kwargs)


def _batch_norm(make: _Make) -> Iterator[_Arguments]:
    """A scale and a shift, without running statistics."""
    yield (make((4, 3, 5)), make((3,)), make((3,)), True, 0.1, 1e-3), {}


def _ctc_loss(make: _Make) -> Iterator[_Arguments]:
    """A blank that is not the first class, with lengths as numbers and as tensors."""
    scores = make((9, 2, 5)).log_softmax(2)
    targets = torch.tensor([[0, 1, 3], [4, 0, 0]])
    for lengths in (tuple, torch.tensor):
        yield (scores, targets, lengths((9, 7)), lengths((3, 2))), {"blank": 2, "reduction": "none"}


def _nonzero_static(make: _Make) -> Iterator[_Arguments]:
    """More room than there are nonzeros, and something else than −1 in it."""
    yield (make((2, 3)),), {"size": 8, "fill_value": 5}


_MAKERS: Mapping[str, Callable[[_Make], Iterator[_Arguments]]] = {
    "_native_batch_norm_legit": _batch_norm,
    "nn.functional.ctc_loss": _ctc_loss,
    "nonzero_static": _nonzero_static,
}
