"""``torch.compile``: values that Dynamo finds without calling the mode, and what a backend receives."""

from __future__ import annotations

from typing import Any

import torch

from ...torch_internals import dynamo, redirection
from .. import places, tracing
from ..mirror import adapting
from ..rows import Row
from ..scope import Scope
from .device import device_index, exchange_device


def _index(scope: Scope, tensor: Any) -> int | None:
    """Return the CUDA index of the device that a traced tensor is on, or None."""
    if not scope.tracks:
        return scope.index_of_device(tensor.device)
    place = tracing.place_in_graph(tensor.as_proxy().node)
    return None if place == places.HOST else place


def _constant(tx: Any, value: Any) -> Any:
    """Return Dynamo's variable for a value that is known when the code is traced."""
    return dynamo.VariableTracker.get().build(tx, value)


def _device(original: Any) -> Any:
    def implementation(scope: Scope, self: Any, tx: Any) -> Any:
        index = None if self.device is None else _index(scope, self)
        return original(self, tx) if index is None else _constant(tx, places.cuda(index))

    return implementation


def _is_cuda(scope: Scope, self: Any, tx: Any) -> Any:
    return None if self.device is None else _constant(tx, _index(scope, self) is not None)


def _get_device(original: Any) -> Any:
    def implementation(scope: Scope, self: Any, tx: Any) -> Any:
        index = None if self.device is None else _index(scope, self)
        return original(self, tx) if index is None else _constant(tx, index)

    return implementation


def _map_fake(scope: Scope, arguments: dict[str, Any]) -> None:
    arguments["device"] = tracing.real(arguments["device"])


def _compile(original: Any) -> Any:
    def implementation(scope: Scope, self: Any, gm: Any, *rest: Any, **named: Any) -> Any:
        if not scope.tracks:
            return original(self, gm, *rest, **named)
        return tracing.compiled(gm, lambda: original(self, gm, *rest, **named))

    return implementation


_WITH_CUDA_GRAPHS = ("reduce-overhead", "max-autotune")


def _around_torch_compile(original: Any) -> Any:
    def implementation(scope: Scope, model: Any = None, *args: Any, **named: Any) -> Any:
        if named.get("mode") in _WITH_CUDA_GRAPHS:
            scope.policy.note(
                f"torch.compile(mode={named['mode']!r})", f"no CUDA graphs are used on {scope.target.type}"
            )
        return original(model, *args, **named)

    return implementation


def _built(kind: Any) -> Any:
    """Make the streams or events that a compiled graph creates anew in each call."""

    def around(original: Any) -> Any:
        def implementation(scope: Scope, args: Any, kwargs: Any) -> Any:
            return kind()(*args, **kwargs) if scope.tracks else original(args, kwargs)

        return implementation

    return around


_TENSOR = redirection.TENSOR_VARIABLE
_OF_DEVICE_BLOCK = {
    "_exchange_fn": exchange_device,
    "_maybe_exchange_fn": exchange_device,
    "_get_device_index_fn": device_index,
}
_AS_OUTSIDE = "inside compiled code as outside it"

ROWS = (
    Row(f"{_TENSOR}.method_attr_device", "wraps", _AS_OUTSIDE, around=_device, late=dynamo.TRACE_RULES),
    Row(f"{_TENSOR}.method_attr_is_cuda", "wraps", _AS_OUTSIDE, _is_cuda, late=dynamo.TRACE_RULES),
    Row(
        f"{_TENSOR}.method_get_device",
        "wraps",
        _AS_OUTSIDE,
        around=_get_device,
        late=dynamo.TRACE_RULES,
    ),
    *(
        Row(f"{redirection.DEVICE_BLOCK}.{name}", "wraps", _AS_OUTSIDE, one, late=dynamo.TRACE_RULES)
        for name, one in _OF_DEVICE_BLOCK.items()
    ),
    Row(
        redirection.BUILD_STREAM,
        "wraps",
        _AS_OUTSIDE,
        around=_built(lambda: torch.Stream),
        late=dynamo.TRACE_RULES,
    ),
    Row(
        redirection.BUILD_EVENT,
        "wraps",
        _AS_OUTSIDE,
        around=_built(lambda: torch.Event),
        late=dynamo.TRACE_RULES,
    ),
    Row(
        redirection.NEW_FAKE_TENSOR,
        "wraps",
        "a graph's tensors are the target's",
        around=adapting(_map_fake),
        late=dynamo.TRACE_RULES,
    ),
    Row(
        redirection.CALL_COMPILER,
        "wraps",
        "a backend gets the target's devices, and its results are placed",
        around=_compile,
        late=dynamo.TRACE_RULES,
    ),
    Row(
        "torch.compile",
        "wraps",
        "compiles for the target; modes that use CUDA graphs say that there are none",
        around=_around_torch_compile,
    ),
)
