"""Refuses calls that can be traced although eager PyTorch refuses them.

Operators declare what they refuse (``operators.arguments``). The check runs on the graph as it was
captured, which still has the ``out=`` forms that the user wrote. Not here: indices out of range
(:mod:`.index_checks`), and operators that capture rules expand. These rules make their own checks.
"""

from __future__ import annotations

from torch.fx import GraphModule, Node

from ..errors import CaptureError
from ..torch_internals.operators import OpOverload
from .graphs import bind_schema, fake_arguments, location_text, operator_nodes
from .operators import registry
from .rehearsal import refusal
from .support import UNKNOWN

_ABOUT_INDICES = (
    "tensors used as indices",
    "index_fill_()",
    "put_(): Expected source",
    "Dimension out of range",
    "cummax()",
    "cummin()",
)
"""The first words of messages for which PyTorch raises ``IndexError``."""


def check_arguments(module: GraphModule) -> None:
    """Raise :class:`CaptureError` with PyTorch's message for the first call that eager PyTorch refuses."""
    for node in operator_nodes(module):
        if not isinstance(node.target, OpOverload) or UNKNOWN in node.meta:
            continue
        check = registry.record(node.target).arguments
        said = check(fake_arguments(bind_schema(node.target, node.args, node.kwargs))) if check else None
        cause = refusal(node) if said is None else _error(said)
        if cause is not None:
            raise refused(node, cause) from cause


def _error(said: str) -> Exception:
    if said.startswith(_ABOUT_INDICES):
        return IndexError(said)
    return NotImplementedError(said) if "not implemented for" in said else RuntimeError(said)


def refused(node: Node, cause: Exception) -> CaptureError:
    """Return the error for a call for which eager PyTorch raises ``cause``."""
    said = str(cause).partition("\n")[0]
    return CaptureError(
        f"{node.target} at {location_text(node) or 'an unknown source line'}: {said}",
        hint="correct the arguments: eager PyTorch refuses them as well",
    )
