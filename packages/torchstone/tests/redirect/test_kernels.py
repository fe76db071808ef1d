"""Kernels of a script's own operators for CUDA, which run where a tensor is on CUDA."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

import torchstone
from torchstone.torch_internals import dispatch

DEFINITION = "f(Tensor x) -> Tensor"


@pytest.fixture(autouse=True)
def scope() -> Iterator[None]:
    with torchstone.redirected(target="cpu"):
        yield


@pytest.fixture
def library() -> Iterator[torch.library.Library]:
    with torch.library._scoped_library("torchstone_kernels", "DEF") as made:
        made.define(DEFINITION)
        yield made


def call(x: torch.Tensor) -> Any:
    return torch.ops.torchstone_kernels.f(x)


def test_a_kernel_for_cuda_is_found(library: torch.library.Library) -> None:
    library.impl("f", lambda x: x + torch.ones(2, device="cuda"), "CUDA")
    result = call(torch.ones(2, device="cuda"))
    assert (result.tolist(), result.device) == ([2, 2], torch.device("cuda:0"))
    with pytest.raises(NotImplementedError, match=r"'torchstone_kernels::f'.*'CPU' backend"):
        call(torch.ones(2))


@pytest.mark.parametrize("first", ["CPU", "CUDA"])
def test_the_place_of_a_tensor_decides_between_two_kernels(
    library: torch.library.Library, first: str
) -> None:
    kernels = {"CPU": lambda x: x + 1, "CUDA": lambda x: x + 2}
    for key in (first, *(key for key in kernels if key != first)):
        torch.library.impl(library, "f", key)(kernels[key])
    assert call(torch.ones(2)).tolist() == [2, 2]
    assert call(torch.ones(2, device="cuda")).tolist() == [3, 3]
    assert call(torch.ones(2, device="cuda").cpu()).tolist() == [2, 2]


def test_a_kernel_gets_the_keys_that_it_asks_for(library: torch.library.Library) -> None:
    library.impl("f", lambda keys, x: x + keys.has(dispatch.DispatchKey.CPU), "CUDA", with_keyset=True)
    assert call(torch.ones(2, device="cuda")).tolist() == [2, 2]


def test_other_keys_of_cuda_serve_the_cpu_s(library: torch.library.Library) -> None:
    library.impl("f", lambda x: x * 2, "CUDA")
    library.impl("f", lambda x: torch.ones_like(x) * 7, "AutocastCUDA")
    with torch.autocast("cuda", torch.bfloat16):
        assert call(torch.ones(2, device="cuda")).tolist() == [7, 7]


def test_custom_operators_with_a_kernel_for_each_device() -> None:
    @torch.library.custom_op("torchstone_kernels::g", mutates_args=(), device_types="cpu")
    def g(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @g.register_kernel("cuda")
    def _(x: torch.Tensor) -> torch.Tensor:
        assert x.is_cuda
        return x * torch.full((2,), 3.0, device="cuda")

    g.register_fake(torch.empty_like)
    g.register_autograd(lambda context, gradient: gradient * 10)
    x = torch.ones(2, device="cuda", requires_grad=True)
    assert g(torch.ones(2)).tolist() == [2, 2]
    assert g(x).tolist() == [3, 3]
    g(x).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [10, 10]
    compiled = torch.compile(g, fullgraph=True, backend="aot_eager")
    assert compiled(x.detach()).tolist() == [3, 3]


def test_a_kernel_of_every_device_is_redirected() -> None:
    @torch.library.custom_op("torchstone_kernels::h", mutates_args=())
    def h(x: torch.Tensor) -> torch.Tensor:
        return x + torch.ones(2, device=x.device)

    assert h(torch.ones(2, device="cuda")).is_cuda
    assert not h(torch.ones(2)).is_cuda


def test_outside_the_scope_the_places_still_decide(library: torch.library.Library) -> None:
    library.impl("f", lambda x: x + 2, "CUDA")
    library.impl("f", lambda x: x + 1, "CPU")
    x = torch.ones(2, device="cuda")
    with torchstone.redirected(target="cpu"):
        pass
    assert call(x).tolist() == [3, 3]
