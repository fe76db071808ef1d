"""A whole training step as an artifact: it runs without PyTorch, and takes and returns its state by name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch.fx import Node

from .. import dtypes
from ..backend.options import Options
from ..backend.outputs import root
from ..backend.passes import Region, complete_region, extract_region
from ..backend.records import GraphRecord
from ..compiler.graphs import output_node, output_values
from ..compiler.passes import check_call_arguments, lowering_passes
from ..compiler.pipeline import Pass, Pipeline, Unit, compiler_pass
from ..compiler.placement import check_mesh, for_ranks, placed, placement
from ..compiler.program import Program
from ..compiler.signature import call_signature, describe, next_values
from ..errors import LoweringBug, TrainingError, described
from ..lowering.groups import ranks_together
from ..sharding import Mesh, assign, entry_for
from ..signature import InputKind, InputSpec, OutputSpec
from ..torch_internals import pytree
from ..torch_internals.operators import namespace
from ..trees import Tree, plain_constant
from .attributes import Attributes
from .batch import forms_of
from .fresh_state import state_before_first_step
from .outcomes import Made
from .recipe import Recipe
from .state import GROUPS, STATE, Entry, State, number_names, split_numbers
from .trace import trace

aten = namespace("aten")
Tensor = torch.Tensor


def build_step(
    recipe: Recipe,
    batch: Sequence[Any],
    *,
    passes: Sequence[Pass[Unit]] = (),
    mesh: Mesh | None = None,
    shardings: Mapping[str, Any] | None = None,
) -> Program:
    """Return one step of ``recipe`` as a program for batches like ``batch``; its weights are the state now.

    Numbers of the optimizer are weights too, 0-d and float64. Numbers that its code branches on are
    constants instead. Raises :class:`TrainingError`, :class:`~torchstone.errors.CaptureError`,
    :class:`~torchstone.errors.ShardingError` and :class:`~torchstone.errors.UnsupportedOperators`.
    """
    check_mesh(mesh, shardings)
    if not isinstance(batch, (tuple, list)):
        raise TrainingError(
            f"the batch is {described(batch)}, not a tuple of what the step takes",
            hint="give (inputs, targets), or (batch,) for loss_fn(model, batch)",
        )
    if len(batch) not in (1, 2):
        raise TrainingError(
            f"the batch has {len(batch)} parts",
            hint="give (inputs, targets), or (batch,) for loss_fn(model, batch)",
        )
    leaves, tree = pytree.tree_flatten(tuple(batch))
    leaves = [*_apart(leaves)]
    forms_of(leaves)
    if any(isinstance(leaf, float) for leaf in leaves):
        raise TrainingError(
            "the batch has a Python float in it", hint="pass it as a tensor: torch.tensor(value)"
        )
    pipeline: Pipeline[Any] = Pipeline(
        [complete_region, check_call_arguments, extract_region, *lowering_passes([describe_step, *passes])]
    )
    with _without_gradients(recipe.optimizer):
        step = _Step(recipe, leaves, tree)
        traced = step.traced
        new = [*(p for p, _ in traced.created), *(p for p, _, _ in traced.settled)]
        fresh = {id(p): p for p in new}
        with _with_state(recipe.optimizer, list(fresh.values())):
            if fresh:
                step = _Step(recipe, leaves, tree)
            step.mesh, step.shardings = mesh, shardings or {}
            with ranks_together():
                pipeline.run(step)
            return step.program()


def _apart(leaves: Iterable[Any]) -> Iterator[Any]:
    """Yield the leaves, with a new tensor in place of each one that comes again: they are two inputs."""
    seen: set[int] = set()
    for leaf in leaves:
        again = isinstance(leaf, torch.Tensor) and id(leaf) in seen
        seen.add(id(leaf))
        yield leaf.detach().clone().requires_grad_(leaf.requires_grad) if again else leaf


class _Step(Region):
    """An exported step as the unit of passes: its graph, and the signature from :func:`describe_step`."""

    def __init__(self, recipe: Recipe, leaves: Sequence[Any], tree: Any) -> None:
        self.recipe, self.leaves, self.tree = recipe, leaves, tree
        state = State(recipe)
        self.entries, self.names = state.entries, _entry_names(recipe, state.entries)
        self.parameters = {
            id(entry.tensor): name
            for entry, name in zip(self.entries, self.names, strict=True)
            if entry.kind == "parameter"
        }
        own, (numbers, _) = recipe.numbers(), split_numbers(recipe.optimizer)
        named = zip(number_names(recipe.optimizer, self.parameters), numbers, strict=True)
        self.numbers = {**own, **dict(named)}
        options = Options.parse({"tuning": False})
        values = list(self.numbers.values())
        attributes = Attributes(module for _, module in state.modules)
        before = attributes.values()
        try:
            self.traced = trace(recipe, "export", state, values, leaves, tree, options=options)
            changed = [one for one in attributes.changes(before) if one[1] != "training"]
        finally:
            attributes.restore(before)
        if changed:
            name = attributes.name_of(changed[0])
            raise TrainingError(
                f"the step changes {name}, and a program has values of Python as constants",
                hint="make it a buffer, register_buffer, or train with torchstone.compile_step",
            )
        if self.traced.settings:
            one = self.traced.settings[0]
            raise TrainingError(
                f"{type(recipe.optimizer).__name__}.step changes {one.name!r} of group {one.group}, and a "
                "program has groups as they are",
                hint=f"keep it with the parameter, self.state[p][{one.name!r}], or train with "
                "torchstone.compile_step",
            )
        seen = self.traced.guards.seen_leaves()
        self.constants = {name for place, name in enumerate(self.numbers) if place in seen}
        """Names of the numbers whose values the step's code reads: another value may need another program."""
        super().__init__(self.traced.module, options, GraphRecord("step"))
        self.name = "training_step"
        self.mesh: Mesh | None = None
        self.shardings: Mapping[str, Any] = {}
        self.inputs: list[InputSpec] = []
        self.made: list[OutputSpec] = []
        self.weights: dict[str, Tensor] = {}

    def refuse_branches(self) -> None:
        """Raise TrainingError if later steps cannot run the same program."""
        kind = type(self.recipe.optimizer).__name__
        seen = self.traced.guards.seen_leaves()
        changing = [self.names[place[1]] for place in seen if isinstance(place, tuple)]
        changing += [name for name in self.constants if name.startswith(STATE)]
        if changing and not self._branches_alike():
            raise TrainingError(
                f"{kind} branches on {min(changing)}, which each step changes, and a program is one step",
                hint="export after some steps, when the branch does not change any more, or train with "
                "torchstone.compile_step, which makes a program for each branch",
            )
        if self.traced.watched is not None and self.traced.counted:
            raise TrainingError(
                f"{kind} counts steps in Python numbers, which a program cannot keep as they are where an "
                "update is left out",
                hint='keep the counter in a tensor, or export without scaler= and with nonfinite="update"',
            )

    def _branches_alike(self) -> bool:
        """Whether all branches stay the same in later steps, where only step counters may change."""
        guards, inputs = self.traced.guards, self.module.graph.find_nodes(op="placeholder")
        counters = {
            ("state", place): self.entries[place].tensor.detach()
            for place, value in self.mutated.items()
            if place < len(self.entries) and _counts(value, inputs[place])
        }
        seen = guards.seen_leaves()
        if any(isinstance(place, tuple) and place not in counters for place in seen):
            return False
        if any(name.startswith(STATE) for name in self.constants):
            return False
        numbers = dict(enumerate(self.numbers.values()))
        later = ({place: value + steps for place, value in counters.items()} for steps in _LATER)
        return all(guards.hold({**numbers, **values}) for values in later)

    def add_input(self, kind: InputKind, label: str, value: Tensor) -> Node:
        """Add an argument to the graph and its entry to the signature; return its node."""
        node = self.module.graph.placeholder(re.sub(r"\W", "_", label))
        node.meta = {"val": value}
        target = None if kind == "input" else label
        dtype = dtypes.from_torch(value.dtype)
        self.inputs.append(InputSpec(kind, node.name, tuple(value.shape), dtype, target))
        return node

    def program(self) -> Program:
        """Return the program. The whole pipeline must have run before."""
        arguments = _described(self.tree, [isinstance(leaf, Tensor) for leaf in self.leaves], self.leaves)
        returned = self.traced.returned
        results = [isinstance(leaf, Made) for leaf in returned.leaves]
        signature = call_signature(
            self.inputs,
            self.made,
            {"tuple": [arguments, {"dict": {"keys": [], "values": []}}]},
            _described(returned.tree, results, returned.leaves),
            self.checks,
            seed=self.survey.seeded,
        )
        if self.placement is not None:
            signature = placed(signature, self.placement)
        module = self.built()
        signature = for_ranks(signature, module.ranks, self.mesh)
        return Program(module, signature, self.weights, self.module)


