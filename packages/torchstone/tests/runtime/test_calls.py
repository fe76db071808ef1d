"""Calling executables with Buffers, NumPy arrays and DLPack objects: values, checks, copies."""

from __future__ import annotations

import re
import threading
from typing import Any

import ml_dtypes
import numpy
import pytest
import torch

from torchstone import dtypes, runtime
from torchstone.dtypes import DType
from torchstone.errors import BufferDeleted, EngineError, InputMismatch, UnsupportedDtype
from torchstone.runtime import Buffer, CompileOptions, get_engine, residents, stats

ADD = """
func.func @main(%x: tensor<2x3xf32>, %y: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %0 = stablehlo.add %x, %y : tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}
"""

IDENTITY = "func.func @main(%x: tensor<{type}>) -> tensor<{type}> {{ return %x : tensor<{type}> }}"


def aligned(shape: tuple[int, ...], dtype: Any = numpy.float32, offset: int = 0) -> numpy.ndarray[Any, Any]:
    """Return an array of ones at an address that is ``offset`` bytes after a multiple of 64."""
    size = int(numpy.prod(shape)) * numpy.dtype(dtype).itemsize
    raw = numpy.zeros(size + 128, numpy.uint8)
    start = -raw.ctypes.data % 64 + offset
    array = raw[start : start + size].view(dtype).reshape(shape)
    array[...] = 1
    return array


@pytest.fixture(autouse=True)
def _fresh_stats() -> None:
    runtime.reset_stats()


def identity(dtype: DType, shape: tuple[int, ...]) -> runtime.Executable:
    type_ = "x".join([*map(str, shape), dtype.mlir])
    return get_engine("pjrt").compile(IDENTITY.format(type=type_))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("dtype", sorted(dtypes.EVERY, key=lambda dtype: dtype.name), ids=str)
@pytest.mark.parametrize("shape", [(2, 3), (), (0, 3)], ids=str)
def test_numpy_round_trip(dtype: DType, shape: tuple[int, ...]) -> None:
    values = numpy.arange(1, 7)[: int(numpy.prod(shape))].reshape(shape).astype(dtype.numpy)
    (result,) = identity(dtype, shape)(values)
    assert (result.shape, result.dtype) == (shape, dtype)
    numpy.testing.assert_array_equal(result.to_numpy(), values, strict=True)


def test_specs_of_a_program() -> None:
    program = get_engine("pjrt").compile(ADD, input_names=["left", "right"])
    assert [spec.name for spec in program.inputs] == ["left", "right"]
    assert [str(spec) for spec in program.outputs] == ["float32[2, 3]"]
    assert isinstance(program, runtime.Executable)
    assert isinstance(get_engine("pjrt"), runtime.Engine)


def test_wrong_number_of_names() -> None:
    with pytest.raises(EngineError, match=r"1 input name\(s\) for a program with 2 argument\(s\)"):
        get_engine("pjrt").compile(ADD, input_names=["left"])


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        # All of these have 24 bytes, and PJRT checks only that.
        (numpy.ones((2, 3), numpy.int32), "argument 1 (right) must be float32[2, 3], found int32[2, 3]"),
        (numpy.ones((3, 2), numpy.float32), "argument 1 (right) must be float32[2, 3], found float32[3, 2]"),
        (numpy.ones(6, numpy.float32), "argument 1 (right) must be float32[2, 3], found float32[6]"),
        (numpy.ones((2, 3, 1), numpy.float32), "found float32[2, 3, 1]"),
        (numpy.ones(3, numpy.complex64), "found complex64[3]"),
        ([[1.0]], "list is not an array"),
        (1.0, "float is not an array"),
    ],
)
def test_mismatch_names_the_argument(argument: Any, message: str) -> None:
    program = get_engine("pjrt").compile(ADD, input_names=["left", "right"])
    with pytest.raises(InputMismatch, match=re.escape(message)):
        program(numpy.ones((2, 3), numpy.float32), argument)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_wrong_number_of_arguments(count: int) -> None:
    with pytest.raises(InputMismatch, match=rf"takes 2 argument\(s\), {count} were given"):
        get_engine("pjrt").compile(ADD)(*[numpy.ones((2, 3), numpy.float32)] * count)


def test_unsupported_dtype() -> None:
    with pytest.raises(UnsupportedDtype, match="str"):
        get_engine("pjrt").compile(ADD)(numpy.array(["a"]), numpy.array(["b"]))


def test_transposed_input_is_copied_not_misread() -> None:
    x = numpy.arange(6, dtype=numpy.float32).reshape(3, 2).T
    (result,) = get_engine("pjrt").compile(ADD)(x, x)
    numpy.testing.assert_array_equal(result.to_numpy(), 2 * x)
    assert runtime.stats().copies_in == {"strided": runtime.Copies(2, 48)}


