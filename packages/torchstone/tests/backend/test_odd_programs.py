"""Programs that few people write, and that compile to what eager PyTorch does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compiled(function: Callable[..., Any]) -> Any:
    return torch.compile(function, backend="torchstone", options={"fallback": False})


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "function",
    [
        lambda a: a * (1 + 2j),
        lambda a: (a * (1 + 2j)).abs(),
        lambda a: a / (1 + 2j) + 3j - 1j * a,
        lambda a: (2 - 1j) / (a + 3),
        lambda a: (a + 2) ** (1 + 1j),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
def test_gradients_with_complex_factors(function: Any, dtype: torch.dtype) -> None:
    values = torch.rand(5, dtype=dtype)
    found = []
    for one in (compiled(function), function):
        a = values.clone().requires_grad_()
        result = one(a)
        result.abs().square().sum().backward()
        found.append((result.detach(), a.grad))
    torch.testing.assert_close(*found)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128, torch.float32, torch.int64])
@pytest.mark.parametrize("arguments", [(), (1.0, 2.0, 3.0), (None, 5.0)])
def test_nan_to_num(dtype: torch.dtype, arguments: tuple[Any, ...]) -> None:
    nan, inf = float("nan"), float("inf")
    if dtype.is_complex:
        a = torch.tensor([complex(nan, 1), complex(2, inf), complex(-inf, nan), 3 + 4j], dtype=dtype)
    elif dtype.is_floating_point:
        a = torch.tensor([nan, inf, -inf, 1.0], dtype=dtype)
    else:
        a = torch.arange(4, dtype=dtype)
    function = compiled(lambda a: torch.nan_to_num(a, *arguments))
    torch.testing.assert_close(function(a), torch.nan_to_num(a, *arguments), rtol=0, atol=0)


def test_random_numbers_under_another_default_device() -> None:
    function, x = compiled(lambda a: F.dropout(a, 0.5)), torch.ones(64)
    torch.manual_seed(1)
    expected = function(x)
    torch.manual_seed(1)
    with torch.device("meta"):
        found = function(x)
    torch.testing.assert_close(found, expected)


def test_results_with_gaps_under_another_default_device() -> None:
    function, x = compiled(lambda a: a.new_empty_strided((2, 2), (3, 1)).copy_(a)), torch.ones(2, 2)
    for device in ("cpu", "meta"):
        with torch.device(device):
            found = function(x)
        assert (found.device, found.stride()) == (x.device, (3, 1))
        torch.testing.assert_close(found, x)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("shape", [(5, 0), (0, 5), (2, 0, 3)])
def test_strides_of_results_without_elements(shape: tuple[int, ...], dynamic: bool) -> None:
    function = torch.compile(lambda a: (a + 1, torch.cat([a, a])), backend="torchstone", dynamic=dynamic)
    x = torch.ones(shape)
    assert [one.stride() for one in function(x)] == [x.stride(), torch.cat([x, x]).stride()]


@pytest.mark.parametrize(
    ("shape", "options"),
    [((2, 3), {"training": False}), ((2, 3), {"p": 0.0}), ((0, 3), {}), ((2, 0), {"p": 1.0})],
    ids=["evaluation", "probability 0", "no rows", "no columns"],
)
def test_dropout_of_nothing_is_the_input(shape: tuple[int, int], options: dict[str, Any]) -> None:
    function = compiled(lambda a: F.dropout(a, **options))
    for rows in (shape[0], 2 * shape[0], 3 * shape[0]):  # from the second call on, the size is symbolic
        x = torch.ones(rows, shape[1])
        assert F.dropout(x, **options) is x
        assert function(x) is x


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_dropout_of_everything(dtype: torch.dtype) -> None:
    """Infinities and NaN become NaN, and zeros keep their signs."""
    x = torch.tensor([torch.nan, 1.0, torch.inf, -1.0, -0.0], dtype=dtype)
    found, expected = compiled(F.dropout)(x, 1.0), F.dropout(x, 1.0)
    torch.testing.assert_close(found, expected, equal_nan=True)
    assert found.signbit().tolist()[1:] == expected.signbit().tolist()[1:]


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64])
def test_dropout_of_everything_keeps_the_dtype(dtype: torch.dtype) -> None:
    x = torch.tensor([0, 1, 1]).to(dtype)
    found, expected = compiled(F.dropout)(x, 1.0), F.dropout(x, 1.0)
    assert (found.dtype, found.tolist()) == (expected.dtype, expected.tolist())


@pytest.mark.filterwarnings("ignore::torchstone.errors.FallbackWarning")
@pytest.mark.parametrize("change", [lambda x: x, lambda x: x + 1], ids=["a view", "values"])
def test_memory_behind_an_empty_tensor(change: Callable[[torch.Tensor], torch.Tensor]) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return change(x.as_strided((2, 2), (1, 2)))

    x = torch.arange(20.0)[4:4]
    torch.testing.assert_close(torch.compile(function, backend="torchstone")(x), function(x))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("invert", [False, True])
@pytest.mark.parametrize("dtypes", [(torch.float32, torch.float32), (torch.int64, torch.float32)])
def test_infinity_is_found_beside_nan(dtypes: tuple[torch.dtype, torch.dtype], invert: bool) -> None:
    function = compiled(lambda x, y: torch.isin(x, y, invert=invert))
    for count in (3, 50, 60, 70):
        x, y = (torch.randint(0, 90, (count,)).to(dtype) for dtype in dtypes)
        for floats in (one for one in (x, y) if one.is_floating_point()):
            floats[:3] = torch.tensor([torch.nan, torch.inf, -torch.inf])
        assert function(x, y).tolist() == torch.isin(x, y, invert=invert).tolist()


@pytest.mark.parametrize("gradients", [False, True])
def test_a_result_beside_itself_detached(gradients: bool) -> None:
    """Both results are views of the product's own result, and the second is made from the first."""

    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        result = torch.einsum("ij,kj->ik", x, x)
        return result, result.detach()

    x = torch.randn(4, 3, requires_grad=gradients)
    found, expected = compiled(function)(x), function(x)
    torch.testing.assert_close(found, expected)
    assert [one.requires_grad for one in found] == [one.requires_grad for one in expected]
    assert found[0].data_ptr() == found[1].data_ptr()
    if gradients:
        (gradient,) = torch.autograd.grad(found[0].sum(), x)
        torch.testing.assert_close(gradient, torch.autograd.grad(expected[0].sum(), x)[0])


