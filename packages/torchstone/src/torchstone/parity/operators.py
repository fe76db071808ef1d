"""Run one operator's samples through the compiler and an engine, and compare with eager PyTorch.

All samples of an overload share one program, so that checking many is fast.
Gradients are checked through ``torch.compile``, as users get them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy
import torch
from torch.fx import Graph, GraphModule, Node

from optest.core.comparator import compare
from optest.core.comparison import Comparison

from .. import dtypes, hlo
from ..compiler.graphs import output_values, to_numpy
from ..compiler.operators.tracing import mended_operators
from ..compiler.passes import lowered, settle_views
from ..compiler.pipeline import Unit
from ..lowering.groups import ranks_together
from ..runtime import get_engine
from ..torch_internals import pytree
from ..torch_internals.fake import FakeTensorMode
from ..torch_internals.operators import OpOverload
from .compilation import compiled, plain_errors

WIDER = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex64: torch.complex128,
}


@dataclass
class Sample:
    """The arguments of one call of an overload; ``note`` says what makes the call special.

    ``gradient`` is False if only the values are compared. ``canonical`` maps the outputs
    to values that the operator determines uniquely; these are compared and differentiated.
    An example is ``U·diag(S)·Vh`` of a singular value decomposition, whose vectors have
    free phases.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    note: str = ""
    gradient: bool = True
    canonical: Callable[[Sequence[torch.Tensor]], Sequence[torch.Tensor]] | None = None

    def __str__(self) -> str:
        def show(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
            return value

        shown = pytree.tree_map(show, (self.args, self.kwargs))
        return f"{shown[0]}{shown[1] or ''} {self.note}".rstrip()

    def map(self, function: Callable[[torch.Tensor], Any]) -> Sample:
        """Return the sample with ``function`` applied to every tensor."""
        args, kwargs = pytree.tree_map_only(torch.Tensor, function, (self.args, self.kwargs))
        return Sample(args, kwargs, self.note)

    def determined(self, outputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the outputs, converted by ``canonical`` if the sample has it."""
        return list(outputs if self.canonical is None else self.canonical(outputs))

    def tensors(self) -> list[torch.Tensor]:
        return [
            leaf for leaf in pytree.tree_leaves((self.args, self.kwargs)) if isinstance(leaf, torch.Tensor)
        ]


Call = tuple[OpOverload, Sample]


@dataclass(frozen=True)
class Outcome:
    """The result of one sample; ``comparisons`` has one entry per output tensor."""

    sample: Sample
    comparisons: tuple[Comparison, ...]

    @property
    def passed(self) -> bool:
        return all(comparison.passed for comparison in self.comparisons)

    def describe(self) -> str:
        return f"{self.sample}\n" + "\n".join(c.describe() for c in self.comparisons if not c.passed)


def check_forward(overload: OpOverload, samples: Sequence[Sample]) -> list[Outcome]:
    """Run every sample through one compiled program and compare with eager."""
    module, inputs = graph_of_calls([(overload, sample) for sample in samples])
    promised = (node.meta["val"].dtype for node in output_values(module))
    # Some CPU kernels return another dtype than PyTorch's own metadata promises. The metadata decides.
    expected = [
        [tensor.to(next(promised)) for tensor in eager_results(overload, sample)] for sample in samples
    ]
    found = iter(run_graph(module, inputs))
    return [
        Outcome(sample, tuple(compare_outputs(overload, sample, found, want)))
        for sample, want in zip(samples, expected, strict=True)
    ]


def check_backward(overload: OpOverload, samples: Sequence[Sample]) -> list[Outcome]:
    """Compare gradients of each sample's floating-point inputs through ``torch.compile`` with eager's.

    Samples without a differentiable input or output are left out.
    """
    plans = [plan for plan in (_GradientPlan.of(overload, sample) for sample in samples) if plan is not None]
    if not plans:
        return []
    module, _ = graph_of_calls([(overload, plan.sample) for plan in plans])
    given = [plan.sample.map(_leaf) for plan in plans]
    with plain_errors():
        results = iter(compiled(module)(*(tensor for sample in given for tensor in sample.tensors())))
        outputs = [
            one for plan in plans for one in plan.differentiable([next(results) for _ in range(plan.results)])
        ]
        leaves = [tensor for sample in given for tensor in sample.tensors() if tensor.requires_grad]
        weights = [one for plan in plans for one in plan.cotangents]
        found = iter(map(to_numpy, _gradients(outputs, leaves, weights)))
    return [
        Outcome(
            plan.sample,
            tuple(_compare_all(found, plan.gradients(plan.leaves), plan.widened_gradients)),
        )
        for plan in plans
    ]


def check_engine(calls: Sequence[Call], engine: str, trusted: str = "pjrt") -> list[Outcome]:
    """Run one program of all calls on two engines, and compare the results of ``engine`` with ``trusted``'s.

    Raises :class:`EngineError` if an engine cannot run the program.
    """
    module, inputs = graph_of_calls(calls)
    found, expected = (iter(run_graph(module, inputs, engine=name)) for name in (engine, trusted))
    outcomes = []
    for overload, sample in calls:
        want = [to_tensor(next(expected)) for _ in eager_results(overload, sample)]
        outcomes.append(Outcome(sample, tuple(compare_outputs(overload, sample, found, want))))
    return outcomes


def run_graph(
    module: GraphModule,
    inputs: Sequence[torch.Tensor],
    seed: tuple[int, int] = (1, 2),
    engine: str | None = None,
) -> list[numpy.ndarray[Any, Any]]:
    """Lower, serialize, compile and run a graph of fake-annotated nodes on tensors.

    ``engine`` None is the engine of the settings.
    """
    return compiled_graph(module, inputs, engine)(numpy.array(seed, dtype=numpy.uint64))


def compiled_graph(
    module: GraphModule, inputs: Sequence[torch.Tensor], engine: str | None = None
) -> Callable[[Any], list[numpy.ndarray[Any, Any]]]:
    """Compile a graph of fake-annotated nodes; return a function of the seed (uint64 ``[2]``)."""
    unit = Unit(module)
    with ranks_together():  # samples with collectives have a single rank
        built = lowered(unit, settle_views)
    feed: list[Any] = [to_numpy(tensor) for tensor in inputs]
    executable = get_engine(engine).compile(built.serialize(hlo.resolve_version("current")))

    def run(seed: Any) -> list[numpy.ndarray[Any, Any]]:
        return [
            buffer.to_numpy()
            for buffer in executable(*feed, *([numpy.asarray(seed)] if unit.survey.seeded else ()))
        ]

    return run


def graph_of_calls(calls: Sequence[Call]) -> tuple[GraphModule, list[torch.Tensor]]:
    """Make a graph of the given calls, with PyTorch's own metadata on each node; return it and its inputs."""
    graph = Graph()
    inputs: list[torch.Tensor] = []
    outputs: list[Node] = []
    mode = FakeTensorMode(allow_non_fake_inputs=True)

    def place(tensor: torch.Tensor) -> Node:
        node = graph.placeholder(f"input{len(inputs)}")
        node.meta["val"] = mode.from_tensor(tensor)
        inputs.append(tensor)
        return node

    placed = [(overload, sample.map(place)) for overload, sample in calls]
    for overload, sample in placed:
        node = graph.call_function(overload, sample.args, sample.kwargs)
        args, kwargs = pytree.tree_map_only(Node, lambda n: n.meta["val"], (sample.args, sample.kwargs))
        with mended_operators(), mode:
            node.meta["val"] = overload(*args, **kwargs)
        outputs.append(node)
    flat: list[Node] = []
    for node in outputs:
        flat.extend(_result_nodes(graph, node))
    graph.output(tuple(flat))
    return GraphModule(torch.nn.Module(), graph), inputs


def _result_nodes(graph: Graph, node: Node) -> list[Node]:
    value = node.meta["val"]
    if isinstance(value, torch.Tensor):
        return [node]
    nodes = []
    for i, item in enumerate(value if isinstance(value, (tuple, list)) else ()):
        if isinstance(item, torch.Tensor):
            picked = graph.call_function(operator.getitem, (node, i))
            picked.meta["val"] = item
            nodes.append(picked)
    return nodes


def eager_results(overload: OpOverload, sample: Sample) -> list[torch.Tensor]:
    result = overload(*sample.args, **sample.kwargs)
    return [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]


def to_tensor(array: numpy.ndarray[Any, Any]) -> torch.Tensor:
    """Return a copy of ``array`` as a tensor: the inverse of :func:`to_numpy`."""
    plain = numpy.array(array)
    try:
        return torch.from_numpy(plain)
    except TypeError:
        carrier = {1: numpy.uint8, 2: numpy.int16}[plain.itemsize]
        return torch.from_numpy(plain.view(carrier)).view(dtypes.from_numpy(plain.dtype).torch)


def compare_outputs(
    overload: OpOverload, sample: Sample, found: Any, expected: Sequence[torch.Tensor]
) -> list[Comparison]:
    """Compare the next found arrays with eager's outputs, both converted by ``canonical`` if there is one."""
    if sample.canonical is not None:
        outputs = [to_tensor(next(found)) for _ in expected]
        found = map(to_numpy, sample.determined(outputs))
    return _compare_all(
        found, sample.determined(expected), lambda: sample.determined(_eager_widened(overload, sample))
    )


def _eager_widened(overload: OpOverload, sample: Sample) -> list[torch.Tensor]:
    """Return eager's results in the next wider dtypes; dtypes among the arguments are widened too.

    Results that eager computes from integers have the default dtype, which is float64 meanwhile.
    """
    wide = sample.map(widened)
    args, kwargs = pytree.tree_map_only(torch.dtype, lambda d: WIDER.get(d, d), (wide.args, wide.kwargs))
    with float64_by_default():
        return eager_results(overload, Sample(args, kwargs))


@contextmanager
def float64_by_default() -> Iterator[None]:
    """Make float64 the default dtype in the block: eager uses it for floating results of integers."""
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(default)


def widened(tensor: torch.Tensor) -> torch.Tensor:
    """Return ``tensor`` in the wider dtype in which eager's results count as exact; unchanged if none."""
    wider = WIDER.get(tensor.dtype)
    return tensor if wider is None else tensor.to(wider)


def _compare_all(
    found: Any, expected: Sequence[torch.Tensor], truth: Callable[[], Sequence[torch.Tensor]]
) -> list[Comparison]:
    """Compare each expected tensor with the next found array; float64 decides if it misses the tolerance."""
    results = []
    for position, want in enumerate(expected):
        actual, golden = next(found), to_numpy(want)
        result = compare(actual, golden)
        if not result.passed and result.same_form and want.dtype in WIDER:
            try:
                reference = to_numpy(truth()[position])
            except (RuntimeError, NotImplementedError):
                reference = None  # eager has no wider kernel to compare with
            if reference is not None and reference.shape == golden.shape:
                result = compare(actual, golden, reference=reference)
        results.append(result)
    return results


@dataclass
class _GradientPlan:
    """A sample whose gradients can be taken: its differentiable inputs, and random cotangents.

    ``kept`` has the indices of the differentiable outputs, ``results`` the number of tensors that the
    overload returns.
    """

    overload: OpOverload
    sample: Sample
    leaves: list[torch.Tensor]
    results: int = 0
    kept: list[int] = field(default_factory=list)
    cotangents: list[torch.Tensor] = field(default_factory=list)

    @classmethod
    def of(cls, overload: OpOverload, sample: Sample) -> _GradientPlan | None:
        leaves = [t.detach() for t in sample.tensors() if _is_differentiable(t)]
        if not leaves or not sample.gradient:
            return None
        plan = cls(overload, sample, leaves)
        try:
            results = eager_results(overload, sample.map(_leaf))
            outputs = sample.determined(results)
            plan.results = len(results)
            plan.kept = [place for place, one in enumerate(outputs) if one.requires_grad]
            plan.cotangents = [torch.randn_like(outputs[place]) for place in plan.kept]
            if plan.kept:
                plan.gradients(leaves)
        except RuntimeError:
            return None  # eager itself does not differentiate this call
        return plan if plan.kept else None

    def differentiable(self, results: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the outputs that are differentiated, after the conversion by ``canonical``."""
        outputs = self.sample.determined(results)
        return [outputs[place] for place in self.kept]

    def gradients(self, leaves: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the gradients of all leaves by eager autograd."""
        inputs = [leaf.detach().requires_grad_() for leaf in leaves]
        feed = iter(inputs)
        given = self.sample.map(lambda tensor: next(feed) if _is_differentiable(tensor) else tensor)
        return _gradients(self.differentiable(eager_results(self.overload, given)), inputs, self.cotangents)

    def widened_gradients(self) -> list[torch.Tensor]:
        return self.gradients([widened(leaf) for leaf in self.leaves])


def _gradients(
    outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], cotangents: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    """Return dense gradients of ``inputs``; zeros for an input that has no influence."""
    given = [c.to(o.dtype) for c, o in zip(cotangents, outputs, strict=True)]
    found = torch.autograd.grad(outputs, inputs, given, allow_unused=True)
    return [torch.zeros_like(i) if g is None else g.to_dense() for i, g in zip(inputs, found, strict=True)]


def _is_differentiable(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _leaf(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor as a leaf that requires a gradient, if its dtype allows that."""
    return tensor.detach().requires_grad_() if _is_differentiable(tensor) else tensor
