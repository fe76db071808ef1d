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
from torch._dynamo import config, convert_frame
from torch._dynamo.eval_frame import innermost_backend
from torch._dynamo.trace_rules import _polyfilled_function_ids
from torch._dynamo.variables import PolyfilledFunctionVariable
from torch.nn import functional as F

from ..compiler.rules import losses, statistics
from ..lowering.operators import standing_in

_TRACED_INSTEAD: dict[Callable[..., Any], Callable[..., Any]] = {
    F.gaussian_nll_loss: losses.gaussian_nll_loss,
    torch.combinations: statistics.combinations,
}
"""Functions that look at values, and their capture rules."""


def keep_whole(backend: Callable[..., Any]) -> None:
    """Let Dynamo trace what it would leave to eager, in frames that are compiled with ``backend``."""
    trace = convert_frame.compile_frame

    @functools.wraps(trace)
    def compile_frame(code: Any, *arguments: Any, **options: Any) -> Any:
        if not any(_is(argument, backend) for argument in arguments):
            return trace(code, *arguments, **options)
        with (
            config.patch(allow_rnn=True),
            standing_in(),
            _hidden_size_of_packed_unread(),
            _values_unread(),
        ):
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


@contextmanager
def _values_unread() -> Iterator[None]:
    """Trace capture rules instead of functions that look at values.

    A function that has a substitute already keeps it: the user's own, or that of a frame around this one.
    """
    handlers = PolyfilledFunctionVariable._get_polyfill_handlers()
    replaced = [function for function in _TRACED_INSTEAD if function not in handlers]
    for function in replaced:
        handler = functools.partial(function)
        handler.__torch_dynamo_polyfill__ = _TRACED_INSTEAD[function]  # type: ignore[attr-defined]
        handlers[function] = handler  # type: ignore[assignment]
        _polyfilled_function_ids.add(id(function))
    try:
        yield
    finally:
        for function in replaced:
            _polyfilled_function_ids.remove(id(function))
            del handlers[function]
