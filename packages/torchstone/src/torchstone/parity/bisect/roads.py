"""The graphs that users run, with the values that they were called with.

The forward and backward graphs are those that AOTAutograd passes to ``torch.compile``'s backend, recorded at
each call. The optimizer's graph is the whole step that ``compile_step`` traces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ...backend.options import Options
from ...backend.passes import Region, complete_region, extract_region
from ...backend.records import GraphRecord
from ...backend.watching import calls_recorded
from ...compiler.passes import check_call_arguments
from ...compiler.pipeline import Pipeline
from ...compiler.provenance import Phase, Provenance
from ...errors import ConfigError
from ...torch_internals import dynamo, pytree
from ...training import compile_step
from ...training.recipe import Recipe
from ...training.state import State, split_numbers
from ...training.trace import trace
from ..alike import tensors
from ..compilation import plain_errors
from ..subject import Subject, cotangent, differentiate
from .values import Piece

Tensor = torch.Tensor

REFUSED = ("LBFGS", "SparseAdam", "Optimizer")
"""The optimizers that cannot be part of a step: see :class:`~torchstone.training.recipe.Recipe`."""


@dataclass(frozen=True)
class Road:
    """A graph and the values of one call; ``phase`` is the phase of nodes that do not name their own."""

    name: str
    phase: Phase
    piece: Piece


@dataclass
class Results:
    """The results of one training step by name: outputs, gradients, buffers."""

    values: dict[str, Tensor] = field(default_factory=dict)
    differentiable: list[Tensor] = field(default_factory=list)
    """The outputs that have a gradient."""


def results_of(subject: Subject, *, compiled: bool, engine: str | None = None) -> Results:
    """Return outputs, gradients and buffers of a forward and backward pass; sets ``subject``'s gradients."""
    leaves = subject.leaves()
    called = subject
    if compiled:
        options: dict[str, Any] = {} if engine is None else {"engine": engine}
        called = Subject(
            torch.compile(subject.model, backend="torchstone", options=options), subject.args, subject.kwargs
        )
    with plain_errors():
        outputs = tensors(called.result())
        differentiable = [one for one in outputs if one.requires_grad]
        gradients = differentiate(outputs, leaves) if differentiable else {}
    found = {f"output {place}": one.detach() for place, one in enumerate(outputs)}
    found |= {f"gradient of {name}": one.to_dense() for name, one in gradients.items() if one is not None}
    found |= {f"buffer {name}": one for name, one in subject.buffers().items()}
    return Results(found, [one.detach() for one in differentiable])


def eager_step(optimizer: str | None) -> Callable[[Subject, Provenance], None]:
    """Return a function that runs one training step in eager PyTorch and tells ``provenance`` its phases."""

    def run(subject: Subject, provenance: Provenance) -> None:
        leaves = subject.leaves()
        outputs = tensors(subject.result())
        provenance.phase = "backward"
        if not any(one.requires_grad for one in outputs):
            return
        differentiate(outputs, leaves)
        provenance.phase = "optimizer"
        if optimizer is not None and has_parameters(subject):
            optimizer_of(optimizer, subject.model.parameters()).step()  # type: ignore[attr-defined]

    return run


def has_parameters(subject: Subject) -> bool:
    """Whether there are parameters for an optimizer to update."""
    model = subject.model
    return isinstance(model, torch.nn.Module) and any(p.requires_grad for p in model.parameters())


def compiled_roads(subject: Subject) -> tuple[list[Road], Results]:
    """Return the graphs that ``torch.compile`` runs for a forward and backward pass, and the results."""
    dynamo.reset()
    with calls_recorded() as calls:
        results = results_of(subject, compiled=True)
    dynamo.reset()
    roads = []
    for call in calls:
        phase: Phase = "backward" if call.kind == "backward" else "forward"
        roads.append(Road(f"torch.compile {call.kind}", phase, Piece(call.module, call.inputs, call.seed)))
    return roads, results


