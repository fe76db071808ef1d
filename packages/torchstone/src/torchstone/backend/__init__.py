"""The ``torch.compile`` backend: ``torch.compile(model, backend="torchstone")``.

This module holds the entry point, which PyTorch imports when the backend is
first asked for, and tells Dynamo about it; the work is in :mod:`.compile`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .dynamo import keep_whole

if TYPE_CHECKING:
    from torch.fx import GraphModule

__all__ = ["torchstone"]


def torchstone(
    module: GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
    **_: Any,
) -> Any:
    """Compile a Dynamo graph: forward and backward, with in-graph mutation.

    ``options``: see :class:`torchstone.backend.options.Options`; an unknown one
    raises :class:`~torchstone.errors.ConfigError`. ``mode``: one of Inductor's, which say how much
    it tries, or another error; they change nothing here.
    """
    from .compile import compile_graph
    from .options import Options, check_mode

    check_mode(mode)
    return compile_graph(module, example_inputs, Options.parse(options))


keep_whole(torchstone)
