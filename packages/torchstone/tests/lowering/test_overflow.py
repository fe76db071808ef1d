"""Variances of values whose squares overflow: infinite or finite as eager says, and never NaN."""

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


def test_batch_norm() -> None:
    """A column with an infinite variance is zero."""

    def normalized(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.batch_norm(x, None, None, training=True)

    x = torch.cat([LARGE, LARGE[1:], LARGE[1:]])
    torch.testing.assert_close(torchstone.export(normalized, (x,))(x), normalized(x), rtol=1e-5, atol=1e-4)
