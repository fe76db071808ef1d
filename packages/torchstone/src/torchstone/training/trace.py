"""One training step as a graph of ATen operators: forward, backward and optimizer update.

The step is PyTorch's own code, traced once: the model, autograd, and the optimizer's ``step``. What it
reads and writes are the arguments of the graph; what it computes with Python numbers is in the graph too
(:mod:`.numbers`).
"""

from __future__ import annotations

import inspect
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import GraphModule

from ..compiler.normalize import decompositions, factorization_checks
from ..compiler.operators.tracing import mended_operators, passing_value_checks, standing_in
from ..config import config
from ..errors import CaptureError, TorchstoneError
from ..torch_internals import pytree
from ..torch_internals.dynamo import aot_autograd
from ..torch_internals.fake import FakeTensor, FakeTensorMode
from ..torch_internals.operators import OpOverload
from ..torch_internals.patches import Patch, attributes, functions, patched, tracing
from ..torch_internals.tensors import members
from ..torch_internals.tracing import make_fx
from .numbers import STAND_INS, Expression, Guards, Number, number
from .recipe import Recipe
from .state import Entry, State, options, put_numbers
from .tracing import Numbers, Substitution


@dataclass
class Traced:
    """A step as a functional graph that writes into its first arguments, and what its outputs are.

    The arguments are the tensors of ``state``, the vector of numbers, and the batch's tensors. The
    outputs are ``created``, then the tensors among the leaves of ``result``.
    """

    module: GraphModule
    guards: Guards
    created: list[tuple[torch.Tensor, str]] = field(default_factory=list)
    """New state: its parameter and its name, ``grad`` for a gradient."""
    counted: list[tuple[torch.Tensor, str, Expression]] = field(default_factory=list)
    """State of the optimizer that is a Python number: its parameter, its name and its next value."""
    leaves: list[Any] = field(default_factory=list)
    """The result's leaves; in place of a tensor that type, in place of a number of the trace ``float``."""
    tree: Any = None
    updates: bool = False
    """Whether the optimizer is part of it."""


def trace(
    recipe: Recipe, kind: str, state: State, numbers: Sequence[float], batch: Sequence[Any], tree: Any
) -> Traced:
    """The step that ``recipe`` describes for one batch, given as leaves of ``tree``.

    Raises :class:`CaptureError` for a step that cannot be one program.
    """
    found = Traced(GraphModule({}, torch.fx.Graph()), Guards())
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    tensors = [*(entry.tensor for entry in state.entries), torch.tensor(numbers, dtype=torch.float64)]
    tensors += [leaf for leaf in batch if isinstance(leaf, torch.Tensor)]
    fakes = [mode.from_tensor(tensor.detach(), static_shapes=True) for tensor in tensors]

    def step(*arguments: torch.Tensor) -> list[torch.Tensor]:
        return _Trace(recipe, kind, state, numbers, found).run(arguments, batch, tree)

    with (
        tracing(),
        _as_it_was(recipe),
        patched(*_optimizer_modules(recipe.optimizer)),
        standing_in(),
        factorization_checks(kept=config.check_values),
        passing_value_checks(),
        mended_operators(),
        torch.enable_grad(),
    ):
        try:
            traced = make_fx(step, tracing_mode="real", _allow_non_fake_inputs=True)(*fakes)
        except TorchstoneError:
            raise
        except Exception as error:
            raise CaptureError(
                f"the step cannot be traced: {type(error).__name__}: {error}",
                hint="run it in eager PyTorch with the same batch first: if that works, keep the model in "
                "torch.compile(model, backend='torchstone') and call loss.backward() and optimizer.step()",
            ) from error
        _erase_profiling(traced)
        traced.graph.eliminate_dead_code()
        found.module = _functional(traced, fakes)
    return found


def _erase_profiling(module: GraphModule) -> None:
    """Erase the marks of ``record_function``, which compute nothing; optimizers set some."""
    for node in reversed(module.graph.nodes):
        if isinstance(node.target, OpOverload) and node.target.namespace == "profiler":
            module.graph.erase_node(node)


