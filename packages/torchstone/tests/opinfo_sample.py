"""Runs a few groups of PyTorch's operator samples, always the same ones, and checks how they end."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping

from optest.backends import CallDriver
from optest.core.case import BackendTarget
from optest.core.result import Status
from optest.torch.compiled import report_fallbacks
from optest.torch.opinfo.execution import Request, run_group
from optest.torch.opinfo.groups import DEVICE_PHASES, PHASES, Selection
from optest.torch.opinfo.planning import plan
from torchstone.parity.conformance import fallbacks

MOST = 2
"""The number of samples in a group."""
ONE_SIZE = tuple(phase for phase in PHASES if phase not in ("automatic_dynamic", *DEVICE_PHASES))
"""The phases that an artifact can answer: it is one program, and not a device."""
RIGHT = (Status.PASSED, Status.SKIPPED)
"""Statuses that are right. Calls that eager PyTorch itself refuses are skipped."""
GAPS: Mapping[tuple[str, str], tuple[Status, str]] = {}
"""By driver and group: the status of cases that do not pass, and a part of the reason."""


def assert_sample_passes(driver: CallDriver, counts: Mapping[str, int]) -> None:
    """Check that a driver passes a stratified sample of the database, of ``counts`` groups by phase."""
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
    assert not wrong, wrong
    assert passed > len(groups)
