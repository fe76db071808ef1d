"""Settings and fixtures for all test trees: system tools, private caches, threads, Hypothesis, journals."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import itertools
import os
import resource
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from stratified import leave_the_rest_to_conformance

# Tests and their child processes do not touch the user's own compilation cache.
_scratch = tempfile.TemporaryDirectory(prefix="torchstone-tests-")
os.environ["TORCHSTONE_CACHE_DIR"] = _scratch.name
# Without tuning, the choice between several ways to compute does not depend on how busy the machine is.
os.environ["TORCHSTONE_TUNING"] = "0"

# Workers share the cores; set before torch or NumPy is imported.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# Imports make hundreds of thousands of objects that live as long as the process. The garbage collector is
# off until collection has finished, and never scans them again.
gc.disable()

# A slow machine must not cause a failure (no deadline), and a failure must be reproducible (derandomize).
hypothesis.settings.register_profile("house", deadline=None, derandomize=True)
hypothesis.settings.load_profile("house")


_SERVER_TOOLS = Path("/usr/lib/postgresql")
"""Where Debian installs the tools of database servers. It is not on the PATH."""


@pytest.fixture(scope="session")
def require_tool() -> Callable[[str], str]:
    """``require_tool("gcc")`` returns the path of a system tool.

    If the tool is missing, the test is skipped and says why. With ``CI=true`` the test fails, because
    ``make system-deps`` has run there.
    """

    def find(name: str) -> str:
        path = shutil.which(name) or next(_SERVER_TOOLS.glob(f"*/bin/{name}"), None)
        if path is not None:
            return str(path)
        reason = f"{name} is not installed (make system-deps installs it)"
        if os.environ.get("CI", "").lower() in {"1", "true"}:
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)

    return find


@pytest.fixture
def largest_file() -> Callable[[int], contextlib.AbstractContextManager[None]]:
    """``with largest_file(100):`` lets no file of this process grow over 100 bytes, as on a full disk.

    Inside the block, Python writes no bytecode. Before 3.13 it would keep a truncated bytecode file, and
    every later import of that module would fail with an ``EOFError``.
    """

    @contextlib.contextmanager
    def bounded(size: int) -> Iterator[None]:
        before, bytecode = resource.getrlimit(resource.RLIMIT_FSIZE), sys.dont_write_bytecode
        sys.dont_write_bytecode = True
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
            sys.dont_write_bytecode = bytecode

    return bounded


# `--journal FILE` resumes a test run: it leaves out the tests that have passed according to FILE.

_passed = pytest.StashKey[frozenset[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--journal",
        type=Path,
        help="note passed tests in this file and leave them out next time, until the code changes",
    )


def pytest_configure(config: pytest.Config) -> None:
    worker = getattr(config, "workerinput", None)
    if worker is not None:
        config.stash[_passed] = frozenset(worker["passed"])
        return
    journal = config.getoption("--journal")
    config.stash[_passed] = frozenset() if journal is None else _open_journal(journal, config.rootpath)


@pytest.hookimpl(optionalhook=True)  # xdist's
def pytest_configure_node(node: Any) -> None:
    """Send the tests to leave out to each xdist worker, so that all collect the same tests."""
    node.workerinput["passed"] = sorted(node.config.stash[_passed])


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    by_name = config.getoption("keyword") or any("::" in word for word in config.args)
    if not by_name:  # a test that is named runs with all of its cases
        leave_the_rest_to_conformance(items)  # before `-m` looks at the markers
    passed = config.stash[_passed]
    done = [item for item in items if item.nodeid in passed]
    if done:
        items[:] = [item for item in items if item.nodeid not in passed]
        config.hook.pytest_deselected(items=done)


def pytest_collection_finish() -> None:
    """Enable the garbage collector for objects that tests make; it runs less often than by default."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)
    gc.enable()


_ended = itertools.count(1)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Drop what Dynamo compiled before the process runs out of memory mappings.

    Dynamo keeps compiled functions that no test holds any more.
    """
    if next(_ended) % 50 == 0 and "torch" in sys.modules and _mappings() > 20_000:
        sys.modules["torch"].compiler.reset()
        gc.collect()


def _mappings() -> int:
    """Return how many memory mappings this process has. Linux allows 65,530."""
    return Path("/proc/self/maps").read_bytes().count(b"\n")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    report = yield
    journal = item.config.getoption("--journal")
    if journal is not None and report.when == "call" and report.passed:
        with open(journal, "a") as file:  # one short line: several workers can append at once
            file.write(item.nodeid + "\n")
    return report


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Report success if no tests were left to run because all have passed earlier."""
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and session.config.stash[_passed]:
        session.exitstatus = pytest.ExitCode.OK


def _open_journal(path: Path, root: Path) -> frozenset[str]:
    """Return the tests that passed with the current packages. Start a new journal if their code changed."""
    digest = hashlib.sha256()
    for source in sorted((root / "packages").rglob("*.py")):
        digest.update(source.relative_to(root).as_posix().encode() + source.read_bytes())
    head = f"# {digest.hexdigest()}"
    lines = path.read_text().splitlines() if path.exists() else []
    if lines[:1] == [head]:
        return frozenset(lines[1:])
    path.write_text(head + "\n")
    return frozenset()
