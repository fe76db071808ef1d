"""A stratified sample of PyTorch's operator samples: artifacts, torch.compile, the eager device, the control.

Everything is run by ``make evidence``; here are the same few groups every time, of every phase
and evenly from families of operators and kinds of dtypes.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping

import pytest

from optest.core.case import BackendTarget
from optest.core.result import Status
from optest.torch.compiled import TorchCompile, report_fallbacks
from optest.torch.device import TorchDevice
from optest.torch.opinfo.execution import Request, run_group
from optest.torch.opinfo.groups import PHASES, Selection
from optest.torch.opinfo.planning import plan
from torchstone.parity.conformance import ArtifactDriver, PjrtDevice, fallbacks

MOST = 2
"""Samples of a group."""
ONE_SIZE = tuple(phase for phase in PHASES if phase != "automatic_dynamic")
"""What an artifact can be asked for: it is one program."""
RIGHT = (Status.PASSED, Status.SKIPPED)
"""What eager PyTorch refuses itself is skipped."""
GAPS: Mapping[tuple[str, str], tuple[Status, str]] = {}
"""By driver and group: how its cases end that are not right, and what the reason has in it."""


@pytest.mark.parametrize(
    ("driver", "counts"),
    [
        (TorchDevice("cpu"), dict.fromkeys(PHASES, 2)),
        (ArtifactDriver(), dict.fromkeys(ONE_SIZE, 2) | {"forward": 4, "backward": 3}),
        (
            TorchCompile("torchstone"),
            {"forward": 3, "backward": 3, "out": 1, "inplace": 1, "automatic_dynamic": 8},
        ),
        (PjrtDevice(), {"forward": 4, "backward": 3, "out": 2, "inplace": 2, "noncontiguous": 2}),
    ],
    ids=["control", "artifacts", "torch.compile", "device"],
)
def test_a_stratified_sample(driver: TorchDevice | ArtifactDriver, counts: Mapping[str, int]) -> None:
    """``counts``: groups by phase."""
    report_fallbacks("torchstone", fallbacks)
    driver.setup()
    groups = [
        group
        for phase, count in counts.items()
        for group in plan(Selection("opinfo", phases=(phase,), stratify=count))
    ]
    assert Counter(group.phase for group in groups) == counts
    wrong = {}
    passed = 0
    for group in groups:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            request = Request(group, BackendTarget(driver.kind, driver.name), most=MOST)
            results = run_group(driver, request).results
        passed += sum(one.status is Status.PASSED for one in results)
        left = [one for one in results if one.status not in RIGHT]
        status, reason = GAPS.get((driver.name, str(group)), (None, ""))
        as_declared = all(one.status is status and reason in one.reason for one in left)
        if not as_declared or (status is not None and not left):
            wrong[str(group)] = [(one.status.value, one.reason, one.rerun) for one in results]
    assert not wrong
    assert passed > len(groups)