@pytest.mark.parametrize(
    ("array", "reason"),
    [
        (aligned((2, 3))[::-1], "strided"),
        (numpy.broadcast_to(aligned((3,)), (2, 3)), "strided"),
        (aligned((2, 3), offset=4), "unaligned"),
        (aligned((2, 3), offset=2), "unaligned"),
        (aligned((2, 3)).astype(">f4"), "byte order"),
    ],
)
def test_copies_are_counted_with_their_reason(array: numpy.ndarray[Any, Any], reason: str) -> None:
    buffer = runtime.import_array(get_engine("pjrt"), array)
    assert not buffer.aliased
    numpy.testing.assert_array_equal(buffer.to_numpy(), array)
    assert runtime.stats().copies_in == {reason: runtime.Copies(1, array.nbytes)}


def test_read_only_array_is_copied() -> None:
    array = aligned((2, 3))
    array.flags.writeable = False
    assert not runtime.import_array(get_engine("pjrt"), array).aliased
    assert runtime.stats().copies_in == {"read-only": runtime.Copies(1, 24)}


@pytest.mark.parametrize("dtype", [numpy.float32, ml_dtypes.bfloat16])
def test_aligned_memory_is_taken_as_it_is(dtype: Any) -> None:
    array = aligned((2, 3), dtype)
    buffer = runtime.import_array(get_engine("pjrt"), array)
    assert buffer.aliased
    assert buffer.to_numpy().ctypes.data == array.ctypes.data
    assert not runtime.stats().copies_in


def test_aliased_import_follows_writes() -> None:
    array = aligned((2, 3))
    buffer = runtime.import_array(get_engine("pjrt"), array)
    assert buffer.aliased
    assert not runtime.stats().copies_in
    program = get_engine("pjrt").compile(ADD)
    array[...] = 5
    (result,) = program(buffer, buffer)
    array[...] = 7
    numpy.testing.assert_array_equal(result.to_numpy(), numpy.full((2, 3), 10, numpy.float32))


def test_copied_import_is_a_snapshot() -> None:
    array = aligned((2, 3), offset=4)
    buffer = runtime.import_array(get_engine("pjrt"), array)
    array[...] = 5
    numpy.testing.assert_array_equal(buffer.to_numpy(), numpy.ones((2, 3), numpy.float32))


def test_a_write_after_the_call_is_too_late_to_matter() -> None:
    size = 512
    text = f"""func.func @main(%x: tensor<{size}x{size}xf32>) -> tensor<{size}x{size}xf32> {{
      %0 = stablehlo.dot_general %x, %x, contracting_dims = [1] x [0]
        : (tensor<{size}x{size}xf32>, tensor<{size}x{size}xf32>) -> tensor<{size}x{size}xf32>
      return %0 : tensor<{size}x{size}xf32>
    }}"""
    program = get_engine("pjrt").compile(text)
    for _ in range(5):
        x = aligned((size, size))
        (result,) = program(x)
        x[...] = 0
        assert (result.to_numpy() == size).all()


def test_results_are_buffers_that_can_be_passed_on() -> None:
    program = get_engine("pjrt").compile(ADD)
    (two,) = program(aligned((2, 3)), aligned((2, 3)))
    (four,) = program(two, two)
    numpy.testing.assert_array_equal(numpy.asarray(four), numpy.full((2, 3), 4, numpy.float32))
    assert repr(four) == "Buffer(float32[2, 3] on cpu:0)"
    assert not runtime.stats().copies_in


def test_results_never_share_memory() -> None:
    """Results share no memory with each other, or with an argument or a constant of the program."""
    text = """func.func @main(%x: tensor<4xf32>)
        -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
      %c = stablehlo.constant dense<1.0> : tensor<4xf32>
      return %x, %x, %c, %c : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
    }"""
    program = get_engine("pjrt").compile(text)
    x = aligned((4,))
    first = [numpy.from_dlpack(buffer) for buffer in program(x)]
    again = [numpy.from_dlpack(buffer) for buffer in program(x)]
    addresses = [array.ctypes.data for array in (x, *first, *again)]
    assert len(set(addresses)) == len(addresses)


def test_dlpack_both_ways() -> None:
    program = get_engine("pjrt").compile(ADD)
    (two,) = program(aligned((2, 3)), aligned((2, 3)))

    class Foreign:
        """An array that is known only by its protocol."""

        def __dlpack__(self, **options: Any) -> Any:
            return two.__dlpack__(**options)

        def __dlpack_device__(self) -> tuple[int, int]:
            return two.__dlpack_device__()

    (four,) = program(Foreign(), numpy.from_dlpack(two))
    numpy.testing.assert_array_equal(four.to_numpy(), numpy.full((2, 3), 4, numpy.float32))


