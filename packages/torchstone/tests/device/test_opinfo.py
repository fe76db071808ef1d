"""A stratified sample of PyTorch's operator samples on the device, computed there and nowhere else."""

from __future__ import annotations

import torch

from opinfo_sample import assert_sample_passes
from optest.torch.opinfo.calls import Call
from optest.torch.opinfo.groups import DEVICE_PHASES
from torchstone.parity.conformance import PjrtDevice


def test_a_stratified_sample() -> None:
    groups = {"forward": 4, "backward": 3, "out": 2, "inplace": 2, "noncontiguous": 2}
    groups |= dict.fromkeys(DEVICE_PHASES, 2)
    assert_sample_passes(PjrtDevice(), groups)


def test_a_result_on_the_cpu_is_a_fallback_unless_the_call_names_the_cpu() -> None:
    named = [
        Call(lambda x: [x.to("cpu")], (torch.ones(2),)),
        Call(lambda x: [torch.empty_like(x, device=torch.device("cpu"))], (torch.ones(2),)),
    ]
    other = Call(lambda x: [x.cpu()], (torch.ones(2),))
    assert [one.fallback for one in PjrtDevice().answer([*named, other])] == [(), (), ("cpu",)]
