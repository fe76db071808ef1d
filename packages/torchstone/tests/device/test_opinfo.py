"""A stratified sample of PyTorch's operator samples on the device, computed there and nowhere else."""

from __future__ import annotations

from opinfo_sample import assert_sample_passes
from optest.torch.opinfo.groups import DEVICE_PHASES
from torchstone.parity.conformance import PjrtDevice


def test_a_stratified_sample() -> None:
    groups = {"forward": 4, "backward": 3, "out": 2, "inplace": 2, "noncontiguous": 2}
    groups |= dict.fromkeys(DEVICE_PHASES, 2)
    assert_sample_passes(PjrtDevice(), groups)
