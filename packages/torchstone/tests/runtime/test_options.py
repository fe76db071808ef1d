"""Compile options, XLA's semantics that the defaults rely on, and engine selection."""

from __future__ import annotations

import re
from pathlib import Path

import jax
import numpy
import pytest
import torch

from torchstone.config import override
from torchstone.errors import ConfigError, DeviceNotFound, EngineError
from torchstone.runtime import CompileOptions, cpu, get_engine, modules
from torchstone.runtime.pjrt import PjrtEngine

MAXIMUM = """func.func @main(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.maximum %x, %y : tensor<4xf32>
  return %0 : tensor<4xf32>
}"""


def test_unknown_xla_option() -> None:
    with pytest.raises(EngineError, match="No such compile option: 'xla_cpu_make_it_fast'"):
        get_engine("pjrt").compile(MAXIMUM, options=CompileOptions(xla={"xla_cpu_make_it_fast": True}))


def test_xla_option_with_a_wrong_value() -> None:
    with pytest.raises(EngineError, match="xla_cpu_enable_fast_math"):
        get_engine("pjrt").compile(MAXIMUM, options=CompileOptions(xla={"xla_cpu_enable_fast_math": "maybe"}))


def test_xla_options_reach_the_compiler() -> None:
    """XLA's algebraic simplifier, which can be turned off, makes √|x| · √|x| to |x|."""
    text = """func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
      %a = stablehlo.abs %x : tensor<4xf32>
      %0 = stablehlo.sqrt %a : tensor<4xf32>
      %1 = stablehlo.multiply %0, %0 : tensor<4xf32>
      return %1 : tensor<4xf32>
    }"""
    x = numpy.full(4, 2, numpy.float32)
    literal = CompileOptions(xla={"xla_disable_hlo_passes": "algsimp"})
    assert (get_engine("pjrt").compile(text)(x)[0].to_numpy() == 2).all()
    assert (get_engine("pjrt").compile(text, options=literal)(x)[0].to_numpy() != 2).all()


def test_a_default_that_this_xla_lacks_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "OPTIONS", {"xla_cpu_of_the_past": "", **cpu.OPTIONS})
    engine = PjrtEngine()
    engine.compile(MAXIMUM)
    with pytest.raises(EngineError, match="xla_cpu_of_the_past"):
        engine.compile(MAXIMUM, options=CompileOptions(xla={"xla_cpu_of_the_past": ""}))


def test_saving_memory_keeps_fewer_values() -> None:
    """A column is kept of each of several independent sorted sums; only one sum has to exist at a time."""
    square, column, sums = "tensor<256x256xf32>", "tensor<256x1xf32>", range(8)
    arguments = ", ".join(f"%y{i}: {square}" for i in sums)
    lines = "".join(
        f"""%x{i} = stablehlo.add %x, %y{i} : {square}
        %s{i} = "stablehlo.sort"(%x{i}) <{{dimension = 1 : i64}}> ({{
          ^body(%a: tensor<f32>, %b: tensor<f32>):
            %less = stablehlo.compare LT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
            stablehlo.return %less : tensor<i1>
        }}) : ({square}) -> {square}
        %c{i} = stablehlo.slice %s{i} [0:256, 0:1] : ({square}) -> {column}
        """
        for i in sums
    )
    columns, types = ", ".join(f"%c{i}" for i in sums), ", ".join(column for _ in sums)
    text = f"func.func @main(%x: {square}, {arguments}) -> ({types}) {{ {lines} return {columns} : {types} }}"
    fast = PjrtEngine().compile(text).compiled.memory["intermediate"]
    with override(save_memory=True):
        assert PjrtEngine().compile(text).compiled.memory["intermediate"] < fast / 2


def test_products_and_reductions_go_to_ynn_and_convolutions_do_not() -> None:
    """YNN is far faster for a product with a transposed weight and a sum, far slower for a convolution."""
    text = """func.func @main(%x: tensor<64x64xf32>, %w: tensor<32x64xf32>, %i: tensor<1x8x8x4xf32>,
                             %k: tensor<3x3x4x8xf32>)
        -> (tensor<64x32xf32>, tensor<64xf32>, tensor<1x6x6x8xf32>) {
      %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [1]
        : (tensor<64x64xf32>, tensor<32x64xf32>) -> tensor<64x32xf32>
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %1 = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [1]
        : (tensor<64x64xf32>, tensor<f32>) -> tensor<64xf32>
      %2 = stablehlo.convolution(%i, %k) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {}
        {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
        : (tensor<1x8x8x4xf32>, tensor<3x3x4x8xf32>) -> tensor<1x6x6x8xf32>
      return %0, %1, %2 : tensor<64x32xf32>, tensor<64xf32>, tensor<1x6x6x8xf32>
    }"""
    optimized = PjrtEngine()._compile(modules.read(text).bytecode, CompileOptions()).get_hlo_text()
    entry = optimized[optimized.index("ENTRY") :]
    library = [line for line in entry.splitlines() if "__ynn_fusion" in line]
    assert len(library) == 2
    assert not any("6,6,8" in line for line in library)