def test_dlpack_dtype_that_numpy_lacks() -> None:
    engine = get_engine("pjrt")
    source = engine.import_array(numpy.arange(3).astype(ml_dtypes.bfloat16))

    class Foreign:
        def __dlpack__(self, **options: Any) -> Any:
            return source.__dlpack__(**options)

        def __dlpack_device__(self) -> tuple[int, int]:
            return source.__dlpack_device__()

    buffer = engine.import_array(Foreign())
    assert buffer.dtype == dtypes.BFLOAT16
    numpy.testing.assert_array_equal(buffer.to_numpy(), source.to_numpy())


def test_four_bit_buffers_have_no_dlpack() -> None:
    buffer = get_engine("pjrt").import_array(numpy.arange(3).astype(ml_dtypes.int4))
    with pytest.raises(UnsupportedDtype, match="DLPack has no int4"):
        buffer.__dlpack__()


def test_program_without_arguments_and_results() -> None:
    assert get_engine("pjrt").compile("func.func @main() { return }")() == []


def test_donated_buffer_is_gone() -> None:
    engine = get_engine("pjrt")
    program = engine.compile(ADD, options=CompileOptions(donate=(0,)), input_names=["state", "update"])
    (state,) = engine.compile(ADD)(aligned((2, 3)), aligned((2, 3)))
    address = numpy.asarray(state).ctypes.data
    update = aligned((2, 3))
    (new,) = program(state, update)
    assert state.is_deleted()
    assert numpy.asarray(new).ctypes.data == address
    with pytest.raises(BufferDeleted, match=r"argument 0 \(state\) was donated to an earlier execution"):
        program(state, update)
    with pytest.raises(BufferDeleted, match=re.escape("float32[2, 3] on cpu:0 was used after its donation")):
        state.to_numpy()
    assert repr(state) == "Buffer(float32[2, 3] on cpu:0, deleted)"


def test_donating_imported_memory_copies_it() -> None:
    program = get_engine("pjrt").compile(ADD, options=CompileOptions(donate=(0,)))
    x = aligned((2, 3))
    (result,) = program(x, aligned((2, 3)))
    assert (x == 1).all()
    assert (result.to_numpy() == 2).all()
    assert runtime.stats().copies_in == {"donation of imported memory": runtime.Copies(1, 24)}


def test_donating_an_argument_that_is_not_there() -> None:
    with pytest.raises(EngineError, match=r"cannot donate arguments \[2\] of a program with 2 argument\(s\)"):
        get_engine("pjrt").compile(ADD, options=CompileOptions(donate=(2,)))


def test_calls_from_several_threads() -> None:
    program = get_engine("pjrt").compile(ADD)
    wrong: list[Buffer] = []

    def work(value: int) -> None:
        x = numpy.full((2, 3), value, numpy.float32)
        for _ in range(200):
            (result,) = program(x, x)
            if not (result.to_numpy() == 2 * value).all():
                wrong.append(result)

    threads = [threading.Thread(target=work, args=(value,)) for value in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


STATE = """
module {
  func.func @main(%a: tensor<3xf32>, %b: tensor<3xf32>) -> (tensor<f32>, tensor<3xf32>) {
    %0 = stablehlo.constant dense<2.0> : tensor<f32>
    %1 = stablehlo.add %a, %b : tensor<3xf32>
    return %0, %1 : tensor<f32>, tensor<3xf32>
  }
}
"""


def test_updated_argument_keeps_its_memory() -> None:
    """This holds for a source that PJRT would alias, too: the memory must be XLA's own."""
    engine = get_engine("pjrt")
    program = engine.compile(STATE, options=CompileOptions(updates=((0, 1),)))
    call = program.resident_call(1, ((0, 1),))
    for start in range(4):
        source = torch.ones(3 + 16 * start)[16 * start :]
        resident, shown = residents.reside(engine.device, source)
        view, before = shown[1:], stats().copies_in
        for round_ in (2, 3, 4):
            call([resident], [torch.ones(3)])
            assert shown.data_ptr() == resident.address
            torch.testing.assert_close(view, torch.full((2,), float(round_)))
        assert torch.equal(source, torch.ones(3))
        assert stats().copies_in == before


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        ((0, 0), r"result 0 into the memory of argument 0: it is float32\[\], the argument float32\[3\]"),
        ((2, 1), "result 1 into the memory of argument 2: no such pair"),
        ((0, 2), "result 2 into the memory of argument 0: no such pair"),
    ],
)
def test_update_of_another_type_is_refused(pair: tuple[int, int], message: str) -> None:
    with pytest.raises(EngineError, match=message):
        get_engine("pjrt").compile(STATE, options=CompileOptions(updates=(pair,)))
