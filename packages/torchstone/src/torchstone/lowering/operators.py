"""Operators of Torchstone's own: recurrent networks that PyTorch would unroll while it traces.

``aten.lstm.input`` and its relatives have no shape rule; PyTorch finds their
shapes by running every time step, in each of several passes. Each gets a
stand-in, ``torchstone::lstm``, with the same schema, a shape rule, and the
original as its CPU kernel. :func:`standing_in` makes PyTorch trace the stand-in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._ops import OpOverload

aten = torch.ops.aten

_library = torch.library.Library("torchstone", "FRAGMENT")
_EXPANSION = torch._C.DispatchKey.CompositeImplicitAutograd

Tensor = torch.Tensor
Tensors = list[torch.Tensor]


def _outputs(input: Tensor, hidden: Tensor, bidirectional: bool) -> Tensor:
    width = hidden.shape[2] * (2 if bidirectional else 1)
    return input.new_empty((*input.shape[:2], width))


def _lstm_shapes(input: Tensor, hx: Tensors, params: Tensors, *options: Any) -> tuple[Tensor, Tensor, Tensor]:
    return _outputs(input, hx[0], options[4]), torch.empty_like(hx[0]), torch.empty_like(hx[1])


def _shapes(input: Tensor, hx: Tensor, params: Tensors, *options: Any) -> tuple[Tensor, Tensor]:
    return _outputs(input, hx, options[4]), torch.empty_like(hx)


def _stand_in(original: OpOverload, shapes: Callable[..., Any]) -> OpOverload:
    name = original._schema.name.removeprefix("aten::")
    _library.define(str(original._schema).replace(f"aten::{name}.{original._overloadname}", name))
    _library.impl(name, lambda *arguments: original(*arguments), "CPU")
    torch.library.register_fake(f"torchstone::{name}", shapes, lib=_library)
    return getattr(torch.ops.torchstone, name).default


_SHAPES: dict[OpOverload, Callable[..., Any]] = {
    aten.lstm.input: _lstm_shapes,
    aten.gru.input: _shapes,
    aten.rnn_tanh.input: _shapes,
    aten.rnn_relu.input: _shapes,
}
STAND_INS = {original: _stand_in(original, shapes) for original, shapes in _SHAPES.items()}
"""ATen's overload → Torchstone's."""


@contextmanager
def standing_in() -> Iterator[None]:
    """Inside, PyTorch expands the originals to their stand-ins instead of to their time steps.

    The dispatch tables of the originals are the process's: a trace in another
    thread meets the stand-ins meanwhile, which have the same meaning.
    """
    before = {original: dict(original.py_kernels) for original in STAND_INS}
    for original, own in STAND_INS.items():
        original.py_kernels[_EXPANSION] = own
        original._dispatch_cache.clear()
    try:
        yield
    finally:
        for original, kernels in before.items():
            original.py_kernels.clear()
            original.py_kernels.update(kernels)
            original._dispatch_cache.clear()
