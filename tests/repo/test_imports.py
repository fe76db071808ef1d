"""Checks which modules an import loads. import-linter checks the layers themselves (`make check`)."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

LOWERING = Path(__file__).parents[2] / "packages/torchstone/src/torchstone/lowering"
GRAPHS = ("torch.fx", "torch.export", "torch.library.register", "torch.library.custom_op", "decomposes")
"""Names that capture, trace, or define how PyTorch runs an operator. A `Library` declares own operators."""

# Importing a blocked module fails in the child process, as if it were not installed.
BLOCK = "import sys; sys.modules.update(dict.fromkeys({blocked!r}))\n"
LOADED = "import sys; print(*sorted({name.partition('.')[0] for name in sys.modules}))\n"


def run(code: str, *, blocked: tuple[str, ...] = ()) -> str:
    """Run code in a fresh interpreter and return what it prints. If it fails, show its traceback."""
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
    "module",
    ["torchstone", "torchstone.artifact", "torchstone.config", "torchstone.generation", "torchstone.runtime"],
)
def test_running_an_artifact_needs_no_torch(module: str) -> None:
    run(f"import {module}", blocked=("torch",))


@pytest.mark.parametrize("module", ["optest", "optest.core", "optest.core.comparator"])
def test_optest_needs_neither_torch_nor_torchstone(module: str) -> None:
    run(f"import {module}", blocked=("torch", "torchstone", "jax", "jaxlib"))


def test_a_blocked_module_is_noticed() -> None:
    with pytest.raises(AssertionError, match=r"import of \w+ halted"):
        run("import json", blocked=("json",))


def names_used(tree: ast.Module) -> Iterator[str]:
    """Dotted names that a module imports or reads."""
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str(module), names=names, level=0):
                yield from (f"{module}.{one.name}" for one in names)
            case ast.Import(names=names):
                yield from (one.name for one in names)
            case ast.Attribute():
                yield ast.unparse(node)
            case ast.Call(func=ast.Name(id=name)):
                yield name


def test_lowerings_neither_capture_nor_trace() -> None:
    """The import contract keeps `torch_internals` apart; these are PyTorch's public names."""
    found = [
        f"{path.relative_to(LOWERING)}: {name}"
        for path in sorted(LOWERING.rglob("*.py"))
        for name in names_used(ast.parse(path.read_text("utf-8")))
        if name.startswith(GRAPHS)
    ]
    assert found == []


def test_a_lowering_that_traces_is_noticed() -> None:
    source = (
        "import torch.fx\n"
        "from torch.export import export\n"
        "torch.library.register_fake('x')\n"
        "@decomposes(x)\ndef f(): hlo.add"
    )
    assert {name for name in names_used(ast.parse(source)) if name.startswith(GRAPHS)} == {
        "torch.fx",
        "torch.export.export",
        "torch.library.register_fake",
        "decomposes",
    }