@compiler_pass("describe-step", needs=["functional", "metadata"], guarantees=["signature", "placement"])
def describe_step(step: _Step) -> None:
    """Name the state and the batch, make each number an argument, and place them all on a mesh, if any."""
    step.refuse_branches()
    graph = step.module.graph
    old = graph.find_nodes(op="placeholder")
    count = len(step.entries)
    new: dict[Node, Node] = {}
    with graph.inserting_before(old[0]):
        for entry, name, node in zip(step.entries, step.names, old, strict=False):
            kind: InputKind = "parameter" if entry.kind == "parameter" else "buffer"
            new[node] = step.add_input(kind, name, node.meta["val"])
            step.weights[name] = entry.tensor.detach()
        numbers = _add_numbers(step, old[count])
        for node, label in zip(old[count + 1 :], _labels(step.tree, step.leaves), strict=True):
            new[node] = step.add_input("input", label, node.meta["val"])
    specs = {one.name: one for one in step.inputs}
    _describe_outputs(step, [specs[new[old[place]].name] for place in step.mutated], numbers)
    for node in old:
        if node in new:
            node.replace_all_uses_with(new[node])
        graph.erase_node(node)
    step.labels = {one.name: one.target or one.name for one in step.inputs}
    step.next_values = next_values(step.inputs, step.made)
    if step.mesh is not None:
        step.placement = placement(step.mesh, _followed(step), step.inputs, step.made)


