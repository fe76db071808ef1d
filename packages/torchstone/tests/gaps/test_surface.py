"""The public surface: which names it has, and from where each signature was read."""

from __future__ import annotations

import os
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from torchstone.errors import GapsError, MissingExtra
from torchstone.gaps import stubs
from torchstone.gaps.surface import Surface, read_surface, without_aliases


def test_every_name_that_a_module_declares_is_there(surface: Surface) -> None:
    names = {api.leaf for api in surface.apis.values() if api.namespace == "torch.cuda"}
    assert names == set(torch.cuda.__all__)
    assert len(names) > 100


def test_without_a_declaration_public_is_what_is_defined_there() -> None:
    apis = read_surface(["torch.nn.functional"]).apis
    assert {"torch.nn.functional.relu", "torch.nn.functional.linear"} <= apis.keys()
    # imported from elsewhere, or private
    assert apis.keys().isdisjoint({"torch.nn.functional.Tensor", "torch.nn.functional.math"})
    assert not [name for name in apis if "._" in name]


@pytest.mark.parametrize(
    ("name", "expected"),
    {
        "torch.nn.functional.relu": ("function", "inspect", "(input: torch.Tensor, inplace: bool = False)"),
        "torch.nn.functional.max_pool2d": ("function", "stub", "(input: Tensor, kernel_size: _int | _size"),
        "torch.nn.functional.linear": ("function", "stub", "(input: Tensor, weight: Tensor"),
        "torch.linalg.qr": ("function", "schema", "(A: Tensor, mode: str = 'reduced', *, out: "),
        "torch.cuda.memory_allocated": ("function", "inspect", "(device: Device = None)"),
        "torch.cuda.Event": ("class", "inspect", "(enable_timing = False"),
        "torch.cuda.Event.record": ("method", "inspect", "(self, stream: "),
        "torch.cuda.has_half": ("value", "none", ""),
        "torch.cuda.memory": ("module", "none", ""),
    }.items(),
)
def test_signatures_and_their_origin(surface: Surface, name: str, expected: tuple[str, str, str]) -> None:
    api, (kind, origin, signature) = surface.apis[name], expected
    assert (api.kind, api.origin) == (kind, origin)
    assert signature == "" or str(api.signatures[0]).startswith(signature)


@pytest.mark.parametrize("kind", [lambda f: f, staticmethod, classmethod, property])
def test_what_another_package_adds_to_a_class_is_not_pytorchs(
    kind: Callable[[object], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """transformers adds ``smart_apply`` this way when it first makes a model; a clean process lacks it."""
    before = read_surface(["torch.nn.Module"]).apis

    def added(module: torch.nn.Module) -> None:
        del module

    added.__module__ = "transformers.modeling_utils"
    monkeypatch.setattr(torch.nn.Module, "added", kind(added), raising=False)
    assert read_surface(["torch.nn.Module"]).apis == before
    added.__module__ = "a_package_that_patches_pytorch"  # functions of such a package are compared
    assert len(read_surface(["torch.nn.Module"]).apis) == len(before) + 1


def test_tensor_methods_come_from_the_stub_and_operators_from_schemas() -> None:
    apis = read_surface(["torch.Tensor", "torch"]).apis
    assert str(apis["torch.Tensor.mul_"].signatures[0]).startswith("(self, other: ")
    assert apis["torch.Tensor.is_cuda"].kind == "property"
    assert len(apis["torch.sum"].signatures) > 1
    unread = [api.name for api in apis.values() if api.kind == "function" and api.origin == "none"]
    functions = [api.name for api in apis.values() if api.kind == "function"]
    assert len(unread) < 0.05 * len(functions)


def test_a_namespace_that_does_not_exist_is_named() -> None:
    with pytest.raises(GapsError, match=r"there is no namespace torch\.cudda"):
        read_surface(["torch.cudda"])


def test_a_module_that_cannot_be_imported_is_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    package = tmp_path / "half_a_package"
    package.mkdir()
    (package / "__init__.py").write_text("def there(): pass\n")
    (package / "broken.py").write_text("raise OSError('no libcuda.so\\nat all')\n")
    monkeypatch.setattr(torch, "__path__", [*torch.__path__, str(tmp_path)])
    found = read_surface(["torch.half_a_package.*"])
    assert found.unreadable == {"torch.half_a_package.broken": "OSError: no libcuda.so"}
    assert list(found.apis) == ["torch.half_a_package.there"]


def test_a_class_under_two_names_counts_once() -> None:
    apis = read_surface(["torch.nn.modules.*"]).apis
    kept = {api.name for api in without_aliases(apis.values())}
    assert {"torch.nn.modules.linear.Linear", "torch.nn.modules.linear.Linear.forward"} <= apis.keys()
    assert {"torch.nn.modules.Linear", "torch.nn.modules.Linear.forward"} <= kept
    assert not [name for name in kept if name.startswith("torch.nn.modules.linear.Linear")]


def test_without_griffe_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "griffe", None)
    stubs._stub.cache_clear()
    try:
        with pytest.raises(MissingExtra, match=r"torchstone\[proof\]"):
            stubs.signatures("torch", "add")
    finally:
        stubs._stub.cache_clear()


def test_hostile_modules_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """An attribute that raises or misbehaves when it is read does not stop the reading."""

    class Trap:
        def __getattr__(self, name: str) -> object:
            raise AssertionError("Torch not compiled with CUDA enabled")

    module = types.ModuleType("torch.trap")
    module.__all__ = ["trap", "absent"]  # type: ignore[attr-defined]
    module.trap = Trap()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.trap", module)
    apis = read_surface(["torch.trap"]).apis
    assert {name: api.kind for name, api in apis.items()} == {"torch.trap.trap": "value"}


@pytest.mark.conformance
def test_the_whole_of_torch_is_read_in_little_memory() -> None:
    program = (
        "import pathlib, re\n"
        "from torchstone.gaps.snapshot import take_snapshot, to_json\n"
        "from torchstone.gaps.surface import WHOLE\n"
        "taken = take_snapshot(WHOLE, branches=True)\n"
        "to_json(taken)\n"
        # getrusage would count what the process that started this one has.
        "peak = re.search(r'VmHWM:\\s+(\\d+) kB', pathlib.Path('/proc/self/status').read_text())[1]\n"
        "print(len(taken.apis), int(peak) // 1024)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=dict(os.environ)
    )
    assert done.returncode == 0, done.stderr
    apis, mebibytes = map(int, done.stdout.split()[-2:])
    assert apis > 12_000
    assert mebibytes < 1024
