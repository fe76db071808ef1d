"""Snippets of code written for CUDA: what ``explain`` says of each agrees with what happens when it runs.

Each snippet is a script that succeeds on an NVIDIA GPU and asserts what it gets there. Those in ``RUNS`` also
succeed when they are redirected. Those in ``REFUSED`` fail, at the name that is listed with them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from torchstone.redirect.explain import Explanation, State, explain
from torchstone.redirect.launch import Program
from torchstone.redirect.options import Options

RUNS = {
    "device string": "x = torch.ones(2, device='cuda'); assert x.is_cuda",
    "indexed device": "x = torch.ones(2, device='cuda:0'); assert x.get_device() == 0",
    "formatted device": "x = torch.ones(2, device=f'cuda:{0}'); assert str(x.device) == 'cuda:0'",
    "device type": "x = torch.ones(2).to('cuda'); assert x.device.type == 'cuda'",
    "device equality": "assert torch.ones(2).cuda().device == torch.device('cuda:0')",
    "method": "assert torch.ones(2).cuda().is_cuda",
    "module": "m = torch.nn.Linear(2, 2).cuda(); assert next(m.parameters()).is_cuda",
    "back": "assert torch.ones(2).cuda().cpu().device.type == 'cpu'",
    "a copy": "x = torch.ones(1).cuda(); y = x.cpu(); x.zero_(); assert y.item() == 1",
    "availability": "assert torch.cuda.is_available() and torch.cuda.device_count() == 1",
    "current device": "torch.cuda.set_device(0); assert torch.cuda.current_device() == 0",
    "device block": "with torch.cuda.device(0):\n    assert torch.ones(1, device='cuda').get_device() == 0",
    "device of": (
        "with torch.cuda.device_of(torch.ones(1).cuda()):\n    assert torch.cuda.current_device() == 0"
    ),
    "synchronize": "assert torch.cuda.synchronize() is None",
    "properties": "assert torch.cuda.get_device_properties(0).total_memory > 0",
    "name": "assert torch.cuda.get_device_name(0)",
    "bfloat16": "assert torch.cuda.is_bf16_supported()",
    "stream": (
        "s = torch.cuda.Stream()\nwith torch.cuda.stream(s):\n    assert torch.cuda.current_stream() == s"
    ),
    "default stream": "assert torch.cuda.default_stream().cuda_stream == 0",
    "wait": "s = torch.cuda.Stream(); s.wait_stream(torch.cuda.current_stream()); assert s.query()",
    "record stream": "assert torch.ones(2).cuda().record_stream(torch.cuda.Stream()) is None",
    "events": (
        "a, b = [torch.cuda.Event(enable_timing=True) for _ in range(2)]\na.record()\nb.record()\n"
        "torch.cuda.synchronize()\nassert a.elapsed_time(b) >= 0"
    ),
    "graph": (
        "x = torch.ones(2, device='cuda')\ng = torch.cuda.CUDAGraph()\nwith torch.cuda.graph(g):\n"
        "    y = x * 2\nx.fill_(5)\ng.replay()\nassert y.tolist() == [10, 10]"
    ),
    "graphed callable": (
        "f = torch.cuda.make_graphed_callables(torch.nn.Linear(2, 2).cuda(), (torch.ones(1, 2).cuda(),))\n"
        "assert f(torch.ones(1, 2).cuda()).is_cuda"
    ),
    "seed": (
        "torch.cuda.manual_seed(1)\na = torch.rand(2, device='cuda')\ntorch.cuda.manual_seed_all(1)\n"
        "assert torch.equal(a, torch.rand(2, device='cuda'))"
    ),
    "random state": (
        "s = torch.cuda.get_rng_state()\na = torch.rand(2, device='cuda')\n"
        "torch.cuda.set_rng_state(s)\nassert torch.equal(a, torch.rand(2, device='cuda'))"
    ),
    "generator": (
        "g = torch.Generator('cuda').manual_seed(3)\nassert torch.rand(2, device='cuda', generator=g).is_cuda"
    ),
    "generator device": "assert torch.Generator(device='cuda').device.type == 'cuda'",
    "memory": "x = torch.ones(1024, device='cuda'); assert torch.cuda.memory_allocated() >= 4096",
    "peak": (
        "torch.cuda.reset_peak_memory_stats()\n"
        "assert torch.cuda.max_memory_allocated() >= torch.cuda.memory_allocated()"
    ),
    "memory statistics": "assert 'allocated_bytes.all.peak' in torch.cuda.memory_stats()",
    "memory info": "free, total = torch.cuda.mem_get_info(); assert 0 < free <= total",
    "empty cache": "assert torch.cuda.empty_cache() is None",
    "out of memory": (
        "try:\n    torch.empty(1 << 60, device='cuda')\n    raise SystemExit('no error')\n"
        "except torch.cuda.OutOfMemoryError:\n    pass"
    ),
    "accelerator": "assert torch.accelerator.current_accelerator().type == 'cuda'",
    "accelerator's stream": "assert torch.accelerator.current_stream().device.type == 'cuda'",
    "device module": "assert torch.get_device_module('cuda') is torch.cuda",
    "autocast": (
        "with torch.autocast('cuda', dtype=torch.bfloat16):\n"
        "    assert (torch.ones(2, 2).cuda() @ torch.ones(2, 2).cuda()).dtype is torch.bfloat16"
    ),
    "old autocast": (
        "with torch.cuda.amp.autocast(dtype=torch.bfloat16):\n"
        "    assert (torch.ones(2, 2).cuda() @ torch.ones(2, 2).cuda()).dtype is torch.bfloat16"
    ),
    "scaler": (
        "s = torch.cuda.amp.GradScaler()\nassert s.is_enabled() and s.scale(torch.ones(1).cuda()).item() > 1"
    ),
    "new scaler": "s = torch.amp.GradScaler('cuda'); assert s.is_enabled()",
    "custom function": (
        "class F(torch.autograd.Function):\n    @staticmethod\n    @torch.cuda.amp.custom_fwd\n"
        "    def forward(ctx, x):\n        return x * 2\n    @staticmethod\n"
        "    @torch.cuda.amp.custom_bwd\n    def backward(ctx, g):\n        return g * 2\n"
        "assert F.apply(torch.ones(1).cuda()).item() == 2"
    ),
    "tf32": "torch.backends.cuda.matmul.allow_tf32 = True\nassert torch.backends.cuda.matmul.allow_tf32",
    "cudnn's tf32": "torch.backends.cudnn.allow_tf32 = False\nassert not torch.backends.cudnn.allow_tf32",
    "cudnn's benchmark": "torch.backends.cudnn.benchmark = True\nassert torch.backends.cudnn.benchmark",
    "cudnn's flags": (
        "with torch.backends.cudnn.flags(enabled=False):\n    assert not torch.backends.cudnn.enabled"
    ),
    "built": "assert torch.backends.cuda.is_built()",
    "flash attention": (
        "torch.backends.cuda.enable_flash_sdp(True)\nassert torch.backends.cuda.flash_sdp_enabled()"
    ),
    "math attention": (
        "torch.backends.cuda.enable_math_sdp(False)\nassert not torch.backends.cuda.math_sdp_enabled()"
    ),
    "attention kernels": (
        "q = torch.ones(1, 1, 2, 8, device='cuda')\n"
        "with torch.backends.cuda.sdp_kernel(False, False, True):\n"
        "    assert torch.nn.functional.scaled_dot_product_attention(q, q, q).is_cuda"
    ),
    "reduced precision": (
        "torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False\n"
        "assert not torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction"
    ),
    "plan cache": (
        "torch.backends.cuda.cufft_plan_cache[0].max_size = 3\n"
        "assert torch.backends.cuda.cufft_plan_cache[0].size == 0"
    ),
    "data parallel": (
        "m = torch.nn.DataParallel(torch.nn.Linear(2, 2).cuda())\nassert m(torch.ones(2, 2).cuda()).is_cuda"
    ),
    "broadcast": "(x,) = torch.cuda.comm.broadcast(torch.ones(2).cuda(), [0]); assert x.is_cuda",
    "scatter": "(x,) = torch.nn.parallel.scatter(torch.ones(2).cuda(), [0]); assert x.is_cuda",
    "load": (
        "import io\nf = io.BytesIO()\ntorch.save(torch.ones(2).cuda(), f)\nf.seek(0)\n"
        "assert torch.load(f, map_location='cuda:0').is_cuda"
    ),
    "pinned memory": "x = torch.ones(2).pin_memory(); assert x.cuda(non_blocking=True).tolist() == [1, 1]",
    "is_cuda": "assert not torch.ones(1).is_cuda and torch.ones(1, device='cuda').is_cuda",
    "legacy type": "x = torch.cuda.FloatTensor([1, 2]); assert x.is_cuda",
    "type by name": "assert torch.ones(2).type('torch.cuda.HalfTensor').dtype is torch.float16",
    "default device": "torch.set_default_device('cuda')\nassert torch.ones(2).is_cuda",
    "custom operator": (
        "lib = torch.library.Library('explained', 'DEF')\nlib.define('f(Tensor x) -> Tensor')\n"
        "lib.impl('f', lambda x: x + 1, 'CUDA')\n"
        "assert torch.ops.explained.f(torch.ones(1).cuda()).item() == 2"
    ),
    "kernel by device": (
        "@torch.library.custom_op('explained::g', mutates_args=(), device_types='cuda')\n"
        "def g(x: torch.Tensor) -> torch.Tensor:\n    return x + 1\n"
        "assert g(torch.ones(1).cuda()).item() == 2"
    ),
    "scripted": (
        "@torch.jit.script\ndef f(x: torch.Tensor) -> torch.Tensor:\n    return x.cuda() + 1\n"
        "assert f(torch.ones(1)).is_cuda"
    ),
    "compiled": (
        "f = torch.compile(lambda x: x + torch.ones(1, device='cuda'), backend='eager', fullgraph=True)\n"
        "assert f(torch.ones(1).cuda()).is_cuda"
    ),
    "ranges": "torch.cuda.nvtx.range_push('a'); assert torch.cuda.nvtx.range_pop() == 0",
    "range block": "with torch.cuda.nvtx.range('a'):\n    torch.cuda.nvtx.mark('b')",
    "profiler": (
        "from torch.profiler import ProfilerActivity\n"
        "with torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as p:\n"
        "    torch.ones(2, device='cuda').sum()\nassert p.key_averages()"
    ),
    "mesh of processes": "assert torch.distributed.is_nccl_available()",
    "nested tensor": (
        "assert torch.nested.nested_tensor([torch.ones(2)], layout=torch.jagged, device='cuda').is_cuda"
    ),
    "imported name": "from torch.cuda import Stream, current_stream\nassert Stream() != current_stream()",
    "aliased module": "import torch.cuda as tc\nassert tc.is_available()",
    "visible devices": (
        "import os\nos.environ['CUDA_VISIBLE_DEVICES'] = '0'\nassert torch.cuda.device_count() == 1"
    ),
    "fork of states": "with torch.random.fork_rng(devices=['cuda:0']):\n    torch.rand(2, device='cuda')",
    "initialization": "torch.cuda.init(); assert torch.cuda.is_initialized()",
}

REFUSED = {
    "capability": (
        "torch.cuda.get_device_capability",
        "assert torch.cuda.get_device_capability() >= (5, 0)",
    ),
    "architectures": ("torch.cuda.get_arch_list", "assert torch.cuda.get_arch_list()"),
    "CUDA's version": ("torch.version.cuda", "assert torch.version.cuda is not None"),
    "cuDNN": ("torch.backends.cudnn.is_available", "assert torch.backends.cudnn.is_available()"),
    "cuDNN's version": ("torch.backends.cudnn.version", "assert torch.backends.cudnn.version() > 0"),
    "NCCL's version": ("torch.cuda.nccl.version", "assert torch.cuda.nccl.version() >= (2, 0)"),
    "NCCL's own sum": (
        "torch.cuda.nccl.all_reduce",
        "torch.cuda.nccl.all_reduce([torch.ones(1).cuda()], [torch.ones(1).cuda()])",
    ),
    "load of the GPU": ("torch.cuda.utilization", "torch.cuda.utilization()"),
    "temperature": ("torch.cuda.temperature", "torch.cuda.temperature()"),
    "cuBLAS": ("torch.cuda.current_blas_handle", "torch.cuda.current_blas_handle()"),
    "runtime": ("torch.cuda.cudart", "torch.cuda.cudart().cudaProfilerStart()"),
    "external stream": ("torch.cuda.ExternalStream", "torch.cuda.ExternalStream(1234)"),
    "jiterator": (
        "torch.cuda.jiterator._create_jit_fn",
        (
            "f = torch.cuda.jiterator._create_jit_fn('template <typename T> T f(T x) { return x; }')\n"
            "f(torch.ones(1).cuda())"
        ),
    ),
    "private name": ("torch.cuda._no_such_name", "torch.cuda._no_such_name()"),
    "build flag": ("torch._C._cuda_getDeviceCount", "assert torch._C._cuda_getDeviceCount() == 1"),
    "extension": (
        "torch.utils.cpp_extension.CUDAExtension",
        "from torch.utils.cpp_extension import CUDAExtension\nCUDAExtension('x', ['x.cu'])",
    ),
    "Triton": ("triton", "import triton"),
    "CuPy": ("cupy", "import cupy"),
    "memory pool": (
        "torch.cuda.memory_snapshot",
        "x = torch.ones(8, device='cuda'); assert torch.cuda.memory_snapshot()",
    ),
    "synchronizations": (
        "torch.cuda.set_sync_debug_mode",
        (
            "torch.cuda.set_sync_debug_mode('error')\ntry:\n    torch.ones(1).cuda().item()\n"
            "    raise SystemExit('not watched')\nexcept RuntimeError:\n    pass"
        ),
    ),
    "linear algebra": (
        "torch.backends.cuda.preferred_linalg_library",
        "assert torch.backends.cuda.preferred_linalg_library('magma') is not None",
    ),
    "fraction": (
        "torch.cuda.set_per_process_memory_fraction",
        "torch.cuda.set_per_process_memory_fraction(0.5)",
    ),
    "name that is not there": ("torch.cuda.amp.no_such_name", "torch.cuda.amp.no_such_name()"),
    "hooks of saved tensors": (
        "torch.autograd.graph.saved_tensors_hooks",
        (
            "seen = []\nx = torch.ones(2).cuda().requires_grad_()\n"
            "def pack(y):\n    seen.append(y.device.type)\n    return y\n"
            "with torch.autograd.graph.saved_tensors_hooks(pack, lambda y: y):\n"
            "    x.exp().sum().backward()\nassert seen == ['cuda']"
        ),
    ),
    "tensors saved on the host": (
        "torch.autograd.graph.save_on_cpu",
        (
            "from torch.autograd.graph import save_on_cpu\nx = torch.ones(1024).cuda().requires_grad_()\n"
            "with save_on_cpu():\n    y = x.exp().sin()\n    torch.cuda.synchronize()\n"
            "assert torch.cuda.memory_allocated() == 2 * 4096"
        ),
    ),
    "pinning": ("is_pinned", "assert torch.ones(2).pin_memory().is_pinned()"),
}


LEFT_OUT = (State.CUDA_ONLY, State.DIFFERS)


@pytest.fixture(autouse=True)
def settings_are_restored(monkeypatch: pytest.MonkeyPatch, backend_flags_can_be_set: None) -> Iterator[None]:
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    flags = [(cudnn, "benchmark"), (cudnn, "allow_tf32"), (matmul, "allow_tf32")]
    before = [(owner, name, getattr(owner, name)) for owner, name in flags]
    reduced = matmul.allow_fp16_reduced_precision_reduction
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    torch._dynamo.reset()
    yield
    for owner, name, value in before:
        setattr(owner, name, value)
    matmul.allow_fp16_reduced_precision_reduction = reduced


def explained(source: str, folder: Path) -> Explanation:
    """Explain a snippet under the strict policy, which refuses calls that have no meaning on the target."""
    path = folder / "snippet.py"
    path.write_text(f"import torch\n{source}\n")
    return explain(Program(str(path)), (), Options(target="cpu", policy="strict"))


def test_there_are_enough_snippets() -> None:
    assert len(RUNS) + len(REFUSED) >= 90


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", RUNS)
def test_what_runs_as_on_cuda_is_said_to_be_redirected(name: str, tmp_path: Path) -> None:
    found = explained(RUNS[name], tmp_path)
    assert found.exit_code == 0
    assert found.places
    assert [place for place in found.places if place.state in LEFT_OUT] == []


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_run_as_on_cuda_is_said_to_be_left_out(name: str, tmp_path: Path) -> None:
    blamed, source = REFUSED[name]
    found = explained(source, tmp_path)
    assert found.exit_code != 0
    left_out = {place.site.name: place.note for place in found.places if place.state in LEFT_OUT}
    assert left_out.pop(blamed)
    assert left_out == {}
    without_a_run = explain(Program(str(tmp_path / "snippet.py")), (), Options(target="cpu"), run=False)
    assert next(place.state for place in without_a_run.places if place.site.name == blamed) in LEFT_OUT
