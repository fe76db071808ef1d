"""CUDA names that a PyTorch build without CUDA lacks, and names whose text or lines differ there."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import torchstone
from torchstone.errors import RedirectWarning


@pytest.fixture(autouse=True)
def scope() -> Iterator[None]:
    with torchstone.redirected(target="cpu"):
        yield


def test_a_memory_pool_is_an_object_without_memory() -> None:
    with pytest.warns(RedirectWarning, match="no memory pools"):
        pool, other = torch.cuda.MemPool(), torch.cuda.MemPool()
    assert isinstance(pool, torch.cuda.MemPool)
    assert pool.id != other.id
    assert (pool.use_count(), pool.allocator) == (1, None)
    with pytest.warns(RedirectWarning, match="own allocator"), torch.cuda.use_mem_pool(pool):
        assert torch.ones(2, device="cuda").is_cuda


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors_are_made_on_a_device(layout: torch.layout) -> None:
    parts = [torch.ones(2), torch.ones(3)]
    for make in (torch.nested.nested_tensor, torch.nested.as_nested_tensor):
        made = make(parts, layout=layout, device="cuda")
        assert made.device == torch.device("cuda:0")
        assert (made * 2).is_cuda
        assert all(part.is_cuda for part in made.unbind())
        assert torch.nested.to_padded_tensor(made, 0.0).sum().item() == 5
    assert torch.nested.nested_tensor([part.cuda() for part in parts], layout=layout).is_cuda
    assert not torch.nested.nested_tensor(parts, layout=layout).is_cuda
    assert torch.nested.as_nested_tensor(torch.ones(2, 3), device="cuda", layout=layout).is_cuda


def test_the_version_of_nccl_is_that_of_nothing() -> None:
    with pytest.warns(RedirectWarning, match="NCCL is not there"):
        assert torch.cuda.nccl.version() == (0, 0, 0)


@pytest.mark.parametrize("backend", ["EFFICIENT_ATTENTION", "CUDNN_ATTENTION", "FLASH_ATTENTION"])
def test_attention_is_computed_where_a_kernel_of_cuda_is_asked_for(backend: str) -> None:
    q, k, v = (torch.randn(1, 2, 4, 8, device="cuda") for _ in range(3))
    layer = torch.nn.MultiheadAttention(8, 2, batch_first=True).cuda().eval()
    expected, expected_layer = F.scaled_dot_product_attention(q, k, v), layer(q[0], q[0], q[0])[0]
    before = torch.backends.cuda.math_sdp_enabled()
    with sdpa_kernel(getattr(SDPBackend, backend)):
        assert not torch.backends.cuda.math_sdp_enabled()
        torch.testing.assert_close(F.scaled_dot_product_attention(q, k, v), expected)
        torch.testing.assert_close(layer(q[0], q[0], q[0])[0], expected_layer)
        assert F.scaled_dot_product_attention(q, k, v, dropout_p=0.5).is_cuda
    assert torch.backends.cuda.math_sdp_enabled() == before


def test_an_allocation_that_fails_raises_cuda_s_error() -> None:
    wide = torch.empty(2).expand(1 << 58, 2)
    for allocate in (lambda: torch.empty(1 << 60, device="cuda"), wide.cuda):
        with pytest.raises(torch.cuda.OutOfMemoryError, match=r"CUDA out of memory\. Tried to allocate"):
            allocate()
    with pytest.raises(RuntimeError, match="DefaultCPUAllocator") as raised:
        torch.empty(1 << 60)
    assert not isinstance(raised.value, torch.cuda.OutOfMemoryError)


@pytest.mark.parametrize("device", ["cuda:-1", "cuda:x", "cuda:", "cuda:1x", "cuda:01"])
def test_indices_that_cuda_refuses_are_refused(device: str) -> None:
    calls: list[Any] = [torch.device, torch.ones(1).to, lambda text: torch.ones(1, device=text)]
    for call in (*calls, torch.nn.Linear(1, 1).to, torch.ones(1).cuda):
        with pytest.raises(RuntimeError, match="Invalid device"):
            call(device)


def test_peaks_are_never_below_what_is_there() -> None:
    torch.cuda.reset_peak_memory_stats()
    kept = [torch.ones(100, device="cuda") for _ in range(3)]
    assert torch.cuda.max_memory_allocated() >= torch.cuda.memory_allocated() >= 1200
    del kept
    assert torch.cuda.max_memory_allocated() - torch.cuda.memory_allocated() >= 1200
    stats = torch.cuda.memory_stats()
    for name in ("allocated_bytes", "reserved_bytes", "active_bytes", "requested_bytes", "allocation"):
        for pool in ("all", "large_pool", "small_pool"):
            assert stats[f"{name}.{pool}.peak"] >= stats[f"{name}.{pool}.current"] >= 0
            assert {f"{name}.{pool}.allocated", f"{name}.{pool}.freed"} <= set(stats)
    assert {"num_alloc_retries", "num_ooms", "oversize_allocations.current"} <= set(stats)


def test_the_default_stream_is_at_address_0() -> None:
    assert torch.cuda.default_stream().cuda_stream == torch.cuda.current_stream().cuda_stream == 0
    assert torch.cuda.Stream().cuda_stream != 0


def test_lazy_initialization_is_done() -> None:
    torch.cuda._lazy_init()
    torch.cuda.init()
    assert torch.cuda.is_initialized()


# Warnings from C++ ------------------------------------------------------------------------


def resizes() -> None:
    torch.add(torch.ones(3).cuda(), 1, out=torch.empty(5, device="cuda"))


LINE = resizes.__code__.co_firstlineno + 1


@pytest.mark.parametrize(("action", "times"), [("always", 3), ("default", 1), ("module", 1), ("once", 1)])
def test_a_warning_from_c_names_the_line_of_the_caller(action: Any, times: int) -> None:
    resizes.__globals__.pop("__warningregistry__", None)
    with warnings.catch_warnings(record=True) as caught:
        warnings.resetwarnings()
        warnings.simplefilter(action)
        getattr(warnings, "onceregistry", {}).clear()
        for _ in range(3):
            resizes()
    assert [(one.filename, one.lineno) for one in caught] == [(__file__, LINE)] * times


def test_a_filter_for_the_caller_s_module_reaches_a_warning_from_c() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.filterwarnings("error", module=__name__)
        with pytest.raises(UserWarning, match="resized"):
            resizes()


# Scripts ------------------------------------------------------------------------------------


def test_a_script_s_file_is_absolute(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("print(__file__); raise ValueError\n")
    command = [sys.executable, "-m", "torchstone.redirect", "script.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    path = str(tmp_path / "script.py")
    assert done.stdout == f"{path}\n"
    assert f'File "{path}", line 1' in done.stderr
