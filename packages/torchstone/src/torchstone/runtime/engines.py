"""Finds engines by name: :mod:`.pjrt`, :mod:`.reference`, :mod:`.iree`, :mod:`.plain_jax`, or your own."""

from __future__ import annotations

import pkgutil
import threading

from ..config import config
from ..errors import ConfigError, described
from .engine import Engine

ENGINES = ("pjrt", "reference", "iree", "jax")
"""The names of Torchstone's own engines, which :func:`get_engine` takes."""

_engines: dict[tuple[str, str, str], Engine] = {}
_engines_lock = threading.Lock()


def get_engine(name: str | None = None, device: str | None = None, plugin: str | None = None) -> Engine:
    """Return the engine ``name`` on ``device``; the same arguments give the same object.

    ``name`` is ``"pjrt"``, ``"reference"``, ``"iree"``, ``"jax"`` or ``"module:factory"``. ``device``
    is a platform with an optional index (``"cpu"``, ``"cuda:1"``). ``plugin`` is the path of a PJRT C-API
    library; without ``device``, its first device is used. Arguments that are None are taken from
    :mod:`torchstone.config`. Raises
    :class:`ConfigError`, :class:`DeviceNotFound` or :class:`PluginError`.
    """
    name = config.engine if name is None else name
    if device is None:
        device = "" if plugin else config.device
    plugin = config.plugin if plugin is None else plugin
    with _engines_lock:
        key = (name, device, plugin)
        if key not in _engines:
            _engines[key] = _make_engine(name, device, plugin)
        return _engines[key]


def _make_engine(name: str, device: str, plugin: str) -> Engine:
    if name == "pjrt":
        from .pjrt import PjrtEngine

        return PjrtEngine(device, plugin)
    if name == "reference":
        from .reference import ReferenceEngine

        return ReferenceEngine()
    if name == "iree":
        from .iree import IreeEngine

        return IreeEngine()
    if name == "jax":
        from .plain_jax import JaxEngine

        return JaxEngine()
    if ":" in name:
        return _engine_of(name)
    raise ConfigError(f"unknown engine {name!r}", hint=f"engines: {', '.join(ENGINES)}, or module:factory")


def _engine_of(place: str) -> Engine:
    """Make the engine that ``place``, a text ``module:factory``, names."""
    try:
        made = pkgutil.resolve_name(place)()
    except (Exception, SystemExit) as error:  # importing a module may run anything
        raise ConfigError(
            f"engine {place!r} cannot be loaded: {type(error).__name__}: {error}",
            hint="name a class or function as module:factory, in a module that Python finds (PYTHONPATH)",
        ) from error
    if not isinstance(made, Engine):
        raise ConfigError(
            f"engine {place!r} makes {described(made)}, which is not an engine",
            hint="an engine has name, platform, compile and import_array (docs: Engines and plugins)",
        )
    return made