_LATER = (*range(1, 1001), *(10**power for power in range(4, 8)))
"""The numbers of further steps after which branches are evaluated again."""


def _counts(value: Node, argument: Node) -> bool:
    """Whether ``value`` is ``argument`` plus one."""
    if value.target is not aten.add.Tensor or value.args[1] != 1 or value.kwargs:
        return False
    counter = value.args[0]
    return isinstance(counter, Node) and root(counter) is argument


def _add_numbers(step: _Step, vector: Node) -> dict[str, InputSpec]:
    """Make arguments of the elements of ``vector`` that are read or written; return their entries by name.

    Elements in ``step.constants`` become constants of the graph instead.
    """
    graph, found = step.module.graph, {}
    reads: dict[int, list[Node]] = {}
    for user in vector.users:
        if user.target is not aten.select.int or user.args[1] != 0:
            raise LoweringBug(f"{user.target} reads the numbers of a training step")
        reads.setdefault(cast(int, user.args[2]), []).append(user)
    written = {_number_name(step, p, name) for p, name, *_ in step.traced.counted}
    for place, (name, value) in enumerate(step.numbers.items()):
        users = reads.get(place, [])
        if name in step.constants:
            for user in users:
                user.target, user.args = aten.full.default, ([], value)
                user.kwargs = {"dtype": torch.float64}
        elif users or name in written:
            node = step.add_input("buffer", name, vector.meta["val"].select(0, 0))
            found[name] = step.inputs[-1]
            step.weights[name] = torch.tensor(value, dtype=torch.float64)
            for user in users:
                user.replace_all_uses_with(node)
                graph.erase_node(user)
    return found


def _describe_outputs(step: _Step, mutated: Sequence[InputSpec], numbers: Mapping[str, InputSpec]) -> None:
    """Describe each output, and remove the one that says whether gradients are finite."""
    values = output_values(step.module)
    counted = [numbers[_number_name(step, p, name)] for p, name, *_ in step.traced.counted]
    written = [*mutated, *counted]
    if step.traced.watched is not None:
        del values[len(written)]
    output_node(step.module).args = (tuple(values),)
    step.module.graph.eliminate_dead_code()
    for place, value in enumerate(values):
        tensor = value.meta["val"]
        form = tuple(tensor.shape), dtypes.from_torch(tensor.dtype)
        if place >= len(written):
            step.made.append(OutputSpec("output", f"output{place - len(written)}", *form))
        elif written[place].kind == "input":
            step.made.append(
                OutputSpec("input_mutation", f"new_{written[place].name}", *form, written[place].name)
            )
        else:
            step.made.append(
                OutputSpec("buffer_mutation", f"new_{written[place].name}", *form, written[place].target)
            )
    step.results = [one.name for one in step.made]


def _number_name(step: _Step, parameter: Tensor, name: str) -> str:
    return f"{STATE}.{step.parameters[id(parameter)]}.{name}"


