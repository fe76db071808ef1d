"""The registry refuses definitions that contradict an operator's schema."""

from __future__ import annotations

import functools
import operator
from typing import Any

import pytest
import torch

from torchstone import lowering
from torchstone.dtypes import FLOATING
from torchstone.errors import LoweringDefinitionError
from torchstone.lowering import Registry, lowers, lowers_higher_order

aten = torch.ops.aten
cond = torch.ops.higher_order.cond


def test_unknown_parameter() -> None:
    with pytest.raises(
        LoweringDefinitionError, match=r"takes \['dimension'\], which aten.glu.default does not have"
    ) as caught:

        @lowers(aten.glu.default, into=Registry())
        def glu(self: Any, dimension: Any) -> Any:
            return self, dimension

    assert "schema: aten::glu(Tensor self, int dim=-1)" in str(caught.value)


def test_missing_parameter() -> None:
    with pytest.raises(LoweringDefinitionError, match=r"leaves out \['dim'\] of aten.glu.default"):

        @lowers(aten.glu.default, into=Registry())
        def glu(self: Any) -> Any:
            return self


def test_unused_parameter() -> None:
    with pytest.raises(LoweringDefinitionError, match=r"never uses its parameter\(s\) \['dim'\]"):

        @lowers(aten.glu.default, into=Registry())
        def glu(self: Any, dim: int) -> Any:
            return self


def test_used_in_a_nested_function_counts() -> None:
    registry = Registry()

    @lowers(aten.glu.default, into=registry)
    def glu(self: Any, dim: int) -> Any:
        return [(self, dim) for _ in range(1)]

    assert aten.glu.default in registry


def test_twice() -> None:
    registry = Registry()

    def relu(self: Any) -> Any:
        return self

    lowers(aten.relu.default, into=registry)(relu)
    with pytest.raises(LoweringDefinitionError, match=r"aten\.relu\.default is lowered twice"):
        lowers(aten.relu.default, into=registry)(relu)
    registry.remove(aten.relu.default)
    lowers(aten.relu.default, into=registry)(relu)


def without_a_module() -> Any:
    namespace: dict[str, Any] = {"__name__": None}
    exec("def relu(self):\n    return self", namespace)
    return namespace["relu"]


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(functools.partial(lambda self: self), id="partial"),
        pytest.param(operator.neg, id="built-in"),
        pytest.param(without_a_module(), id="no module"),
    ],
)
def test_what_is_no_function_of_a_module(function: Any) -> None:
    message = (
        r"cannot be a lowering: it is not a Python function defined in a module\n  next: write a function"
    )
    for register in (lowers(aten.relu.default, into=Registry()), lowers_higher_order(cond, into=Registry())):
        with pytest.raises(LoweringDefinitionError, match=message):
            register(function)


def test_higher_order_operator() -> None:
    registry = Registry()

    @lowers_higher_order(cond, into=registry)
    def branch(pred: Any) -> Any:
        """One of two."""
        return pred

    (entry,) = registry.higher_order_lowerings()
    assert (entry.name, entry.family, entry.documentation) == ("cond", "test_registry", "One of two.")
    assert registry.higher_order(cond) is branch
    assert cond in registry
    with pytest.raises(LoweringDefinitionError, match=r"^cond is lowered twice"):
        lowers_higher_order(cond, into=registry)(branch)


def test_entries_describe_themselves() -> None:
    registry = Registry()

    @lowers(aten.relu.default, dtypes=FLOATING, into=registry)
    def relu(self: Any) -> Any:
        """The positive part.

        More.
        """
        return self

    (entry,) = registry
    assert entry.name == "aten.relu.default"
    assert entry.documentation == "The positive part."
    assert entry.family == "test_registry"
    assert entry.parameters == ("self",)


def test_enough_overloads() -> None:
    """The first release promises 200 overloads."""
    assert len(lowering.load()) >= 200
