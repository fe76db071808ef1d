"""The MNIST digits, downloaded only if an environment variable allows it; checksummed, resumable and cached.

Not here: scikit-learn's digits, which need no download (:mod:`.demo`).
"""

from __future__ import annotations

import fcntl
import gzip
import hashlib
import http.client
import os
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import numpy
import torch

from optest.http_client import answer_to

from ..config import config
from ..errors import DownloadError
from .demo import Digits

ALLOWED_BY = ("TORCHSTONE_ALLOW_DOWNLOAD", "CLOUD_MNIST_OK", "CODEX_CLOUD", "MNIST_ALLOW_DOWNLOAD")
"""The environment variables that allow the download; it is enough that one of them is 1."""

SOURCE = "https://ossci-datasets.s3.amazonaws.com/mnist/"
_BLOCK = 1 << 16
_SECONDS = 300.0


@dataclass(frozen=True)
class RemoteFile:
    """A file to download, with the checksum that it must have."""

    name: str
    size: int
    sha256: str


FILES = (
    RemoteFile(
        "train-images-idx3-ubyte.gz",
        9_912_422,
        "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    ),
    RemoteFile(
        "train-labels-idx1-ubyte.gz",
        28_881,
        "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    ),
    RemoteFile(
        "t10k-images-idx3-ubyte.gz",
        1_648_877,
        "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    ),
    RemoteFile(
        "t10k-labels-idx1-ubyte.gz",
        4_542,
        "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    ),
)


def download_allowed() -> bool:
    return any(os.environ.get(name) == "1" for name in ALLOWED_BY)


def load_mnist(folder: Path | None = None, source: str = SOURCE) -> Digits:
    """Load 60,000 digits ``[n, 1, 28, 28]`` for training and 10,000 held out.

    Files that are already in ``folder`` (by default in the directory of the compilation cache) are checked
    and not downloaded again. Raises :class:`~torchstone.errors.DownloadError`.
    """
    folder = config.cache_dir / "mnist" if folder is None else folder
    images, labels, test_images, test_labels = (_values(fetch(one, folder, source)) for one in FILES)
    return Digits(
        _scaled(images),
        torch.from_numpy(labels).long(),
        _scaled(test_images),
        torch.from_numpy(test_labels).long(),
    )


def fetch(file: RemoteFile, folder: Path, source: str) -> Path:
    """Return the path of ``file`` in ``folder``; download it from ``source`` unless it is there.

    An interrupted download is kept, and the next call resumes it. If two processes download the file,
    one waits for the other. Raises :class:`~torchstone.errors.DownloadError`.
    """
    path = folder / file.name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with open(folder / f"{file.name}.part", "ab") as part:
            fcntl.flock(part, fcntl.LOCK_EX)
            if not (path.exists() and _checksum(path) == file.sha256):
                _complete(file, Path(part.name), source)
                os.replace(part.name, path)
            else:
                Path(part.name).unlink(missing_ok=True)
    except (OSError, http.client.HTTPException) as error:
        raise DownloadError(
            f"{source}{file.name} could not be downloaded to {folder}: {error}",
            hint="call again to go on with what has arrived, or put the file there yourself",
        ) from error
    return path


def _complete(file: RemoteFile, part: Path, source: str) -> None:
    """Download the rest of ``part``, and compare the whole file with the checksum."""
    have = part.stat().st_size
    if have >= file.size:  # if it is too long, or complete but wrong, start again
        have = 0 if _checksum(part) != file.sha256 else have
    if have < file.size:
        _receive(file, part, have, source)
    found = _checksum(part)
    if found != file.sha256:
        part.unlink()
        raise DownloadError(
            f"{source}{file.name} has the SHA-256 checksum {found}, and {file.sha256} was expected",
            hint="the file was altered on its way or at its source: it was removed; try another network",
        )


def _receive(file: RemoteFile, part: Path, have: int, source: str) -> None:
    request = urllib.request.Request(source + file.name)
    if have:
        request.add_header("Range", f"bytes={have}-")
    with answer_to(request, _SECONDS) as answer, open(part, "r+b") as out:
        if answer.status not in (200, 206):
            raise OSError(f"the server answered {answer.status} {answer.reason}")
        have = have if answer.status == 206 else 0  # a server without ranges sends all of it
        out.truncate(have)
        out.seek(have)
        while have < file.size:
            block = answer.read(min(_BLOCK, file.size - have))
            if not block:
                raise OSError(f"the connection ended after {have:,} of {file.size:,} bytes")
            out.write(block)
            have += len(block)


def _checksum(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _values(path: Path) -> numpy.ndarray[tuple[int, ...], numpy.dtype[numpy.uint8]]:
    """Read the array in an IDX file: two zero bytes, type, number of dimensions, their sizes, the values."""
    content = gzip.decompress(path.read_bytes())
    rank = content[3]
    shape = numpy.frombuffer(content, ">u4", rank, offset=4)
    return numpy.frombuffer(content, numpy.uint8, offset=4 + 4 * rank).reshape(shape).copy()


def _scaled(images: numpy.ndarray[tuple[int, ...], numpy.dtype[numpy.uint8]]) -> torch.Tensor:
    return torch.from_numpy(images)[:, None].float() / 255
