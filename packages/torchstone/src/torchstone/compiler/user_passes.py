"""User-defined passes: functions that change a graph, and checks of the graph that they return.

Such a pass runs on the graph of one program, after it is known that everything in the graph lowers. The
pass may change what is computed. It may not change the inputs, nor the number, shapes and dtypes of the
outputs, and the new graph must lower too. All of this is checked here, so that an error names the pass.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from ..errors import PassError, described
from ..torch_internals.fake import detect_fake_mode
from ..torch_internals.operators import HigherOrderOperator
from .graphs import location_text, output_values, writes
from .operators.tracing import mended_operators
from .pipeline import Pass, Unit
from .support import survey

Change = Callable[[GraphModule], GraphModule]


def graph_pass(
    name: str, *, needs: Iterable[str] = (), guarantees: Iterable[str] = ()
) -> Callable[[Change], Pass[Unit]]:
    """Turn a function of a graph module into a pass, for ``passes`` of :func:`torchstone.export`.

    The function may change the graph module that it gets and return it, or return another one. New nodes
    need no metadata.

    ``needs`` and ``guarantees`` name properties: the compiler's own, or yours, which order your passes
    among themselves. Raises :class:`PassError` if ``name`` is not a non-empty string, or if ``needs`` or
    ``guarantees`` is a string instead of a list.
    """
    for what, names in (("needs", needs), ("guarantees", guarantees)):
        if isinstance(names, str):
            raise PassError(
                f"{what}={names!r} of the pass {name!r} is a string", hint=f"give a list: [{names!r}]"
            )
    if not isinstance(name, str) or not name:
        raise PassError(f"a pass cannot be called {name!r}", hint='write @graph_pass("a-name")')

    def make(change: Change) -> Pass[Unit]:
        @functools.wraps(change)
        def run(unit: Unit) -> None:
            _apply(name, change, unit)

        return Pass(name, run, frozenset(needs), frozenset(guarantees))

    return make


def _apply(name: str, change: Change, unit: Unit) -> None:
    """Apply ``change`` to the unit's graph, and check the graph that it returns."""
    inputs, outputs = _inputs(unit.module), output_values(unit.module)
    kept = [value.meta.get("val") if isinstance(value, Node) else value for value in outputs]
    calls = {node: _call(node) for node in unit.module.graph.nodes}
    try:
        module = change(unit.module)
    except Exception as error:
        raise PassError(f"the pass {name!r} raised {type(error).__name__}: {error}") from error
    if not isinstance(module, GraphModule):
        raise PassError(
            f"the pass {name!r} returned {described(module)}, which is not a GraphModule",
            hint="return the graph module that it was given, or another one",
        )
    try:
        module.graph.lint()
    except RuntimeError as error:
        raise PassError(f"the pass {name!r} leaves a graph that is not well-formed: {error}") from error
    if _inputs(module) != inputs:
        raise PassError(
            f"the pass {name!r} changes the inputs of the graph from {inputs} to {_inputs(module)}",
            hint="leave the placeholders as they are, unused ones too",
        )
    _renew_metadata(name, module, calls)
    _require_outputs(name, module, kept)
    unit.module, unit.survey = module, survey(module)
    for lacking in unit.survey.unsupported:
        raise PassError(
            f"the pass {name!r} leaves {lacking.overload}, which does not lower: {lacking.reason}",
            hint="write it with operators that `torchstone ops` lists",
        )


def _inputs(module: GraphModule) -> list[str]:
    return [node.name for node in module.graph.find_nodes(op="placeholder")]


def _call(node: Node) -> tuple[Any, ...]:
    return node.target, node.args, node.kwargs


def _renew_metadata(name: str, module: GraphModule, calls: Mapping[Node, tuple[Any, ...]]) -> None:
    """Ask PyTorch for the shape and dtype of each call that is not among ``calls`` or whose operands changed.

    Raises :class:`PassError` for a node that is not a functional call, and for a call that PyTorch refuses.
    """
    mode = detect_fake_mode([node.meta.get("val") for node in module.graph.nodes])
    changed: set[Node] = set()
    for node in module.graph.nodes:
        if node.op in ("placeholder", "output"):
            continue
        if calls.get(node) == _call(node) and not changed.intersection(node.all_input_nodes):
            continue
        place = location_text(node)
        where = f"{node.target}{f' at {place}' if place else ''}"
        if node.op not in ("call_function", "get_attr"):
            raise PassError(
                f"the pass {name!r} leaves a {node.op} node: {where}", hint="call overloads: torch.ops.aten.…"
            )
        if writes(node.target):
            raise PassError(
                f"the pass {name!r} leaves {where}, which writes into a tensor",
                hint="use the operator that returns a new tensor",
            )
        try:
            value = _value(module, node, mode)
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
            raise PassError(
                f"the pass {name!r} leaves a call that PyTorch refuses: {where}: {said}"
            ) from error
        if _form(value) != _form(node.meta.get("val")):
            changed.add(node)
            node.meta["val"] = value


def _value(module: GraphModule, node: Node, mode: Any) -> Any:
    """Return the value of ``node`` on fake tensors; for a higher-order operator, that in its metadata."""
    if isinstance(node.target, HigherOrderOperator):
        return node.meta.get("val")
    with torch.no_grad(), mended_operators():
        if node.op == "get_attr":
            found = attrgetter(str(node.target))(module)
            return mode.from_tensor(found, static_shapes=True) if isinstance(found, torch.Tensor) else None
        args, kwargs = map_arg((node.args, dict(node.kwargs)), lambda operand: operand.meta.get("val"))
        target: Any = node.target
        if mode is None:
            return target(*args, **kwargs)
        with mode:
            return target(*args, **kwargs)


def _require_outputs(name: str, module: GraphModule, kept: list[Any]) -> None:
    """Raise :class:`PassError` if outputs differ from ``kept`` in shape or dtype; keep their old strides."""
    found = output_values(module)
    if len(found) != len(kept):
        raise PassError(f"the pass {name!r} changes the number of outputs from {len(kept)} to {len(found)}")
    for place, (value, before) in enumerate(zip(found, kept, strict=True)):
        now = value.meta.get("val") if isinstance(value, Node) else value
        if _form(now) != _form(before):
            raise PassError(
                f"the pass {name!r} changes output {place} from {_form(before)} to {_form(now)}",
                hint="convert and reshape the result, or keep what was there",
            )
        if isinstance(value, Node) and value.op != "placeholder":
            value.meta["val"] = before


def _form(value: Any) -> str:
    """Return the dtype and shape of a tensor as text, and any other value as its own text."""
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}[{', '.join(map(str, value.shape))}]"
    if isinstance(value, (tuple, list)):
        return f"({', '.join(map(_form, value))})"
    return str(value)
