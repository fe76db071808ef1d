"""How Dynamo traces frames for this backend: what it would leave to eager belongs to the graph.

Dynamo leaves ``nn.LSTM``, ``nn.GRU`` and ``nn.RNN`` to eager unless
``torch._dynamo.config.allow_rnn`` is set, because PyTorch expands them to their
time steps whenever it traces them. Neither holds for this backend, where they are
single operators. Some functions end a graph because their own code looks at values;
here Dynamo traces the capture rule of an export in their place.

A backend has no say in how its frames are traced, and the settings are the process's; so
the function in which Dynamo traces a frame and calls the backend is wrapped,
and does this for frames of this backend only. That costs nothing per call.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from ..compiler.operators.tracing import mended_operators, standing_in
from ..compiler.rules import RULES
from ..torch_internals import dynamo
from ..torch_internals.patches import attributes, patched


def keep_whole(backend: Callable[..., Any]) -> None:
    """Let Dynamo trace what it would leave to eager, in frames that are compiled with ``backend``."""
    convert_frame = dynamo.convert_frame.get()
    trace = convert_frame.compile_frame

    @functools.wraps(trace)
    def compile_frame(code: Any, *arguments: Any, **options: Any) -> Any:
        if not any(dynamo.is_backend(argument, backend) for argument in arguments):
            return trace(code, *arguments, **options)
        with dynamo.config.get().patch(allow_rnn=True), _traced_whole():
            return trace(code, *arguments, **options)

    convert_frame.compile_frame = compile_frame


@contextmanager
def _traced_whole() -> Iterator[None]:
    with (
        standing_in(),
        mended_operators(),
        patched(
            attributes(torch.nn.RNNBase, check_forward_args=_check_forward_args),
            *dynamo.traced_instead(RULES.dynamo),
            *dynamo.scaled_products_kept_whole(),
        ),
    ):
        yield


_CHECK_FORWARD_ARGS = torch.nn.RNNBase.check_forward_args


def _check_forward_args(
    self: torch.nn.RNNBase, input: torch.Tensor, hidden: torch.Tensor, batch_sizes: torch.Tensor | None
) -> None:
    """Compares no initial state with the batch size of packed sequences, which is data.

    ``nn.LSTM`` does not; in ``nn.GRU`` and ``nn.RNN`` it would end the graph. Only Dynamo traces this:
    a thread that runs it does what PyTorch does.
    """
    if not torch.compiler.is_dynamo_compiling():
        _CHECK_FORWARD_ARGS(self, input, hidden, batch_sizes)
        return
    self.check_input(input, batch_sizes)
    if batch_sizes is None:
        self.check_hidden_size(hidden, self.get_expected_hidden_size(input, batch_sizes))
