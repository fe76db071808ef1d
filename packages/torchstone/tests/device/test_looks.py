"""A call that is recognized, because it looks like one before, gives what the same call on the CPU gives."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from torchstone.config import override
from torchstone.device import operators
from torchstone.device.looks import UNLIKE, Look
from torchstone.device.operators import Operator
from torchstone.torch_internals import dynamo

from .mirrored import DEVICE


def _numbers(device: str, *size: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.arange(24, dtype=dtype)[: math.prod(size)].reshape(size).to(device)


@pytest.fixture
def recognized(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each call that was compared with a look of this test, whether it was recognized."""
    found: list[bool] = []
    plain = operators.look_of

    def noted(*given: Any) -> Look | None:
        look = plain(*given)
        if look is None:
            return None
        call = look.call

        def compared(args: tuple[Any, ...]) -> Any:
            result = call(args)
            found.append(result is not UNLIKE)
            return result

        return Look(compared)

    monkeypatch.setattr(operators, "look_of", noted)
    return found


def test_a_second_call_with_new_values_is_recognized(recognized: list[bool]) -> None:
    multiply = Operator("mul.Tensor")
    x, y, z = (_numbers("cpu", 4).add(n).to(DEVICE) for n in range(3))
    assert multiply(x, y).tolist() == [0, 2, 6, 12]
    assert recognized == []
    assert multiply(y, z).tolist() == [2, 6, 12, 20]
    assert recognized == [True]


def test_a_recognized_call_takes_its_own_numbers(recognized: list[bool]) -> None:
    add = Operator("add.Tensor")
    x = _numbers(DEVICE, 3)
    assert [add(x, n).tolist() for n in (1.5, 2.5)] == [[1.5, 2.5, 3.5], [2.5, 3.5, 4.5]]
    assert recognized == [True]
    assert add(x, 2).dtype is torch.float32  # an integer is another look
    assert recognized == [True, False]


def test_numbers_that_int64_does_not_hold_are_told_apart() -> None:
    add = Operator("add.Tensor")
    x = _numbers(DEVICE, 2)
    assert [add(x, n).tolist() for n in (1, 2, 1 << 63)] == [[1, 2], [2, 3], [2.0**63, 2.0**63]]


def test_lists_of_integers_are_compared(recognized: list[bool]) -> None:
    total = Operator("sum.dim_IntList")
    x = _numbers(DEVICE, 2, 3)
    axes = [0]
    assert [total(x, axes).tolist() for _ in range(2)] == [[3, 5, 7], [3, 5, 7]]
    axes[0] = 1
    assert total(x, axes).tolist() == [3, 12]
    assert total(x, [0], True).tolist() == [[3, 5, 7]]
    assert recognized == [True, False, False]


def test_a_written_argument_takes_the_result_of_a_recognized_call(recognized: list[bool]) -> None:
    add = Operator("add_.Tensor")
    x, y = _numbers(DEVICE, 3), torch.ones(3).to(DEVICE)
    for _ in range(3):
        add(x, y)
    assert recognized == [True, True]
    assert x.tolist() == [3, 4, 5]


DIFFERENT: dict[str, Callable[[str], list[Tensor]]] = {
    "dtype": lambda d: [_numbers(d, 4), _numbers(d, 4, dtype=torch.float64)],
    "shape": lambda d: [_numbers(d, 4), _numbers(d, 1)],
    "strides": lambda d: [_numbers(d, 4), _numbers(d, 8)[::2]],
    "storage offset": lambda d: [_numbers(d, 8)[:4], _numbers(d, 8)[4:]],
    "size of the storage": lambda d: [_numbers(d, 8)[:4], _numbers(d, 9)[:4]],
    "dtype of the storage": lambda d: [
        _numbers(d, 4),
        _numbers(d, 4).view(torch.int16).clone().view(torch.float32),
    ],
    "negative view": lambda d: [_numbers(d, 4), torch._neg_view(_numbers(d, 4))],
    "gradient": lambda d: [_numbers(d, 4), _numbers(d, 4).requires_grad_()],
    "parameter": lambda d: [_numbers(d, 4), torch.nn.Parameter(_numbers(d, 4))],
}


