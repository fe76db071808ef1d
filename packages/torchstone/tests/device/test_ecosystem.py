"""What surrounds a device: saving and loading, mixed precision, default devices, transforms, loaders."""

from __future__ import annotations

import copy
import dataclasses
import gc
import io
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from torchstone.config import override
from torchstone.device import engine

from .mirrored import DEVICE, EXACT, computed, mirrored


def saved(value: Any) -> io.BytesIO:
    stream = io.BytesIO()
    torch.save(value, stream)
    stream.seek(0)
    return stream


def test_saving_and_loading() -> None:
    x = torch.arange(6.0, device=DEVICE).view(2, 3)
    loaded = torch.load(saved({"whole": x, "row": x[1]}))
    assert loaded["whole"].device == x.device
    loaded["row"].zero_()
    assert loaded["whole"].tolist() == [[0, 1, 2], [0, 0, 0]]
    assert x.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert torch.load(saved(x), map_location="cpu").device.type == "cpu"
    assert torch.load(saved(torch.ones(2)), map_location=DEVICE).tolist() == [1, 1]
    with pytest.raises(RuntimeError, match=r"pjrt"):
        torch.load(saved(x), map_location="pjrt:1")


def test_models_are_saved_and_copied() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).to(DEVICE)
    twin = copy.deepcopy(model)
    twin[0].weight.data.zero_()
    assert model[0].weight.abs().sum().item() > 0
    twin.load_state_dict(torch.load(saved(model.state_dict())))
    x = torch.randn(5, 3, device=DEVICE)
    assert torch.equal(twin(x), model(x))


@pytest.mark.parametrize("place", [None, "cpu", DEVICE])
@pytest.mark.parametrize("home", ["cpu", DEVICE])
def test_files_in_the_old_format(home: str, place: str | None, tmp_path: Path) -> None:
    """PyTorch alone would read and write the memory of the device's storage, which has none."""
    x = torch.arange(6.0).view(2, 3).to(home)
    streams: tuple[Any, ...] = (io.BytesIO(), tmp_path / "saved")
    for stream in streams:
        torch.save({"whole": x, "row": x[1]}, stream, _use_new_zipfile_serialization=False)
        if isinstance(stream, io.BytesIO):
            stream.seek(0)
        loaded = torch.load(stream, map_location=place)
        assert loaded["whole"].device.type == (place or home)
        loaded["row"].zero_()
        assert loaded["whole"].tolist() == [[0, 1, 2], [0, 0, 0]]


def test_pickling() -> None:
    x = torch.arange(6.0, device=DEVICE).view(2, 3)
    whole, row, narrow, empty = pickle.loads(
        pickle.dumps([x, x[1], x.to(torch.bfloat16), torch.empty(0, device=DEVICE)])
    )
    assert whole.device == x.device
    row.zero_()
    assert whole.tolist() == [[0, 1, 2], [0, 0, 0]]
    assert x.tolist() == narrow.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert (empty.device, empty.shape) == (x.device, (0,))
    model = nn.Linear(3, 2).to(DEVICE)
    assert torch.equal(pickle.loads(pickle.dumps(model))(x), model(x))
    assert pickle.loads(pickle.dumps(torch.ones(2))).tolist() == [1, 1]


