"""The pipeline: contracts of passes, passes of users, and errors that name the pass."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._ops import OpOverload
from torch.fx import GraphModule, Node

import torchstone
from torchstone import graph_pass
from torchstone.compiler import Pass, Pipeline
from torchstone.compiler.pipeline import PROPERTIES, Unit, compiler_pass
from torchstone.compiler.program import export_pipeline
from torchstone.compiler.support import survey
from torchstone.config import override
from torchstone.errors import PassError

aten = torch.ops.aten
X = torch.linspace(-2, 2, 6).reshape(2, 3)


def model(x: torch.Tensor) -> torch.Tensor:
    return torch.sin(x) + 1


def replacing(old: Any, new: Any) -> Callable[[GraphModule], GraphModule]:
    """Return a pass that replaces calls of ``old`` by calls of ``new`` with the same arguments."""

    def change(module: GraphModule) -> GraphModule:
        for node in module.graph.find_nodes(op="call_function", target=old):
            node.target = new
        return module

    return change


def exported(change: Callable[[GraphModule], Any], function: Callable[..., Any] = model) -> Any:
    return torchstone.export(function, (X,), passes=[graph_pass("mine")(change)])


def refused(change: Callable[[GraphModule], Any]) -> str:
    with pytest.raises(PassError) as caught:
        exported(change)
    return str(caught.value)


def output(module: GraphModule) -> Node:
    return module.graph.output_node()


# Passes of users ------------------------------------------------------------------------


def test_a_pass_changes_what_is_computed() -> None:
    program = exported(replacing(aten.sin.default, aten.cos.default))
    assert "stablehlo.cosine" in program.mlir_text()
    torch.testing.assert_close(program(X), torch.cos(X) + 1)


def test_new_calls_need_no_metadata() -> None:
    """The pass makes a chain of new calls, and returns another graph module than it was given."""

    def change(module: GraphModule) -> GraphModule:
        twin = GraphModule(module, torch.fx.Graph())
        result = twin.graph.graph_copy(module.graph, {})
        doubled = twin.graph.call_function(aten.mul.Tensor, (result[0], 2))
        summed = twin.graph.call_function(aten.add.Tensor, (doubled, doubled))
        twin.graph.output((summed,))
        return twin

    torch.testing.assert_close(exported(change)(X), 4 * model(X))


def test_a_pass_adds_a_constant() -> None:
    def change(module: GraphModule) -> GraphModule:
        module.register_buffer("table", torch.arange(3.0))
        [result] = output(module).args[0]
        with module.graph.inserting_before(output(module)):
            table = module.graph.get_attr("table")
            output(module).args = ((module.graph.call_function(aten.add.Tensor, (result, table)),),)
        return module

    torch.testing.assert_close(exported(change)(X), model(X) + torch.arange(3.0))


def test_a_pass_works_with_symbolic_sizes_and_mutations() -> None:
    class Counting(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count += 1
            return x.sin()

    change = graph_pass("mine")(replacing(aten.sin.default, aten.cos.default))
    program = torchstone.export(
        Counting(), (X,), dynamic_shapes=[{0: torch.export.Dim.AUTO}], passes=[change]
    )
    longer = torch.randn(5, 3)
    torch.testing.assert_close(program(longer), longer.cos())
    assert program.state()["count"] == 1


def test_checks_are_added_behind_passes() -> None:
    def lookup(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return x.index_select(0, index)

    index = torch.tensor([0, 1])
    turned = graph_pass("turned")(replacing(aten.sin.default, aten.cos.default))
    with override(check_indices=True):
        program = torchstone.export(lookup, (X, index), passes=[turned])
    torch.testing.assert_close(program(X, index), X[index])
    with pytest.raises(torchstone.errors.IndexOutOfRange):
        program(X, index + 5)


def test_passes_run_in_order_and_say_what_they_need() -> None:
    cosine = graph_pass("cosine", guarantees=["no-sine"])(replacing(aten.sin.default, aten.cos.default))
    tangent = graph_pass("tangent", needs=["no-sine", "lowerable"])(
        replacing(aten.cos.default, aten.tan.default)
    )
    program = torchstone.export(model, (X,), passes=[cosine, tangent])
    torch.testing.assert_close(program(X), torch.tan(X) + 1)
    with pytest.raises(PassError, match="the pass 'tangent' needs 'no-sine', which no pass before it") as it:
        torchstone.export(model, (X,), passes=[tangent, cosine])
    assert "next: put it behind 'cosine'" in str(it.value)
    with pytest.raises(PassError, match="the pass 'tangent' needs 'no-sine'") as it:
        torchstone.export(model, (X,), passes=[tangent])
    assert "these properties hold there: bounded, functional, independent-inputs, lowerable, metadata" in str(
        it.value
    )


def test_explain_shows_passes_of_users() -> None:
    """The explanation shows the docstring of the pass."""

    @graph_pass("mine", needs=["lowerable"])
    def change(module: GraphModule) -> GraphModule:
        """Turn sines into
        cosines.

        More about it.
        """
        return replacing(aten.sin.default, aten.cos.default)(module)

    found = torchstone.explain(model, (X,), passes=[change], trace=True)
    [step] = [step for step in found.steps if step.name == "mine"]
    assert step.doc == "Turn sines into cosines."
    assert "torch.ops.aten.cos.default" in str(step.graph)
    assert "mine (" in str(found)
    assert found.native == {"aten.cos.default": 1, "aten.add.Tensor": 1}
    assert torchstone.explain(model, (X,), passes=[change]).native == found.native


def test_explain_shows_the_pass_that_refuses_a_model() -> None:
    found = torchstone.explain(lambda x: torch.full_like(x.int(), 2**40), (X,), trace=True)
    assert [step.name for step in found.steps] == ["capture", "check-aliasing"]
    assert "aten.full_like.default" in str(found.steps[0].graph)
    assert str(found).startswith("capture (")
    assert "cannot be captured:\naten.full_like.default at" in str(found)
    assert not torchstone.explain(lambda x: torch.full_like(x.int(), 2**40), (X,)).steps


# Errors ---------------------------------------------------------------------------------


def test_a_pass_that_raises() -> None:
    def change(module: GraphModule) -> GraphModule:
        raise KeyError("lost")

    assert refused(change) == "the pass 'mine' raised KeyError: 'lost'"


@pytest.mark.parametrize(
    ("result", "named"), [(None, "None"), (3, "an int"), (torch.nn.ReLU(), "a ReLU")], ids=str
)
def test_a_pass_that_returns_something_else(result: Any, named: str) -> None:
    text = refused(lambda module: result)
    assert f"the pass 'mine' returned {named}, which is not a GraphModule" in text
    assert "next: return the graph module" in text


def test_a_pass_that_leaves_what_does_not_lower() -> None:
    text = refused(replacing(aten.sin.default, aten.hardswish.default))
    assert text.startswith("the pass 'mine' leaves aten.hardswish.default, which does not lower: no lowering")
    text = refused(replacing(aten.sin.default, aten.sin))
    assert "the pass 'mine' leaves aten.sin, which does not lower: this is not an operator" in text


def test_a_pass_that_writes() -> None:
    text = refused(replacing(aten.sin.default, aten.sin_.default))
    assert re.match(r"the pass 'mine' leaves aten\.sin_\.default at .*, which writes into a tensor", text)


def test_a_pass_that_leaves_other_nodes() -> None:
    def change(module: GraphModule) -> GraphModule:
        [result] = output(module).args[0]
        with module.graph.inserting_before(output(module)):
            output(module).args = ((module.graph.call_method("neg", (result,)),),)
        return module

    assert "the pass 'mine' leaves a call_method node: neg" in refused(change)


def test_a_pass_that_leaves_a_wrong_call() -> None:
    text = refused(replacing(aten.add.Tensor, aten.mm.default))
    assert "the pass 'mine' leaves a call that PyTorch refuses: aten.mm.default at " in text


def appended(call: Callable[..., Any], *rest: Any) -> Callable[[GraphModule], GraphModule]:
    """Return a pass that calls ``call`` on the output."""

    def change(module: GraphModule) -> GraphModule:
        [result] = output(module).args[0]
        with module.graph.inserting_before(output(module)):
            output(module).args = ((module.graph.call_function(call, (result, *rest)),),)
        return module

    return change


def test_a_pass_that_changes_an_output() -> None:
    text = refused(appended(aten.sum.default))
    assert "the pass 'mine' changes output 0 from float32[2, 3] to float32[]" in text
    text = refused(appended(aten.isnan.default))
    assert "the pass 'mine' changes output 0 from float32[2, 3] to bool[2, 3]" in text

    def fewer(module: GraphModule) -> GraphModule:
        output(module).args = ((),)
        return module

    assert "the pass 'mine' changes the number of outputs from 1 to 0" in refused(fewer)


def test_a_pass_that_changes_the_inputs() -> None:
    def change(module: GraphModule) -> GraphModule:
        [first] = module.graph.find_nodes(op="placeholder")
        with module.graph.inserting_after(first):
            module.graph.placeholder("more")
        return module

    assert "changes the inputs of the graph from ['x'] to ['x', 'more']" in refused(change).replace(
        "args_0", "x"
    )


def test_a_pass_that_leaves_a_broken_graph() -> None:
    def change(module: GraphModule) -> GraphModule:
        [sine] = module.graph.find_nodes(op="call_function", target=aten.sin.default)
        [total] = module.graph.find_nodes(op="call_function", target=aten.add.Tensor)
        total.append(sine)
        return module

    assert "the pass 'mine' leaves a graph that is not well-formed" in refused(change)


def test_two_passes_of_one_name() -> None:
    turned = graph_pass("turned")(lambda module: module)
    with pytest.raises(PassError, match="two passes of the pipeline are called 'turned'"):
        torchstone.export(model, (X,), passes=[turned, turned])
    with pytest.raises(PassError, match="two passes of the pipeline are called 'decompose'"):
        torchstone.export(model, (X,), passes=[graph_pass("decompose")(lambda module: module)])


def test_what_is_not_a_pass() -> None:
    with pytest.raises(PassError, match=r"<function model .* is not a pass"):
        torchstone.export(model, (X,), passes=[model])  # type: ignore[list-item]
    with pytest.raises(PassError, match="a pass cannot be called ''"):
        graph_pass("")
    with pytest.raises(PassError, match="needs='lowerable' of the pass 'mine' is a string"):
        graph_pass("mine", needs="lowerable")


# The pipeline ---------------------------------------------------------------------------


def test_needs_are_checked_before_anything_runs() -> None:
    ran: list[str] = []

    @compiler_pass("second", needs=["done"])
    def second(unit: Unit) -> None:
        ran.append("second")

    @compiler_pass("first", guarantees=["done"])
    def first(unit: Unit) -> None:
        ran.append("first")

    with pytest.raises(PassError, match="the pass 'second' needs 'done', which no pass before it guarantees"):
        Pipeline([second, first])
    unit = Unit(GraphModule(torch.nn.Module(), torch.fx.Graph()))
    Pipeline([first, second]).run(unit)
    assert ran == ["first", "second"] == list(unit.seconds)


def test_every_property_of_the_compiler_is_documented() -> None:
    from torchstone.backend.passes import DIVIDING, DIVIDING_PART, compiling

    pipelines: list[Pipeline[Any]] = [export_pipeline(), DIVIDING, DIVIDING_PART, compiling(())]
    passes: list[Pass[Any]] = [one for pipeline in pipelines for one in pipeline.passes]
    assert {name for one in passes for name in one.needs | one.guarantees} == set(PROPERTIES)
    assert all(one.doc.endswith(".") for one in passes)


# Guarantees of the compiler's own passes ------------------------------------------------


def calls(module: GraphModule) -> list[Node]:
    return [node for node in module.graph.nodes if node.op == "call_function"]


HOLDS: dict[str, Callable[[Unit], bool]] = {
    "metadata": lambda unit: all("val" in node.meta for node in calls(unit.module)),
    "functional": lambda unit: (
        not any(
            isinstance(node.target, OpOverload) and node.target._schema.is_mutable
            for node in calls(unit.module)
        )
    ),
    "lowerable": lambda unit: not survey(unit.module).unsupported,
    "stablehlo": lambda unit: "func.func public @main" in unit.built().text(),
}


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Check every guarantee so far after each pass that runs; list the checks as ``pass: guarantee``."""
    run, found = Pipeline.run, []

    def checking(self: Pipeline[Any], unit: Unit, observe: Any = None) -> None:
        held = set(self.given)

        def check(one: Pass[Any], unit: Any) -> None:
            held.update(one.guarantees)
            for name in held & HOLDS.keys():
                if name != "stablehlo" or unit.stablehlo is not None:
                    assert HOLDS[name](unit), f"{name} does not hold after {one.name}"
                    found.append(f"{one.name}: {name}")

        run(self, unit, check)

    monkeypatch.setattr(Pipeline, "run", checking)
    return found


class Trained(torch.nn.Module):
    """A model with mutations, random numbers, decompositions and several outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.drop = torch.nn.BatchNorm1d(3), torch.nn.Dropout(0.5)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x = self.drop(self.norm(x)).squeeze()
        return torch.nn.functional.hardswish(x), x.T, x.sin().add_(1)


def test_guarantees_of_an_export(checked: list[str]) -> None:
    with override(check_values=True, check_indices=True):
        torchstone.export(Trained(), (X,))
    assert {"decompose: functional", "decompose: metadata", "require-lowerings: lowerable"} <= set(checked)
    assert {"add-checks: lowerable", "lower: functional", "lower: stablehlo"} <= set(checked)


def test_guarantees_of_torch_compile(checked: list[str]) -> None:
    torch._dynamo.reset()
    fast = torch.compile(Trained(), backend="torchstone", options={"check_values": True})
    x = X.clone().requires_grad_()
    sum(one.sum() for one in fast(x)).backward()
    with torch.no_grad():
        fast(X)
    assert {"complete-metadata: metadata", "extract-mutations: functional"} <= set(checked)
    assert {"arrange-layouts: lowerable", "lower: stablehlo"} <= set(checked)
