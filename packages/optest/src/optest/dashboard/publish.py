"""Sends recorded runs to a server in parts; a part that is sent again adds nothing."""

from __future__ import annotations

import http.client
import json
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ..core.result import CaseResult, RunInfo
from ..errors import EnvironmentError_, UsageError
from ..http_client import answer_to, problem_of
from ..ledger import Ledger
from ..text import redacted
from .wire import encode

PATH = "/api/runs"
_PART = 1000
_PART_BYTES = 4 << 20
"""The largest size of a part in bytes, unless it has a single result."""
_TRIES = 4
_TIMEOUT_S = 120.0
_ANSWER_BYTES = 1 << 16
_FIRST_REFUSAL = 300
_NO_ANSWER = (OSError, http.client.HTTPException, ValueError, KeyError, TypeError, RecursionError)
_AGAIN = frozenset({429, 500, 502, 503, 504})


@dataclass(frozen=True)
class Published:
    """The outcome for a run: how many cases were new to the server, and how many it had already."""

    run_id: str
    added: int
    known: int


class Publisher:
    """Sends runs to the server at ``url``, with ``token`` for authorization.

    Raises :class:`UsageError` if the address or token is not usable, or if the server refuses the run,
    and :class:`EnvironmentError_` if the server cannot be reached. No message contains the token.
    """

    def __init__(self, url: str, token: str, *, sleep: Callable[[float], object] = time.sleep) -> None:
        why = problem_of(url)
        parts = None if why else urllib.parse.urlsplit(url)
        if parts is None or parts.query or parts.fragment:
            told = f": {why}" if why else ": it has more than host, port and path"
            raise UsageError(
                f"{redacted(url)!r} is not the address of a server{told}",
                "write it like https://results.example",
            )
        if not token.isascii() or not token.isprintable() or " " in token or not token:
            raise UsageError("the token is not one word of ASCII", "OPTEST_TOKEN has it")
        self._url = url.rstrip("/") + PATH
        self._token = token
        self._sleep = sleep

    def publish(self, ledger: Ledger, run: RunInfo) -> Published:
        """Send all cases of ``run``."""
        added = known = 0
        for body, count in _bodies(ledger, run):
            answer = self._send(body)
            added += answer
            known += count - answer
        return Published(run.run_id, added, known)

    def _send(self, body: bytes) -> int:
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        request = urllib.request.Request(self._url, body, headers, method="POST")
        for attempt in range(_TRIES):
            try:
                with answer_to(request, _TIMEOUT_S, _NoRedirect()) as answer:
                    code, content = answer.status or 0, answer.read(_ANSWER_BYTES)
                if code < _FIRST_REFUSAL:
                    return int(json.loads(content)["added"])
                if code not in _AGAIN or attempt == _TRIES - 1:
                    raise self._refused(code, content, answer.reason)
            except (
                OSError,
                http.client.HTTPException,
                ValueError,
                KeyError,
                TypeError,
                RecursionError,
            ) as error:
                if attempt == _TRIES - 1:
                    cause = getattr(error, "reason", error)
                    raise EnvironmentError_(
                        f"{self._url} cannot be reached: {cause}",
                        "publish again when it is back: what it has already is not sent twice",
                    ) from error
            self._sleep(2.0**attempt)
        raise AssertionError("every try returns or raises")

    def _refused(self, code: int, content: bytes, reason: Any) -> Exception:
        try:
            told: Any = json.loads(content)["error"]
        except (ValueError, KeyError, TypeError, RecursionError):
            told = reason
        text = f"{self._url} refused the run ({code}): {str(told)[:500]}"
        if code in _AGAIN:
            return EnvironmentError_(text, "publish again later: nothing is lost")
        return UsageError(text, "OPTEST_TOKEN has the token" if code == 401 else None)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refuses redirects, so that the token only goes to the server that was named."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


def _bodies(ledger: Ledger, run: RunInfo) -> Iterator[tuple[bytes, int]]:
    """Yield the parts as bytes, each with its number of cases; the last part says whether the run is over."""
    summary = ledger.summary(run.run_id)
    for batch in ledger.outgoing(run, _PART):
        yield from _split(run, batch)
    yield encode(run, [], summary), 0


def _split(run: RunInfo, batch: list[CaseResult]) -> list[tuple[bytes, int]]:
    """Split a batch into parts that are small enough; a single long result becomes its own part."""
    body = encode(run, batch, None)
    if len(body) <= _PART_BYTES or len(batch) == 1:
        return [(body, len(batch))]
    middle = len(batch) // 2
    return _split(run, batch[:middle]) + _split(run, batch[middle:])
