"""Inspection of the installation: versions, devices, cache, and whether the compile backend works."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, entry_points, version
from typing import Any

from ..config import config, describe
from ..errors import TorchstoneError

PACKAGES = ("torchstone", "torch", "jax", "jaxlib", "numpy", "ml_dtypes", "safetensors")
OPTIONAL = ("optest", "transformers", "scikit-learn", "iree-base-runtime")


@dataclass(frozen=True)
class Cache:
    """The compilation cache on disk; ``problem`` says why it is not used."""

    directory: str
    enabled: bool
    problem: str | None
    programs: int
    bytes: int
    max_bytes: int


@dataclass
class Installation:
    """The results of the inspection. ``problems`` is empty if all is well; each problem says what to do."""

    versions: dict[str, str | None] = field(default_factory=dict)
    platforms: list[dict[str, Any]] = field(default_factory=list)
    settings: dict[str, str] = field(default_factory=dict)
    cache: Cache | None = None
    backend_registered: bool = False
    backend_works: bool = False
    tested_pytorch: tuple[str, ...] = ()
    unavailable: dict[str, str] = field(default_factory=dict)
    """The operators and features that do not work with this PyTorch, each with the reason."""
    problems: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def inspect_installation(progress: Callable[[str], None] = lambda stage: None) -> Installation:
    """Check everything. Problems are collected in ``problems`` and never raised."""
    found = Installation()
    found.versions = {**installed_versions(), **{name: _version(name) for name in OPTIONAL}}
    found.problems += [f"{name} is not installed" for name in PACKAGES if found.versions[name] is None]
    found.settings = {variable: value for _, variable, value, _ in describe()}
    looks = {
        "looking at PyTorch": _look_at_pytorch,
        "looking at the cache": _look_at_cache,
        "looking for devices": _look_at_devices,
        **_BACKEND,
    }
    _look(found, looks, progress)
    return found


def inspect_backend(progress: Callable[[str], None] = lambda stage: None) -> Installation:
    """Check only that the compile backend is registered and works, with and without gradients."""
    found = Installation(versions=installed_versions())
    _look(found, _BACKEND, progress)
    return found


def _look(
    found: Installation,
    looks: Mapping[str, Callable[[Installation], None]],
    progress: Callable[[str], None],
) -> None:
    for stage, look in looks.items():
        progress(stage)
        try:
            look(found)
        except (TorchstoneError, ImportError) as error:
            if str(error) not in found.problems:  # several checks fail for an unknown device
                found.problems.append(str(error))


def installed_versions() -> dict[str, str | None]:
    """Return the versions of Python and of the packages that Torchstone needs; None if not installed."""
    return {"python": platform.python_version(), **{name: _version(name) for name in PACKAGES}}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _look_at_pytorch(found: Installation) -> None:
    from ..lowering import load
    from ..torch_internals import TESTED, missing_internals

    found.tested_pytorch = TESTED
    missing = {one.feature: f"PyTorch has no {one.path}" for one in missing_internals()}
    found.unavailable = {**load().unavailable, **missing}


def _look_at_cache(found: Installation) -> None:
    from ..runtime.cache import DiskCache

    disk = DiskCache(config.cache_dir)
    problem = disk.problem() if config.cache else None
    programs, size = (0, 0) if problem else disk.usage()
    found.cache = Cache(str(disk.directory), config.cache, problem, programs, size, config.cache_max_bytes)
    if problem:
        found.problems.append(
            f"the compilation cache {disk.directory} is not used: {problem}\n"
            "  next: set TORCHSTONE_CACHE_DIR to a directory that only you can write (or TORCHSTONE_CACHE=0)"
        )


def _look_at_devices(found: Installation) -> None:
    from ..runtime import get_engine
    from ..runtime.plugins import list_platforms

    found.platforms = [asdict(one) for one in list_platforms(config.plugin)]
    get_engine()


def _look_at_backend(found: Installation) -> None:
    found.backend_registered = bool(entry_points(group="torch_dynamo_backends", name="torchstone"))
    if not found.backend_registered:
        found.problems.append(
            "the compile backend is not registered\n  next: install torchstone with pip: it is an entry point"
        )
        return
    import torch

    from .compilation import compiled, plain_errors

    def loss_of(x: torch.Tensor) -> torch.Tensor:
        return (x @ x.t()).relu().sum()

    x = torch.arange(4.0).reshape(2, 2).requires_grad_()
    with plain_errors():
        loss = compiled(loss_of)(x)
        (found_gradient,) = torch.autograd.grad(loss, x)
        (gradient,) = torch.autograd.grad(loss_of(x), x)
    found.backend_works = bool(torch.equal(loss, loss_of(x)) and torch.equal(found_gradient, gradient))
    if not found.backend_works:
        found.problems.append("the compile backend computes a matrix product or its gradient wrong")


_BACKEND = {"compiling a small function and its gradient": _look_at_backend}
