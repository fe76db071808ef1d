"""The ``torch.compile`` backend: ``torch.compile(model, backend="torchstone")``.

This module holds the entry point, which PyTorch imports when the backend is
first asked for, and changes how Dynamo traces for it (:mod:`.dynamo`). The work is
in :mod:`.compile`.
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

    ``options``: see :class:`torchstone.backend.options.Options`. ``mode``: one of Inductor's modes, which say
    how hard Inductor optimizes; it has no effect here. An unknown option or mode raises
    :class:`~torchstone.errors.ConfigError`.
    """
    from .compile import compile_graph
    from .options import Options, check_mode

    check_mode(mode)
    return compile_graph(module, example_inputs, Options.parse(options))


keep_whole(torchstone)
