"""Options of one ``torch.compile(..., backend="torchstone", options={...})``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from ..compiler.pipeline import Pass, Unit
from ..config import config
from ..errors import ConfigError

_MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
"""What ``mode`` of ``torch.compile`` may be: Inductor's modes."""


def check_mode(mode: str | None) -> None:
    """Raise :class:`ConfigError` for a mode that ``torch.compile`` does not have."""
    if mode is not None and mode not in _MODES:
        raise ConfigError(f"mode={mode!r} is unknown", hint=f"modes: {', '.join(_MODES)}; or leave it out")


@dataclass(frozen=True)
class Options:
    """What a user may set per compiled function; defaults come from :mod:`torchstone.config`.

    ``fallback``: run unsupported operators in eager PyTorch between compiled
    parts (with one warning) instead of raising
    :class:`~torchstone.errors.FallbackRefused`. ``tuning``: measure which way to compute is the fastest
    where there are several, eager PyTorch's own kernel among them if ``fallback`` is set. ``engine``,
    ``device``: where compiled parts run. ``specializations``: executables kept per graph with
    symbolic dimensions. ``check_indices``: raise
    :class:`~torchstone.errors.IndexOutOfRange` where an index is out of range.
    ``check_values``: raise :class:`~torchstone.errors.InvalidValue` where eager
    PyTorch refuses a value. ``passes``, made with :func:`torchstone.graph_pass`, change the graph of
    each compiled part before it is lowered.
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
        """Options from a user's mapping; raises :class:`ConfigError` for unknown names and wrong types."""
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
