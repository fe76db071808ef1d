"""What all test trees share: system tools, private caches, one thread per worker, Hypothesis settings."""

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

# Tests keep away from the user's own compilation cache, and so do their child processes.
_scratch = tempfile.TemporaryDirectory(prefix="torchstone-tests-")
os.environ["TORCHSTONE_CACHE_DIR"] = _scratch.name
# Which of several ways to compute runs does not depend on how busy the machine is.
os.environ["TORCHSTONE_TUNING"] = "0"

# Workers share the cores; set before torch or NumPy is imported.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# Imports make hundreds of thousands of objects that live as long as the process: none is looked at again.
gc.disable()

# A loaded machine is not a failure, and a failure must come back when it is looked for.
hypothesis.settings.register_profile("house", deadline=None, derandomize=True)
hypothesis.settings.load_profile("house")


_SERVER_TOOLS = Path("/usr/lib/postgresql")
"""Where Debian keeps the tools of database servers: not on the PATH."""


@pytest.fixture(scope="session")
def require_tool() -> Callable[[str], str]:
    """``require_tool("gcc")`` is the path of a system tool.

    Where it is missing the test is skipped, with the reason; with ``CI=true`` it fails, because
    there ``make system-deps`` has run.
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

    Python writes no bytecode inside: before 3.13 it keeps a module's file that was cut off, and every
    later import of that module fails with an ``EOFError``.
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


# A run that goes on where it stopped: `--journal FILE` leaves out the tests that FILE says have passed.

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
    """Every xdist worker leaves out the same tests."""
    node.workerinput["passed"] = sorted(node.config.stash[_passed])


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    by_name = config.getoption("keyword") or any("::" in word for word in config.args)
    if not by_name:  # whoever names a test wants all of its cases
        leave_the_rest_to_conformance(items)  # before `-m` looks at the markers
    passed = config.stash[_passed]
    done = [item for item in items if item.nodeid in passed]
    if done:
        items[:] = [item for item in items if item.nodeid not in passed]
        config.hook.pytest_deselected(items=done)


def pytest_collection_finish() -> None:
    """From here on the garbage collector looks at what tests make, and less often than by default."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)
    gc.enable()


_ended = itertools.count(1)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Drop what Dynamo compiled before the memory mappings run out: it keeps functions that no test holds."""
    if next(_ended) % 50 == 0 and "torch" in sys.modules and _mappings() > 20_000:
        sys.modules["torch"].compiler.reset()
        gc.collect()


def _mappings() -> int:
    """How many memory mappings this process has; Linux allows 65,530."""
    return Path("/proc/self/maps").read_bytes().count(b"\n")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    report = yield
    journal = item.config.getoption("--journal")
    if journal is not None and report.when == "call" and report.passed:
        with open(journal, "a") as file:  # one short line: appended whole, also by several workers
            file.write(item.nodeid + "\n")
    return report


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Nothing left to run is a success."""
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and session.config.stash[_passed]:
        session.exitstatus = pytest.ExitCode.OK


def _open_journal(path: Path, root: Path) -> frozenset[str]:
    """The tests that passed with this very code; a journal of other code is begun anew."""
    digest = hashlib.sha256()
    for source in sorted((root / "packages").rglob("*.py")):
        digest.update(source.relative_to(root).as_posix().encode() + source.read_bytes())
    head = f"# {digest.hexdigest()}"
    lines = path.read_text().splitlines() if path.exists() else []
    if lines[:1] == [head]:
        return frozenset(lines[1:])
    path.write_text(head + "\n")
    return frozenset()