def optimizer_kind(name: str) -> type[torch.optim.Optimizer]:
    """Return the class of ``torch.optim`` with that name, ignoring case; raises :class:`ConfigError`."""
    kinds = {
        kind.__name__.lower(): kind
        for kind in vars(torch.optim).values()
        if isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer) and kind.__name__ not in REFUSED
    }
    if name.lower() not in kinds:
        known = ", ".join(sorted(kind.__name__ for kind in kinds.values()))
        raise ConfigError(f"no step can contain an optimizer called {name!r}", hint=f"use one of {known}")
    return kinds[name.lower()]


def optimizer_of(name: str, parameters: Iterator[torch.nn.Parameter]) -> torch.optim.Optimizer:
    """Return the optimizer with that name, with PyTorch's default hyperparameters."""
    kind: Any = optimizer_kind(name)
    wanted = [one for one in parameters if one.requires_grad]
    if kind is torch.optim.Muon:
        wanted = [one for one in wanted if one.dim() == 2]
    made: torch.optim.Optimizer = kind(wanted)
    return made


class Loss:
    """A loss that every differentiable output contributes to: the sum of its products with fixed weights."""

    def __init__(self, outputs: Sequence[Tensor]) -> None:
        self._weights = [cotangent(place, one) for place, one in enumerate(outputs)]

    def __call__(self, model: Any, batch: Any) -> Tensor:
        args, kwargs = batch
        outputs = [one for one in tensors(model(*args, **kwargs)) if one.requires_grad]
        products = [one * weight for one, weight in zip(outputs, self._weights, strict=True)]
        total = sum((one.real if one.is_complex() else one).float().sum() for one in products)
        assert isinstance(total, Tensor)
        return total


_MADE_FUNCTIONAL: Pipeline[Region] = Pipeline([complete_region, check_call_arguments, extract_region])


def step_road(subject: Subject, optimizer: torch.optim.Optimizer, loss: Loss) -> Road:
    """Return the graph of a whole training step, as ``compile_step`` compiles it."""
    recipe = Recipe(subject.model, optimizer, loss)  # type: ignore[arg-type]
    state = State(recipe)
    numbers, _ = split_numbers(optimizer)
    leaves, tree = pytree.tree_flatten(((subject.args, subject.kwargs),))
    batch = [one for one in leaves if isinstance(one, float)]
    traced = trace(recipe, "update", state, [*batch, *numbers], leaves, tree, lines=True)
    inputs = [entry.tensor.detach().clone() for entry in state.entries]
    inputs.append(torch.tensor([*batch, *numbers], dtype=torch.float64))
    given = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    inputs += [one.detach().clone() for one in (*given, *traced.constants.tensors)]
    region = Region(traced.module, Options.parse(None), GraphRecord("step"))
    _MADE_FUNCTIONAL.run(region)
    return Road(
        "compile_step",
        "optimizer",
        Piece(region.module, inputs, torch.tensor([1, 2], dtype=torch.int64).view(torch.uint64)),
    )


def updated(subject: Subject, optimizer: torch.optim.Optimizer, loss: Loss, *, compiled: bool) -> Results:
    """Run one step, and return the parameters, buffers and optimizer state after it."""
    batch = (subject.args, subject.kwargs)
    if compiled:
        compile_step(subject.model, optimizer, loss)(batch)  # type: ignore[arg-type]
    else:
        loss(subject.model, batch).backward()
        optimizer.step()
    model: Any = subject.model
    names = {parameter: name for name, parameter in model.named_parameters()}
    found = {f"parameter {name}": one.detach() for one, name in names.items()}
    found |= {f"buffer {name}": one for name, one in subject.buffers().items()}
    for parameter, state in optimizer.state.items():
        for key, one in state.items():
            if isinstance(one, Tensor):
                found[f"state {key} of {names[parameter]}"] = one
    return Results(found)
