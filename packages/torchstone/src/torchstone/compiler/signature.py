"""Reads the signature of a normalized ``ExportedProgram``: inputs, outputs, trees, symbols and weights."""

from __future__ import annotations

import sys
from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass, replace
from importlib.metadata import version
from typing import Any, Literal

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import (
    ConstantArgument,
    InputKind,
    OutputKind,
    SymBoolArgument,
    SymFloatArgument,
    SymIntArgument,
    TensorArgument,
)

from .. import dtypes, hlo
from .._version import __version__
from ..errors import CaptureError, UnsupportedShape
from ..shapes import Range, names_in
from ..signature import InputKind as Kind
from ..signature import InputSpec, OutputSpec, Signature, is_relation
from ..signature import OutputKind as OutKind
from ..torch_internals import pytree
from ..torch_internals.symbols import assumed_of
from ..trees import Tree, field_names, plain_constant
from .bounded import unknown_symbols
from .checks import Check
from .graphs import shape_of

Weights = Literal["arguments", "constants"]

_INPUT_KINDS: dict[Any, Kind] = {
    InputKind.PARAMETER: "parameter",
    InputKind.BUFFER: "buffer",
    InputKind.CONSTANT_TENSOR: "constant",
    InputKind.USER_INPUT: "input",
}
_OUTPUT_KINDS: dict[Any, OutKind] = {
    OutputKind.USER_OUTPUT: "output",
    OutputKind.BUFFER_MUTATION: "buffer_mutation",
    OutputKind.PARAMETER_MUTATION: "buffer_mutation",  # embedding with max_norm
    OutputKind.USER_INPUT_MUTATION: "input_mutation",
}


