"""CUDA graphs: capture records the dispatched operators, ``replay()`` runs them again (:mod:`.capture`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from ...errors import RedirectUnsupported
from ..mirror import Implementation
from ..rows import Row
from ..scope import Scope
from .capture import Tape
from .classes import shadow_where_needed
from .random import get_state, set_state
from .streams import made_already


def _new(scope: Scope, cls: Any, keep_graph: bool) -> Any:
    graph = object.__new__(cls)
    graph._tracker, graph.tape, graph.capturing, graph.debug = None, None, False, False
    return graph


def _capture_begin(
    scope: Scope, self: Any, pool: Any, capture_error_mode: str, check_input_liveness: bool
) -> None:
    if scope.settings.get("capturing"):
        raise RuntimeError("a capture is underway already: CUDA graphs do not nest")
    self.tape = Tape(lambda: get_state(scope, None), lambda state: set_state(scope, state, None))
    self.tape.start()
    self.capturing = scope.settings["capturing"] = True


def _capture_end(scope: Scope, self: Any) -> None:
    if not self.capturing:
        raise RuntimeError("capture_end() without a capture_begin()")
    self.capturing = scope.settings["capturing"] = False
    self.tape.stop()


def _replay(scope: Scope, self: Any) -> None:
    if self.tape is None or self.capturing:
        raise RuntimeError("Called CUDAGraph::replay without a preceding successful capture.")
    self.tape.replay()


def _instantiate(scope: Scope, self: Any) -> None:
    if self.tape is None or self.capturing:
        raise RuntimeError("instantiate() is called before capture_end()")


def _reset(scope: Scope, self: Any) -> None:
    self.tape = None


def _pool(scope: Scope, self: Any) -> tuple[int, int]:
    return (0, id(self))


def _handle(scope: Scope) -> tuple[int, int]:
    scope.settings["pools"] = scope.settings.get("pools", 0) + 1
    return (0, scope.settings["pools"])


def _enable_debug(scope: Scope, self: Any) -> None:
    self.debug = True


def _debug_dump(scope: Scope, self: Any, debug_path: str) -> None:
    """Write the recorded operators to a file, one per line."""
    calls = [] if self.tape is None else self.tape.calls
    Path(debug_path).write_text("".join(f"{call.operator}\n" for call in calls), "utf-8")


def _no_handle(scope: Scope, self: Any) -> Any:
    raise RedirectUnsupported("a redirected graph has no cudaGraph_t: it is a list of PyTorch's operators")


def _is_capturing(scope: Scope) -> bool:
    return bool(scope.settings.get("capturing"))


def _enter(scope: Scope, self: Any) -> None:
    torch.cuda.synchronize()
    self.stream_ctx.__enter__()
    self.cuda_graph.capture_begin(*self.pool, capture_error_mode=self.capture_error_mode)


def _around_init(original: Any) -> Any:
    """Pass a new side stream, because PyTorch would keep its first one on the class after the scope."""

    def implementation(scope: Scope, self: Any, cuda_graph: Any, pool: Any, stream: Any, *rest: Any) -> None:
        original(self, cuda_graph, pool, torch.cuda.Stream() if stream is None else stream, *rest)

    return implementation


def _around_capturable(original: Any) -> Any:
    """Add the target to the devices on which optimizers allow parameters with ``capturable=True``."""

    def implementation(scope: Scope, supports_xla: bool = True) -> list[str]:
        return [*original(supports_xla), scope.target.type]

    return implementation


_OPTIMIZERS = ("adadelta", "adam", "adamax", "asgd", "nadam", "radam", "rmsprop", "rprop")

_OF_GRAPH: dict[str, Implementation] = {
    "__new__": _new,
    "__init__": made_already,
    "capture_begin": _capture_begin,
    "capture_end": _capture_end,
    "instantiate": _instantiate,
    "replay": _replay,
    "reset": _reset,
    "pool": _pool,
    "enable_debug_mode": _enable_debug,
    "debug_dump": _debug_dump,
}
_METHODS: dict[str, Implementation] = {f"CUDAGraph.{name}": one for name, one in _OF_GRAPH.items()} | {
    "graph.__enter__": _enter,
    "graph_pool_handle": _handle,
    "is_current_stream_capturing": _is_capturing,
}
_RAISES = ("CUDAGraph.raw_cuda_graph", "CUDAGraph.raw_cuda_graph_exec", "CUDAGraph.get_graph_data")

ROWS = (
    *(
        Row(f"torch.cuda.{name}", "wraps", "records and reruns operators", one)
        for name, one in _METHODS.items()
    ),
    *(
        Row(f"torch.cuda.{name}", "raises", "there is no cudaGraph_t", _no_handle, optional=True)
        for name in _RAISES
    ),
    Row(
        "torch.cuda.CUDAGraph",
        "wraps",
        "its methods are redirected one by one; replay reruns the recorded work",
        replacement=lambda original: shadow_where_needed(original, _OF_GRAPH),
    ),
    Row("torch.cuda.graph.__init__", "wraps", "the side stream is the scope's", around=_around_init),
    Row("torch.cuda.graph", "wraps", "captures by recording the dispatched operators"),
    *(
        Row(
            f"torch.optim.{name}._get_capturable_supported_devices",
            "wraps",
            "optimizers on the target can be captured",
            around=_around_capturable,
        )
        for name in _OPTIMIZERS
    ),
    Row("torch.cuda.make_graphed_callables", "wraps", "unchanged over the redirected graphs and streams"),
    Row("torch.cuda.graphs", "wraps", "a module: its classes and functions are redirected"),
)
