"""Changes how Dynamo traces frames for this backend, so that graphs hold more than Dynamo would put there.

Dynamo leaves ``nn.LSTM``, ``nn.GRU`` and ``nn.RNN`` to eager unless
``torch._dynamo.config.allow_rnn`` is set, because PyTorch expands them to their
time steps whenever it traces them. This backend keeps them as single operators, so it sets
``allow_rnn``. Some other functions would end a graph because their own code looks at values.
In their place Dynamo traces the capture rule that an export uses.

A backend cannot choose how its frames are traced, and Dynamo's settings apply to the whole
process. So this module wraps the function in which Dynamo traces a frame and calls the
backend, and changes the settings for frames of this backend only. That costs nothing per call.
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
    """In frames that are compiled with ``backend``, let Dynamo trace code that it would leave to eager."""
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
    """Check the arguments of ``forward``, but not the initial state of packed sequences while Dynamo traces.

    PyTorch's check compares that state with the batch size of the packed sequences. The batch size is data,
    so in ``nn.GRU`` and ``nn.RNN`` the comparison would end the graph; ``nn.LSTM`` does not compare. When
    this is run rather than traced by Dynamo, it does what PyTorch does.
    """
    if not torch.compiler.is_dynamo_compiling():
        _CHECK_FORWARD_ARGS(self, input, hidden, batch_sizes)
        return
    self.check_input(input, batch_sizes)
    if batch_sizes is None:
        self.check_hidden_size(hidden, self.get_expected_hidden_size(input, batch_sizes))
