"""Eager PyTorch with other roundings: which results move, how far, and which do not."""

from __future__ import annotations

import pytest
import torch

from optest.torch.roundings import OtherRoundings


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_results_move_by_at_most_one_rounding(dtype: torch.dtype) -> None:
    x = torch.randn(10_000, generator=torch.Generator().manual_seed(0)).to(dtype)
    with OtherRoundings(0):
        moved = x * 1
    assert moved.dtype == dtype
    ulp = torch.nextafter(x.abs(), torch.full_like(x, torch.inf)) - x.abs()
    steps = (moved.double() - x.double()) / ulp.double()
    assert (steps.min(), steps.max()) == (-1, 1)
    assert 0.1 < (steps != 0).double().mean() < 0.5


def test_a_seed_decides() -> None:
    def run(seed: int) -> torch.Tensor:
        with OtherRoundings(seed):
            return torch.ones(100).exp()

    assert torch.equal(run(1), run(1))
    assert not torch.equal(run(1), run(2))


def test_what_no_rounding_touches_stays() -> None:
    inf, most = torch.inf, torch.finfo(torch.float32).max
    x = torch.tensor([inf, -inf, torch.nan, most, -most, 0.0])
    whole, view, one = torch.arange(3), torch.randn(2, 3), torch.ones(2)
    with OtherRoundings(0):
        same = x * 1
        assert torch.equal(whole + 1, torch.tensor([1, 2, 3]))
        assert view.t().data_ptr() == view.data_ptr()
        assert torch.equal((one > 0), torch.tensor([True, True]))
        assert torch.ones(0).exp().shape == (0,)
    torch.testing.assert_close(same, x, rtol=0, atol=0, equal_nan=True)


def test_complex_numbers_move_in_both_parts() -> None:
    x = torch.full((1000,), 1 + 1j, dtype=torch.complex64)
    with OtherRoundings(0):
        moved = x.conj() * 1
    assert not torch.equal(moved.real, x.real)
    assert not torch.equal(moved.imag, -x.imag)
    torch.testing.assert_close(moved, x.conj().resolve_conj())


def test_writes_move_the_tensor_that_is_written() -> None:
    x = torch.ones(1000)
    with OtherRoundings(0), torch.no_grad():
        assert x.mul_(3) is x
    assert not torch.equal(x, torch.full((1000,), 3.0))
    torch.testing.assert_close(x, torch.full((1000,), 3.0))
