"""The shared parts of commands: how a TorchstoneError ends one, and the options that several of them take."""

from __future__ import annotations

from typing import Any

import click

from optest.console import Callback, commands_of
from optest.options import TOLERANCE

from ..errors import TorchstoneError
from .exits import code_of

_PROOF = (
    "expecttest",
    "griffe",
    "hypothesis",
    "jinja2",
    "jsonschema",
    "pydantic",
    "scipy",
    "sqlalchemy",
    "yaml",
)
"""The packages that the extra ``proof`` installs."""

command = commands_of(TorchstoneError, code_of, dict.fromkeys(_PROOF, "pip install 'torchstone[proof]'"))
"""Decorate a function to make it a command of ``torchstone``."""

MODEL = click.argument("model", metavar="MODEL")
"""``package.module:factory``, ``file.py:factory`` or a name of the zoo."""


def placed(function: Callback) -> Callback:
    """Add ``--device`` and ``--engine``, which override the settings of the same names."""
    for name, help_text in (
        ("engine", "pjrt, reference, iree or jax."),
        ("device", "cpu, cuda:1, a plugin's platform, …"),
    ):
        function = click.option(f"--{name}", help=f"{help_text}  [default: TORCHSTONE_{name.upper()}]")(
            function
        )
    return function


def precision(function: Callback) -> Callback:
    """Add ``--rtol``, ``--atol`` and ``--dtype`` for comparisons with eager PyTorch."""
    for option in (
        click.option(
            "--dtype",
            type=click.Choice(["float32", "float64", "bfloat16", "float16"]),
            default="float32",
            show_default=True,
            help="float64 converts a model; the 16-bit dtypes run it under autocast.",
        ),
        click.option("--atol", type=TOLERANCE, help="Absolute tolerance; with it float64 has no say."),
        click.option("--rtol", type=TOLERANCE, help="Relative tolerance; with it float64 has no say."),
    ):
        function = option(function)
    return function


def settings(**given: str | None) -> Any:
    """Apply the settings that options gave, inside a ``with`` block; None leaves a setting unchanged."""
    from ..config import override

    return override(**{name: value for name, value in given.items() if value is not None})
