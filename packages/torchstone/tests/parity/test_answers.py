"""Calls of optest's suites answered by artifacts; operators that are decomposed for that."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from optest.torch.opinfo.calls import FORWARD, FORWARD_MODE, GRADIENT, SECOND_ORDER, Call, evaluate
from torchstone.backend.records import recorded
from torchstone.parity.answers import answer

Tensor = torch.Tensor
X = torch.linspace(-1, 2, 12).reshape(4, 3)


def call(function: Callable[..., Any], *tensors: Tensor, kind: str = FORWARD) -> Call:
    """Make a call of a function with one result."""
    made = Call(lambda *given: [function(*given)], tensors, kind)
    if kind == FORWARD_MODE:
        made = replace(made, wrt=(0,), weights=(torch.full_like(tensors[0], 0.5),))
    elif kind != FORWARD:
        [result] = made.function(*tensors)
        weight = torch.arange(1.0, result.numel() + 1).reshape(result.shape)
        made = replace(made, wrt=(0,), weights=(weight,), second_weights=(torch.ones_like(tensors[0]),))
        made = made if kind == SECOND_ORDER else replace(made, second_weights=())
    return replace(made, results=len(evaluate(made)))


def check(calls: Sequence[Call]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        answers = answer(calls)
    for one, found in zip(calls, answers, strict=True):
        assert found.outputs is not None, found.error
        torch.testing.assert_close(list(found.outputs), evaluate(one), equal_nan=True)


@pytest.mark.parametrize("kind", [FORWARD, GRADIENT, SECOND_ORDER, FORWARD_MODE])
def test_many_calls_share_a_program(kind: str) -> None:
    check([call(torch.sin, X, kind=kind), call(lambda x, y: x.exp() * y, X, X.flip(0), kind=kind)])


def test_a_call_that_fails_costs_only_itself() -> None:
    def fails(x: Tensor) -> Tensor:
        if torch._dynamo.is_compiling() or isinstance(x, torch._subclasses.FakeTensor):
            raise ValueError("not under tracing")
        return x

    found = answer([call(torch.cos, X), call(fails, X), call(torch.nonzero, X), call(torch.tan, X)])
    assert [one.outputs is not None for one in found] == [True, False, False, True]
    assert "not under tracing" in found[1].unsupported
    assert "aten.nonzero" in found[2].unsupported
    assert {one.form for one in found if one.outputs is not None} == {"native"}
    assert found[0].seconds["capture"] > 0


def test_runs_of_a_random_program_have_streams_of_their_own() -> None:
    made = [call(torch.rand_like, X)] * 2
    torch.manual_seed(1)
    found = [torch.stack([*(one.outputs or ())]) for one in answer(made, repeats=2)]
    assert len({tuple(run.flatten().tolist()) for one in found for run in one}) == 4
    torch.manual_seed(1)
    again = [torch.stack([*(one.outputs or ())]) for one in answer(made, repeats=2)]
    assert torch.equal(torch.stack(found), torch.stack(again))


def test_a_program_for_any_batch() -> None:
    made = replace(call(lambda x: x.softmax(1) @ torch.ones(3, 2), X), resized=(X[:3],))
    [found] = answer([made])
    assert found.outputs is not None
    torch.testing.assert_close(list(found.outputs), evaluate(made.run))


def test_gradients_of_what_looks_at_values_in_eager() -> None:
    x, weights = torch.tensor([[0.5, -1.0, 2.0], [1.0, 3.0, -2.0]]), torch.tensor([1.0, 2.0, 0.5])
    check(
        [
            call(torch.cov, x, kind=GRADIENT),
            call(lambda x: torch.cov(x, aweights=weights), x, kind=GRADIENT),
            call(torch.corrcoef, x, kind=GRADIENT),
            call(F.gaussian_nll_loss, x, x.cos(), x.exp(), kind=GRADIENT),
        ]
    )


def test_gradients_of_what_is_written_under_a_mask() -> None:
    rows, places = torch.tensor([True, False, True, True]), X.sin() > 0
    values = torch.tensor([0.5, -2.0, 3.0])
    chosen = torch.linspace(2, 3, int(places.sum()))
    check(
        [
            call(lambda v: torch.index_put(X, (rows,), v), values, kind=GRADIENT),
            call(lambda v: torch.index_put(X, (rows,), v, accumulate=True), X[:3].cos(), kind=GRADIENT),
            call(lambda v: torch.index_put(X, (places,), v), chosen, kind=GRADIENT),
            call(lambda v, x: x.sin().index_put_((rows,), v), values[0], X, kind=GRADIENT),
            call(lambda v: torch.index_fill(X, 1, torch.tensor([2, 0, 0]), v), values[0], kind=GRADIENT),
            call(lambda v, x: x.sum().index_fill_(0, torch.tensor([0]), v), values[0], X, kind=GRADIENT),
        ]
    )


@pytest.mark.kept(GRADIENT)
@pytest.mark.parametrize("kind", [FORWARD, GRADIENT])
def test_sparse_operands(kind: str) -> None:
    """Rows have no entry, one or many. Of equal elements, the first one gets the gradient."""
    rows, columns, values = (
        torch.tensor(one) for one in ([0, 3, 3, 4, 6], [0, 1, 2, 1, 0, 2], [1.0, 2, 0.5, -1, 3, 3])
    )
    matrix = torch.sparse_csr_tensor(rows, columns, values, (4, 3))
    dense = torch.tensor([[1.0, 2.0], [0.5, -1.0], [1.0, 4.0]])
    calls = [
        call(lambda m, x, reduce=reduce: torch.sparse.mm(m, x, reduce), matrix, dense, kind=kind)
        for reduce in ("sum", "mean", "amax", "amin")
    ]
    calls.append(
        call(lambda m, x: torch.sparse.sampled_addmm(m, x, x[:3].T).to_dense(), matrix, X, kind=kind)
    )
    if kind == GRADIENT:
        calls = [replace(one, wrt=(0, 1), results=2) for one in calls]
    check(calls)


def test_other_sparse_operands_are_declined() -> None:
    for kind in (FORWARD, GRADIENT):
        [found] = answer([call(lambda m: m.to_dense() * 2, X.to_sparse_csc(), kind=kind)])
        assert "a tensor of layout torch.sparse_csc" in found.unsupported


def test_gradients_of_what_addresses_memory_around_its_operand() -> None:
    """``torch.compile`` sees the operand's memory, but a traced graph has only the operand itself."""
    part = torch.arange(20.0)[5:15]
    check([call(lambda x: x.as_strided((2, 2), (1, 2), 10), part, kind=GRADIENT)])
    check([call(lambda x: x.as_strided((2, 2), (1, 2)), part, kind=GRADIENT)])
    found = answer([call(lambda x: x.as_strided((2, 2), (1, 2), 10) ** 2, part, kind=SECOND_ORDER)])
    assert "as_strided addresses the memory around its operand" in found[0].unsupported