class SignatureReader:
    """The inputs and outputs of a normalized ``ExportedProgram``.

    ``weights`` maps targets to the tensors that become arguments of the program. ``baked`` maps names of
    placeholders to the tensors that become constants.
    """

    def __init__(self, exported: ExportedProgram, weights: Weights) -> None:
        self.exported = exported
        graph_module = exported.graph_module
        nodes = {node.name: node for node in graph_module.graph.nodes}
        state = {**exported.state_dict, **exported.constants}
        mutated = {
            spec.target
            for spec in exported.graph_signature.output_specs
            if _OUTPUT_KINDS.get(spec.kind) == "buffer_mutation"
        }
        user_leaves: list[Tree] = []
        self.weights: dict[str, torch.Tensor] = {}
        self.baked: dict[str, torch.Tensor] = {}
        self.inputs: list[InputSpec] = []
        count = 0
        for spec in exported.graph_signature.input_specs:
            if spec.kind is InputKind.CUSTOM_OBJ or spec.kind is InputKind.TOKEN:
                raise CaptureError(f"input {spec.arg.name} of kind {spec.kind.name} is not supported")
            if not isinstance(spec.arg, TensorArgument):
                user_leaves.append(_constant_leaf(spec.arg, nodes))
                continue
            kind, target = _INPUT_KINDS[spec.kind], spec.target
            if kind == "input":
                user_leaves.append({"leaf": count})
                count += 1
            else:
                assert target is not None
                if weights == "constants" and target not in mutated:
                    self.baked[spec.arg.name] = state[target]
                    continue
                self.weights[target] = state[target]
            value = nodes[spec.arg.name].meta["val"]
            self.inputs.append(
                InputSpec(kind, spec.arg.name, _shape_text(value), dtypes.from_torch(value.dtype), target)
            )
        self.input_tree = describe(exported.call_spec.in_spec, user_leaves)
        self._check_numbers(user_leaves)
        self.outputs, self.output_tree = self._outputs(nodes)

    def _check_numbers(self, leaves: Sequence[Tree]) -> None:
        """Raise :class:`CaptureError` if an input is a dynamic Python number and not a size of a tensor."""
        sizes = {dim for spec in self.inputs for dim in spec.shape}
        for name, leaf in zip(self.exported.graph_signature.user_inputs, leaves, strict=True):
            if "dim" in leaf and leaf["dim"] not in sizes:
                raise CaptureError(
                    f"input {name} is a number that dynamic_shapes= made dynamic,"
                    " and it is not the size of an input: numbers are part of a program",
                    hint="leave it out of dynamic_shapes=, or pass it as a tensor: torch.tensor(value)",
                )

    def _outputs(self, nodes: Mapping[str, Any]) -> tuple[list[OutputSpec], Tree]:
        leaves: list[Tree] = []
        outputs: list[OutputSpec] = []
        count = 0
        for spec in self.exported.graph_signature.output_specs:
            if not isinstance(spec.arg, TensorArgument):
                leaves.append(_constant_leaf(spec.arg, nodes))
                continue
            kind = _OUTPUT_KINDS.get(spec.kind)
            if kind is None:
                raise CaptureError(f"output {spec.arg.name} of kind {spec.kind.name} is not supported")
            if kind == "output":
                leaves.append({"leaf": count})
                count += 1
            value = nodes[spec.arg.name].meta["val"]
            if kind == "input_mutation" and not hlo.same_shape(
                value.shape, nodes[spec.target].meta["val"].shape
            ):
                raise CaptureError(
                    f"the model changes the shape of input {spec.target} in place,"
                    " as out= does where it resizes",
                    hint="return the result, or pass a tensor of its shape",
                )
            outputs.append(
                OutputSpec(
                    kind, spec.arg.name, _shape_text(value), dtypes.from_torch(value.dtype), spec.target
                )
            )
        assert self.exported.call_spec.out_spec is not None
        return outputs, describe(self.exported.call_spec.out_spec, leaves)

    def signature(
        self, checks: Sequence[Check], *, seed: bool, bounds: Mapping[str, int | str | None] | None = None
    ) -> Signature:
        """Return the signature, with one result per check, and with a seed if ``seed``.

        ``bounds`` maps each size that depends on values to its bound, in the order of the results.
        """
        known = bounds or {}
        inner = unknown_symbols(self.exported)
        ranges = {
            name: one
            for name, one in _symbol_ranges(self.exported).items()
            if name not in inner or name in known
        }
        self._require_symbols()
        outputs = [*self.outputs, *(OutputSpec("size", f"size_{u}", (), dtypes.INT64, u) for u in known)]
        made = call_signature(self.inputs, outputs, self.input_tree, self.output_tree, checks, seed=seed)
        return replace(made, symbols=ranges, relations=self._relations(ranges), bounds=known)

    def _require_symbols(self) -> None:
        """Raise :class:`UnsupportedShape` if lowering turned a symbolic size of an input into a number."""
        nodes = {node.name: node for node in self.exported.graph.nodes if node.op == "placeholder"}
        for spec in self.inputs:
            value = nodes[spec.name].meta.get("val")
            if not isinstance(value, torch.Tensor):
                continue
            if list(map(type, _shape_text(value))) != list(map(type, spec.shape)):
                raise UnsupportedShape(
                    f"a lowering needs sizes of {spec.target or spec.name} as numbers: "
                    f"[{', '.join(map(str, spec.shape))}] became [{', '.join(map(str, _shape_text(value)))}]",
                    hint="mark this dimension static, or export the program once per size",
                )

    def _relations(self, ranges: Mapping[str, Range]) -> tuple[str, ...]:
        """Return what tracing assumed about the sizes of inputs, beyond their ranges.

        Raises :class:`UnsupportedShape` for an assumption that an artifact cannot express: a call with
        sizes that break it would go unnoticed.
        """
        known = {name for spec in self.inputs for dim in spec.shape for name in names_in(str(dim))}
        sizes = [
            dim
            for node in self.exported.graph.nodes
            if node.op == "placeholder" and isinstance(node.meta.get("val"), torch.Tensor)
            for dim in node.meta["val"].shape
            if isinstance(dim, torch.SymInt)
        ]
        found = tuple(assumed_of(sizes, ranges, known))
        for one in found:
            if not is_relation(one):
                raise UnsupportedShape(
                    f"tracing assumed {one[:200]} of the sizes, which an artifact cannot check",
                    hint="mark the sizes static, or write the model so that it does the same for all sizes",
                )
        return found


def next_values(inputs: Sequence[InputSpec], outputs: Sequence[OutputSpec]) -> dict[str, int]:
    """Map each mutated parameter or buffer, by input name, to the position of the output that replaces it."""
    updated = {one.target: place for place, one in enumerate(outputs) if one.kind == "buffer_mutation"}
    pairs = ((one, updated.get(one.target)) for one in inputs if one.kind != "input")
    return {
        one.name: place
        for one, place in pairs
        if place is not None and (one.shape, one.dtype) == (outputs[place].shape, outputs[place].dtype)
    }


