"""Refuses ``torch.func`` transforms that differentiate inside a model: ``torch.export`` leaves them out."""

from __future__ import annotations

import traceback

from torch.fx import Node

from ..errors import CaptureError
from .graphs import is_users_file, location_text

_ENDS = ("_unwrap_for_grad", "_unpack_dual")
"""Calls that a graph has where ``grad``, ``vjp`` or ``jvp`` ends. The gradients are not in the graph."""
_FILE = "_functorch/eager_transforms.py"


def refusal_of(node: Node) -> CaptureError | None:
    """Return the error for a node of a captured graph; None if no such transform made the node."""
    if getattr(node.target, "__name__", "") not in _ENDS:
        return None
    return _refusal(location_text(node))


def refusal_for(error: Exception) -> CaptureError | None:
    """Return the error in place of ``error`` if tracing a transform raised it; None for any other."""
    frames = traceback.extract_tb(error.__traceback__)
    if not any(frame.filename.replace("\\", "/").endswith(_FILE) for frame in frames):
        return None
    places = [f"{frame.filename}:{frame.lineno}" for frame in frames if is_users_file(frame.filename)]
    return _refusal(next(reversed(places), None))


def _refusal(place: str | None) -> CaptureError:
    where = place or "an unknown line"
    return CaptureError(
        f"the model differentiates with torch.func at {where}, which torch.export leaves out",
        hint="differentiate with torch.autograd.grad in it, or compile it with torch.compile",
    )
