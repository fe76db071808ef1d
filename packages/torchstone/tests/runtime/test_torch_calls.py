"""torch tensors in and out: dtypes, awkward tensors, static arguments, copies."""

from __future__ import annotations

import re
import threading
import weakref
from typing import Any

import numpy
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from torchstone import dtypes, runtime
from torchstone.dtypes import DType
from torchstone.errors import EngineError, InputMismatch, UnsupportedDtype, UnsupportedLayout
from torchstone.runtime import CompileOptions, get_engine
from torchstone.runtime.buffers import Device
from torchstone.runtime.executable import LoadedProgram
from torchstone.runtime.torch_bridge import to_torch

TORCH_DTYPES = sorted(dtypes.EVERY - dtypes.SUB_BYTE, key=lambda dtype: dtype.name)


@pytest.fixture(autouse=True)
def _fresh_stats() -> None:
    runtime.reset_stats()


def program(dtype: str = "f32", shape: str = "2x3x", op: str = "add") -> LoadedProgram:
    type_ = f"tensor<{shape}{dtype}>"
    text = f"""func.func @main(%x: {type_}, %y: {type_}) -> {type_} {{
      %0 = stablehlo.{op} %x, %y : {type_}
      return %0 : {type_}
    }}"""
    return get_engine("pjrt").compile(text, input_names=["left", "right"])


def unaligned(*shape: int) -> torch.Tensor:
    """A contiguous tensor of ones, 4 bytes past an aligned address."""
    size = torch.Size(shape).numel()
    return torch.ones(size + 16)[1 : size + 1].view(shape)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("dtype", TORCH_DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(2, 3), (), (0, 3), (1,)], ids=str)
def test_round_trip(dtype: DType, shape: tuple[int, ...]) -> None:
    tensor = torch.arange(1, 7)[: torch.Size(shape).numel()].reshape(shape).to(dtype.torch)
    type_ = "x".join([*map(str, shape), dtype.mlir])
    identity = get_engine("pjrt").compile(
        f"func.func @main(%x: tensor<{type_}>) -> tensor<{type_}> {{ return %x : tensor<{type_}> }}"
    )
    for _ in range(4):  # one careful call, then fast ones: an import, a new view, a reused view
        (result,) = identity.run_torch([tensor])
        assert result.dtype == tensor.dtype
        assert result.shape == tensor.shape
        assert torch.equal(result.view(-1).view(torch.uint8), tensor.view(-1).view(torch.uint8))
    assert not runtime.stats().copies_in


def test_result_is_the_callers_own() -> None:
    add = program()
    x, y = torch.ones(2, 3), torch.ones(2, 3)
    (first,) = add.run_torch([x, y])
    first.zero_()
    (second,) = add.run_torch([x, y])
    assert torch.equal(second, torch.full((2, 3), 2.0))
    assert torch.equal(first, torch.zeros(2, 3))


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (torch.ones(2, 3, dtype=torch.int32), "argument 1 (right) must be float32[2, 3], found int32[2, 3]"),
        (torch.ones(3, 2), "argument 1 (right) must be float32[2, 3], found float32[3, 2]"),
        (torch.ones(6), "found float32[6]"),
        (1.0, "float is not an array"),
    ],
)
def test_mismatch_after_good_calls(tensor: Any, message: str) -> None:
    add = program()
    x, y = torch.ones(2, 3), torch.ones(2, 3)
    add.run_torch([x, y])
    with pytest.raises(InputMismatch, match=re.escape(message)):
        add.run_torch([x, tensor])
    assert torch.equal(add.run_torch([x, y])[0], torch.full((2, 3), 2.0))


def test_wrong_number_of_tensors() -> None:
    add = program()
    for tensors in ([], [torch.ones(2, 3)], [torch.ones(2, 3)] * 3):
        with pytest.raises(InputMismatch, match="takes 2 argument"):
            add.run_torch(tensors)


def test_one_tensor_twice() -> None:
    x = torch.ones(2, 3)
    add = program()
    for _ in range(2):
        assert torch.equal(add.run_torch([x, x])[0], torch.full((2, 3), 2.0))


