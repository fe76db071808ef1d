"""PyTorch's Python code for calls in place, which lets a tensor grow where its kernels refuse to."""

from __future__ import annotations

import sys
from typing import Any

import torch

from .patches import Patch, functions
from .probing import Internal

_wrappers = Internal("torch._prims_common.wrappers", "refusing calls that would grow a tensor")


def refusing_growth() -> list[Patch]:
    """Return patches that refuse calls whose result has another shape than the input that they write.

    The error is the one of PyTorch's kernels. ``out=`` may still resize a tensor that is not an input.
    """
    wrappers = _wrappers.find()
    if not hasattr(wrappers, "_maybe_resize_out"):
        return []
    resize = wrappers._maybe_resize_out

    def checked(out: torch.Tensor, shape: Any, *format: Any, **named: Any) -> Any:
        # The wrapper of ``out=``, which calls this through the patch, holds the inputs.
        inputs = sys._getframe(2).f_locals.get("args", ())
        if any(one is out for one in inputs) and tuple(out.shape) != tuple(shape):
            raise RuntimeError(
                f"output with shape {list(out.shape)} doesn't match the broadcast shape {list(shape)}"
            )
        return resize(out, shape, *format, **named)

    return [functions(wrappers, _maybe_resize_out=checked)]
