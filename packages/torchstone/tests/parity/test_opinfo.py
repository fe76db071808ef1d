"""A stratified sample of PyTorch's operator samples: artifacts, torch.compile, the control.

``make evidence`` runs all samples. This test runs a few groups, the same ones every time: of every phase,
spread evenly over families of operators and kinds of dtypes.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from opinfo_sample import ONE_SIZE, assert_sample_passes
from optest.torch.compiled import TorchCompile
from optest.torch.device import TorchDevice
from optest.torch.opinfo.groups import PHASES
from torchstone.parity.conformance import ArtifactDriver


@pytest.mark.kept("few of the control", "few artifacts", "few of torch.compile")
@pytest.mark.parametrize(
    ("driver", "counts"),
    [
        (TorchDevice("cpu"), dict.fromkeys(PHASES, 1)),
        (TorchDevice("cpu"), dict.fromkeys(PHASES, 2)),
        (ArtifactDriver(), dict.fromkeys(ONE_SIZE, 1) | {"forward": 2, "backward": 2}),
        (ArtifactDriver(), dict.fromkeys(ONE_SIZE, 2) | {"forward": 4, "backward": 3}),
        (
            TorchCompile("torchstone"),
            {"forward": 1, "backward": 1, "out": 1, "inplace": 1, "automatic_dynamic": 3},
        ),
        (
            TorchCompile("torchstone"),
            {"forward": 3, "backward": 3, "out": 1, "inplace": 1, "automatic_dynamic": 8},
        ),
    ],
    ids=[
        "few of the control",
        "control",
        "few artifacts",
        "artifacts",
        "few of torch.compile",
        "torch.compile",
    ],
)
def test_a_stratified_sample(driver: TorchDevice | ArtifactDriver, counts: Mapping[str, int]) -> None:
    """Run ``counts`` groups of each phase."""
    assert_sample_passes(driver, counts)
