"""Reductions of long rows, which XLA's own loops compute, and what their results are."""

from __future__ import annotations

import numpy
import pytest
import torch

from cpu_modules import rewritten
from torchstone import export, hlo
from torchstone.compiler.program import build_program


class Reduced(torch.nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.function = getattr(torch, name)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x, 0)


def written(x: torch.Tensor) -> str:
    """Return the text of the module compiled for a sum of ``x``."""
    return rewritten(build_program(Reduced("sum"), (x,)).module.serialize(hlo.resolve_version("current")))


@pytest.mark.parametrize(("columns", "kept"), [(16_384, False), (16_385, True)])
def test_only_long_rows_are_kept_from_ynn(columns: int, kept: bool) -> None:
    assert ("reduce_precision" in written(torch.ones(8, columns))) == kept


def test_other_dtypes_are_left_alone() -> None:
    assert "reduce_precision" not in written(torch.ones(8, 20_000, dtype=torch.float64))
    assert "reduce_precision" not in written(torch.ones(8, 20_000, dtype=torch.int32))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["sum", "amax", "amin"])
def test_results_are_those_of_eager(name: str, dtype: torch.dtype) -> None:
    x = torch.randn(40, 20_000, generator=torch.Generator().manual_seed(0)).to(dtype)
    x[3, :3] = torch.tensor([torch.inf, -torch.inf, torch.nan])
    x[:, 4] = -0.0
    function = Reduced(name)
    found, expected = export(function, (x,))(x), function(x)
    precision = {} if name != "sum" or dtype != torch.float32 else {"rtol": 1e-5, "atol": 1e-5}
    torch.testing.assert_close(found, expected, equal_nan=True, **precision)


def test_long_columns_are_added_as_a_tree() -> None:
    x = torch.rand(4_000, 16_400, generator=torch.Generator().manual_seed(0))
    found = export(Reduced("sum"), (x,))(x).numpy()
    exact = x.numpy().sum(0, dtype=numpy.float64)
    assert abs(found / exact - 1).max() < 1e-6
