"""Every setting of Torchstone, typed and documented.

A setting comes from code (``torchstone.config.device = "cpu"``, or scoped with
:func:`override`) or from an environment variable ``TORCHSTONE_<NAME>``; code
wins, and an empty variable counts as unset. An invalid value or variable raises
:class:`ConfigError`, naming the setting, what was found and what is allowed.
"""

from __future__ import annotations

import math
import os
import sys
import tempfile
import types
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from numbers import Real
from pathlib import Path
from typing import Any, get_type_hints

from .errors import ConfigError

_PREFIX = "TORCHSTONE_"
_TRUE = frozenset({"1", "true", "yes", "on"})
_NUMBERS: dict[type, str] = {int: "a whole number", float: "a number"}
_WORDS: dict[type, str] = {**_NUMBERS, bool: "True or False", str: "a string", Path: "a path"}
_FALSE = frozenset({"0", "false", "no", "off"})


def _setting(default: Any, doc: str) -> Any:
    return field(default=default, metadata={"doc": doc})


def _default_cache_dir() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    try:
        return Path(base).expanduser() / "torchstone"
    except RuntimeError:  # the user has no home directory; the cache checks who owns this one
        return Path(tempfile.gettempdir()) / f"torchstone-cache-{os.getuid()}"


@dataclass
class Config:
    """The settings. :data:`config` is the instance that the process uses; this module exposes its attributes.

    Assigning raises :class:`ConfigError` for an unknown name or a value of the wrong type.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in _KINDS:
            raise _unknown(name)
        super().__setattr__(name, _checked(name, value))

    device: str = _setting(
        "cpu", "Where programs run: `cpu`, `cuda`, `tpu` or a plugin's platform, with an optional `:index`."
    )
    cpu_devices: int = _setting(
        0,
        "How many devices the embedded CPU has, for programs that are split over a mesh; 0: as many as "
        "`XLA_FLAGS=--xla_force_host_platform_device_count` says, else one. Read once, when the CPU engine "
        "starts.",
    )
    engine: str = _setting(
        "pjrt",
        "The engine: `pjrt`, `reference` (the StableHLO interpreter), `iree`, `jax`, or your own as "
        "`module:factory`.",
    )
    plugin: str = _setting("", "Path of a PJRT C-API library to load; its platform becomes a device.")
    cache: bool = _setting(True, "Keep compiled executables on disk and read them back.")
    cache_dir: Path = field(
        default_factory=_default_cache_dir,
        metadata={"doc": "Directory of the compilation cache; used only if this user alone can write to it."},
    )
    cache_max_bytes: int = _setting(2 << 30, "Size bound of the compilation cache on disk, in bytes.")
    memory_cache_entries: int = _setting(256, "Executables kept in memory by one engine.")
    trace_implementations: bool = _setting(
        True,
        "In exports, trace through custom operators without a lowering where their Python code allows it.",
    )
    fallback: bool = _setting(
        True, "Let `torch.compile` run unsupported operators in eager PyTorch (with one warning)."
    )
    tuning: bool = _setting(
        True,
        "Let `torch.compile` and `compile_step` measure once which way to compute is the fastest, and "
        "remember it in the compilation cache. So far, on the CPU: whole functions (`torch.compile` alone) "
        "and layers of LSTMs, compiled or in eager PyTorch.",
    )
    tuning_budget_s: float = _setting(
        5.0, "Seconds after which measuring for one choice ends; 0 measures nothing and compiles everything."
    )
    check_indices: bool = _setting(
        False,
        "Let programs that are exported or compiled from now on report an index that is out of range "
        "instead of reading the nearest element or writing nothing.",
    )
    check_values: bool = _setting(
        False,
        "Let programs that are exported or compiled from now on report values that eager PyTorch refuses "
        "(an integer divided by zero, a singular matrix, a negative weight) instead of computing on.",
    )
    specializations: int = _setting(
        16, "Shapes for which one compiled graph with symbolic dimensions keeps executables."
    )
    keep_memory: bool = _setting(
        True,
        "Let the C library keep up to 1 GiB of freed memory for the next call of a program on the CPU, and "
        "all of it while a program exists that allocates more in a call. "
        "Read once, when the CPU engine starts; holds for the whole process.",
    )
    save_memory: bool = _setting(
        False,
        "Compile programs for the CPU so that few of their values are in memory at once; fewer operations "
        "then run side by side.",
    )
    pause_openmp: bool = _setting(
        True,
        "End PyTorch's waiting OpenMP threads before a program of a millisecond or more runs on the CPU. "
        "They would keep cores from it; PyTorch's next parallel operator starts them again.",
    )
    redirect: str = _setting(
        "auto",
        "Where redirected CUDA code runs if its target is `auto`: a device, `auto` (an accelerator that is "
        "here, else `cpu`), or `off`, which turns every redirection off.",
    )
    autoload: bool = _setting(
        False,
        "Register the device `pjrt` whenever PyTorch is imported, as `import torchstone.device` does. "
        "Read from the environment.",
    )
    device_fallback: str = _setting(
        "warn",
        "What the device `pjrt` does with an operator that it has no program for: `warn` (once per operator) "
        "and compute it on the CPU, do so `silent`ly, or raise an `error`.",
    )
    device_memory_limit: int = _setting(
        0,
        "Bytes that storages of the device `pjrt` may hold together, 0 for no limit; what would exceed it "
        "raises `torch.OutOfMemoryError` and changes nothing.",
    )
    device_plans: int = _setting(
        8192, "Operator calls (by dtypes, shapes and strides) whose programs the device `pjrt` keeps."
    )
    device_lazy: bool = _setting(
        False,
        "Let calls on the device `pjrt` accumulate and run as one program where values are needed, as inside "
        "`torch.pjrt.lazy()`.",
    )
    device_lazy_calls: int = _setting(
        2048, "How many calls on the device `pjrt` accumulate at most before they run as one program."
    )
    device_regions: int = _setting(
        256, "Sequences of accumulated calls whose programs the device `pjrt` keeps."
    )
    worker_timeout_s: float = _setting(
        120.0, "Seconds that a run by the reference engine, or a compilation by IREE, may take."
    )


def _parse(name: str, kind: type, text: str) -> Any:
    variable = _PREFIX + name.upper()
    if kind is bool:
        lowered = text.strip().lower()
        if lowered in _TRUE | _FALSE:
            return lowered in _TRUE
        raise ConfigError(f"{variable}={text!r} is not a boolean", hint="use 1 or 0")
    if kind in (int, float):
        try:
            value = kind(text)
        except ValueError:
            raise ConfigError(f"{variable}={text!r} is not a number", hint=f"give {_NUMBERS[kind]}") from None
        _check_bounds(f"{variable}={text!r}", value)
        return value
    if kind is Path:
        try:
            return Path(text).expanduser()
        except RuntimeError:
            raise ConfigError(
                f"{variable}={text!r} begins with a user who has no home", hint="give the whole path"
            ) from None
    return text


def _checked(name: str, value: Any) -> Any:
    """Return ``value`` in the type of the setting ``name``: a path may be a string, seconds an integer."""
    kind = _KINDS[name]
    if kind is Path and isinstance(value, str):
        return _parse(name, kind, value)
    if kind in _NUMBERS and isinstance(value, Real) and not isinstance(value, bool):
        _check_bounds(f"{name} = {value!r}", float(value))
        if kind(value) == value:
            return kind(value)
    if not isinstance(value, kind) or kind in _NUMBERS:
        raise ConfigError(f"{name} = {value!r} is not {_WORDS[kind]}", hint=f"give {_WORDS[kind]}")
    return value


def _check_bounds(what: str, value: float) -> None:
    if not math.isfinite(value):
        raise ConfigError(f"{what} is not finite", hint="give a finite number")
    if value < 0:
        raise ConfigError(f"{what} is negative", hint="give a number ≥ 0")


_KINDS: dict[str, type] = get_type_hints(Config)


def load_from_environment() -> Config:
    """Return the :class:`Config` of the ``TORCHSTONE_*`` variables; raises :class:`ConfigError`."""
    found = {
        name: _parse(name, kind, given)
        for name, kind in _KINDS.items()
        if (given := os.environ.get(_PREFIX + name.upper()))
    }
    return Config(**found)


def describe() -> list[tuple[str, str, str, str]]:
    """Return ``(setting, variable, current value, documentation)`` for every setting, in order."""
    return [
        (item.name, _PREFIX + item.name.upper(), str(getattr(config, item.name)), item.metadata["doc"])
        for item in fields(Config)
    ]


@contextmanager
def override(**settings: Any) -> Iterator[Config]:
    """Change settings inside a ``with`` block; a wrong name or value raises :class:`ConfigError`."""
    unknown = sorted(set(settings) - set(_KINDS))
    if unknown:
        raise _unknown(*unknown)
    before = {name: getattr(config, name) for name in settings}
    try:
        for name, value in settings.items():
            setattr(config, name, value)
        yield config
    finally:
        for name, value in before.items():
            setattr(config, name, value)


def _unknown(*names: str) -> ConfigError:
    return ConfigError(f"unknown setting(s): {', '.join(names)}", hint=f"settings: {', '.join(_KINDS)}")


config = load_from_environment()


def __getattr__(name: str) -> Any:
    if name in _KINDS:
        return getattr(config, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class _Module(types.ModuleType):
    """The class of this module: assigning to an attribute sets that setting, or raises if it is unknown."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _KINDS:
            setattr(config, name, value)
        elif name in vars(self) or name.startswith("__"):
            super().__setattr__(name, value)
        else:
            raise _unknown(name)


sys.modules[__name__].__class__ = _Module
