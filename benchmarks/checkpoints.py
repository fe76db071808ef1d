"""Saving and loading a model's weights, beside a plain copy of the file, ``torch.save``, safetensors and DCP.

Every save ends on the disk: files that a candidate does not sync itself are synced afterwards, also the plain
copy. A load fills a model that exists already; beside it, the checkpoint's own file is copied.
``BENCHMARK_BYTES`` sets the size; the claim is for 2 GB.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import warnings
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import safetensors.torch
import torch
from torch.distributed import checkpoint as dcp

from torchstone import checkpoint

from .measure import Row, paired

_TENSOR = 16 << 20
"""Bytes of each weight."""
_SHARE = 0.8
"""The share of a plain copy's speed that a save and a load must reach."""


class Weights(torch.nn.Module):
    """A module with as many weights of 16 MiB as fit into ``size`` bytes."""

    def __init__(self, size: int) -> None:
        super().__init__()
        elements = min(size, _TENSOR) // 4
        self.parts = torch.nn.ParameterList(torch.randn(elements) for _ in range(max(1, size // _TENSOR)))


def rows() -> Iterator[Row]:
    size = int(os.environ.get("BENCHMARK_BYTES", 2 << 30))
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # DCP: one process, an existing checkpoint
        model = Weights(size)
        yield _row("save", size, paired(_saves(Path(folder), model), budget_s=0, rounds=3))
        yield _row("load", size, paired(_loads(Path(folder), model), budget_s=0, rounds=3))
    yield _checksums()


def _row(name: str, size: int, seconds: dict[str, float]) -> Row:
    share = seconds["plain copy"] / seconds["torchstone"]
    return Row(
        f"{name} of {size / 1e9:.2f} GB",
        seconds,
        "plain copy",
        f"at least {_SHARE:.0%} of a plain copy's speed",
        share >= _SHARE,
        {"share": f"{share:.0%}", "gb_per_s": round(size / 1e9 / seconds["torchstone"], 2)},
    )


def _saves(folder: Path, model: torch.nn.Module) -> dict[str, Callable[[], object]]:
    source = folder / "source.safetensors"
    safetensors.torch.save_file(model.state_dict(), source)

    def dcp_save() -> None:
        writer = dcp.FileSystemWriter(folder / "dcp", sync_files=True, overwrite=True)
        dcp.save({"model": model.state_dict()}, storage_writer=writer, no_dist=True)

    def of_torch() -> None:
        torch.save(model.state_dict(), folder / "torch.pt")
        _sync(folder / "torch.pt")

    def of_safetensors() -> None:
        safetensors.torch.save_file(model.state_dict(), folder / "own.safetensors")
        _sync(folder / "own.safetensors")

    def copy() -> None:
        shutil.copyfile(source, folder / "copy.safetensors")
        _sync(folder / "copy.safetensors")

    return {
        "plain copy": copy,
        "torch.save": of_torch,
        "safetensors": of_safetensors,
        "DCP": dcp_save,
        "torchstone": lambda: checkpoint.save(folder / "torchstone", model=model, rng=False),
    }


def _loads(folder: Path, model: torch.nn.Module) -> dict[str, Callable[[], object]]:
    """Return functions that load what :func:`_saves` has written into the model."""

    def dcp_load() -> None:
        dcp.load({"model": model.state_dict()}, checkpoint_id=folder / "dcp", no_dist=True)

    # The same file as the checkpoint's, so that both are in memory, or both on the disk.
    (source,) = (folder / "torchstone").rglob("*.safetensors")

    def copy() -> None:
        shutil.copyfile(source, folder / "copy.safetensors")

    return {
        "plain copy": copy,
        "torch.load": lambda: model.load_state_dict(torch.load(folder / "torch.pt", weights_only=True)),
        "safetensors": lambda: model.load_state_dict(safetensors.torch.load_file(folder / "own.safetensors")),
        "DCP": dcp_load,
        "torchstone": lambda: checkpoint.load(folder / "torchstone", model=model),
        "torchstone, not verified": lambda: checkpoint.load(folder / "torchstone", model=model, verify=False),
    }


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _checksums() -> Row:
    """Measure checksums of 8 MiB on one core, beside a copy in memory. They show why CRC-32 is used."""
    data = os.urandom(8 << 20)
    seconds = paired(
        {
            "copy in memory": lambda: bytearray(data),
            "CRC-32": lambda: zlib.crc32(data),
            "SHA-256": lambda: hashlib.sha256(data).digest(),
            "BLAKE2b": lambda: hashlib.blake2b(data).digest(),
        },
        budget_s=1.0,
    )
    fastest = seconds["CRC-32"] <= min(seconds["SHA-256"], seconds["BLAKE2b"])
    return Row("a checksum of 8 MiB", seconds, "copy in memory", "CRC-32 is the fastest checksum", fastest)