@pytest.mark.parametrize("requires_grad", [False, True])
def test_parameters_and_gradients(requires_grad: bool) -> None:
    x = torch.nn.Parameter(torch.ones(2, 3), requires_grad=requires_grad)
    y = torch.ones(2, 3, requires_grad=requires_grad)
    (result,) = program().run_torch([x, y])
    assert not result.requires_grad
    assert torch.equal(result, torch.full((2, 3), 2.0))


@pytest.mark.parametrize(
    ("tensor", "reason", "count"),
    [
        (torch.arange(6.0).view(3, 2).t(), "strided", 1),
        (torch.arange(3.0).expand(2, 3), "strided", 1),
        (torch.arange(12.0).view(2, 6)[:, ::2], "strided", 1),
        (unaligned(2, 3), "unaligned", 1),
        (torch._neg_view(torch.arange(6.0).view(2, 3)), "lazy conj or neg bit", 1),
    ],
)
def test_awkward_tensors_are_copied_and_counted(tensor: torch.Tensor, reason: str, count: int) -> None:
    x = torch.zeros(2, 3)
    assert torch.equal(program().run_torch([tensor, x])[0], tensor)
    assert runtime.stats().copies_in == {reason: runtime.Copies(count, 24)}


def test_size_one_dimensions_are_contiguous_whatever_their_stride() -> None:
    tensor = torch.ones(3, 7)[:, :1]
    assert tensor.stride() == (7, 1)
    odd = torch.arange(3.0).as_strided((1, 3), (77, 1))
    assert torch.equal(program(shape="1x3x").run_torch([odd, odd.clone()])[0], 2 * odd)
    assert not runtime.stats().copies_in


@pytest.mark.parametrize("lazy", [torch.conj, torch.Tensor.conj], ids=["function", "method"])
def test_conjugate_views(lazy: Any) -> None:
    x = torch.randn(2, 3, dtype=torch.complex64)
    zero = torch.zeros_like(x)
    add = program("complex<f32>")
    add.run_torch([x, zero])
    view = lazy(x)
    assert view.is_conj()
    assert torch.equal(add.run_torch([view, zero])[0], x.resolve_conj().conj_physical())


def test_imaginary_part_of_a_conjugate() -> None:
    """The imaginary part is contiguous and float32, but has the negative bit set."""
    x = torch.tensor([3 + 4j])
    part = x.conj().imag
    assert part.is_neg()
    assert program(shape="1x").run_torch([part, torch.zeros(1)])[0].item() == -4


def test_zeros_of_autograd_have_no_memory() -> None:
    x, add = torch.ones(2, 3), program()
    for zeros in (torch._efficientzerotensor(2, 3), torch.zeros(2, 3), torch._efficientzerotensor(2, 3)):
        assert torch.equal(add.run_torch([zeros, x])[0], x)


def test_freed_memory_is_refused() -> None:
    x, y, add = torch.ones(2, 3), torch.ones(2, 3), program()
    add.run_torch([x, y])
    x.untyped_storage().resize_(0)
    with pytest.raises(UnsupportedLayout, match="its memory was freed"):
        add.run_torch([x, y])


def test_subclass_with_memory_of_its_own() -> None:
    class Tagged(torch.Tensor):
        pass

    x = torch.arange(6.0).view(2, 3)
    (result,) = program().run_torch([x.as_subclass(Tagged), x])
    assert type(result) is torch.Tensor
    assert torch.equal(result, 2 * x)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: torch.ones(2, 3).to_sparse(), "layout torch.sparse_coo is not a plain strided tensor"),
        (lambda: torch.ones(2, 3, device="meta"), "on meta has no memory that can be read"),
        (lambda: FakeTensorMode().from_tensor(torch.ones(2, 3)), "FakeTensor is not a plain strided tensor"),
        (
            lambda: torch.nested.nested_tensor([torch.ones(1), torch.ones(2)]),
            "is not a plain strided tensor",
        ),
    ],
)
def test_tensors_without_plain_memory(make: Any, message: str) -> None:
    with pytest.raises(UnsupportedLayout, match=re.escape(message)):
        program().run_torch([make(), torch.ones(2, 3)])


