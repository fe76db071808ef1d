"""Names that take a device but that the gap analysis cannot try: each is called for CUDA, redirected."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gaps.device_calls import CALLS
from torchstone.gaps.answers import GapKind
from torchstone.gaps.decisions import shipped_decisions

HERE = Path(__file__).parent
TEST = f"packages/torchstone/tests/gaps/{Path(__file__).name}::test_it_goes_to_the_target"

WITHOUT_GROUP_NAMES = (
    "the stand-in process group of a device that no backend serves has no name for a mesh to use"
)
FAILS = {
    "testdev": {
        "torch.distributed.DeviceMesh": ("RuntimeError", WITHOUT_GROUP_NAMES),
        "torch.distributed.DeviceMesh.from_group": ("RuntimeError", WITHOUT_GROUP_NAMES),
        "torch.distributed.init_device_mesh": ("RuntimeError", WITHOUT_GROUP_NAMES),
        "torch.empty_quantized": ("NotImplementedError", "the test device has no quantized tensors"),
    }
}
"""The calls that a target does not support: the exception that each ends with, and the reason."""


@pytest.mark.kept("testdev")
@pytest.mark.parametrize("target", ["cpu", "testdev"])
def test_it_goes_to_the_target(target: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gaps.device_calls", target],
        capture_output=True,
        text=True,
        cwd=HERE.parent,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    shown = "cuda" if target == "cpu" else target  # on the CPU, tensors report a recorded device
    errors = {name: error for name, (error, _) in FAILS.get(target, {}).items()}
    expected = dict.fromkeys(CALLS, shown) | errors
    assert json.loads(done.stdout.splitlines()[-1]) == expected


def test_a_decision_that_rests_on_a_call_has_one() -> None:
    decided = {one.api for one in shipped_decisions("redirect").entries if one.test == TEST}
    assert len(decided) > 20
    assert decided <= set(CALLS)
    kinds = {one.kind for one in shipped_decisions("redirect").entries if one.test == TEST}
    assert kinds == {GapKind.UNPATCHED}
