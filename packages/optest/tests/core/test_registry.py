from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from optest.core.tolerance import Tolerance, ToleranceTable, default_tolerance
from optest.errors import AttributeMismatch, RegistrationError, ShapeError, UnknownName, UsageError
from optest.names import listing, near_misses
from optest.operators import REQUIRED, AttributeSpec, OperatorDescriptor, OperatorRegistry, Setup

POOL = OperatorDescriptor(
    name="max_pool2d",
    category="pooling",
    inputs=("input0", "input1"),
    outputs=("output0",),
    dtypes=(("float32", "float32"), ("float32", "int64"), ("float16", "float16")),
    reference="nowhere:pool",
    output_dtypes=lambda dtypes, attributes: dtypes[:1],
    output_shapes=lambda shapes, attributes: {"output0": shapes["input0"]},
    attributes={
        "kernel_size": AttributeSpec((int, list), minimum=1),
        "alpha": AttributeSpec(float, 0.5),
        "ceil": AttributeSpec(bool, False),
        "mode": AttributeSpec(str, "max", choices=("max", "mean")),
        "axis": AttributeSpec((int, type(None)), None),
        "dims": AttributeSpec(list, [1, 2]),
    },
    aliases={"weight": "input1"},
    tolerances={"float16": Tolerance(0.5, 0.25)},
)


def test_attributes_are_completed_in_order() -> None:
    complete = POOL.complete_attributes({"dims": [3], "kernel_size": [2, 2], "alpha": 2})
    assert list(complete.items()) == [
        ("kernel_size", (2, 2)),
        ("alpha", 2.0),
        ("ceil", False),
        ("mode", "max"),
        ("axis", None),
        ("dims", (3,)),
    ]
    assert isinstance(complete["alpha"], float)
    assert POOL.complete_attributes({"kernel_size": 1})["dims"] == (1, 2)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "needs the attribute 'kernel_size': int or list of at least 1"),
        ({"kernel_size": 0}, "'kernel_size' is 0; it takes int or list of at least 1"),
        ({"kernel_size": 1.5}, "'kernel_size' is 1.5"),
        ({"kernel_size": True}, "'kernel_size' is True"),
        ({"kernel_size": 1, "ceil": 1}, "'ceil' is 1; it takes bool"),
        ({"kernel_size": 1, "mode": "min"}, "it takes one of 'max', 'mean'"),
        ({"kernel_size": 1, "axis": "x"}, "it takes int or null"),
        ({"kernel_size": 1, "dims": 2}, "it takes list"),
        ({"kernel_size": 1, "ciel": True}, "has no attribute 'ciel': did you mean ceil?"),
    ],
)
def test_wrong_attributes_are_explained(given: dict[str, Any], told: str) -> None:
    with pytest.raises(AttributeMismatch) as caught:
        POOL.complete_attributes(given)
    assert told in str(caught.value)


def test_one_dtype_means_the_tuples_that_agree_most() -> None:
    assert POOL.match_dtypes(["float32"]) == (("float32", "float32"),)
    assert POOL.match_dtypes(["float32", "int64"]) == (("float32", "int64"),)
    with pytest.raises(UsageError, match="does not take int8; it takes float32 and float16"):
        POOL.match_dtypes(["int8"])
    with pytest.raises(UsageError, match="float32/float32, float32/int64 and float16/float16"):
        POOL.match_dtypes(["float32", "int8"])


def test_names_and_shapes_of_tensors() -> None:
    assert POOL.canonical_name("weight") == "input1"
    with pytest.raises(UsageError, match="it has input0, input1, output0 and weight"):
        POOL.canonical_name("bias")
    with pytest.raises(ShapeError, match="needs a shape for input1"):
        POOL.check_shapes({"input0": (1,)}, {})
    assert POOL.check_shapes({"input0": (1,), "input1": (2,)}, {}) == {"output0": (1,)}


def test_a_plans_table_has_the_last_word_on_tolerances() -> None:
    assert POOL.tolerance("float16") == Tolerance(0.5, 0.25)
    assert POOL.tolerance("float32") == default_tolerance("float32")
    table = ToleranceTable(dtypes={"float16": {"rtol": 0.1}}).with_operator("max_pool2d", atol=1.0)
    assert POOL.tolerance("float16", table) == Tolerance(0.5, 1.0)
    assert POOL.tolerance("float32", table) == replace(default_tolerance("float32"), atol=1.0)


def test_built_in_operators_load_at_the_first_look_and_once() -> None:
    calls = []

    def builtins() -> list[OperatorDescriptor]:
        calls.append(1)
        return [POOL]

    registry = OperatorRegistry(builtins)
    assert calls == []
    assert registry.get("max_pool2d") is POOL
    assert (registry.names(), len(registry), list(registry)) == (["max_pool2d"], 1, [POOL])
    assert calls == [1]


def test_operators_are_added_overridden_and_extended() -> None:
    registry = OperatorRegistry(lambda: [POOL])
    mine = registry.register(replace(POOL, name="mine"))
    assert registry.get("mine") is mine
    with pytest.raises(RegistrationError, match="registered already"):
        registry.register(mine)
    other = replace(POOL, category="other")
    assert registry.override(other) is registry.get("max_pool2d")
    with pytest.raises(UnknownName):
        registry.override(replace(POOL, name="nowhere"))
    assert registry.categories() == ["other", "pooling"]

    setup = Setup({"input0": (1,), "input1": (1,)})
    grown = registry.extend(
        "mine", dtypes=[("int8", "int8")], tags={"new"}, setups=[setup], reference="mine:f"
    )
    assert grown.dtypes == (*POOL.dtypes, ("int8", "int8"))
    assert (grown.tags, grown.setups, grown.reference) == (frozenset({"new"}), (setup,), "mine:f")
    assert registry.get("mine") is grown
    with pytest.raises(RegistrationError, match="no field 'refrence'"):
        registry.extend("mine", refrence="x")
    with pytest.raises(RegistrationError, match="1 entries for 2 inputs"):
        registry.extend("mine", dtypes=[("int8",)])


def test_an_unknown_operator_names_near_misses() -> None:
    registry = OperatorRegistry(lambda: [POOL])
    with pytest.raises(UnknownName, match=r"unknown operator 'maxpool2d': did you mean max_pool2d\?"):
        registry.get("maxpool2d")
    assert registry.peek("maxpool2d") is None
    assert "max_pool2d" in registry


def test_required_stays_itself() -> None:
    import pickle

    assert pickle.loads(pickle.dumps(REQUIRED)) is REQUIRED


def test_names_come_close() -> None:
    known = ["conv1d", "conv2d", "conv_transpose2d", "relu", "leaky_relu"]
    assert near_misses("conv3d", known)[:2] == ["conv2d", "conv1d"]
    assert near_misses("RELU", known) == ["relu", "leaky_relu"]
    assert near_misses("zz", known) == []
    assert listing("abc") == "a, b and c"
    assert listing("abc", last="or", limit=2) == "a, b or 1 more"
    assert listing([]) == ""