def call_signature(
    inputs: Sequence[InputSpec],
    outputs: Sequence[OutputSpec],
    input_tree: Tree,
    output_tree: Tree,
    checks: Sequence[Check],
    *,
    seed: bool,
) -> Signature:
    """Return a signature with one result per check, and with a seed if ``seed``."""
    seeds = [InputSpec("seed", "seed", (2,), dtypes.UINT64, None)] if seed else []
    results = [
        OutputSpec(check.kind, f"{check.kind}{i}", (), dtypes.BOOL, check.text)
        for i, check in enumerate(checks)
    ]
    return Signature(
        inputs=(*inputs, *seeds),
        outputs=(*outputs, *results),
        input_tree=input_tree,
        output_tree=output_tree,
        stablehlo_version=hlo.resolve_version("current"),
        producer={"torchstone": __version__, "torch": str(torch.__version__), "jax": version("jax")},
    )


def _shape_text(value: torch.Tensor) -> tuple[int | str, ...]:
    return tuple(dim if isinstance(dim, int) else str(dim.node.expr) for dim in shape_of(value))


def _symbol_ranges(exported: ExportedProgram) -> dict[str, tuple[int, int | None]]:
    """Return the program's range constraints as ``symbol → (smallest, largest or None)``."""
    ranges: dict[str, tuple[int, int | None]] = {}
    for symbol, allowed in exported.range_constraints.items():
        if not symbol.is_Symbol:  # the range of an expression follows from those of its symbols
            continue
        lower, upper = allowed.lower, allowed.upper  # infinite if nothing is known
        ranges[str(symbol)] = (
            int(lower) if lower.is_Integer else 0,
            int(upper) if upper.is_Integer and upper < sys.maxsize - 1 else None,
        )
    return ranges


def _constant_leaf(argument: Any, nodes: Mapping[str, Any]) -> Tree:
    if isinstance(argument, ConstantArgument):
        return {"none": None} if argument.value is None else {"const": plain_constant(argument.value)}
    if isinstance(argument, (SymIntArgument, SymFloatArgument, SymBoolArgument)):
        value: Any = nodes[argument.name].meta["val"]
        if isinstance(value, (int, float, bool)):
            return {"const": plain_constant(value)}
        if not all(symbol.is_integer for symbol in value.node.expr.free_symbols):
            raise UnsupportedShape(
                "the model returns a float that it reads from a tensor, which only a call knows",
                hint="return the tensor, without item() or tolist()",
            )
        if not is_relation(f"{value.node.expr} == 0"):
            raise UnsupportedShape(
                f"the number {value.node.expr} cannot be computed from sizes where a program is called",
                hint="return the sizes themselves, or a tensor with the number",
            )
        return {"dim": str(value.node.expr)}
    raise CaptureError(f"an argument of kind {type(argument).__name__} is not supported")


def describe(spec: pytree.TreeSpec, leaves: Sequence[Tree]) -> Tree:
    """The JSON description of a PyTorch tree spec whose leaves are ``leaves``, in order."""
    feed = iter(leaves)

    def visit(node: pytree.TreeSpec) -> Tree:
        if node.is_leaf():
            return next(feed)
        children = [visit(child) for child in node.children()]
        if node.type in _DICTS:
            keys = node.context[1] if node.type is defaultdict else node.context
            return {"dict": {"keys": list(keys), "values": children}}
        named = _named_tuple(node)
        if named is not None:
            kind, fields = named
            entry = {"type": kind.__qualname__, "module": kind.__module__, "keys": list(fields)}
            return {"record": {**entry, "values": children}}
        if issubclass(node.type, _SEQUENCES):
            return {"tuple" if issubclass(node.type, tuple) else "list": children}
        fields, absent = _record_keys(node, len(children))
        values = [*children, *({"none": None} for _ in absent)]
        return {"record": {"type": node.type.__name__, "keys": [*fields, *absent], "values": values}}

    return visit(spec)


_DICTS = (dict, OrderedDict, defaultdict)
_SEQUENCES = (tuple, list, deque)


def _named_tuple(node: pytree.TreeSpec) -> tuple[type, Sequence[str]] | None:
    """The class and fields of a named tuple; None for any other container."""
    kind = node.context if node.type is namedtuple else node.type
    fields = field_names(kind)
    return None if fields is None else (kind, fields)


def _record_keys(node: pytree.TreeSpec, count: int) -> tuple[Sequence[str], Sequence[str]]:
    """Return the field names of a registered class, from its context, and the names of its None fields."""
    context = node.context
    if is_dataclass(node.type) and len(context) == 2 and all(isinstance(part, list) for part in context):
        return context[0], context[1]
    if isinstance(context, (list, tuple)) and len(context) == count:
        return [str(name) for name in context], ()
    return [str(i) for i in range(count)], ()
