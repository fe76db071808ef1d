"""The http driver with servers in this process."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import numpy as np
import pytest

from optest.backends.http import HttpDriver, pack, unpack
from optest.core.case import BackendTarget, TestCase
from optest.core.result import CaseResult, Status
from optest.operators import operator_registry
from optest.running.execution import run_case

Answer = tuple[int, bytes]
Serve = Callable[[Callable[[bytes], Answer]], str]


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """``serve(function)`` starts a server that answers ``function(body)``, and returns its address."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    servers: list[HTTPServer] = []

    def start(function: Callable[[bytes], Answer]) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                code, body = function(self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(code)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *arguments: Any) -> None: ...

        server = HTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}/run"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def run(url: str, dtype: str = "float32", **settings: Any) -> CaseResult:
    descriptor = operator_registry.get("roll")
    attributes = descriptor.complete_attributes({"shifts": 1})
    case = TestCase(
        descriptor,
        (dtype,),
        {"input0": (2, 3)},
        attributes,
        BackendTarget("http", "http", "x1"),
        None,
        0,
        backend_config={"http": {"url": url, **settings}},
    )
    return run_case(HttpDriver(), case)


def rolled(body: bytes) -> Answer:
    """Check a request to ``roll`` by 1, and return the right answer."""
    length = int.from_bytes(body[:8], "little")
    case = json.loads(json.loads(body[8 : 8 + length])["__metadata__"]["case"])
    assert (case["op"], case["attributes"]["shifts"], case["chip"]) == ("roll", 1, "x1")
    [output] = case["outputs"]
    result = np.roll(unpack(body, "the test")["input0"], 1)
    assert list(result.shape) == output["shape"]
    return 200, pack({output["tensor"]: result}, {})


@pytest.mark.parametrize("dtype", [types[0] for types in operator_registry.get("roll").dtypes])
def test_every_dtype_goes_over_the_wire(serve: Serve, dtype: str) -> None:
    result = run(serve(rolled), dtype)
    assert result.status is Status.PASSED, result.reason


def test_501_is_unsupported(serve: Serve) -> None:
    result = run(serve(lambda body: (501, b"no float32 here")))
    assert (result.status, result.reason) == (Status.UNSUPPORTED, "no float32 here")


BAD: dict[str, tuple[Answer, str]] = {
    "refusal": ((500, b"kernel not found"), "answered 500 Internal Server Error"),
    "garbage": ((200, b"<html>welcome</html>"), "is not in the container of safetensors: it is cut short"),
    "nothing": ((200, b""), "is not in the container of safetensors"),
    "other names": ((200, pack({"y": np.zeros((2, 3), np.float32)}, {})), "has no tensor 'output0'"),
    "no header": ((200, (2).to_bytes(8, "little") + b"[]"), "is not in the container"),
    "odd dtype": (
        (200, pack({"output0": np.zeros((2, 3), np.float32)}, {}).replace(b"F32", b"F31")),
        "is not in the container of safetensors: 'F31'",
    ),
    "short tensor": (
        (200, pack({"output0": np.zeros((2, 3), np.float32)}, {})[:-4]),
        "output0 has 20 bytes; float32 of shape [2, 3] has 24",
    ),
}


@pytest.mark.parametrize(("answer", "message"), BAD.values(), ids=BAD)
def test_bad_answers(serve: Serve, answer: Answer, message: str) -> None:
    result = run(serve(lambda body: answer))
    assert result.status is Status.ERROR
    assert message in result.reason


def test_the_words_of_a_refusal_are_kept(serve: Serve) -> None:
    assert run(serve(lambda body: (500, b"kernel not found"))).stderr_tail == "kernel not found"


def test_wrong_values_are_a_mismatch(serve: Serve) -> None:
    assert run(serve(lambda body: (200, pack({"output0": np.zeros((2, 3), np.float32)}, {})))).status is (
        Status.MISMATCH
    )


def test_a_slow_server_times_out(serve: Serve) -> None:
    def slow(body: bytes) -> Answer:
        time.sleep(1.0)
        return rolled(body)

    result = run(serve(slow), timeout=0.1)
    assert (result.status, "did not answer within 0.1 s" in result.reason) == (Status.TIMED_OUT, True)


def test_no_server() -> None:
    result = run("http://127.0.0.1:9/run", timeout=5)
    assert (result.status, "cannot be reached" in result.reason) == (Status.ERROR, True)


def test_settings_are_checked() -> None:
    assert "'ftp://x' does not match" in run("ftp://x").reason
    assert "'tiemout' was unexpected" in run("http://x", tiemout=3).reason


@pytest.fixture
def raw() -> Iterator[Callable[[Callable[[socket.socket], None]], str]]:
    """``raw(function)`` starts a server that calls ``function`` with its connection; returns its address."""
    listeners: list[socket.socket] = []

    def start(function: Callable[[socket.socket], None]) -> str:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)

        def work() -> None:
            with contextlib.suppress(OSError):
                connection, _ = listener.accept()
                with connection:
                    connection.recv(1 << 16)
                    function(connection)

        threading.Thread(target=work, daemon=True).start()
        return f"http://127.0.0.1:{listener.getsockname()[1]}/run"

    yield start
    for one in listeners:
        one.close()


def drip(connection: socket.socket, head: bytes, byte: bytes) -> None:
    connection.sendall(head)
    for _ in range(600):
        connection.sendall(byte)
        time.sleep(0.05)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("head", "byte"),
    [
        (b"", b"H"),
        (b"HTTP/1.1 200 OK\r\nX: ", b"x"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 600\r\n\r\n", b"x"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
        (b"HTTP/1.1 500 No\r\nContent-Length: 600\r\n\r\n", b"x"),
    ],
)
def test_a_server_that_drips_is_late(raw: Callable[..., str], head: bytes, byte: bytes) -> None:
    started = time.monotonic()
    result = run(raw(lambda connection: drip(connection, head, byte)), timeout=0.5)
    assert (result.status, "did not answer within 0.5 s" in result.reason) == (Status.TIMED_OUT, True)
    assert time.monotonic() - started < 10


def test_an_answer_has_a_bound(raw: Callable[..., str]) -> None:
    def endless(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        with contextlib.suppress(OSError):
            while True:
                connection.sendall(bytes(1 << 20))

    result = run(raw(endless), timeout=30)
    assert result.status is Status.ERROR
    assert "answered more than 1,048,600 bytes: the outputs have fewer" in result.reason


@pytest.mark.parametrize(
    ("url", "headers", "told"),
    [
        ("http://[::1/run", {}, "Invalid IPv6 URL"),
        ("http://host:port/", {}, "Port could not be cast to integer value"),
        ("http://host:99999/", {}, "Port out of range"),
        ("http:///path", {}, "it is not an address like https://host:port/path"),
        ("http://me:s3cret@host/", {}, "user and password do not belong into an address"),
        ("http://host/", {"A": "b\r\nC: d"}, "the header 'A' is not one line of text"),
        ("http://host/", {"A\n": "b"}, r"the header 'A\n' is not one line of text"),
        ("http://host/", {"A": "\u0100"}, "the header 'A' is not one line of text"),
    ],
)
def test_addresses_are_checked_before_anything_runs(url: str, headers: dict[str, str], told: str) -> None:
    result = run(url, headers=headers)
    assert result.status is Status.ERROR
    assert told in result.reason
    assert "s3cret" not in result.reason
