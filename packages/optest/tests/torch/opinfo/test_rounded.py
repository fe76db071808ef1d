"""Errors that are a call's own amplified roundings pass; mistakes are still found."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch

from optest.core.result import Status
from optest.torch.opinfo.calls import GRADIENT, Call, copied, evaluate
from optest.torch.opinfo.phases import Case
from optest.torch.opinfo.samples import Bound
from optest.torch.opinfo.verdict import by_value
from optest.torch.roundings import OtherRoundings

Tensor = torch.Tensor


def _case(target: Callable[..., Tensor], *tensors: Tensor, weights: Tensor | None = None) -> Case:
    """Return a case of the gradients of ``target``, weighted by ``weights`` or random numbers."""
    bound = Bound(target, tensors)
    own = torch.randn_like(target(*tensors)) if weights is None else weights
    call = Call(bound.function(), tensors, GRADIENT, tuple(range(len(tensors))), (own,))
    case = Case(0, bound, call, "")
    case.expected = evaluate(call.map(copied))
    return case


@pytest.fixture
def attention() -> Case:
    """Scores reach ±200; their roundings change the weights by up to 1e-5, and some gradients by more."""
    torch.manual_seed(0)
    query, key, value = (torch.empty(4, 4, length, 8).uniform_(-9, 9) for length in (3, 6, 6))
    return _case(torch.nn.functional.scaled_dot_product_attention, query, key, value)


def _other(case: Case, seed: int) -> list[Tensor]:
    """Return the results of an implementation that rounds in another way."""
    with OtherRoundings(seed):
        return evaluate(case.call.map(copied))


def _status(case: Case, outputs: Sequence[Tensor]) -> Status:
    status: Status = by_value(case, outputs)["status"]
    return status


def test_amplified_roundings_are_right(attention: Case) -> None:
    answers = [_other(attention, seed) for seed in range(1000, 1020)]
    apart = [answer for answer in answers if _is_apart(attention, answer)]
    assert apart, "every answer is within the tolerance of eager's: the test says nothing"
    assert [_status(attention, answer) for answer in answers] == [Status.PASSED] * len(answers)


def _is_apart(case: Case, answer: Sequence[Tensor]) -> bool:
    try:
        torch.testing.assert_close(list(answer), case.expected)
    except AssertionError:
        return True
    return False


def test_the_record_says_what_rounding_explains(attention: Case) -> None:
    found = [by_value(attention, _other(attention, seed))["comparisons"] for seed in range(1000, 1020)]
    explained = [one for row in found for one in row if one["accuracy"]["excused"]]
    assert {one["passed_by"] for one in explained} == {"accuracy"}


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(lambda x: x * 1.001, id="too-large"),
        pytest.param(lambda x: x + x.abs().max() * 1e-3, id="shifted"),
        pytest.param(lambda x: -x, id="negated"),
        pytest.param(lambda x: x.bfloat16().float(), id="bfloat16"),
        pytest.param(lambda x: x.half().float(), id="float16"),
        pytest.param(lambda x: x.roll(1, -1), id="rolled"),
        pytest.param(lambda x: x.index_fill(0, torch.tensor(2), 0), id="a-batch-left-out"),
        pytest.param(lambda x: x.where(x != x.flatten()[7], torch.nan), id="nan"),
        pytest.param(lambda x: x.where(x.abs() < x.abs().max(), x * 1.001), id="one-element"),
    ],
)
def test_mistakes_are_found_beside_them(attention: Case, wrong: Callable[[Tensor], Tensor]) -> None:
    for place in range(3):
        outputs = _other(attention, 1000)
        outputs[place] = wrong(outputs[place])
        assert _status(attention, outputs) is Status.MISMATCH


def test_decisions_are_not_roundings() -> None:
    """``amax`` shares its gradient among equal elements, and rounding does not excuse another choice."""
    case = _case(lambda x: (x * 3).amax(-1), torch.tensor([[1.0, 1.0, 0.5], [0.25, 2.0, 2.0]]))
    assert _status(case, case.expected) is Status.PASSED
    first = torch.where(case.expected[0] != 0, 0, case.expected[0])
    first[:, 1] = case.expected[0].sum(-1)
    assert _status(case, [first]) is Status.MISMATCH
