"""Convert calls on sparse tensors to calls on their plain parts; capture rules make them sparse again.

A program takes only plain tensors. CSR tensors are taken apart; calls with other sparse layouts are
declined when they are captured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from optest.backends import Answer
from optest.torch.opinfo.calls import FORWARD, GRADIENT, Call

Tensor = torch.Tensor


def is_taken_apart(call: Call) -> bool:
    """Whether the call has a CSR tensor, and its result can be computed from the parts of it."""
    return call.kind in (FORWARD, GRADIENT) and not call.resized and any(map(_is_csr, call.tensors))


def in_parts(call: Call) -> Call:
    """Return the call with row pointers, columns and values in place of each CSR tensor, if it has any.

    Gradients are those of the values: see :func:`with_dense_gradients`.
    """
    if not is_taken_apart(call):
        return call
    shapes = [one.shape if _is_csr(one) else None for one in call.tensors]
    parts = [_parts(one) for one in call.tensors]
    ends = [sum(map(len, parts[: place + 1])) for place in range(len(parts))]

    def function(*tensors: Tensor) -> Sequence[Tensor]:
        feed = iter(tensors)
        return call.function(*(_next(feed, shape) for shape in shapes))

    tensors = tuple(part for one in parts for part in one)
    return replace(call, function=function, tensors=tensors, wrt=tuple(ends[place] - 1 for place in call.wrt))


def with_dense_gradients(call: Call, answer: Answer) -> Answer:
    """Convert the answer to ``in_parts(call)`` to one for ``call``: gradients of values become dense ones."""
    if answer.outputs is None or call.kind != GRADIENT:
        return answer
    leaves = [call.tensors[place] for place in call.wrt]
    outputs = [_placed(one, leaves[place % len(leaves)]) for place, one in enumerate(answer.outputs)]
    return replace(answer, outputs=outputs)


def _is_csr(tensor: Tensor) -> bool:
    return tensor.layout is torch.sparse_csr


def _parts(tensor: Tensor) -> list[Tensor]:
    if not _is_csr(tensor):
        return [tensor]
    # Copies, because the parts are views of the sparse tensor, which torch.export would capture too.
    return [part.clone() for part in (tensor.crow_indices(), tensor.col_indices(), tensor.values())]


def _next(feed: Any, shape: torch.Size | None) -> Any:
    """Return the next plain tensor, or a CSR tensor made of the next three if there is a ``shape``."""
    if shape is None:
        return next(feed)
    return torch.sparse_csr_tensor(next(feed), next(feed), next(feed), shape)


def _placed(gradient: Any, leaf: Tensor) -> Any:
    if not _is_csr(leaf):
        return gradient
    values = torch.as_tensor(gradient)
    return torch.sparse_csr_tensor(leaf.crow_indices(), leaf.col_indices(), values, leaf.shape).to_dense()
