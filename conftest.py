"""What all test trees share: system tools, private caches, one thread per worker, Hypothesis settings."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable

import hypothesis
import pytest

# Tests keep away from the user's own compilation cache, and so do their child processes.
_scratch = tempfile.TemporaryDirectory(prefix="torchstone-tests-")
os.environ["TORCHSTONE_CACHE_DIR"] = _scratch.name

# Workers share the cores; set before torch or NumPy is imported.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# A loaded machine is no failure, and a failure must come back when it is looked for.
hypothesis.settings.register_profile("house", deadline=None, derandomize=True)
hypothesis.settings.load_profile("house")


@pytest.fixture(scope="session")
def require_tool() -> Callable[[str], str]:
    """``require_tool("gcc")`` is the path of a system tool.

    Where it is missing the test is skipped, with the reason; with ``CI=true`` it fails, because
    there ``make system-deps`` has run.
    """

    def find(name: str) -> str:
        path = shutil.which(name)
        if path is not None:
            return path
        reason = f"{name} is not installed (make system-deps installs it)"
        if os.environ.get("CI", "").lower() in {"1", "true"}:
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)

    return find
