"""A way to call the command, and models and an artifact to call it with."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

MODELS = """\
import torch

class Unsupported(torch.nn.Module):
    def forward(self, x):
        return torch.ops.torchstone_cli_tests.mystery(x) + 1

@torch.library.custom_op("torchstone_cli_tests::mystery", mutates_args=())
def mystery(x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(x.numpy().copy())  # cannot be traced through

mystery.register_fake(torch.empty_like)

def small():
    return torch.nn.Linear(3, 2), (torch.randn(4, 3),)

def keywords():
    return lambda x, *, scale: x * scale, (torch.ones(2),), {"scale": torch.full((2,), 3.0)}

def unsupported():
    return Unsupported(), (torch.randn(3),)

def fails():
    raise ValueError("the checkpoint is gone")

def bare():
    return torch.nn.Linear(3, 2)

def no_tuple():
    return torch.nn.Linear(3, 2), torch.randn(4, 3)

number = 3
"""


@dataclass(frozen=True)
class Done:
    """The outcome of a call of the command."""

    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        return json.loads(self.stdout)


@pytest.fixture(scope="session")
def torchstone() -> Callable[..., Done]:
    """``torchstone("run", path, "--json")`` in this process."""

    # Not at module level: conftest files are imported before the tests' own cache directory is set.
    from torchstone.cli.main import cli

    def call(*arguments: object) -> Done:
        result = CliRunner().invoke(cli, [str(argument) for argument in arguments])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Done(result.exit_code, result.stdout, result.stderr)

    return call


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with factories, good and bad."""
    path = tmp_path_factory.mktemp("models") / "some_models.py"
    path.write_text(MODELS)
    return path


@pytest.fixture(scope="session")
def artifact(torchstone: Callable[..., Done], models: Path) -> Path:
    """The artifact of a small linear layer: float32 [4, 3] → [4, 2]."""
    path = models.with_name("small.stone")
    done = torchstone("export", f"{models}:small", "-o", path)
    assert done.code == 0, done.stderr
    return path