@pytest.mark.parametrize("which", DIFFERENT)
@pytest.mark.parametrize("turned", [False, True])
def test_arguments_that_look_different_are_told_apart(
    which: str, turned: bool, recognized: list[bool]
) -> None:
    """Both orders of the arguments, so that each of the two is the first that the operator sees."""

    def results(device: str) -> list[Tensor]:
        multiply = Operator("mul.Tensor") if device == DEVICE else torch.mul
        first, second = DIFFERENT[which](device)[:: -1 if turned else 1]
        other = _numbers("cpu", 4).add(1).to(device)
        recognized.clear()
        with torch.no_grad():
            return [multiply(one, other) for one in (first, second, first, second)]

    expected = results("cpu")
    found = results(DEVICE)
    # The look of the last call is compared first, then that of the last call with this shape.
    assert recognized == ([False, False, True, False, True] if which == "shape" else [False, True, False])
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.dtype is theirs.dtype
        assert torch.equal(mine.cpu(), theirs)


@pytest.mark.parametrize("operator", [torch.add, torch.floor_divide, torch.remainder, torch.bitwise_and])
def test_a_number_may_take_the_place_of_either_tensor(operator: Callable[..., Tensor]) -> None:
    def results(device: str) -> list[Tensor]:
        x, y = (_numbers(device, 4, dtype=torch.int64).add(n) for n in (1, 5))
        calls = [(5, x), (x, y), (x, 5), (7, y), (y, x), (y, 7)]
        return [operator(*call) for call in calls * 2]

    for mine, theirs in zip(results(DEVICE), results("cpu"), strict=True):
        assert mine.dtype is theirs.dtype
        assert mine.tolist() == theirs.tolist()


def test_arguments_that_share_a_storage_are_told_apart() -> None:
    add = Operator("add_.Tensor")
    x, y = _numbers(DEVICE, 8), _numbers(DEVICE, 8)
    for _ in range(2):
        add(x[:4], y[4:])
    assert x.tolist() == [8, 11, 14, 17, 4, 5, 6, 7]
    add(x[:4], x[4:])
    assert x.tolist() == [12, 16, 20, 24, 4, 5, 6, 7]
    add(x, x)
    assert x.tolist() == [24, 32, 40, 48, 8, 10, 12, 14]
    add = Operator("add_.Tensor")
    add(x[:4], y[2:6])
    with pytest.raises(RuntimeError, match="memory location"):
        add(x[:4], x[2:6])


def test_the_default_dtype_is_compared() -> None:
    divide = Operator("div.Tensor")
    x, y = (_numbers(DEVICE, 3, dtype=torch.int64) + n for n in (0, 1))
    assert [divide(x, y).dtype for _ in range(2)] == [torch.float32] * 2
    torch.set_default_dtype(torch.float64)
    try:
        assert divide(x, y).dtype is torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


def test_the_default_dtype_decides_nothing_beside_floating_tensors(recognized: list[bool]) -> None:
    multiply = Operator("mul.Tensor")
    x = _numbers(DEVICE, 3)
    before = [multiply(x, factor) for factor in (1.5, 2.5)]
    torch.set_default_dtype(torch.float64)
    try:
        after = multiply(x, 3.5)
    finally:
        torch.set_default_dtype(torch.float32)
    assert recognized == [True, True]
    assert {one.dtype for one in (*before, after)} == {torch.float32}
    assert after.tolist() == [0.0, 3.5, 7.0]


def test_a_look_that_fails_too_often_is_replaced(recognized: list[bool]) -> None:
    multiply = Operator("mul.Tensor")
    x, narrow, wide = _numbers(DEVICE, 4), _numbers(DEVICE, 1), _numbers(DEVICE, 4)
    multiply(x, narrow)
    for _ in range(12):
        multiply(x, wide)
    assert recognized[0] is False
    assert recognized[-1] is True


def test_looks_go_with_their_plans() -> None:
    negate = Operator("neg")
    with override(device_plans=2):
        for size in range(1, 6):
            negate(_numbers(DEVICE, size))
        assert len(negate._looks) <= 2


def test_calls_work_without_what_this_pytorch_has_to_compare_tensors(
    monkeypatch: pytest.MonkeyPatch, recognized: list[bool]
) -> None:
    monkeypatch.setattr(dynamo.TensorGuards, "find", lambda: None)
    negate = Operator("neg")
    assert [negate(_numbers(DEVICE, 3)).tolist() for _ in range(2)] == [[0, -1, -2]] * 2
    assert recognized == []