def _followed(step: _Step) -> dict[str, Any]:
    """Return the shardings of all arguments by name; state with the shape of its parameter is placed like it.

    This applies to the state of an optimizer and of an average. Entries whose keys begin with ``optimizer``
    or ``average`` override it; no other entries apply to such state directly.
    """
    assert step.mesh is not None
    shapes = {one.target or one.name: one.shape for one in step.inputs}
    own = {key: given for key, given in step.shardings.items() if key.startswith(("optimizer", "average"))}
    rest = {key: given for key, given in step.shardings.items() if key not in own}
    found, plain = {}, []
    for name, shape in shapes.items():
        path = name.removeprefix(f"{STATE}.").removeprefix("average.module.")
        if path == name and not name.startswith(f"{GROUPS}."):
            found[name] = entry_for(name, step.shardings)
            plain.append((name, shape))
            continue
        followed = [one for one in step.parameters.values() if path == one or path.startswith(f"{one}.")]
        alike = [one for one in followed if shapes[one] == shape]
        found[name] = entry_for(name, own, entry_for(max(alike, key=len), rest) if alike else None)
    assign(step.mesh, rest, plain)
    assign(step.mesh, own, list(shapes.items()))
    return {name: given for name, given in found.items() if given is not None}


def _described(tree: Any, tensors: Sequence[bool], leaves: Sequence[Any]) -> Tree:
    """Describe nested values: tensors by their number in the order of leaves, other leaves as constants."""
    described: list[Tree] = []
    for tensor, leaf in zip(tensors, leaves, strict=True):
        if tensor:
            described.append({"leaf": sum("leaf" in one for one in described)})
        else:
            described.append({"none": None} if leaf is None else {"const": plain_constant(leaf)})
    return describe(tree, described)


def _labels(tree: Any, leaves: Sequence[Any]) -> list[str]:
    """Return names for the tensors of a batch: ``inputs``, ``targets`` or ``batch``, and the path inside."""
    pairs: list[tuple[Any, Any]]
    pairs, _ = pytree.tree_flatten_with_path(pytree.tree_unflatten(leaves, tree))
    roots = ("inputs", "targets") if len(tree.children()) == 2 else ("batch",)
    return [
        "_".join([roots[cast(Any, path[0]).idx], *(re.sub(r"\W", "", str(key)) for key in path[1:])])
        for path, leaf in pairs
        if isinstance(leaf, Tensor)
    ]


@contextmanager
def _without_gradients(optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """Remove the gradients of parameters inside the block: an exported step begins without any."""
    before = [(p, p.grad) for group in optimizer.param_groups for p in group["params"]]
    for p, _ in before:
        p.grad = None
    try:
        yield
    finally:
        for p, grad in before:
            p.grad = grad


@contextmanager
def _with_state(optimizer: torch.optim.Optimizer, parameters: Sequence[Tensor]) -> Iterator[None]:
    """Give ``parameters`` the state that they have before their first step, inside the block."""
    kept = {p: dict(optimizer.state[p]) for p in parameters if p in optimizer.state}
    try:
        for p, state in zip(parameters, state_before_first_step(optimizer, parameters), strict=True):
            optimizer.state[p] = {**state, **kept.get(p, {})}
        yield
    finally:
        for p in parameters:
            if p in kept:
                optimizer.state[p] = kept[p]
            else:
                optimizer.state.pop(p, None)


def _entry_names(recipe: Recipe, entries: Sequence[Entry]) -> list[str]:
    """Return the name of each tensor of the state: as in ``state_dict``, after its owner's name if needed."""
    for owner in recipe.optimizer.state:
        if not isinstance(owner, Tensor):
            raise TrainingError(
                f"the optimizer keeps {owner!r} in its state, and an artifact names state by its parameter",
                hint="keep it with each parameter: self.state[p][name], or train with compile_step",
            )
    owners = {id(kept): p for p, kept in recipe.optimizer.state.items()}
    names: list[str] = []
    parameters: dict[int, str] = {}
    for entry in entries:
        if entry.kind == "optimizer":
            name = f"{STATE}.{parameters[id(owners[id(entry.owner)])]}.{entry.key}"
        elif entry.kind == "option":
            name = f"optimizer.param_{entry.name.replace('group ', 'groups.')}"
        else:
            name = entry.name.replace("..", ".")  # the root of an average has no path
            name = f"loss_fn.{name}" if name in names else name
        if entry.kind == "parameter":
            parameters[id(entry.tensor)] = name
        names.append(name)
    return names