def test_positions_in_a_constant() -> None:
    """The number of positions is known, even if numbers in the program are symbolic."""

    def function(n: int) -> tuple[torch.Tensor, ...]:
        condition = torch.tensor([True, False, True])
        found = condition.nonzero()
        return found, found.masked_fill(found > 0, n + 1), condition.unique()

    run = torch.compile(function, backend="torchstone")
    for n in (5, 0, 3):
        assert [one.tolist() for one in run(n)] == [one.tolist() for one in function(n)]


@pytest.mark.parametrize("rank", [2, 3])
def test_max_pooling_backward_takes_any_indices(rank: int) -> None:
    backward = getattr(torch.ops.aten, f"max_pool{rank}d_with_indices_backward")

    def function(grad: torch.Tensor, x: torch.Tensor, indices: torch.Tensor) -> Any:
        return backward(grad, x, [2] * rank, [2] * rank, [0] * rank, [1] * rank, False, indices)

    x, grad = torch.randn(1, 2, *[4] * rank), torch.randn(1, 2, *[2] * rank)
    indices = torch.randint(4**rank, grad.shape)
    torch.testing.assert_close(compiled(function)(grad, x, indices), function(grad, x, indices))


def test_max_pooling_keeps_its_own_gradient() -> None:
    x = torch.randn(1, 2, 6, 6)
    found = []
    for one in (compiled(lambda a: F.max_pool2d(a, 3, 2)), lambda a: F.max_pool2d(a, 3, 2)):
        a = x.clone().requires_grad_()
        one(a).square().sum().backward()
        found.append(a.grad)
    torch.testing.assert_close(*found)


class Marked(torch.Tensor):
    """A tensor subclass without behavior of its own."""


@pytest.mark.parametrize(
    "function", [lambda a: a + 1, lambda a: a.t() * 2, lambda a: a.add_(1)], ids=["value", "view", "mutation"]
)
def test_plain_subclasses_of_tensors(function: Any) -> None:
    """AOTAutograd runs each call in a mode that accepts only operators on plain tensors."""
    ours, eager = (torch.ones(2, 3).as_subclass(Marked) for _ in range(2))
    found, expected = compiled(function)(ours), function(eager)
    assert type(found) is type(expected)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(ours, eager)
