"""Properties that the redirection has over its whole scope, which is read, compared and logged once."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
import torch

from torchstone.gaps.analysis import analyze
from torchstone.gaps.answers import GapKind, Status
from torchstone.gaps.compare import compare, signature_differences
from torchstone.gaps.decisions import shipped_decisions
from torchstone.gaps.log import Log
from torchstone.gaps.providers.redirection import RedirectionProvider
from torchstone.gaps.settings import find_api
from torchstone.gaps.surface import Surface
from torchstone.redirect import Patch, patches

HERE = Path(__file__).parent
MOST_ABSENT = 0.15


@pytest.fixture(scope="module")
def log() -> Log:
    """The log, made in a process of its own: other tests register a device, which adds names to PyTorch."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(analyze, "redirect").result()


def test_no_gap_is_unexplained_and_no_decision_is_stale(log: Log) -> None:
    assert log.problems == ()


def test_the_whole_scope_was_compared(log: Log) -> None:
    apis = {name: sum(counts.values()) for name, counts in log.summary.items()}
    assert apis["torch.cuda"] == len(torch.cuda.__all__)
    assert apis["torch"] > 800
    assert apis["torch.Tensor"] > 600
    assert apis["torch.nn.functional"] > 120
    assert {"torch.nn.Module", "torch.optim", "torch.autograd", "torch.mps", "torch.distributed"} <= set(apis)
    assert sum(log.tried.values()) > 1100


def test_few_names_of_torch_cuda_are_absent_or_deliberate_each_with_its_own_note(
    surface: Surface,
) -> None:
    provider = RedirectionProvider(patches())
    answers = {name: provider.answer(surface.apis[f"torch.cuda.{name}"]) for name in torch.cuda.__all__}
    left_out = {
        name: answer.note
        for name, answer in answers.items()
        if answer.status in (Status.ABSENT, Status.DELIBERATE)
    }
    assert len(left_out) <= MOST_ABSENT * len(torch.cuda.__all__)
    assert all(left_out.values())


def test_everything_patched_has_the_original_s_signature(log: Log) -> None:
    assert [one.api for one in log.entries if one.kind is GapKind.SIGNATURE] == []
    different = {
        patch.name: found
        for patch in patches()
        if (found := signature_differences((), patch.original, patch.replacement))
    }
    assert different == {}
    assert sum(patch.replacement is not patch.original for patch in patches()) > 100


def doubtful(name: str, treatment: str, note: str, replacement: Any) -> RedirectionProvider:
    """Return a redirection with a table that has one entry."""
    original = torch.cuda.memory_allocated
    return RedirectionProvider((Patch(name, treatment, note, original, replacement),))


def test_a_table_that_is_wrong_is_found() -> None:
    api = find_api("torch.cuda.memory_allocated")

    def gaps(treatment: str, note: str, replacement: Any) -> list[tuple[str, str]]:
        found = compare(doubtful(api.name, treatment, note, replacement), [api], run=False)
        return [(gap.kind, gap.explanation) for gap in found.gaps()]

    assert gaps("wraps", "", lambda device=None: 0) == []
    assert gaps("wraps", "", lambda device=0: 0) == [("signature", "")]
    assert gaps("wraps", "", lambda: 0) == [("signature", "")]
    assert gaps("noop", "", lambda device=None: 0) == [("target limitation", "")]
    assert gaps("raises", "no such memory", lambda device=None: 0) == [
        ("target limitation", "no such memory")
    ]
    other = compare(doubtful("torch.cuda.other", "wraps", "", len), [api], run=False)
    assert [gap.kind for gap in other.gaps()] == ["unpatched"]


SETTINGS_PROGRAM = """
import json, sys
from redirect.device import register
register()
from torchstone.gaps.settings import SETTINGS, accelerator, check
assert accelerator() == "testdev", accelerator()
found = {}
for name in json.loads(sys.argv[1]):
    for setting in SETTINGS:
        try:
            check(name, setting)
        except AssertionError as error:
            found[f"{name} {setting}"] = str(error)
print(json.dumps(found))
"""
ALWAYS = (
    *("torch.zeros", "torch.Tensor.new_zeros", "torch.add", "torch.nn.modules.Linear"),
    *("torch.cuda.memory_allocated", "torch.cuda.memory_cached", "torch.cuda.max_memory_cached"),
)
"""Names to check in all settings besides the fixed gaps, so that the check always has something to do."""


def in_all_settings(names: list[str]) -> dict[str, str]:
    """Failures by name and setting, with the tests' PrivateUse1 device as the accelerator."""
    done = subprocess.run(
        [sys.executable, "-c", SETTINGS_PROGRAM, json.dumps(names)],
        capture_output=True,
        text=True,
        cwd=HERE.parent,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_fixed_gaps_stay_fixed_in_all_four_settings() -> None:
    fixed = [one for one in shipped_decisions("redirect").entries if one.status == "fixed"]
    tests = Path(__file__).parents[1]
    for one in fixed:
        file, _, test = one.test.removeprefix("packages/torchstone/tests/").partition("::")
        assert f"def {test}(" in (tests / file).read_text("utf-8"), one.test
    tried = [one.api for one in fixed if one.kind is not GapKind.UNPATCHED]
    assert in_all_settings([*ALWAYS, *tried]) == {}


HOST = "gives host memory, on any device"
NO_SPARSE = "the test device has no sparse tensors"
SAME_CODE = "the same function, which warns on one of the two devices only"
TESTDEV_DIFFERS = {
    "torch.Tensor.is_shared": "true of every device's memory, as PyTorch says of CUDA's",
    **{f"torch.Tensor.to_sparse{form}": NO_SPARSE for form in ("", "_bsc", "_bsr", "_coo", "_csc", "_csr")},
    "torch.Tensor.testdev": "a method that registering the device has made",
    "torch.choose_qparams_optimized": HOST,
    "torch.frobenius_norm": SAME_CODE,
    "torch.get_autocast_dtype": "the device's own default",
    "torch.get_device_module": "the device's own module",
    "torch.kaiser_window": "PyTorch has no kernel of it for a device without one of its own",
    "torch.nn.Module.testdev": "a method that registering the device has made",
    "torch.nn.functional.mse_loss": SAME_CODE,
    "torch.nn.functional.smooth_l1_loss": SAME_CODE,
    "torch.nuclear_norm": SAME_CODE,
    "torch.sparse_coo_tensor": NO_SPARSE,
}
"""What differs on the tests' PrivateUse1 device because of the device, not because of the redirection.

Differences that the redirection accepts on every device are left out.
"""


@pytest.mark.conformance
def test_redirected_to_another_device_nothing_else_differs() -> None:
    program = (
        "import json; from redirect.device import register; register()\n"
        "from torchstone.gaps.analysis import analyze\n"
        "log = analyze('redirect:testdev')\n"
        "print(json.dumps([one.api for one in log.entries if one.status == 'open']))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=HERE.parent, timeout=600
    )
    assert done.returncode == 0, done.stderr
    assert sorted(json.loads(done.stdout.splitlines()[-1])) == sorted(TESTDEV_DIFFERS)