def test_complex32_is_refused() -> None:
    with pytest.raises(UnsupportedDtype, match="complex32"):
        program().run_torch([torch.ones(2, 3, dtype=torch.complex32), torch.ones(2, 3)])


def test_four_bit_results() -> None:
    text = """func.func @main(%x: tensor<3xi8>) -> tensor<3xi4> {
      %0 = stablehlo.convert %x : (tensor<3xi8>) -> tensor<3xi4>
      return %0 : tensor<3xi4>
    }"""
    narrow = get_engine("pjrt").compile(text)
    x = torch.tensor([-8, 0, 7], dtype=torch.int8)
    assert narrow(x)[0].to_numpy().astype(int).tolist() == [-8, 0, 7]
    with pytest.raises(UnsupportedDtype, match="torch cannot hold the values of a int4 buffer"):
        narrow.run_torch([x])


def test_failure_in_the_program_keeps_its_text() -> None:
    add = program()

    def fail(_: list[Any]) -> list[Any]:
        raise RuntimeError("INTERNAL: the device is on fire")

    broken = LoadedProgram(fail, add.inputs, add.outputs, add.device)
    with pytest.raises(EngineError, match="the program failed on cpu:0: INTERNAL: the device is on fire"):
        broken.run_torch([torch.ones(2, 3), torch.ones(2, 3)])


# --- static arguments ------------------------------------------------------------------


def test_static_argument_follows_in_place_writes() -> None:
    weight, x = torch.ones(2, 3), torch.zeros(2, 3)
    call = program().torch_call(static=[0])
    for value in (1.0, 2.0, 3.0):
        weight.fill_(value)
        assert torch.equal(call([weight, x])[0], torch.full((2, 3), value))
        weight.data.add_(0.5)
        assert torch.equal(call([weight, x])[0], torch.full((2, 3), value + 0.5))
    assert not runtime.stats().copies_in


@pytest.mark.parametrize("guarded", [False, True])
def test_static_argument_follows_rebinding(guarded: bool) -> None:
    weight = torch.nn.Parameter(torch.ones(2, 3))
    x = torch.zeros(2, 3)
    call = program().torch_call(static=[0], guarded=guarded)
    assert torch.equal(call([weight, x])[0], torch.ones(2, 3))
    weight.data = torch.full((2, 3), 5.0)
    assert torch.equal(call([weight, x])[0], torch.full((2, 3), 5.0))
    assert torch.equal(call([torch.full((2, 3), 6.0), x])[0], torch.full((2, 3), 6.0))


def test_static_argument_changed_in_shape_is_noticed() -> None:
    """Address and size stay the same and only the layout changes, so the address does not show it."""
    weight, x = torch.arange(9.0).view(3, 3), torch.zeros(3, 3)
    call = program(shape="3x3x").torch_call(static=[0])
    assert torch.equal(call([weight, x])[0], weight)
    weight.t_()
    assert torch.equal(call([weight, x])[0], torch.arange(9.0).view(3, 3).t())
    assert runtime.stats().copies_in == {"strided": runtime.Copies(1, 36)}


@pytest.mark.parametrize("static", [(0,), ()], ids=["static", "fresh"])
def test_recycled_address_shows_its_new_values(static: tuple[int, ...]) -> None:
    x = torch.zeros(2, 3)
    call = program().torch_call(static)
    memory = numpy.zeros(64, numpy.float32)
    start = -memory.ctypes.data % 64 // 4
    for value in range(9):
        memory[:] = value
        weight = torch.from_numpy(memory[start : start + 6].reshape(2, 3))
        assert torch.equal(call([weight, x])[0], torch.full((2, 3), float(value)))
    assert not runtime.stats().copies_in