def test_gradients_are_those_of_torch_compile() -> None:
    """AOTAutograd makes a forward and a backward graph, and no part of them runs in eager PyTorch."""
    with recorded() as records:
        check([call(torch.sin, X, kind=GRADIENT), call(torch.exp, X, kind=GRADIENT)])
    assert [record.kind for record in records] == ["forward", "backward"]
    assert records[1].native["aten.cos.default"] == 1


def test_gradients_that_need_capture_rules() -> None:
    """A second call in the same program is answered as well."""
    check(
        [
            call(lambda x, start: torch.narrow(x, 0, start, 2) ** 2, X, torch.tensor(1), kind=GRADIENT),
            call(torch.sin, X, kind=GRADIENT),
            call(lambda x: x.to_sparse().to_dense().exp(), X, kind=GRADIENT),
        ]
    )


def test_gradients_without_a_lowering_say_which() -> None:
    [found] = answer([call(lambda x: x.chalf().cfloat().real, X, kind=GRADIENT)])
    assert found.unsupported.startswith("aten._to_copy.default: dtype complex32 is not supported")


SEGMENTS: dict[str, dict[str, Any]] = {
    "lengths": {"lengths": torch.tensor([1, 0, 3])},
    "offsets": {"offsets": torch.tensor([0, 1, 1, 4])},
    "initial": {"lengths": torch.tensor([1, 0, 3]), "initial": 0.25},
    "inner axis": {"lengths": torch.tensor([[2, 1], [3, 0], [0, 3], [1, 2]]), "axis": 1, "unsafe": True},
}


@pytest.mark.kept(GRADIENT)
@pytest.mark.parametrize("kind", [FORWARD, GRADIENT])
def test_segment_reduce(kind: str) -> None:
    def reducing(reduce: str, options: dict[str, Any]) -> Callable[[Tensor], Tensor]:
        return lambda x: torch.segment_reduce(x, reduce, **options)

    reductions = [
        reducing(reduce, options)
        for reduce in ("sum", "mean", "prod", "max", "min")
        for options in SEGMENTS.values()
    ]
    data = torch.where(X.abs() < 0.2, torch.zeros(()), X)  # zeros, for products
    check([call(one, data, kind=kind) for one in reductions])


def test_indices_of_calls_that_must_raise_are_checked() -> None:
    place = torch.tensor([[0, 23, 0]])
    gather = Call(lambda x: [x.gather(0, place)], (X,))
    [found] = answer([gather])
    assert found.error is None
    assert found.unsupported.startswith("raised with config.check_indices only")
    assert "index must lie in [0, 4)" in found.unsupported


def test_writes_that_an_expansion_loses() -> None:
    def rank(x: Tensor) -> Tensor:
        target = torch.zeros((), dtype=torch.int64)
        torch.linalg.matrix_rank(x, out=target)
        return target

    check([call(rank, X), call(rank, X[:, :1] * X[:1])])


@pytest.mark.kept("True")
@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_into_given_tensors(training: bool) -> None:
    def normalized(x: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        mean, variance = mean.clone(), variance.clone()
        into = (torch.ones_like(x), torch.ones(3 * training), torch.ones(3 * training))
        torch._native_batch_norm_legit(x, None, None, mean, variance, training, 0.1, 1e-5, out=into)
        return torch.cat([one.flatten() for one in (*into, mean, variance)])

    check([call(normalized, X, X[0], X[0].exp())])


def test_polygamma_in_place() -> None:
    check([call(lambda x: x.clone().polygamma_(2), X.exp())])


@pytest.mark.kept("gradient")
@pytest.mark.skipif(not hasattr(F, "linear_cross_entropy"), reason="PyTorch has it since 2.13")
@pytest.mark.parametrize("kind", [FORWARD, GRADIENT])
def test_losses_in_chunks(kind: str) -> None:
    """They compute their gradients together with the loss if an operand requires one, also when captured."""
    from torch.nn.modules.linear_cross_entropy_options import LinearCrossEntropyOptions

    options = LinearCrossEntropyOptions(batch_chunk_size=2)
    target = torch.tensor([1, 0, 1, 1])
    check(
        [
            call(
                lambda x, w, reduction=reduction: F.linear_cross_entropy(
                    x, w, target, reduction=reduction, options=options
                ),
                X,
                X[:2].sin(),
                kind=kind,
            )
            for reduction in ("mean", "sum", "none")
        ]
    )
