"""What importing a package pulls in. The layers themselves are checked by import-linter (`make check`)."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Importing one of these fails in the child, as if it were not installed.
BLOCK = "import sys; sys.modules.update(dict.fromkeys({blocked!r}))\n"
LOADED = "import sys; print(*sorted({name.partition('.')[0] for name in sys.modules}))\n"


def run(code: str, *, blocked: tuple[str, ...] = ()) -> str:
    """What a fresh interpreter prints; its traceback is the assertion's message."""
    done = subprocess.run(
        [sys.executable, "-c", BLOCK.format(blocked=blocked) + code],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_import_torchstone_is_lazy() -> None:
    loaded = set(run("import torchstone\n" + LOADED).split())
    assert "torchstone" in loaded
    assert loaded.isdisjoint({"jax", "jaxlib", "sklearn", "transformers", "rich", "scipy"})


@pytest.mark.parametrize(
    "module", ["torchstone", "torchstone.artifact", "torchstone.config", "torchstone.runtime"]
)
def test_running_an_artifact_needs_no_torch(module: str) -> None:
    run(f"import {module}", blocked=("torch",))


@pytest.mark.parametrize("module", ["optest", "optest.core", "optest.core.comparator"])
def test_optest_needs_neither_torch_nor_torchstone(module: str) -> None:
    run(f"import {module}", blocked=("torch", "torchstone", "jax", "jaxlib"))


def test_a_blocked_module_is_noticed() -> None:
    with pytest.raises(AssertionError, match=r"import of \w+ halted"):
        run("import json", blocked=("json",))
