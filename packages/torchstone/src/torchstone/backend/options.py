"""Options of one ``torch.compile(..., backend="torchstone", options={...})``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from ..compiler.pipeline import Pass, Unit
from ..config import config
from ..errors import ConfigError

_MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
"""The values that ``mode`` of ``torch.compile`` may have: Inductor's modes."""


def check_mode(mode: str | None) -> None:
    """Raise :class:`ConfigError` for a mode that ``torch.compile`` does not have."""
    if mode is not None and mode not in _MODES:
        raise ConfigError(f"mode={mode!r} is unknown", hint=f"modes: {', '.join(_MODES)}; or leave it out")


@dataclass(frozen=True)
class Options:
    """The options that a user may set per compiled function; defaults come from :mod:`torchstone.config`.

    ``fallback``: run unsupported operators in eager PyTorch between compiled
    parts (with one warning) instead of raising
    :class:`~torchstone.errors.FallbackRefused`. ``tuning``: if there are several ways to compute something,
    measure which is the fastest; eager PyTorch's own kernel is one of them if ``fallback`` is set.
    ``engine``, ``device``: where compiled parts run. ``specializations``: how many executables are kept for a
    graph with symbolic dimensions. ``check_indices``: raise
    :class:`~torchstone.errors.IndexOutOfRange` if an index is out of range.
    ``check_values``: raise :class:`~torchstone.errors.InvalidValue` if eager
    PyTorch would refuse a value. ``passes``: passes made with :func:`torchstone.graph_pass`, which change the
    graph of each compiled part before it is lowered.
    """

    fallback: bool = True
    tuning: bool = True
    engine: str = "pjrt"
    device: str = "cpu"
    specializations: int = 16
    check_indices: bool = False
    check_values: bool = False
    passes: Sequence[Pass[Unit]] = ()

    @classmethod
    def parse(cls, given: Mapping[str, Any] | None) -> Options:
        """Make options from a user's mapping; raise :class:`ConfigError` for unknown names or wrong types."""
        defaults: dict[str, Any] = {
            item.name: getattr(config, item.name, item.default) for item in fields(cls)
        }
        for name, value in (given or {}).items():
            if name not in defaults:
                raise ConfigError(
                    f"unknown option {name!r} for the torchstone backend",
                    hint=f"options: {', '.join(sorted(defaults))}",
                )
            wanted = (list, tuple) if name == "passes" else (type(defaults[name]),)
            if type(value) not in wanted:
                kinds = " or ".join(kind.__name__ for kind in wanted)
                raise ConfigError(f"option {name}={value!r} is not a {kinds}")
            defaults[name] = value
        return cls(**defaults)
