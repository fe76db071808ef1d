"""Operators on whole tensors: reduction, matrices, shape, indexing."""

from __future__ import annotations

from typing import Any

import torch

from .operation import COMPLEX, EVERY, FLOATS, INTEGERS, operation

NUMBERS = (*FLOATS, *COMPLEX, *INTEGERS)
INEXACT = (*FLOATS, *COMPLEX)
REAL = (*FLOATS, *INTEGERS)


def _of(*shapes: tuple[int, ...]) -> Any:
    return lambda make: tuple(make(*shape) for shape in shapes)


def _reduction(name: str, function: Any, dtypes: Any = EVERY) -> None:
    operation("reduction", name, function, _of((3, 4)), dtypes=dtypes)


for _name in ("sum", "mean", "std", "var", "prod", "all", "any", "argmax", "argmin"):
    _reduction(
        _name, getattr(torch, _name), {"mean": INEXACT, "std": INEXACT, "var": INEXACT}.get(_name, EVERY)
    )
_reduction("max", lambda x: x.max(1))
_reduction("min", lambda x: x.min(1))
for _name in ("logsumexp", "softmax", "log_softmax"):
    _reduction(_name, lambda x, _name=_name: getattr(torch, _name)(x, 1), FLOATS)
for _name in ("cumsum", "cumprod"):
    _reduction(_name, lambda x, _name=_name: getattr(torch, _name)(x, 1))


def _matrix(name: str, function: Any, *shapes: tuple[int, ...]) -> None:
    operation("matrix", name, function, _of(*shapes), dtypes=NUMBERS)


for _name in ("matmul", "mm"):
    _matrix(_name, getattr(torch, _name), (3, 4), (4, 2))
_matrix("bmm", torch.bmm, (2, 3, 4), (2, 4, 2))
_matrix("linear", torch.nn.functional.linear, (3, 4), (2, 4), (2,))
_matrix("mv", torch.mv, (3, 4), (4,))
_matrix("dot", torch.dot, (4,), (4,))
_matrix("outer", torch.outer, (3,), (4,))
_matrix("addmm", torch.addmm, (3, 2), (3, 4), (4, 2))
_matrix("baddbmm", torch.baddbmm, (2, 3, 2), (2, 3, 4), (2, 4, 2))
_matrix("einsum", lambda x, y: torch.einsum("bij,bjk->bik", x, y), (2, 3, 4), (2, 4, 2))
_matrix("tensordot", lambda x, y: torch.tensordot(x, y, 2), (2, 3, 4), (3, 4, 2))
_matrix("inner", torch.inner, (3, 4), (2, 4))

_SHAPES: dict[str, Any] = {
    "reshape": lambda x: x.reshape(4, 6),
    "view": lambda x: x.view(6, 4),
    "flatten": lambda x: x.flatten(1),
    "squeeze": lambda x: x[:, :1].squeeze(1),
    "unsqueeze": lambda x: x.unsqueeze(1),
    "transpose": lambda x: x.transpose(0, 2),
    "permute": lambda x: x.permute(2, 0, 1),
    "movedim": lambda x: x.movedim(0, 2),
    "swapaxes": lambda x: x.swapaxes(0, 1),
    "expand": lambda x: x[:, :1].expand(2, 5, 4),
    "concatenate": lambda x: torch.concatenate([x, x], 1),
    "stack": lambda x: torch.stack([x, x]),
    "split": lambda x: x.split(2, 1),
    "chunk": lambda x: x.chunk(2, 2),
    "unbind": lambda x: x.unbind(1),
    "flip": lambda x: x.flip(1),
    "roll": lambda x: x.roll(2, 2),
    "tile": lambda x: x.tile(2, 1, 1),
    "narrow": lambda x: x.narrow(2, 1, 2),
    "repeat": lambda x: x.repeat(1, 2, 1),
}
for _name, _function in _SHAPES.items():
    # Views of an input are no computation: one is added, which every dtype has.
    operation("shape", _name, _function, _of((2, 3, 4)), dtypes=EVERY)

_PLACES = torch.tensor([2, 0])


def _indexing(
    name: str, function: Any, *shapes: tuple[int, ...], dtypes: Any = EVERY, **options: Any
) -> None:
    operation("indexing", name, function, _of(*shapes), dtypes=dtypes, **options)


_indexing("slice", lambda x: x[1:, ::2], (3, 4), calls="x[start:stop:step]")
_indexing("index_select", lambda x: x.index_select(0, _PLACES.clone()), (3, 4))
_indexing("gather", lambda x: x.gather(1, torch.tensor([[0, 3], [1, 1], [2, 0]])), (3, 4))
_indexing("scatter", lambda x, y: x.scatter(0, torch.tensor([[2, 0, 1, 1]]), y), (3, 4), (1, 4))
_indexing("index_copy", lambda x, y: x.index_copy(0, _PLACES.clone(), y), (3, 4), (2, 4))
_indexing("index_add", lambda x, y: x.index_add(0, _PLACES.clone(), y), (3, 4), (2, 4))
_indexing("index_fill", lambda x: x.index_fill(0, _PLACES.clone(), 1), (3, 4))
_indexing("take", lambda x: x.take(torch.tensor([0, 11, 5])), (3, 4))
_indexing("put", lambda x, y: x.put(torch.tensor([0, 11, 5]), y), (3, 4), (3,), calls="torch.Tensor.put")


def _selected(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    mask = torch.tensor([True, False, False, True])
    return x.masked_select(mask), mask.expand(3, 4).sum()


_indexing(
    "masked_select",
    _selected,
    (3, 4),
    ruled=True,
    bounds={"selected": 12},
    reason="the size of its result depends on values: it is padded to torchstone.bounds(selected=…)",
)