def test_processes_send_tensors_to_each_other(tmp_path: Path) -> None:
    """The child registers the device when it reads the first tensor."""
    script = tmp_path / "sending.py"
    script.write_text(
        """
import torch
from torch.utils.data import DataLoader, TensorDataset

if __name__ == "__main__":
    import torchstone.device

    data = TensorDataset(torch.arange(8.0, device="pjrt").view(4, 2))
    loader = DataLoader(data, batch_size=2, num_workers=1, multiprocessing_context="spawn")
    batches = [batch for (batch,) in loader]
    assert [one.device.type for one in batches] == ["pjrt", "pjrt"]
    assert [one.sum().item() for one in batches] == [6, 22]
"""
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_autocast_chooses_dtypes_as_cuda_does() -> None:
    x = torch.ones(2, 2, device=DEVICE)
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        assert (x @ x).dtype == torch.bfloat16
        assert F.linear(x, x).dtype == torch.bfloat16
        assert F.softmax((x @ x), 0).dtype == torch.float32
        assert (x @ x).exp().dtype == torch.float32
        assert torch.cat([x, x @ x]).dtype == torch.float32
        assert (x.double() @ x.double()).dtype == torch.float64
        with pytest.raises(RuntimeError, match="unsafe to autocast"):
            F.binary_cross_entropy(x, x)
        with torch.autocast(DEVICE, enabled=False):
            assert (x @ x).dtype == torch.float32
    assert (x @ x).dtype == torch.float32


def test_gradients_pass_through_autocast() -> None:
    def run(device: str) -> Any:
        x = torch.linspace(-1, 1, 12).view(3, 4).to(device).requires_grad_()
        weight = torch.linspace(0, 1, 8).view(2, 4).to(device).requires_grad_()
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = F.linear(x, weight).float().square().sum()
        loss.backward()
        return [one.grad.clone() for one in (x, weight) if one.grad is not None]

    mirrored(run, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("bad", [False, True])
def test_gradient_scaling(bad: bool) -> None:
    """The scale after each step follows CUDA's rule; a step that is not finite changes no parameter."""
    scaler = torch.amp.GradScaler(DEVICE, init_scale=8.0, growth_interval=2)
    parameter = nn.Parameter(torch.ones(2, device=DEVICE))
    optimizer = torch.optim.SGD([parameter], 0.25)
    scales = []
    for step in range(3):
        optimizer.zero_grad()
        factor = float("inf") if bad and step == 0 else 1.0
        scaler.scale((parameter * factor).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    assert scales == ([4.0, 4.0, 8.0] if bad else [8.0, 16.0, 16.0])
    assert parameter.tolist() == [0.5, 0.5] if bad else [0.25, 0.25]


def test_default_devices_and_contexts() -> None:
    with torch.device(DEVICE):
        assert torch.ones(2).device == torch.tensor([1]).device == torch.randn(2).device
        assert nn.Linear(2, 2).weight.device.type == DEVICE
    torch.set_default_device(DEVICE)
    try:
        assert (torch.ones(2) + torch.tensor(1.0)).tolist() == [2, 2]
    finally:
        torch.set_default_device(None)
    with torch.pjrt.device(0):
        pass
    with pytest.raises(RuntimeError, match='there is no device "pjrt:3"'):
        torch.pjrt.set_device(3)


def test_transforms() -> None:
    def run(device: str) -> Any:
        x = torch.linspace(0, 1, 6).view(2, 3).to(device)
        return [
            torch.func.grad(lambda t: (t**2).sum())(x),
            torch.func.vmap(lambda t: t.cumsum(0))(x),
            torch.func.jvp(torch.sin, (x,), (x,))[1],
            torch.func.jacrev(lambda t: t.sin())(x[0]),
        ]

    found = [one.clone() for one in run(DEVICE)]
    for one, other in zip(found, run("cpu"), strict=True):
        torch.testing.assert_close(one.cpu(), other)


def test_a_custom_operator_with_a_rule_for_shapes() -> None:
    @torch.library.custom_op("torchstone_tests::doubled", mutates_args=())
    def doubled(x: Tensor) -> Tensor:
        return x * 2

    doubled.register_fake(torch.empty_like)
    doubled.register_autograd(lambda _, gradient: gradient * 2)

    def run(device: str) -> Any:
        x = torch.ones(3).to(device).requires_grad_()
        y = doubled(x)
        y.sum().backward()
        return y.detach().clone(), x.grad

    mirrored(run, **EXACT)


def test_dlpack_both_ways() -> None:
    x = torch.arange(6.0, device=DEVICE).view(2, 3) + 0
    seen = numpy.from_dlpack(x.t())
    assert seen.tolist() == [[0, 3], [1, 4], [2, 5]]
    if engine.place().shares_host_memory:  # with shared memory nothing is copied
        assert seen.__array_interface__["data"] == numpy.from_dlpack(x).__array_interface__["data"]
    taken = torch.from_dlpack(x)
    assert (taken.device.type, taken.tolist()) == ("cpu", x.tolist())
    assert torch.from_dlpack(torch.utils.dlpack.to_dlpack(x)).tolist() == x.tolist()
    given = torch.from_dlpack(numpy.ones(3), device=DEVICE)
    assert (given.device, given.tolist()) == (x.device, [1, 1, 1])
    with pytest.raises(BufferError, match=r"use tensor.detach\(\)"):
        torch.from_dlpack(x.requires_grad_())
    assert torch.from_dlpack(torch.ones(2)).tolist() == [1, 1]


def test_inference_mode_marks_tensors() -> None:
    def run(device: str) -> Any:
        with torch.inference_mode():
            x = torch.ones(3).to(device)
            y = x.view(3, 1) + 1
            y[0] = 5
        return [one.is_inference() for one in (x, y, y[1])]

    assert run(DEVICE) == run("cpu") == [True, True, True]
    with torch.inference_mode():
        x = torch.ones(2, device=DEVICE)
    weight = torch.ones(2, device=DEVICE, requires_grad=True)
    with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
        weight * x


def test_recurrent_networks_and_steps_of_optimizers_in_inference_mode() -> None:
    def run(device: str) -> Any:
        torch.manual_seed(0)
        module, x = nn.LSTM(3, 4).to(device), torch.randn(2, 1, 3).to(device)
        with torch.inference_mode():
            output = module(x)[0]
            weight = torch.ones(3).to(device)
            options = {"weight_decay": 0.1, "momentum": 0.0, "dampening": 0.0, "nesterov": False}
            torch._fused_sgd_([weight], [x[0, 0]], [], lr=0.5, maximize=False, is_first_step=True, **options)
        return [output.clone(), weight.clone()]

    for found, expected in zip(run(DEVICE), run("cpu"), strict=True):
        torch.testing.assert_close(found.cpu(), expected)


def test_where_saved_tensors_are_mapped_to() -> None:
    stream = saved(torch.ones(2, device=DEVICE))
    for given, found in ((f"{DEVICE}:0", DEVICE), ({f"{DEVICE}:0": "cpu"}, "cpu"), ("meta", "meta")):
        stream.seek(0)
        assert torch.load(stream, map_location=given).device.type == found
    absent = r"device 3 but torch.pjrt.device_count\(\) is 1"
    for wrong, message in ((torch.device(DEVICE, 3), absent), ("nowhere", "tagged with nowhere")):
        stream.seek(0)
        with pytest.raises(RuntimeError, match=message):
            torch.load(stream, map_location=wrong)


def test_a_forked_child_is_told_what_to_do() -> None:
    """A program would wait for threads that the child lacks; tensors computed before the fork can be read."""
    code = """
import os, torch, torchstone.device
from torchstone.config import config
x = torch.ones(2, device="pjrt") + 1
if not (child := os.fork()):
    try:
        y = x + 1
        config.device_lazy and y.cpu()
    except Exception as error:
        assert 'start the child with the "spawn" method' in str(error), error
        assert x.tolist() == [2.0, 2.0]
        os._exit(0)
    os._exit(1)
assert os.waitpid(child, 0)[1] == 0
assert (x + 1).tolist() == [3.0, 3.0]
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_a_loader_feeds_the_device() -> None:
    loader = DataLoader(TensorDataset(torch.arange(8.0).view(4, 2)), batch_size=2)
    assert [batch.to(DEVICE, non_blocking=True).sum().item() for (batch,) in loader] == [6, 22]


@pytest.mark.parametrize("workers", [0, 1])
def test_a_loader_that_pins_its_batches(workers: int) -> None:
    data = TensorDataset(torch.arange(8.0).view(4, 2))
    loader = DataLoader(data, batch_size=2, pin_memory=True, num_workers=workers)
    batches = [batch for (batch,) in loader]
    assert [one.device.type for one in batches] == ["cpu", "cpu"]
    assert [one.to(DEVICE, non_blocking=True).sum().item() for one in batches] == [6, 22]


@pytest.mark.skipif(torch.cuda.is_available(), reason="memory is pinned for the GPU")
def test_pinning_gives_a_copy_in_plain_memory() -> None:
    x = torch.arange(6.0).view(2, 3).t().requires_grad_()
    pinned = x.pin_memory()
    assert torch.equal(pinned, x)
    assert pinned.stride() == x.stride()
    assert pinned.data_ptr() != x.data_ptr()
    assert not pinned.is_pinned()
    pinned.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [[1, 1]] * 3
    assert torch.eye(2).to_sparse().pin_memory().to_dense().tolist() == [[1, 0], [0, 1]]
    with pytest.raises(RuntimeError, match="pin"):
        torch.ones(2, device=DEVICE).pin_memory()
    with pytest.raises(NotImplementedError, match="getPinnedMemoryAllocator"):
        torch.empty(2, pin_memory=True)  # a limit that the documentation names
    assert torch.empty(2).pin_memory().shape == (2,)


def test_memory_is_counted_and_freed() -> None:
    gc.collect()
    before = torch.pjrt.memory_allocated()
    torch.pjrt.reset_peak_memory_stats()
    x = torch.zeros(1000, device=DEVICE)
    view = x[10:]
    assert torch.pjrt.memory_allocated() == before + 4000
    del x
    assert torch.pjrt.memory_allocated() == before + 4000
    del view
    assert torch.pjrt.memory_allocated() == before
    assert torch.pjrt.max_memory_allocated() >= before + 4000
    stats = torch.pjrt.memory_stats()
    assert stats["allocated_bytes.all.current"] == before
    assert stats["allocation.all.current"] >= 0


def test_emptying_the_cache_leaves_tensors_and_their_gradients_as_they_are() -> None:
    x = torch.arange(3.0, device=DEVICE, requires_grad=True)
    y = (x * x).sum()
    held = torch.pjrt.memory_allocated()
    torch.pjrt.empty_cache()
    torch.accelerator.empty_cache()
    assert torch.pjrt.memory_allocated() == held
    y.backward()
    assert x.grad is not None
    assert (y.item(), x.grad.tolist()) == (5, [0, 2, 4])


def test_the_limit_of_memory_is_an_error_that_changes_nothing() -> None:
    gc.collect()
    x, y = torch.ones(1000, device=DEVICE), torch.ones(1, device=DEVICE)
    x.add_(y)
    with override(device_memory_limit=torch.pjrt.memory_allocated() + 1000):
        for call in (
            lambda: x + 1,
            lambda: x.new_empty(1000),
            lambda: torch.empty(2000, device=DEVICE),
            lambda: torch.add(x, 1, out=y.resize_(0)),
        ):
            with pytest.raises(
                torch.OutOfMemoryError, match=r"pjrt out of memory. Tried to allocate \d+ bytes"
            ):
                call()
            gc.collect()
        assert x.add_(1)[0].item() == 3
    assert (x + 1)[0].item() == 4


@pytest.mark.kept("<lambda>0", "<lambda>3")
@pytest.mark.parametrize(
    "call",
    [
        lambda: torch.empty(10**13, device=DEVICE) + 1,
        lambda: torch.zeros(10**13, device=DEVICE),
        lambda: torch.ones(1, device=DEVICE).expand(10**7, 10**6).contiguous(),
        lambda: torch.empty(10**13, device=DEVICE).cpu(),
    ],
)
def test_more_than_the_device_has_is_an_error_of_memory(call: Any) -> None:
    gc.collect()
    before = torch.pjrt.memory_allocated()
    with pytest.raises(torch.OutOfMemoryError, match=r"(?s)pjrt out of memory, .*\n  next: free tensors"):
        computed(call())
    gc.collect()
    assert torch.pjrt.memory_allocated() == before
    assert (torch.ones(2, device=DEVICE) + 1).tolist() == [2, 2]


def test_the_accelerator_is_this_device() -> None:
    assert torch.accelerator.current_accelerator() == torch.device(DEVICE)
    assert torch.accelerator.device_count() == torch.pjrt.device_count() == 1
    assert torch.accelerator.current_device_index() == torch.pjrt.current_device() == 0
    assert torch.pjrt.is_available()
    assert torch.pjrt.get_device_name() == "cpu:0"
    torch.pjrt.synchronize()
    torch.accelerator.set_device_index(0)
    with pytest.raises(RuntimeError, match='there is no device "pjrt:1"'):
        torch.accelerator.set_device_index(1)
    with torch.accelerator.device_index(0):
        assert torch.ones(1, device=DEVICE).item() == 1
    capability = torch.accelerator.get_device_capability()
    for dtype in capability["supported_dtypes"]:
        torch.ones(2, device=DEVICE).to(dtype)
    assert capability == torch.pjrt.get_device_capability()
    assert torch.bfloat16 in capability["supported_dtypes"]
    assert torch.pjrt.is_bf16_supported()


def test_the_accelerator_s_memory_is_this_device_s() -> None:
    """PyTorch's own functions would fail an assertion for this device, or end the process."""
    torch.accelerator.empty_cache()
    torch.accelerator.empty_host_cache()
    torch.accelerator.synchronize()
    held = torch.zeros(1000, device="pjrt") + 1
    assert torch.accelerator.memory_allocated() == torch.pjrt.memory_allocated() >= held.nbytes
    assert torch.accelerator.max_memory_allocated() == torch.pjrt.max_memory_allocated()
    torch.accelerator.reset_peak_memory_stats()
    assert torch.accelerator.max_memory_allocated() == torch.accelerator.memory_allocated()
    torch.accelerator.reset_accumulated_memory_stats()
    assert torch.accelerator.memory_stats()["allocation.all.freed"] == 0
    with pytest.raises(RuntimeError, match=r"next: set torchstone\.config\.device_memory_limit"):
        torch.accelerator.get_memory_info()
    limit = torch.pjrt.memory_allocated() + 1000
    with override(device_memory_limit=limit):
        assert torch.accelerator.get_memory_info() == (1000, limit)


def test_memory_that_the_plugin_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    class Counting:
        def memory_stats(self) -> dict[str, int]:
            return {"bytes_in_use": 300, "bytes_limit": 1000, "num_allocs": 2}

    counted = dataclasses.replace(engine.place(), handle=Counting())
    monkeypatch.setattr(engine, "place", lambda: counted)
    assert torch.pjrt.mem_get_info() == torch.accelerator.get_memory_info() == (700, 1000)
    with override(device_memory_limit=torch.pjrt.memory_allocated() + 10):
        assert torch.pjrt.mem_get_info()[0] == 10


def test_a_failed_factorization_is_an_error() -> None:
    with pytest.raises(torch.linalg.LinAlgError, match="singular"):
        torch.linalg.inv(torch.zeros(2, 2, device=DEVICE))
    assert torch.linalg.inv(torch.eye(2, device=DEVICE) * 2).tolist() == [[0.5, 0], [0, 0.5]]


def test_importing_the_device_leaves_forked_children_their_gradients() -> None:
    """PyTorch refuses a backward pass in a forked child if the parent's autograd has threads for devices."""
    code = (
        "import os, torch, torchstone.device\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    torch.ones(2, requires_grad=True).sum().backward()\n"
        "    os._exit(0)\n"
        "os._exit(os.waitpid(child, 0)[1])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_gradients_where_a_backward_pass_ran_before_the_device_was_registered() -> None:
    """PyTorch makes its device threads in the first backward pass, for the devices registered by then."""
    code = """
import threading, torch
torch.ones(1, requires_grad=True).backward()
import torchstone.device

def differentiate():
    x = torch.ones(2, device="pjrt", requires_grad=True)
    (x * 3).sum().backward()
    found.append(x.grad.tolist())

found = []
differentiate()
thread = threading.Thread(target=differentiate)
thread.start()
thread.join()
with torch.inference_mode():
    torch.ones(2, device="pjrt") + 1
differentiate()
assert found == [[3.0, 3.0]] * 3, found
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
