"""The values of a failing sample as text, for people who read its record."""

from __future__ import annotations

from torch import Tensor

from .phases import Case

_ELEMENTS = 24
"""How many elements of a tensor are shown."""
_MOST = 2000
"""The largest length of the whole text, in characters."""


def values_of(case: Case) -> str:
    """Return a text with a line for each input tensor and for each tensor that eager PyTorch returns."""
    lines = [f"input{place} = {_shown(one)}" for place, one in enumerate(case.call.tensors)]
    lines += [f"expected{place} = {_shown(one)}" for place, one in enumerate(case.expected)]
    text = "\n".join(lines)
    return text if len(text) <= _MOST else f"{text[: _MOST - 1]}…"


def _shown(tensor: Tensor) -> str:
    """Return dtype, shape and first elements as text that does not depend on PyTorch's print options."""
    form = f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"
    try:
        first = tensor.detach().flatten()[:_ELEMENTS].tolist()
    except (RuntimeError, NotImplementedError, TypeError):  # layouts and dtypes without such kernels
        return form
    values = ", ".join(f"{one:.9g}" if isinstance(one, float) else str(one) for one in first)
    return f"{form} {values}" + (", …" if tensor.numel() > _ELEMENTS else "")