def _functional(traced: GraphModule, fakes: Sequence[torch.Tensor]) -> GraphModule:
    """``traced`` without writes but into its arguments, of operators that have a lowering."""
    graphs: list[GraphModule] = []

    def keep(module: GraphModule, _: Sequence[Any]) -> Callable[..., Any]:
        graphs.append(module)
        return module.forward

    for name, constant in list(traced.named_buffers()):  # AOTAutograd would make them arguments
        delattr(traced, name)
        setattr(traced, name, constant)
    with torch.no_grad():
        aot_autograd(
            fw_compiler=keep,
            inference_compiler=keep,
            decompositions=decompositions(training=True),
            keep_inference_input_mutations=True,
        )(traced, list(fakes))
    return graphs[0]


def _optimizer_modules(optimizer: torch.optim.Optimizer) -> Iterator[Patch]:
    """``min``, ``max`` and ``math`` that take numbers, in the modules that define the optimizer."""
    # A class may say that it belongs to the package that exports it; its functions say where they are.
    functions = (function for kind in type(optimizer).__mro__ for function in vars(kind).values())
    for name in {one.__module__ for one in functions if inspect.isfunction(one)} & sys.modules.keys():
        module = sys.modules[name]
        entries = {
            one: stand_in for one, stand_in in STAND_INS.items() if one != "math" or hasattr(module, "math")
        }
        yield attributes(module, **entries)


def _not_compiling() -> bool:
    """Optimizers that think they are compiled keep step counters in single precision, unlike eager's."""
    return False


@contextmanager
def _as_it_was(recipe: Recipe) -> Iterator[None]:
    """Puts back what the traced code assigned to parameters and buffers, and refuses other traces of it."""
    modules = [module for root in recipe.modules() for module in root.modules()]
    before = [(own, dict(own)) for module in modules for own in members(module)]
    try:
        yield
    finally:
        for own, entries in before:
            own.clear()
            own.update(entries)
    for module in modules:
        for name, value in vars(module).items():
            if any(isinstance(leaf, FakeTensor) for leaf in pytree.tree_leaves(value)):
                delattr(module, name)
                raise CaptureError(
                    f"{type(module).__name__} keeps a tensor of the step in its attribute {name!r}",
                    hint="return it from loss_fn beside the loss, or make it a buffer: register_buffer",
                )


