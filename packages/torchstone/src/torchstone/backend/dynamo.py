"""How Dynamo traces frames for this backend: recurrent modules belong to the graph, as single operators.

Dynamo leaves ``nn.LSTM``, ``nn.GRU`` and ``nn.RNN`` to eager unless
``torch._dynamo.config.allow_rnn`` is set, because PyTorch expands them to their
time steps whenever it traces them. Neither holds for this backend. A backend
has no say in how its frames are traced, and the setting is the process's; so
the function in which Dynamo traces a frame and calls the backend is wrapped,
and does this for frames of this backend only. That costs nothing per call.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._dynamo import config, convert_frame
from torch._dynamo.eval_frame import innermost_backend

from ..lowering.operators import standing_in


def keep_recurrent_modules(backend: Callable[..., Any]) -> None:
    """Let Dynamo trace recurrent modules whole in frames that are compiled with ``backend``."""
    trace = convert_frame.compile_frame

    @functools.wraps(trace)
    def compile_frame(code: Any, *arguments: Any, **options: Any) -> Any:
        if not any(_is(argument, backend) for argument in arguments):
            return trace(code, *arguments, **options)
        with config.patch(allow_rnn=True), standing_in(), _hidden_size_of_packed_unread():
            return trace(code, *arguments, **options)

    convert_frame.compile_frame = compile_frame


def _is(argument: Any, backend: Callable[..., Any]) -> bool:
    """True if ``argument`` is ``backend`` in the wrappers that PyTorch puts around backends."""
    if not callable(argument):
        return False
    inner = innermost_backend(argument)
    return getattr(inner, "compiler_fn", inner) is backend


@contextmanager
def _hidden_size_of_packed_unread() -> Iterator[None]:
    """Trace no comparison of initial states with the batch size of packed sequences, which is data.

    ``nn.LSTM`` makes none; in ``nn.GRU`` and ``nn.RNN`` it would end the graph.
    """

    def check_forward_args(
        self: torch.nn.RNNBase, input: torch.Tensor, hidden: torch.Tensor, batch_sizes: torch.Tensor | None
    ) -> None:
        self.check_input(input, batch_sizes)
        if batch_sizes is None:
            self.check_hidden_size(hidden, self.get_expected_hidden_size(input, batch_sizes))

    original = torch.nn.RNNBase.check_forward_args
    torch.nn.RNNBase.check_forward_args = check_forward_args  # type: ignore[method-assign]
    try:
        yield
    finally:
        torch.nn.RNNBase.check_forward_args = original  # type: ignore[method-assign]
