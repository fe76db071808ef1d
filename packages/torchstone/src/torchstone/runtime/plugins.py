"""Finds and opens devices: the embedded CPU, installed PJRT plugins, and plugin libraries given by path.

Installed plugins (the ``jax_plugins`` namespace and entry points, and
``PJRT_NAMES_AND_LIBRARY_PATHS``) are opened through JAX, and share JAX's client:
two clients would compete for one accelerator's memory. Clients are kept for the
life of the process, because a PJRT client cannot be unloaded.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..config import config
from ..errors import DeviceNotFound, EngineError, PluginError
from . import _jaxlib
from .buffers import Device

_clients: dict[str, Any] = {}
"""Clients by platform, or by the path of a plugin library."""
_lock = threading.RLock()

EMBEDDED = "cpu"

# This code runs in a child process: loading a library runs its constructors, and a
# library that is not a plugin may do anything there. The fields are those of PJRT_Api in
# xla/pjrt/c/pjrt_c_api.h: size, extensions, then a version, which begins the same way.
_PROBE = """\
import ctypes, json, sys
library = ctypes.CDLL(sys.argv[1])
try:
    get_api = library.GetPjrtApi
except AttributeError:
    sys.exit("it exports no GetPjrtApi")
class Version(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("extensions", ctypes.c_void_p),
                ("major", ctypes.c_int), ("minor", ctypes.c_int)]
class Api(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("extensions", ctypes.c_void_p), ("version", Version)]
get_api.restype = ctypes.POINTER(Api)
api = get_api()
if not api:
    sys.exit("its GetPjrtApi returns a null pointer")
if api.contents.size < ctypes.sizeof(Api) or api.contents.version.major != 0:
    sys.exit("its GetPjrtApi returns no PJRT_Api of version 0.x")
print(json.dumps([api.contents.version.major, api.contents.version.minor]))
"""
_PROBE_SECONDS = 60.0


@dataclass(frozen=True)
class Platform:
    """A platform that can be opened: its name, its devices' names and kind, and where it comes from."""

    name: str
    kind: str
    source: str
    devices: tuple[str, ...]


def open_device(device: str, plugin: str = "") -> tuple[Any, Device]:
    """Return the client and the device called ``device`` (``"cpu"``, ``"cuda:1"``).

    ``plugin`` is the path of a PJRT C-API library, which is preferred if its platform is
    the one named. If ``device`` is empty, its first device is returned. Raises
    :class:`DeviceNotFound` and :class:`PluginError`.
    """
    name, _, suffix = device.partition(":")
    if suffix and not suffix.isdecimal():
        raise DeviceNotFound(
            f"{device!r} is not a device name", hint="use platform or platform:index, as in cuda:1"
        )
    client, embedded = _find_client(name, plugin)
    platform = name or client.platform
    handles = _jaxlib.local_devices(client)
    index = int(suffix or 0)
    if index >= len(handles):
        names = ", ".join(f"{platform}:{i}" for i in range(len(handles)))
        raise DeviceNotFound(f"there is no device {device!r}", hint=f"devices of this platform: {names}")
    return client, Device(f"{platform}:{index}", platform, embedded, handles[index])


def shared_client(platform: str) -> Any:
    """Return the client that has the devices of all processes that ``jax.distributed.initialize`` joined.

    It is JAX's own client, because processes tell each other about their devices only once.
    """
    try:
        return _jaxlib.installed_client(platform)
    except _jaxlib.RUNTIME_ERRORS as error:
        raise EngineError(
            f"the processes cannot use the platform {platform!r} together: {error}",
            hint="call jax.distributed.initialize before anything else uses JAX, in every process",
        ) from error


def list_platforms(plugin: str = "") -> list[Platform]:
    """Return every platform that can be opened here, the embedded CPU first; initialize installed plugins."""
    found = [_describe(_embedded_client(), EMBEDDED, "embedded")]
    if plugin:
        client = _library_client(plugin)
        found.append(_describe(client, client.platform, plugin))
    for name, client in _jaxlib.installed_clients().items():
        if name != EMBEDDED:
            found.append(_describe(client, name, "installed plugin"))
    return found


def probe_library(path: str) -> tuple[int, int]:
    """Return the PJRT C-API version of the plugin library ``path``, which a child process reads.

    Raises :class:`PluginError` if the file is missing, cannot be loaded or is not a
    PJRT plugin.
    """
    file = Path(path)
    if not file.is_file():
        what = "it is not a file" if file.exists() else "it does not exist"
        raise PluginError(f"cannot load the PJRT plugin {path}: {what}", hint=_PLUGIN_HINT)
    try:
        probe = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _PROBE, str(file.resolve())],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PROBE_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise PluginError(
            f"cannot load the PJRT plugin {path}: loading it took longer than {_PROBE_SECONDS:g} s",
            hint=_PLUGIN_HINT,
        ) from None
    if probe.returncode:
        lines = probe.stderr.strip().splitlines()
        why = lines[-1] if lines and probe.returncode > 0 else "loading it crashes the process"
        raise PluginError(f"cannot load the PJRT plugin {path}: {why}", hint=_PLUGIN_HINT)
    major, minor = json.loads(probe.stdout.splitlines()[-1])
    return major, minor


_PLUGIN_HINT = "give the path of a PJRT C-API library: a shared object that exports GetPjrtApi"


def _find_client(platform: str, plugin: str) -> tuple[Any, bool]:
    """Return the client for ``platform``, and whether it is the embedded CPU's."""
    if plugin:
        client = _library_client(plugin)
        if platform in ("", client.platform):
            return client, False
    if platform == EMBEDDED:
        return _embedded_client(), True
    try:
        return _jaxlib.installed_client(platform), False
    except _jaxlib.RUNTIME_ERRORS as error:
        known = [EMBEDDED, *([_library_client(plugin).platform] if plugin else [])]
        raise DeviceNotFound(
            f"there is no platform {platform!r}: {error}",
            hint=f"install its PJRT plugin or set TORCHSTONE_PLUGIN to its path; here: {', '.join(known)}",
        ) from error


def _embedded_client() -> Any:
    with _lock:
        if EMBEDDED not in _clients:
            _clients[EMBEDDED] = _jaxlib.cpu_client(config.cpu_devices)
        return _clients[EMBEDDED]


def _library_client(path: str) -> Any:
    resolved = os.path.realpath(path)
    with _lock:
        if resolved not in _clients:
            version = probe_library(path)
            name = "torchstone_" + hashlib.sha256(resolved.encode()).hexdigest()[:12]
            try:
                _jaxlib.load_plugin(name, resolved)
                _clients[resolved] = _jaxlib.plugin_client(name, {})
            except _jaxlib.RUNTIME_ERRORS as error:
                raise PluginError(
                    f"the PJRT plugin {path} (C API {version[0]}.{version[1]}) does not start: {error}",
                    hint="check that its device is present and that it fits this jaxlib",
                ) from error
        return _clients[resolved]


def _describe(client: Any, name: str, source: str) -> Platform:
    handles = _jaxlib.local_devices(client)
    kind = handles[0].device_kind if handles else "no device"
    return Platform(name, kind, source, tuple(f"{name}:{index}" for index in range(len(handles))))