def test_nan_propagates() -> None:
    nan = float("nan")
    x, y = numpy.array([nan, 1, nan, -1], numpy.float32), numpy.array([1, nan, nan, 2], numpy.float32)
    (result,) = get_engine("pjrt").compile(MAXIMUM)(x, y)
    numpy.testing.assert_array_equal(result.to_numpy(), numpy.maximum(x, y))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_rounded_after_each_operation(dtype: torch.dtype) -> None:
    type_ = f"tensor<1000x{'bf16' if dtype is torch.bfloat16 else 'f16'}>"
    text = f"""func.func @main(%x: {type_}, %y: {type_}) -> {type_} {{
      %0 = stablehlo.multiply %x, %y : {type_}
      %1 = stablehlo.add %0, %x : {type_}
      %2 = stablehlo.multiply %1, %1 : {type_}
      %3 = stablehlo.subtract %2, %y : {type_}
      return %3 : {type_}
    }}"""
    x, y = torch.randn(1000).to(dtype), torch.randn(1000).to(dtype)
    (result,) = get_engine("pjrt").compile(text).run_torch([x, y])
    step = x * y + x
    expected = step * step - y
    if dtype is torch.float16 and "avx512_fp16" in Path("/proc/cpuinfo").read_text():
        # These processors multiply and add float16 in one instruction, which rounds once.
        wide = (x.double() * y.double() + x.double()).to(dtype).double()
        expected = (wide * wide - y.double()).to(dtype)
    assert torch.equal(result, expected)


def test_options_are_values() -> None:
    one = CompileOptions(xla={"b": 1, "a": 2}, donate=(2, 0, 2))
    other = CompileOptions(xla={"a": 2, "b": 1}, donate=(0, 2))
    assert one == other
    assert hash(one) == hash(other)
    assert one != CompileOptions(xla={"a": 2})


def test_engines_are_kept() -> None:
    assert get_engine("pjrt", "cpu") is get_engine("pjrt", "cpu")
    with override(engine="reference"):
        assert get_engine().name == "reference"
    with override(device="cpu:0"):
        assert get_engine().platform == "cpu"


def test_buffers_go_from_engine_to_engine() -> None:
    x = numpy.arange(4, dtype=numpy.float32)
    (first,) = get_engine("pjrt", "cpu").compile(MAXIMUM)(x, x)
    for other in (get_engine("pjrt", "cpu:0"), get_engine("reference")):
        assert other.import_array(first) is first
        numpy.testing.assert_array_equal(other.compile(MAXIMUM)(first, x)[0].to_numpy(), x)


@pytest.mark.parametrize(
    ("device", "message"),
    [
        ("cpu:1", "there is no device 'cpu:1'\n  next: devices of this platform: cpu:0"),
        ("cpu:x", "'cpu:x' is not a device name"),
        ("cpu:-1", "'cpu:-1' is not a device name"),
        ("abacus", "there is no platform 'abacus'"),
        ("abacus:3", "there is no platform 'abacus'"),
    ],
)
def test_unknown_devices(device: str, message: str) -> None:
    with pytest.raises(DeviceNotFound, match=re.escape(message)):
        get_engine("pjrt", device)


def test_unknown_engine() -> None:
    with pytest.raises(
        ConfigError, match="unknown engine 'steam'\n  next: engines: pjrt, reference, iree, jax"
    ):
        get_engine("steam")


def test_jax_is_left_alone() -> None:
    before = dict(jax.config.values)
    get_engine("pjrt").compile(MAXIMUM)(numpy.ones(4, numpy.float32), numpy.ones(4, numpy.float32))
    get_engine("pjrt").import_array(numpy.array([1.5])[::-1])
    assert dict(jax.config.values) == before
    assert jax.numpy.ones(2).dtype == numpy.float32
