"""Fixtures of torchstone's tests."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

_DEVICE = Path(__file__).with_name("device")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Collect the device's tests only if they are named: registering it changes PyTorch for the process."""
    if collection_path != _DEVICE:
        return None
    folder = config.invocation_params.dir
    named = [(folder / argument.partition("::")[0]).resolve() for argument in config.args]
    return None if any(_DEVICE in (one, *one.parents) for one in named) else True


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """Seed PyTorch, so that every test draws the same numbers, alone or in any order."""
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def accelerator() -> str:
    """The first PJRT device other than the CPU, as in ``cuda:0``; for tests marked ``accelerator``."""
    from torchstone.config import config
    from torchstone.runtime.plugins import list_platforms

    platforms = [platform for platform in list_platforms(config.plugin) if platform.name != "cpu"]
    devices = [device for platform in platforms for device in platform.devices]
    if not devices:
        pytest.skip(
            "there is no PJRT device other than the CPU here (install a plugin or set TORCHSTONE_PLUGIN)"
        )
    return devices[0]