@pytest.mark.parametrize("static", [(0,), ()], ids=["static", "fresh"])
def test_calls_keep_no_memory_alive(static: tuple[int, ...]) -> None:
    call, x, freed = program().torch_call(static), torch.zeros(2, 3), []
    values = numpy.ones((2, 3), numpy.float32)
    weakref.finalize(values, freed.append, True)
    weight = torch.from_numpy(values)
    for _ in range(4):
        call([weight, x])
    del values, weight
    assert freed == [True]


def test_more_addresses_than_are_remembered() -> None:
    call, x = program().torch_call(), torch.zeros(2, 3)
    weights = [torch.full((2, 3), float(i)) for i in range(100)]
    for _ in range(3):
        for i, weight in enumerate(weights):
            assert torch.equal(call([weight, x])[0], torch.full((2, 3), float(i)))


def test_unaligned_static_argument_is_never_stale() -> None:
    weight, x = unaligned(2, 3), torch.zeros(2, 3)
    call = program().torch_call(static=[0])
    for value in (1.0, 2.0, 3.0):
        weight.data.fill_(value)
        assert torch.equal(call([weight, x])[0], torch.full((2, 3), value))
    assert runtime.stats().copies_in == {"unaligned": runtime.Copies(3, 72)}


def test_donated_argument_is_not_kept() -> None:
    text = """func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
      %0 = stablehlo.add %x, %x : tensor<4xf32>
      return %0 : tensor<4xf32>
    }"""
    double = get_engine("pjrt").compile(text, options=CompileOptions(donate=(0,)))
    x = torch.ones(4)
    call = double.torch_call(static=[0])
    for _ in range(3):
        assert torch.equal(call([x])[0], torch.full((4,), 2.0))
    assert torch.equal(x, torch.ones(4))


def test_torch_calls_from_several_threads() -> None:
    add = program()
    call = add.torch_call(static=[0])
    weights = [torch.full((2, 3), float(i)) for i in range(4)]
    wrong: list[Any] = []

    def work(i: int) -> None:
        x = torch.full((2, 3), 10.0)
        for _ in range(200):
            (result,) = call([weights[i], x])
            if not torch.equal(result, torch.full((2, 3), 10.0 + i)):
                wrong.append(result)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# --- a device with memory of its own ---------------------------------------------------


@pytest.fixture
def remote(monkeypatch: pytest.MonkeyPatch) -> LoadedProgram:
    """Return the CPU's program on a device that claims not to share the host's memory."""
    add = program()
    device = Device("far:0", "far", shares_host_memory=False, handle=add.device.handle)
    return LoadedProgram(add._execute, add.inputs, add.outputs, device)


@pytest.mark.parametrize("dtype", TORCH_DTYPES, ids=str)
def test_remote_device_round_trip(dtype: DType, remote: LoadedProgram) -> None:
    tensor = torch.arange(1, 7).view(2, 3).to(dtype.torch)
    buffer = runtime.imports.import_array(remote.device, tensor.t())
    assert not buffer.aliased
    back = to_torch(buffer)
    assert back.dtype == tensor.dtype
    assert torch.equal(back.view(torch.uint8), tensor.t().contiguous().view(torch.uint8))
    size = tensor.nbytes
    assert runtime.stats().copies_in == {"host to device": runtime.Copies(1, size)}
    assert runtime.stats().copies_out == {"device to host": runtime.Copies(1, size)}


def test_remote_device_keeps_static_arguments(remote: LoadedProgram) -> None:
    weight, x = torch.ones(2, 3), torch.zeros(2, 3)
    call = remote.torch_call(static=[0])
    for _ in range(3):
        assert torch.equal(call([weight, x])[0], weight)
    assert runtime.stats().copies_in["host to device"].count == 4  # the weight once, the input each time
    weight.add_(1)
    assert torch.equal(call([weight, x])[0], torch.full((2, 3), 2.0))


def test_remote_numpy(remote: LoadedProgram) -> None:
    x = numpy.ones((2, 3), numpy.float32)
    (result,) = remote(x, x)
    x[...] = 9
    assert (result.to_numpy() == 2).all()
