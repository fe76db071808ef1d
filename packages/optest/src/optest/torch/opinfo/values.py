"""The values of a failing sample as text, for people who look at its record."""

from __future__ import annotations

from torch import Tensor

from .phases import Case

_ELEMENTS = 24
"""Elements that are shown of a tensor."""
_MOST = 2000
"""Characters of the whole text."""


def values_of(case: Case) -> str:
    """A line for each tensor that goes in, and for each that eager PyTorch gives."""
    lines = [f"input{place} = {_shown(one)}" for place, one in enumerate(case.call.tensors)]
    lines += [f"expected{place} = {_shown(one)}" for place, one in enumerate(case.expected)]
    text = "\n".join(lines)
    return text if len(text) <= _MOST else f"{text[: _MOST - 1]}…"


def _shown(tensor: Tensor) -> str:
    """Dtype, shape and the first elements, as nobody's settings of printing change them."""
    form = f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"
    try:
        first = tensor.detach().flatten()[:_ELEMENTS].tolist()
    except (RuntimeError, NotImplementedError, TypeError):  # layouts and dtypes without such kernels
        return form
    values = ", ".join(f"{one:.9g}" if isinstance(one, float) else str(one) for one in first)
    return f"{form} {values}" + (", …" if tensor.numel() > _ELEMENTS else "")
