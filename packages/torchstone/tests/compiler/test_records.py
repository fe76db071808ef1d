"""One record per operator holds what the tables of the compiler are made of."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from stratified import stratified
from torch.utils._pytree import tree_leaves

from operator_samples import Sample, load_samples
from torchstone.compiler import records
from torchstone.compiler.argument_checks import check_arguments
from torchstone.compiler.operators import registry
from torchstone.compiler.operators.declaring import overloads
from torchstone.compiler.rules import RULES, capture_rule
from torchstone.compiler.support import EXCLUDED, NO_EFFECT
from torchstone.errors import LoweringDefinitionError
from torchstone.lowering import Lowering, Record, Registry, load
from torchstone.lowering.own import STAND_INS
from torchstone.torch_internals.derivatives import formulas
from torchstone.torch_internals.operators import MissingOverload, namespace
from torchstone.torch_internals.tensors import detect_causal_mask

aten, own = torch.ops.aten, torch.ops.torchstone


def described(name: str) -> dict[str, object]:
    [operator] = records.find_operators(name)
    return records.described(records.record(operator))


def test_a_lowering_tells_what_it_takes_and_lacks() -> None:
    found = described("aten.index_select.default")
    assert found["compiled"] == "lowered"
    assert found["family"] == "gathering"
    assert (
        found["derivative"]
        == "PyTorch's, self: index_select_backward_symint(grad, self.sym_sizes(), dim, index)"
    )
    assert found["indices"] == {
        "operand": "index",
        "from_the_end": False,
        "out_of_range": "the nearest element is read",
    }
    assert "float32" in found["dtypes"]  # type: ignore[operator]
    assert described("aten._cdist_backward.default")["renamed"] == {"grad": "grad_output"}


def test_what_is_declared_in_several_places_is_one_record() -> None:
    """The lowering, stand-in and capture rule of one operator are declared in three modules."""
    found = described("aten.index_put.default")
    assert found["family"] == "scattering"
    assert found["traced_as"] == ["torchstone.compiler.operators.masked_updates._stand_in.kernel"]
    assert found["capture_rules"] == dict.fromkeys(
        ("torch.index_put", "torch.Tensor.index_put"),
        "torchstone.compiler.operators.masked_updates.index_put",
    )


@pytest.mark.parametrize(
    ("name", "compiled"),
    [
        ("aten.sinh.default", "lowered"),
        ("higher_order.cond", "lowered"),
        ("aten.nan_to_num.default", "decomposed by Torchstone"),
        ("aten.scaled_dot_product_attention.default", "decomposed where it can be, else lowered"),
        ("aten.lstm.input", "traced as Torchstone's stand-in"),
        ("aten.sinc.default", "decomposed by Torchstone"),
        ("aten.outer.default", "decomposed by PyTorch"),
        ("aten.reshape.default", "expanded by PyTorch"),
        ("aten.add_.Tensor", "replaced by its functional form"),
        ("aten._assert_scalar.default", "left out: it says something about sizes"),
        ("aten.item.default", "refused: it turns a tensor's value into a Python number"),
        ("aten._unique2.default", "refused: no lowering and no decomposition is registered"),
    ],
)
def test_what_becomes_of_a_call(name: str, compiled: str) -> None:
    assert str(described(name)["compiled"]).startswith(compiled)


@pytest.mark.parametrize(
    ("name", "derivative"),
    [
        ("aten.sinh.default", "PyTorch's, self: grad * self.cosh().conj()"),
        ("aten.sinh_.default", "PyTorch's, self: grad * self.cosh().conj()"),
        ("aten.reshape.default", "through its expansion"),
        ("aten.argmax.default", "none: PyTorch has no formula"),
        ("aten.sinh.out", "none: PyTorch differentiates no out= form"),
        ("torchstone.rnn_layer.default", "its own, through rnn_layer_backward"),
        ("torchstone.gaussian_nll_loss.default", "through its expansion"),
        ("torchstone.quantized_add.default", "none: as in PyTorch, operators on quantized tensors have none"),
    ],
)
def test_how_a_gradient_is_made(name: str, derivative: str) -> None:
    assert described(name)["derivative"] == derivative


SOME = stratified(list(load()), 6, name=lambda one: one.name, stratum=lambda one: one.family)


@pytest.mark.parametrize("entry", SOME, ids=lambda one: one.name)
def test_what_has_no_derivative_gives_no_gradient(entry: Lowering) -> None:
    if records.derivative(records.record(entry.overload)).startswith("none"):
        samples = load_samples()[entry.overload].make(torch.float64)
        assert not any(gives_a_gradient(entry.overload, sample) for sample in samples)


def gives_a_gradient(overload: Any, sample: Sample) -> bool:
    """Whether eager PyTorch can differentiate a call. Missing derivatives show as a warning or an error."""
    leaves = sample.map(lambda x: x.clone().requires_grad_() if x.is_floating_point() else x)
    inputs = [one for one in leaves.tensors() if one.requires_grad]
    try:
        outputs = [
            one for one in tree_leaves(overload(*leaves.args, **leaves.kwargs)) if is_differentiable(one)
        ]
        with warnings.catch_warnings(action="error"):
            found = [
                gradient
                for one in outputs
                for gradient in torch.autograd.grad(
                    one, inputs, torch.ones_like(one), allow_unused=True, retain_graph=True
                )
            ]
    except (RuntimeError, NotImplementedError, TypeError, ValueError, UserWarning):
        return False
    return any(one is not None for one in found)


def is_differentiable(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.grad_fn is not None


def test_the_check_sees_gradients() -> None:
    [sample, *_] = load_samples()[aten.sinh.default].make(torch.float64)
    assert gives_a_gradient(aten.sinh.default, sample)
    assert not gives_a_gradient(aten.signbit.default, sample)


def test_formulas_are_those_of_arguments() -> None:
    theirs = formulas()
    assert theirs is not None
    assert len(theirs) > 500
    assert theirs["index_put"].keys() == {"self", "values"}
    assert theirs["convolution"].keys() == {"input, weight, bias"}
    assert theirs["eq.Tensor"] == {}  # its result cannot be differentiated


def own_overloads() -> Iterator[str]:
    yield from (str(one) for one in load().overloads() if one.namespace == "torchstone")


@pytest.mark.parametrize("name", sorted(own_overloads()))
def test_an_operator_of_torchstones_own_runs_traces_and_says_how_it_is_differentiated(name: str) -> None:
    [overload] = records.find_operators(name)
    known = records.record(overload)
    assert known.lowering is not None
    keys = [key for key in ("CompositeImplicitAutograd", "CPU") if overload.has_kernel_for_dispatch_key(key)]
    assert len(keys) == 1
    assert known.derivative is not None or keys == ["CompositeImplicitAutograd"]


def test_every_recurrent_network_has_a_stand_in_and_the_same_decomposition() -> None:
    for original, mine in STAND_INS.items():
        known = records.record(original)
        assert known.stand_in is not None
        assert list(known.stand_in.values()) == [known.decomposition]
        assert load().get(mine) is not None


def test_every_rule_for_an_operator_of_pytorch_is_in_its_record() -> None:
    noted = {target for one in registry.table("rules").values() for target in one}
    unnoted = [
        target
        for target in RULES.calls
        if hasattr(aten, getattr(target, "__name__", "")) and target not in noted
    ]
    assert unnoted == []


def test_tables_are_read_from_the_records() -> None:
    assert {aten._assert_async.msg, torch.sym_constrain_range} < NO_EFFECT
    assert EXCLUDED.keys() == {aten.item.default, aten._local_scalar_dense.default}
    assert (
        registry.decompositions[aten.nan_to_num.default]
        is registry.record(aten.nan_to_num.default).decomposition
    )
    functions = {torch.nn.functional.gaussian_nll_loss, torch.combinations, detect_causal_mask.get()}
    assert functions == RULES.dynamo.keys()


def test_a_check_of_arguments_holds_for_every_overload() -> None:
    for overload in (aten.bernoulli_.float, aten.bernoulli.p, aten.bernoulli.float_out):
        check = registry.record(overload).arguments
        assert check is not None
        assert check({"p": 2.0}) == "bernoulli_ expects p to be in [0, 1], but got p=2"
    check_arguments(torch.fx.symbolic_trace(torch.nn.Identity()))  # not an operator: nothing is checked


def test_a_rule_of_a_user_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    known = registry.record(aten.sinc.default)
    monkeypatch.setattr(known, "rules", {})
    monkeypatch.setitem(registry._records, aten.sinc.default, known)
    monkeypatch.setattr(RULES, "calls", dict(RULES.calls))
    capture_rule(torch.sinc)(lambda x: x)
    assert known.rules.keys() == {torch.sinc}


def test_a_part_is_declared_once() -> None:
    fresh = Registry()
    fresh.declare(aten.sinc.default, excluded="because")
    fresh.declare(aten.sinc.default, derivative="none: because")
    assert fresh.record(aten.sinc.default) == Record(
        aten.sinc.default, excluded="because", derivative="none: because"
    )
    with pytest.raises(
        LoweringDefinitionError, match=r"^aten\.sinc\.default has its excluded declared twice"
    ):
        fresh.declare(aten.sinc.default, excluded="still")
    assert fresh.table("excluded") == {aten.sinc.default: "because"}
    assert fresh.record(aten.sin.default) == Record(aten.sin.default)


def test_a_missing_overload_declares_nothing() -> None:
    gone = namespace("aten").not_there
    assert isinstance(gone.default, MissingOverload)
    assert list(overloads(gone, gone.default, None)) == []
    assert {aten.sinh.default, aten.sinh.out} < set(overloads(namespace("aten").sinh))


def test_overloads_of_torchscript_alone_are_not_found() -> None:
    assert aten.index_put.hacked_twin in [getattr(aten.index_put, one) for one in aten.index_put.overloads()]
    assert [str(one) for one in records.find_operators("aten.index_put")] == [
        "aten.index_put.default",
        "aten.index_put.out",
    ]
    assert records.find_operators("aten.nope") == records.find_operators("nonsense") == []
    assert records.find_operators("aten.sinh.nope") == []
