"""Kernels, operators, FLOPs and bytes, read from optimized HLO."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import torchstone
from torchstone.profiling.attribution import Origin
from torchstone.profiling.optimized import kernels

TEXT = """\
HloModule inference, is_scheduled=true

%fused_computation (param_0: f32[8,16], param_1: f32[4,16]) -> f32[8,4] {
  %param_0 = f32[8,16]{1,0} parameter(0)
  %param_1 = f32[4,16]{1,0} parameter(1)
  ROOT %addmm.0 = f32[8,4]{1,0} dot(%param_0, %param_1), lhs_contracting_dims={1}, \
rhs_contracting_dims={1}, metadata={op_name="fc/aten.addmm.default/addmm" stack_frame_id=5}
}

%fused_computation.1 (param_0.1: f32[8,4], param_1.1: f32[4]) -> f32[8,4] {
  %param_0.1 = f32[8,4]{1,0} parameter(0)
  %param_1.1 = f32[4]{0} parameter(1)
  %b = f32[8,4]{1,0} broadcast(%param_1.1), dimensions={1}, metadata={op_name="fc/aten.addmm.default/addmm"}
  %a = f32[8,4]{1,0} add(%param_0.1, %b), metadata={op_name="fc/aten.addmm.default/addmm"}
  ROOT %t = f32[8,4]{1,0} tanh(%a), metadata={op_name="act/aten.tanh.default/tanh"}
}

%body (p: (s32[], f32[8,4])) -> (s32[], f32[8,4]) {
  %p = (s32[], f32[8,4]{1,0}) parameter(0)
  %g = f32[8,4]{1,0} get-tuple-element(%p), index=1
  %n = f32[8,4]{1,0} negate(%g), metadata={op_name="/aten.neg.default/neg"}
  %i = s32[] get-tuple-element(%p), index=0
  ROOT %r = (s32[], f32[8,4]{1,0}) tuple(%i, %n)
}

ENTRY %main.6 (Arg_0.1: f32[8,16], Arg_1.1: f32[4,16], Arg_2.1: f32[4]) -> f32[8,4] {
  %Arg_0.1 = f32[8,16]{1,0} parameter(0)
  %Arg_1.1 = f32[4,16]{1,0} parameter(1)
  %Arg_2.1 = f32[4]{0} parameter(2)
  %ynn_fusion = f32[8,4]{1,0} fusion(%Arg_0.1, %Arg_1.1), kind=kCustom, calls=%fused_computation
  %add_tanh_fusion = f32[8,4]{1,0} fusion(%ynn_fusion, %Arg_2.1), kind=kLoop, calls=%fused_computation.1
  %zero = s32[] constant(0)
  %state = (s32[], f32[8,4]{1,0}) tuple(%zero, %add_tanh_fusion)
  %while.1 = (s32[], f32[8,4]{1,0}) while(%state), condition=%condition, body=%body
  ROOT %copy.1 = f32[8,4]{1,0} copy(%while.1)
}
"""


def test_kernels_are_what_the_engine_runs() -> None:
    found = kernels(TEXT)
    assert set(found) == {"ynn_fusion", "add_tanh_fusion", "n", "while.1", "copy.1"}
    assert [name for name, kernel in found.items() if kernel.nests] == ["while.1"]


def test_a_fusion_is_divided_among_its_operators() -> None:
    found = kernels(TEXT)["add_tanh_fusion"]
    shares = {Origin.of(part.origin).operator: (part.flops, part.weight) for part in found.parts}
    # addmm: a broadcast of 32 elements, and an addition with 32 elements and 32 operations; tanh: 32 and 32.
    assert shares == {"aten.addmm.default": (32, 96), "aten.tanh.default": (32, 64)}
    assert found.bytes == 4 * (32 + 32 + 4)


def test_products_count_two_operations_per_pair() -> None:
    found = kernels(TEXT)["ynn_fusion"]
    assert found.flops == 2 * 8 * 16 * 4
    assert found.bytes == 4 * (8 * 16 + 4 * 16 + 8 * 4)


@pytest.mark.parametrize(
    ("location", "origin"),
    [
        ("a.0.b/aten.mm.default/mm_1", Origin("a.0.b", "aten.mm.default", "mm_1")),
        ("/aten.mm.default/mm_1", Origin("", "aten.mm.default", "mm_1")),
        ("torchstone.softmax", Origin("", "torchstone.softmax", "")),
        ("", Origin("", "(engine)", "")),
    ],
)
def test_locations_name_module_operator_and_node(location: str, origin: Origin) -> None:
    assert Origin.of(location) == origin


LINEAR = torch.nn.Linear(24, 12)
CASES: dict[str, tuple[Any, tuple[int, ...]]] = {
    "linear": (LINEAR, (5, 24)),
    "convolution": (torch.nn.Conv2d(3, 8, 3, padding=1), (2, 3, 10, 10)),
    "strided convolution in groups": (torch.nn.Conv2d(4, 8, 3, stride=2, groups=2), (2, 4, 11, 11)),
    "one dimension": (torch.nn.Conv1d(3, 6, 5, dilation=2), (2, 3, 40)),
}


@pytest.mark.parametrize("name", CASES)
def test_operations_of_products_are_those_of_pytorchs_counter(name: str) -> None:
    module, shape = CASES[name]
    program = torchstone.export(module, (torch.randn(shape),))
    with torchstone.profile() as profile:
        program(torch.randn(shape))
    with FlopCounterMode(display=False) as counter:
        out = module(torch.randn(shape))
    (operator,) = (one for one in profile.to_dict()["operators"] if one["flops"])
    assert operator["flops"] == counter.get_total_flops() + out.numel()  # out.numel() operations add the bias