def _kind_of(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        return torch.Tensor
    return float if isinstance(leaf, Number) else leaf


class _Trace:
    """One run of the step on tensors of a trace."""

    def __init__(
        self, recipe: Recipe, kind: str, state: State, numbers: Sequence[float], found: Traced
    ) -> None:
        self.recipe, self.kind, self.state, self.found = recipe, kind, state, found
        self.values = numbers

    def run(self, arguments: Sequence[torch.Tensor], batch: Sequence[Any], tree: Any) -> list[torch.Tensor]:
        entries = self.state.entries
        own = [self._own(entry, one) for entry, one in zip(entries, arguments, strict=False)]
        traced = {id(entry.tensor): one for entry, one in zip(entries, own, strict=True)}
        numbers, feed = arguments[len(own)], iter(arguments[len(own) + 1 :])
        guards = self.found.guards
        mode = Numbers(guards)
        for place, (entry, one) in enumerate(zip(entries, own, strict=True)):
            if one.dim() == 0 and entry.kind in ("optimizer", "average"):
                mode.know(one, guards.leaf(("state", place), entry.tensor.detach().clone()))
        with Substitution(traced), mode:
            made = [
                number(numbers[place], guards.leaf(place, value), guards)
                for place, value in enumerate(self.values)
            ]
            leaves = [next(feed) if isinstance(leaf, torch.Tensor) else leaf for leaf in batch]
            return self._run(traced, made, pytree.tree_unflatten(leaves, tree))

    def _own(self, entry: Entry, argument: torch.Tensor) -> torch.Tensor:
        return argument.detach().requires_grad_(entry.requires_grad)

    def _run(
        self, traced: Mapping[int, torch.Tensor], numbers: Sequence[Number], batch: Any
    ) -> list[torch.Tensor]:
        recipe, gradients = self.recipe, self.state.gradients
        loss, result = recipe.forward(batch)
        parameters = [p for p in self.state.parameters if p.requires_grad]
        fresh = torch.autograd.grad(loss, [traced[id(p)] for p in parameters], allow_unused=True)
        with torch.no_grad():
            grads: dict[torch.Tensor, torch.Tensor] = {}
            for p, grad in zip(parameters, fresh, strict=True):
                before = gradients.get(p)
                if grad is not None:
                    grads[p] = grad if before is None else traced[id(before)] + grad
                elif before is not None:
                    grads[p] = traced[id(before)].clone()
            if self.kind == "accumulate":
                self._keep(grads, traced)
                outputs: list[torch.Tensor] = [grads[p] for p, _ in self.found.created]
            else:
                outputs = self._update(traced, numbers, grads)
            leaves, self.found.tree = pytree.tree_flatten(result)
            self.found.leaves = [_kind_of(leaf) for leaf in leaves]
            numeric = [leaf.node.tensor if isinstance(leaf, Number) else leaf for leaf in leaves]
            outputs += [leaf.detach().clone() for leaf in numeric if isinstance(leaf, torch.Tensor)]
            self._rebound(traced)
            return outputs

    def _keep(self, grads: Mapping[torch.Tensor, torch.Tensor], traced: Mapping[int, torch.Tensor]) -> None:
        """Gradients that stay: written over those that were there, or new."""
        for p, grad in grads.items():
            before = self.state.gradients.get(p)
            if before is None:
                self.found.created.append((p, "grad"))
            else:
                traced[id(before)].copy_(grad)

    def _update(
        self,
        traced: Mapping[int, torch.Tensor],
        numbers: Sequence[Number],
        grads: dict[torch.Tensor, torch.Tensor],
    ) -> list[torch.Tensor]:
        self.found.updates = True
        optimizer = self._shadow(numbers)
        for p, grad in grads.items():
            traced[id(p)].grad = grad
        with patched(functions(torch.compiler, is_compiling=_not_compiling)):
            type(optimizer).step(optimizer)
        outputs = []
        for p, kept in optimizer.state.items():
            before = self.recipe.optimizer.state.get(p, {})
            for name, value in kept.items():
                old = before.get(name)
                if isinstance(value, Number):
                    assert value.node.expression is not None  # it follows from numbers alone
                    self.found.counted.append((p, name, value.node.expression))
                elif isinstance(value, torch.Tensor) and value is not old:
                    value = traced.get(id(value), value)
                    if isinstance(old, torch.Tensor):
                        traced[id(old)].copy_(value)
                    else:
                        self.found.created.append((p, name))
                        outputs.append(value.detach().clone())
        return outputs

    def _shadow(self, numbers: Sequence[Number]) -> torch.optim.Optimizer:
        """The optimizer with numbers of the trace; its ``step`` leaves the real one as it is."""
        real = self.recipe.optimizer
        shadow = object.__new__(type(real))
        shadow.__dict__.update({name: value for name, value in vars(real).items() if name != "step"})
        feed = iter(numbers)
        shadow.param_groups = [
            {**put_numbers(options(group), feed), "params": group["params"], "foreach": False, "fused": False}
            for group in real.param_groups
        ]
        shadow.state = defaultdict(dict)
        for p, kept in real.state.items():
            shadow.state[p] = {
                name: put_numbers(float(value) if type(value) is int else value, feed)
                for name, value in kept.items()
            }
        return shadow

    def _rebound(self, traced: Mapping[int, torch.Tensor]) -> None:
        """Write buffers that the model assigned anew into those that it had."""
        for entry in self.state.entries:
            if entry.kind == "buffer":
                now = entry.owner.get(entry.key)
                if isinstance(now, torch.Tensor) and now is not entry.tensor:
                    traced[id(entry.tensor)].copy_(now)
