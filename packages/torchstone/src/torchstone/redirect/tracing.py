"""Finding the places (:mod:`.places`) of the tensors in a graph that Dynamo has traced.

Inside a graph, a CUDA device is encoded as the device of its place. :func:`compiled` removes these devices
before a backend sees the graph, turns transfers between two devices into copies, and places the results.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from ..torch_internals import dispatch, redirection
from .places import HOST, Place, device_of, parsed, place_of, place_of_device, put

_CPU = parsed("cpu")

Origin = int | fx.Node | None
"""A place, or the placeholder node that has the same place, or None if unknown."""


def place_in_graph(node: fx.Node) -> Place:
    """Return the place of a node's tensor, judging by the inputs that the graph was traced with."""
    origin = _origin(node, {})
    return _place_of_example(origin) if isinstance(origin, fx.Node) else origin


def compiled(graph: fx.GraphModule, compile: Callable[[], Callable[..., Any]]) -> Callable[..., Any]:
    """Return the function that ``compile()`` makes of a graph with places, wrapped to place its results."""
    known: dict[fx.Node, Origin] = {}
    inputs = [node for node in graph.graph.nodes if node.op == "placeholder"]
    outputs = [_origin(one, known) if isinstance(one, fx.Node) else None for one in _returned(graph)]
    origins = [inputs.index(one) if isinstance(one, fx.Node) else _Fixed(one) for one in outputs]
    _write_real_devices(graph, known)
    first, last = _take_out_streams(graph)
    function = compile()

    def placed(*args: Any) -> Any:
        with dispatch.without_function_modes():  # the graph already contains what the thread's modes do
            for record in first:
                record()
            results = function(*args)
            for record in last:
                record()
        for origin, result in zip(origins, results, strict=True):
            if isinstance(result, torch.Tensor):
                place = place_of(args[origin]) if isinstance(origin, int) else origin.place
                if place is not None:
                    put(result, place)
        return results

    return placed


class _Fixed:
    """A result that has the same place whatever the inputs are."""

    def __init__(self, place: Any) -> None:
        self.place: Place = place


def _returned(graph: fx.GraphModule) -> Any:
    (output,) = [node for node in graph.graph.nodes if node.op == "output"]
    return output.args[0]


def _origin(node: fx.Node, known: dict[fx.Node, Origin]) -> Origin:
    """Return what determines a node's place: the device that it names, or its first input that is on CUDA."""
    waiting = [node]
    while waiting:
        one = waiting[-1]
        missing = [source for source in one.all_input_nodes if source not in known]
        if one.op != "placeholder" and _asked(one) is None and missing:
            waiting += missing
            continue
        known[waiting.pop()] = _origin_of(one, known)
    return known[node]


def _origin_of(node: fx.Node, known: dict[fx.Node, Origin]) -> Origin:
    if node.op == "placeholder":
        return node if _example(node) is not None else None
    asked = _asked(node)
    if asked is not None:
        return place_of_device(asked)
    origins = [known[source] for source in node.all_input_nodes]
    on_cuda = [one for one in origins if one is not None and _is_cuda(one)]
    if on_cuda:
        return on_cuda[0]
    return next((one for one in origins if one is not None), None if origins else HOST)


def _is_cuda(origin: Origin) -> bool:
    place = _place_of_example(origin) if isinstance(origin, fx.Node) else origin
    return place is not None and place != HOST


def _example(node: fx.Node) -> torch.Tensor | None:
    """Return the real tensor that a placeholder stood for when the graph was traced, or None."""
    grapharg = node.meta.get("grapharg")
    try:
        example = None if grapharg is None else grapharg.example
    except AssertionError:  # the tensor no longer exists
        return None
    return example if isinstance(example, torch.Tensor) else None


def _place_of_example(node: fx.Node) -> Place:
    example = _example(node)
    return None if example is None else place_of(example)


def _asked(node: fx.Node) -> torch.device | None:
    """Return the device among the arguments of a call, or None."""
    for value in (*node.args, *node.kwargs.values()):
        if isinstance(value, torch.device):
            return value
    return None


def _write_real_devices(graph: fx.GraphModule, known: dict[fx.Node, Origin]) -> None:
    for node in graph.graph.nodes:
        asked = _asked(node)
        place = None if asked is None else place_of_device(asked)
        if place is None:
            continue
        node.args = tuple(_CPU if isinstance(one, torch.device) else one for one in node.args)
        node.kwargs = {
            key: _CPU if isinstance(one, torch.device) else one for key, one in node.kwargs.items()
        }
        if node.op == "call_method" and node.target == "to":
            origin = _origin(node.args[0], known)
            source = _place_of_example(origin) if isinstance(origin, fx.Node) else origin
            if source != place:
                node.kwargs = {**node.kwargs, "copy": True}
    graph.recompile()


def _take_out_streams(graph: fx.GraphModule) -> tuple[list[Callable[[], Any]], list[Callable[[], Any]]]:
    """Remove streams, which order nothing on the CPU, from a graph that a backend compiles.

    Returns the functions that record the graph's events: those to call before the graph's work, and those to
    call after it.
    """
    first: list[Callable[[], Any]] = []
    last: list[Callable[[], Any]] = []
    works = False
    for node in list(graph.graph.nodes):
        node.meta.get("custom", {}).pop("stream", None)
        if redirection.records_an_event(node):
            (last if works else first).append(functools.partial(node.target, *node.args))
        works = works or not (node.op in ("placeholder", "get_attr") or redirection.is_about_streams(node))
    for node in reversed(graph.graph.nodes):
        if redirection.is_about_streams(node):
            graph.graph.erase_node(node)
    graph.recompile()
    return first, last


def real(device: Any) -> Any:
    """Return the real device of a fake tensor: the CPU if ``device`` stands for a place, else ``device``."""
    is_place = isinstance(device, torch.device) and place_of_device(device) not in (None, HOST)
    return device_of(HOST) if is_place else device
