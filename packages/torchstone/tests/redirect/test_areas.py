"""What the patches of each area do on the ``cpu`` target."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity
from torch.utils.data import DataLoader, TensorDataset

import torchstone
from torchstone.errors import RedirectUnsupported, RedirectWarning
from torchstone.redirect.areas import classes, host, streams


@pytest.fixture(autouse=True)
def scope() -> Iterator[None]:
    with torchstone.redirected(target="cpu"):
        yield


# Loading ------------------------------------------------------------------------------


def saved_on(location: str) -> io.BytesIO:
    """Return a file whose storage claims to have been on ``location``."""
    value = torch.arange(3.0)
    saved = io.BytesIO()
    torch.save({}, io.BytesIO())  # imports what torch.save needs, before its functions are patched
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.serialization, "location_tag", lambda storage: location)
        torch.save({"x": value}, saved)
    assert location.encode() in saved.getvalue()
    saved.seek(0)
    return saved


@pytest.mark.parametrize(
    "map_location",
    [
        None,
        "cuda",
        "cuda:0",
        torch.device("cuda"),
        torch.device("cuda:0"),
        {"cuda:1": "cuda:0"},
        {"cuda:0": "cpu"},
        lambda storage, location: storage.cuda(0),
        lambda storage, location: storage,
        lambda storage, location: None,
        "cpu",
    ],
    ids=lambda given: "function" if callable(given) else str(given),
)
@pytest.mark.parametrize("location", ["cuda:0", "cuda:1", "cpu"])
@pytest.mark.filterwarnings("ignore::torchstone.errors.RedirectWarning")
def test_load_in_every_form_of_map_location(map_location: Any, location: str) -> None:
    loaded = torch.load(saved_on(location), map_location=map_location)
    torch.testing.assert_close(loaded["x"].cpu(), torch.arange(3.0))


@pytest.mark.filterwarnings("ignore::torchstone.errors.RedirectWarning")
def test_functions_that_decide_by_location_see_the_file_s_own() -> None:
    seen = []
    torch.load(saved_on("cuda:1"), map_location=lambda storage, location: seen.append(location))
    assert seen == ["cuda:1"]


# Legacy types and storages --------------------------------------------------------------


def test_legacy_types_make_and_recognise_tensors() -> None:
    made = torch.cuda.HalfTensor([1, 2])
    assert made.dtype is torch.float16
    assert isinstance(made, torch.cuda.HalfTensor)
    assert not isinstance(made, torch.cuda.FloatTensor)
    assert not isinstance(3, torch.cuda.HalfTensor)
    assert torch.cuda.FloatTensor(2, 3).shape == (2, 3)
    assert torch.ones(1).type(torch.cuda.LongTensor).dtype is torch.int64
    assert torch.ones(1).type("torch.cuda.IntTensor").dtype is torch.int32
    assert torch.ones(1).type() == "torch.FloatTensor"


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
def test_storages() -> None:
    assert torch.cuda.FloatStorage(3).is_cuda
    assert isinstance(torch.cuda.FloatStorage(3), torch.cuda.FloatStorage)
    assert torch.UntypedStorage(8, device="cuda").is_cuda
    assert torch.ones(2).untyped_storage().cuda().is_cuda
    assert torch.ones(2).storage().cuda().tolist() == [1.0, 1.0]


# Mixed precision ------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize(
    ("make", "dtype"),
    [
        (lambda: torch.autocast("cuda"), torch.bfloat16),
        (lambda: torch.autocast(device_type="cuda", dtype=torch.float16), torch.float16),
        (lambda: torch.amp.autocast("cuda", dtype=torch.bfloat16), torch.bfloat16),
        (lambda: torch.cuda.amp.autocast(), torch.float16),
    ],
)
def test_autocast_casts_where_the_target_computes(make: Callable[[], Any], dtype: torch.dtype) -> None:
    layer, x = torch.nn.Linear(2, 2).cuda(), torch.ones(1, 2, device="cuda")
    with make():
        assert layer(x).dtype is dtype
        assert torch.is_autocast_enabled("cuda")
        assert torch.is_autocast_enabled()
        assert torch.get_autocast_dtype("cuda") is dtype
        assert torch.get_autocast_gpu_dtype() is dtype
    assert not torch.is_autocast_enabled("cuda")


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_custom_functions_cast_their_inputs() -> None:
    class Scale(torch.autograd.Function):
        @staticmethod
        @torch.cuda.amp.custom_fwd(cast_inputs=torch.float32)
        def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
            assert not torch.is_autocast_enabled("cuda")
            return x * 2

        @staticmethod
        @torch.amp.custom_bwd(device_type="cuda")
        def backward(ctx: object, gradient: torch.Tensor) -> torch.Tensor:
            return gradient * 2

    x = torch.ones(2, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    with torch.autocast("cuda"):
        y = Scale.apply(x)
    y.sum().backward()
    assert y.dtype is torch.float32
    torch.testing.assert_close(x.grad.cpu(), torch.full((2,), 2.0, dtype=torch.bfloat16))


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("make", [lambda: torch.amp.GradScaler(), lambda: torch.cuda.amp.GradScaler()])
def test_a_scaler_scales_and_skips_steps_that_overflow(make: Callable[[], torch.amp.GradScaler]) -> None:
    weight = torch.nn.Parameter(torch.ones(2, device="cuda"))
    optimizer, scaler = torch.optim.SGD([weight], lr=1.0), make()
    assert scaler.is_enabled()
    for factor, expected in ((torch.inf, 1.0), (0.5, 0.5)):
        optimizer.zero_grad()
        scaler.scale((weight * factor).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        torch.testing.assert_close(weight.detach().cpu(), torch.full((2,), expected))
    assert scaler.get_scale() == 2.0**15


# Random numbers ---------------------------------------------------------------------------


def test_seeds_and_states_are_the_target_s() -> None:
    torch.cuda.manual_seed_all(7)
    state = torch.cuda.get_rng_state(0)
    first = torch.rand(3, device="cuda")
    assert torch.cuda.initial_seed() == 7
    torch.cuda.set_rng_state_all([state])
    torch.testing.assert_close(torch.rand(3), first.cpu())
    with torch.random.fork_rng(devices=[0]):
        torch.cuda.manual_seed(1)
    assert len(torch.cuda.default_generators) == 1
    torch.cuda.set_rng_state(state, "cuda:0")
    torch.testing.assert_close(torch.rand(3, generator=torch.cuda.default_generators[0]), first.cpu())


def test_a_generator_is_made_for_the_target() -> None:
    generator = torch.Generator(device="cuda").manual_seed(3)
    assert isinstance(generator, type(torch.default_generator))
    assert generator.device == torch.device("cuda:0")
    assert type(torch.Generator()) is type(torch.default_generator)
    drawn = torch.randn(2, device="cuda", generator=generator)
    torch.testing.assert_close(drawn.cpu(), torch.randn(2, generator=torch.Generator().manual_seed(3)))


# Memory, properties and telemetry -----------------------------------------------------------


def test_memory_figures_are_the_bytes_of_the_script_s_tensors() -> None:
    before = torch.cuda.memory_allocated()
    kept, gone = torch.empty(1000, device="cuda"), torch.empty(1 << 20, device="cuda")
    view = kept[10:].view(-1)
    assert torch.cuda.memory_allocated() == before + 4000 + (1 << 22)
    del gone, view
    assert torch.cuda.memory_allocated() == torch.cuda.memory_reserved() == before + 4000
    assert torch.cuda.max_memory_allocated() >= before + 4000 + (1 << 22)
    torch.cuda.reset_peak_memory_stats()
    assert torch.cuda.max_memory_allocated() == torch.cuda.memory_allocated()
    stats = torch.cuda.memory_stats()
    assert stats["allocated_bytes.all.current"] == before + 4000
    assert stats["allocation.large_pool.freed"] >= 1
    assert stats["num_ooms"] == stats["inactive_split_bytes.all.current"] == 0
    assert torch.cuda.memory_stats_as_nested_dict()["reserved_bytes"]["all"]["peak"] > 0
    free, total = torch.cuda.mem_get_info()
    assert 0 < free <= total == host.total_memory()
    with pytest.warns(RedirectWarning, match="the target keeps no history of its blocks"):
        torch.cuda.memory._record_memory_history(max_entries=10)


def test_properties_are_the_processor_s() -> None:
    properties = torch.cuda.get_device_properties("cuda:0")
    assert properties.name == torch.cuda.get_device_name(0) == host.cpu_name()
    assert properties.total_memory == host.total_memory()
    with pytest.raises(AttributeError, match="has no property 'warp_size'"):
        properties.warp_size  # noqa: B018
    assert torch.cuda.is_bf16_supported()
    assert not torch.cuda.is_tf32_supported()
    assert torch.cuda.get_arch_list() == []


@pytest.mark.parametrize(
    "name", ["utilization", "temperature", "power_draw", "clock_rate", "current_blas_handle"]
)
def test_telemetry_is_never_made_up(name: str) -> None:
    with pytest.raises(
        RedirectUnsupported, match=f"^torch.cuda.{name} has no meaning on the redirected device"
    ):
        getattr(torch.cuda, name)()


# Streams, events and profiling ----------------------------------------------------------------


def test_events_measure_time_and_refuse_what_cuda_refuses() -> None:
    start, end, untimed = (torch.cuda.Event(enable_timing=timed) for timed in (True, True, False))
    with pytest.raises(ValueError, match="must be recorded"):
        start.elapsed_time(end)
    start.record()
    torch.randn(200, 200, device="cuda").matmul(torch.randn(200, 200, device="cuda"))
    end.record()
    assert start.elapsed_time(end) > 0
    assert end.query()
    with pytest.raises(ValueError, match="enable_timing=True"):
        start.elapsed_time(untimed)
    with pytest.raises(RedirectUnsupported, match="cannot be shared between processes"):
        end.ipc_handle()


def test_the_current_stream_is_each_thread_s_and_ends_with_the_block() -> None:
    side = torch.cuda.Stream(priority=-1)
    with torch.cuda.stream(side):
        assert torch.cuda.current_stream() == side != torch.cuda.default_stream()
    assert torch.cuda.current_stream() == torch.cuda.default_stream()
    assert len({side, torch.cuda.Stream()}) == 2
    with side as entered, torch.cuda.Stream() as inner, side:
        assert entered is side
        assert torch.cuda.current_stream() == side != inner
    assert torch.cuda.current_stream() == torch.cuda.default_stream()
    with pytest.raises(RedirectUnsupported, match="address names nothing"):
        torch.cuda.ExternalStream(1234)
    torch.ones(1).record_stream(side)


def test_shadows_take_the_place_of_classes_whose_base_in_c_needs_a_gpu() -> None:
    """A build of PyTorch with CUDA needs these where there is no GPU."""
    shadowed = classes.shadow(torch.cuda.Event, streams._OF_EVENT)
    start, end = shadowed(enable_timing=True), torch.cuda.Event(enable_timing=True)
    assert type(start) is shadowed
    assert isinstance(start, torch.cuda.Event)
    assert isinstance(end, shadowed)
    assert not isinstance(3, shadowed)
    start.record(torch.cuda.Stream())
    end.record()
    assert start.elapsed_time(end) > 0
    assert "redirected to cpu" in repr(start)


def test_the_side_stream_of_a_capture_does_not_outlive_the_scope() -> None:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        torch.ones(1, device="cuda")
    assert torch.cuda.graph.default_capture_stream is None


def test_ranges_are_counted() -> None:
    assert [torch.cuda.nvtx.range_push("a"), torch.cuda.nvtx.range_push("b")] == [0, 1]
    with torch.cuda.nvtx.range("c"):
        torch.cuda.nvtx.mark("d")
    assert [torch.cuda.nvtx.range_pop(), torch.cuda.nvtx.range_pop()] == [1, 0]


def test_the_profiler_profiles_what_there_is() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profile:
            torch.ones(3, device="cuda").sum()
    assert profile.activities == {ProfilerActivity.CPU}
    assert "aten::sum" in {event.key for event in profile.key_averages()}


# Data and distribution --------------------------------------------------------------------------


def test_pinning_is_left_out_where_nothing_can_be_pinned() -> None:
    loader = DataLoader(
        TensorDataset(torch.arange(4.0)), batch_size=2, pin_memory=True, pin_memory_device="cuda"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        batches = [batch.cuda(non_blocking=True) for (batch,) in loader]
    torch.testing.assert_close(torch.cat(batches).cpu(), torch.arange(4.0))
    x = torch.empty(2, pin_memory=True)
    assert x.pin_memory().data_ptr() != x.data_ptr()
    assert not x.is_pinned()


@pytest.mark.parametrize("backend", ["nccl", "cpu:gloo,cuda:nccl", "NCCL"])
def test_nccl_becomes_gloo_and_says_so(backend: str, tmp_path: Path) -> None:
    dist = torch.distributed
    dist.init_process_group(
        backend, init_method=f"file://{tmp_path}/store", rank=0, world_size=1, device_id=0
    )
    try:
        assert dist.get_backend() == "gloo"
        dist.barrier(device_ids=[0])
        model = torch.nn.parallel.DistributedDataParallel(
            torch.nn.Linear(2, 1).cuda(), device_ids=[0], output_device=0
        )
        model(torch.ones(1, 2, device="cuda")).sum().backward()
        assert model.module.weight.grad is not None
        del model  # it must not be the last one to hold the process group, see docs/redirect.md
    finally:
        dist.destroy_process_group()


def test_flags_of_cuda_are_kept_and_plan_caches_are_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    assert torch.backends.cudnn.benchmark
    assert torch.backends.cuda.is_built()
    torch.backends.cuda.cufft_plan_cache.max_size = 4
    torch.backends.cuda.cufft_plan_cache[0].clear()
    assert torch.backends.cuda.cufft_plan_cache.size == 0
    assert torch.backends.cudnn.version() is None


@pytest.mark.filterwarnings("ignore:torch.set_default_tensor_type")
def test_a_cuda_type_as_the_default_sets_dtype_and_device() -> None:
    torch.set_default_tensor_type("torch.cuda.DoubleTensor")
    assert torch.zeros(1).dtype is torch.float64
    torch.set_default_tensor_type(torch.FloatTensor)
    assert torch.zeros(1).dtype is torch.float32
