"""``import torch`` registers the device if the environment asks for it, and otherwise costs nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import torchstone.device

ENTRY = "[torch.backends]\ntorchstone_device = torchstone.autoload:register_if_asked\n"


def run(code: str, folder: Path, asked: str, **variables: str) -> str:
    """Return what ``code`` prints in a process where the entry point is installed."""
    package = folder / "autoloaded-1.dist-info"
    package.mkdir(exist_ok=True)
    (package / "entry_points.txt").write_text(ENTRY)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: autoloaded\nVersion: 1\n")
    environment = os.environ | {"PYTHONPATH": str(folder), "TORCHSTONE_AUTOLOAD": asked} | variables
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_script_that_only_names_the_device(tmp_path: Path) -> None:
    run("import torch; assert torch.ones(2, device='pjrt').sum().item() == 2", tmp_path, "1")


@pytest.mark.kept("0")
@pytest.mark.parametrize("asked", ["", "0"])
def test_import_torch_is_not_slowed_where_nobody_asks_for_the_device(asked: str, tmp_path: Path) -> None:
    """Count modules, since times vary. Only what reads the setting is imported, not JAX or the compiler."""
    code = "import sys, torch; assert not hasattr(torch, 'pjrt'); print(*sorted(sys.modules), sep='\\n')"
    plain = run(code, tmp_path, asked, TORCH_DEVICE_BACKEND_AUTOLOAD="0").split()
    added = set(run(code, tmp_path, asked).split()) - set(plain)
    ours = {"torchstone", "torchstone._version", "torchstone.autoload", "torchstone.errors"}
    ours |= {f"torchstone.redirect{part}" for part in ("", ".children", ".options")}  # its own entry point
    if asked:
        ours.add("torchstone.config")
    assert "torchstone.autoload" in added
    assert {one for one in added if one.partition(".")[0] in ("torchstone", "jax", "jaxlib")} <= ours


@pytest.mark.kept("torchstone.device")
@pytest.mark.parametrize("module", ["torchstone.device", "torchstone.lowering", "torchstone.backend"])
def test_torchstone_s_own_modules_are_imported_as_ever(module: str, tmp_path: Path) -> None:
    run(f"import {module}, torchstone.device, torch; torch.ones(2, device='pjrt') + 1", tmp_path, "1")


def test_the_entry_point_is_declared(request: pytest.FixtureRequest) -> None:
    project = request.config.rootpath / "packages" / "torchstone" / "pyproject.toml"
    assert 'torchstone_device = "torchstone.autoload:register_if_asked"' in project.read_text()


def test_the_module_with_types_is_the_same() -> None:
    assert torchstone.device.pjrt is torch.pjrt
