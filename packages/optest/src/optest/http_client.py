"""HTTP requests with a deadline for the whole exchange, including reading the answer."""

from __future__ import annotations

import http.client
import socket
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Protocol


class Answer(Protocol):
    """A server's answer; ``read(n)`` returns at most ``n`` bytes."""

    status: int | None
    reason: Any

    def read(self, amount: int, /) -> bytes: ...


def problem_of(url: str, headers: Mapping[str, str] | None = None) -> str | None:
    """Return why a request to ``url`` with ``headers`` is impossible; None if it is possible."""
    try:
        parts = urllib.parse.urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        if parts.username is not None:
            return "user and password do not belong into an address, but into a header"
    except ValueError as error:  # such as a port that is not a number
        return str(error)
    if not usable or not url.isascii() or not url.isprintable() or " " in url:
        return "it is not an address like https://host:port/path"
    for name, value in (headers or {}).items():
        if not (name.isascii() and name.isprintable() and value.isprintable() and _latin(value)):
            return f"the header {name!r} is not one line of text"
    return None


@contextmanager
def answer_to(
    request: urllib.request.Request, seconds: float | None, *handlers: urllib.request.BaseHandler
) -> Iterator[Answer]:
    """Yield the server's answer, even if it is an error; reading it counts towards ``seconds``.

    Raises ``TimeoutError`` when the time is over, even if bytes keep arriving slowly, and
    ``OSError`` or ``http.client.HTTPException`` if the connection fails.
    """
    sockets: list[socket.socket] = []
    late = threading.Event()

    def cut() -> None:
        late.set()
        for one in sockets:
            with suppress(OSError):  # not TLS's own shutdown, which another thread may be running
                socket.socket.shutdown(one, socket.SHUT_RDWR)

    opener = urllib.request.build_opener(_Http(sockets), _Https(sockets), *handlers)
    timer = threading.Timer(seconds or 0.0, cut)
    timer.daemon = True
    if seconds is not None:
        timer.start()
    try:
        try:
            answer = opener.open(request, timeout=seconds)
        except urllib.error.HTTPError as error:
            answer = error
        with answer:
            yield answer
    except (OSError, http.client.HTTPException, ValueError) as error:
        if late.is_set() or isinstance(getattr(error, "reason", None), TimeoutError):
            raise TimeoutError("the answer took too long") from error
        raise
    finally:
        timer.cancel()
    if late.is_set():
        raise TimeoutError("the answer took too long")


class _Http(urllib.request.HTTPHandler):
    """An HTTP handler that adds the socket of each connection to ``sockets``."""

    def __init__(self, sockets: list[socket.socket]) -> None:
        super().__init__()
        self._sockets = sockets

    def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_noting(http.client.HTTPConnection, self._sockets), request)


class _Https(urllib.request.HTTPSHandler):
    """An HTTPS handler that adds the socket of each connection to ``sockets``."""

    def __init__(self, sockets: list[socket.socket]) -> None:
        super().__init__()
        self._sockets = sockets

    def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_noting(http.client.HTTPSConnection, self._sockets), request)


def _noting(kind: type[http.client.HTTPConnection], sockets: list[socket.socket]) -> Any:
    class Connection(kind):  # type: ignore[misc, valid-type]
        def connect(self) -> None:
            super().connect()
            sockets.append(self.sock)

    return Connection


def _latin(text: str) -> bool:
    try:
        text.encode("latin-1")
    except UnicodeEncodeError:
        return False
    return True
