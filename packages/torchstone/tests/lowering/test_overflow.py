"""Variances of values whose squares overflow or underflow: as eager says, and never NaN."""

from __future__ import annotations

import pytest
import torch

import torchstone

LARGE = torch.tensor([[1e30, 1.0, 2.0], [6.0, 2.0, 2.0], [6.0, 0.0, 3.0]])


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("columns", [0, 1, (0, 1)])
def test_variance(columns: int | tuple[int, int], dtype: torch.dtype) -> None:
    x = LARGE.to(dtype)
    (found,) = torchstone.export(lambda x: (torch.var(x, columns),), (x,))(x)
    torch.testing.assert_close(found, torch.var(x, columns))


SIZES = {
    "tiny": [1e-20, 3e-20, -2e-20, 5e-20],
    "huge": [1e20, 3e20, -2e20, 5e20],
    "equal": [0.1] * 4,
    "zero": [0.0] * 4,
    "with infinity": [1.0, float("inf"), 2.0, 3.0],
    "with nan": [1.0, float("nan"), 2.0, 3.0],
    "one": [1e-20],
    "none": [],
}


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
def test_deviations_of_any_size_and_their_gradients() -> None:
    """The squares of 1e-20 and 1e20 are outside float32's range, but the standard deviations are not."""
    columns = {name: torch.tensor(numbers) for name, numbers in SIZES.items()}

    def statistics(x: dict[str, torch.Tensor]) -> dict[str, tuple[torch.Tensor, ...]]:
        return {name: (one.std(), one.var(), one.std(correction=0)) for name, one in x.items()}

    found, expected = torch.compile(statistics, backend="torchstone")(columns), statistics(columns)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-38, equal_nan=True)
    pair = torch.complex(columns["tiny"], columns["tiny"].flip(0))
    torch.testing.assert_close(
        torch.compile(torch.std, backend="torchstone")(pair), torch.std(pair), rtol=1e-6, atol=0
    )
    for name in ("tiny", "huge", "zero"):
        x, y = (columns[name].clone().requires_grad_() for _ in range(2))
        torch.compile(lambda x: x.std(), backend="torchstone")(x).backward()
        y.std().backward()
        torch.testing.assert_close(x.grad, y.grad, rtol=1e-5, atol=1e-6)


def test_batch_norm() -> None:
    """A column with an infinite variance is normalized to zero."""

    def normalized(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.batch_norm(x, None, None, training=True)

    x = torch.cat([LARGE, LARGE[1:], LARGE[1:]])
    torch.testing.assert_close(torchstone.export(normalized, (x,))(x), normalized(x), rtol=1e-5, atol=1e-4)
