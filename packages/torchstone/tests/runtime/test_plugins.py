"""Finding devices: files that are not PJRT plugins, plugins that do not start, and what is listed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest

from torchstone.config import override
from torchstone.errors import DeviceNotFound, PluginError
from torchstone.runtime import _jaxlib, get_engine, plugins

IDENTITY = "func.func @main(%x: tensor<2xi64>) -> tensor<2xi64> { return %x : tensor<2xi64> }"

API = """static struct { unsigned long size; void *next; unsigned long vsize; void *vnext; int major, minor; }
api = {4096, 0, 32, 0, %d, %d};
void *GetPjrtApi(void) { return &api; }"""

LIBRARIES = {
    "no symbol": ("int unrelated(void) { return 1; }", "it exports no GetPjrtApi"),
    "null": ("void *GetPjrtApi(void) { return 0; }", "its GetPjrtApi returns a null pointer"),
    "too small": (
        "static unsigned long api[] = {8, 0, 0, 0, 0}; void *GetPjrtApi(void) { return api; }",
        "its GetPjrtApi returns no PJRT_Api of version 0.x",
    ),
    "another major version": (
        API % (7, 1),
        "its GetPjrtApi returns no PJRT_Api of version 0.x",
    ),
    "crash when loaded": (
        "#include <stdlib.h>\n__attribute__((constructor)) static void boom(void) { abort(); }",
        "loading it crashes the process",
    ),
    "crash when asked": (
        "void *GetPjrtApi(void) { return *(void **)0; }",
        "loading it crashes the process",
    ),
    "missing dependency": (
        "void *nowhere(void); void *GetPjrtApi(void) { return nowhere(); }",
        "undefined symbol: nowhere",
    ),
}


@pytest.fixture(scope="module")
def library(
    tmp_path_factory: pytest.TempPathFactory, require_tool: Callable[[str], str]
) -> Callable[[str], str]:
    """Return a function that compiles C source to a shared library and returns its path."""
    compiler = require_tool("gcc")

    def build(source: str) -> str:
        folder = tmp_path_factory.mktemp("library")
        (folder / "plugin.c").write_text(source)
        subprocess.run(
            [compiler, "-shared", "-fPIC", "-w", "-o", "plugin.so", "plugin.c"], cwd=folder, check=True
        )
        return str(folder / "plugin.so")

    return build


@pytest.mark.parametrize("kind", LIBRARIES)
def test_libraries_that_are_no_plugin(kind: str, library: Callable[[str], str]) -> None:
    source, message = LIBRARIES[kind]
    path = library(source)
    with pytest.raises(
        PluginError, match=f"(?s){re.escape(path)}: .*{re.escape(message)}\n  next: give the path"
    ):
        get_engine("pjrt", plugin=path)


def test_files_that_are_no_library(tmp_path: Path) -> None:
    (tmp_path / "text.so").write_text("not a library")
    cases = {
        tmp_path / "missing.so": "it does not exist",
        tmp_path: "it is not a file",
        tmp_path / "text.so": "file too short|invalid ELF header",
    }
    for path, message in cases.items():
        with pytest.raises(PluginError, match=message):
            get_engine("pjrt", plugin=str(path))


def test_plugin_path_from_the_configuration(tmp_path: Path) -> None:
    with (
        override(plugin=str(tmp_path / "missing.so")),
        pytest.raises(PluginError, match=r"missing\.so: it does not exist"),
    ):
        get_engine("pjrt")


def test_library_that_hangs(library: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> None:
    path = library(
        "#include <unistd.h>\n__attribute__((constructor)) static void wait(void) { for (;;) pause(); }"
    )
    monkeypatch.setattr(plugins, "_PROBE_SECONDS", 0.5)
    with pytest.raises(PluginError, match=r"loading it took longer than 0\.5 s"):
        plugins.probe_library(path)


def test_version_of_a_plugin(library: Callable[[str], str]) -> None:
    path = library(API % (0, 54))
    assert plugins.probe_library(path) == (0, 54)


@pytest.fixture
def plugin(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """Make a plugin library whose client is another CPU client with the platform name `far`."""

    class Far:
        platform = "far"

        def __init__(self) -> None:
            self._client = _jaxlib.cpu_client()

        def __getattr__(self, name: str) -> Any:
            return getattr(self._client, name)

    path = tmp_path / "far.so"
    path.write_bytes(b"")
    monkeypatch.setattr(plugins, "probe_library", lambda _: (0, 1))
    monkeypatch.setattr(_jaxlib, "load_plugin", lambda _name, _path: None)
    monkeypatch.setattr(_jaxlib, "plugin_client", lambda _name, _options: Far())
    return str(path)


@pytest.mark.parametrize("device", [None, "far", "far:0"])
def test_plugin_runs_programs(plugin: str, device: str | None) -> None:
    engine = get_engine("pjrt", device, plugin)
    assert engine.platform == "far"
    x = numpy.array([1, 2**40])
    buffer = engine.import_array(x)
    assert not buffer.aliased
    x[...] = 0
    (result,) = engine.compile(IDENTITY)(buffer)
    assert result.to_numpy().tolist() == [1, 2**40]


def test_plugin_leaves_other_platforms_reachable(plugin: str) -> None:
    assert get_engine("pjrt", "cpu", plugin).platform == "cpu"
    with pytest.raises(DeviceNotFound, match=r"there is no platform 'abacus'(?s:.*)here: cpu, far"):
        get_engine("pjrt", "abacus", plugin)
    with pytest.raises(
        DeviceNotFound, match="there is no device 'far:1'\n  next: devices of this platform: far:0"
    ):
        get_engine("pjrt", "far:1", plugin)


def test_plugin_that_does_not_start(plugin: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_name: str, _options: Any) -> Any:
        raise RuntimeError("no device on this bus")

    monkeypatch.setattr(_jaxlib, "plugin_client", fail)
    with pytest.raises(PluginError, match=r"\(C API 0\.1\) does not start: no device on this bus"):
        get_engine("pjrt", "far", plugin)


def test_platforms_are_listed(plugin: str) -> None:
    embedded, far, *installed = plugins.list_platforms(plugin)
    assert embedded == plugins.Platform("cpu", "cpu", "embedded", ("cpu:0",))
    assert (far.name, far.source, far.devices) == ("far", plugin, ("far:0",))
    assert all(platform.source == "installed plugin" for platform in installed)


def test_installed_plugin_is_found(tmp_path: Path) -> None:
    """A package in the ``jax_plugins`` namespace; in its own process, because JAX registers it for good."""
    package = tmp_path / "jax_plugins" / "toy"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(
        "import jax.extend.backend\n"
        "from jaxlib import xla_client\n"
        "def initialize():\n"
        "    jax.extend.backend.register_backend_factory('toy', xla_client.make_cpu_client, priority=1)\n"
    )
    script = (
        "import numpy\n"
        "from torchstone.runtime import get_engine, plugins\n"
        "engine = get_engine('pjrt', 'toy:0')\n"
        f"(result,) = engine.compile({IDENTITY!r})(numpy.array([1, 2**40]))\n"
        "print(engine.device.name, result.to_numpy().tolist())\n"
        "print([platform.name for platform in plugins.list_platforms()])\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    assert done.stdout.splitlines()[0] == "toy:0 [1, 1099511627776]", done.stderr
    assert "'toy'" in done.stdout.splitlines()[1]
