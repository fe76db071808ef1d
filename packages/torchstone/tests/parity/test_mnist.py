"""The download of MNIST, against a server on the loopback interface."""

from __future__ import annotations

import gzip
import hashlib
import http.server
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest

from torchstone.errors import DownloadError
from torchstone.parity import mnist


class Server(http.server.ThreadingHTTPServer):
    """Serves ``files``; ``cut`` closes a connection after that many bytes, ``ranges`` allows resuming."""

    files: dict[str, bytes]
    cut: int | None = None
    ranges = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.requests = {}, []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        self.server.requests.append((self.path, wanted))
        content = self.server.files.get(self.path.removeprefix("/"))
        if content is None:
            self.send_error(404)
            return
        first = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted and self.server.ranges else 0
        self.send_response(206 if first else 200)
        self.send_header("Content-Length", str(len(content) - first))
        self.end_headers()
        self.wfile.write(content[first:][: self.server.cut])

    def log_message(self, *_: Any) -> None:
        pass


def idx(values: numpy.ndarray[Any, Any]) -> bytes:
    header = struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape)
    return gzip.compress(header + values.tobytes(), mtime=0)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """Start a server with four small files like MNIST's, and make the module expect them."""
    random = numpy.random.default_rng(0)
    arrays = [
        random.integers(0, 256, size, dtype=numpy.uint8)
        for size in ((60, 28, 28), (60,), (10, 28, 28), (10,))
    ]
    with Server() as running:
        known = []
        for file, array in zip(mnist.FILES, arrays, strict=True):
            content = running.files[file.name] = idx(array)
            known.append(mnist.RemoteFile(file.name, len(content), hashlib.sha256(content).hexdigest()))
        monkeypatch.setattr(mnist, "FILES", tuple(known))
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield running
        running.shutdown()


def test_files_are_downloaded_once(server: Server, tmp_path: Path) -> None:
    digits = mnist.load_mnist(tmp_path / "mnist", server.address)
    assert digits.images.shape == (60, 1, 28, 28)
    assert digits.test_labels.shape == (10,)
    assert 0 <= digits.images.min() < digits.images.max() <= 1
    again = mnist.load_mnist(tmp_path / "mnist", server.address)
    assert len(server.requests) == 4
    assert again.images.equal(digits.images)
    assert {path.name for path in (tmp_path / "mnist").iterdir()} == {file.name for file in mnist.FILES}


@pytest.mark.parametrize("ranges", [True, False])
def test_interrupted_download_goes_on(server: Server, tmp_path: Path, ranges: bool) -> None:
    file = mnist.FILES[0]
    server.ranges, server.cut = ranges, 1000
    with pytest.raises(
        DownloadError, match=r"IncompleteRead|ended after 1,000 of .* bytes\n  next: call again"
    ):
        mnist.fetch(file, tmp_path, server.address)
    server.cut = None
    path = mnist.fetch(file, tmp_path, server.address)
    assert path.read_bytes() == server.files[file.name]
    assert server.requests[-1][1] == "bytes=1000-"


def test_wrong_checksum_is_refused_and_removed(server: Server, tmp_path: Path) -> None:
    file = mnist.FILES[1]
    right = server.files[file.name]
    server.files[file.name] = right[:-1] + bytes([right[-1] ^ 1])
    with pytest.raises(
        DownloadError, match=r"has the SHA-256 checksum [0-9a-f]{64}, and [0-9a-f]{64} was expected"
    ):
        mnist.fetch(file, tmp_path, server.address)
    assert list(tmp_path.iterdir()) == []
    server.files[file.name] = right
    assert mnist.fetch(file, tmp_path, server.address).read_bytes() == right


def test_damaged_file_in_the_folder_is_replaced(server: Server, tmp_path: Path) -> None:
    file = mnist.FILES[1]
    (tmp_path / file.name).write_bytes(b"torn")
    (tmp_path / f"{file.name}.part").write_bytes(bytes(file.size + 5))
    assert mnist.fetch(file, tmp_path, server.address).read_bytes() == server.files[file.name]


def test_missing_file_and_server_that_is_not_there(server: Server, tmp_path: Path) -> None:
    server.files.clear()
    with pytest.raises(DownloadError, match=r"could not be downloaded to .*: the server answered 404"):
        mnist.fetch(mnist.FILES[0], tmp_path, server.address)
    with pytest.raises(DownloadError, match=r"http://127\.0\.0\.1:9/.* could not be downloaded"):
        mnist.fetch(mnist.FILES[0], tmp_path, "http://127.0.0.1:9/")


@pytest.mark.parametrize("name", mnist.ALLOWED_BY)
def test_download_needs_a_variable(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for one in mnist.ALLOWED_BY:
        monkeypatch.delenv(one, raising=False)
    assert not mnist.download_allowed()
    monkeypatch.setenv(name, "0")
    assert not mnist.download_allowed()
    monkeypatch.setenv(name, "1")
    assert mnist.download_allowed()
