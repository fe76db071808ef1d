"""The live dashboard: pages from the current ledger, and ``POST /api/runs`` for runs of other machines.

Reading needs no token; by default the server is bound to the loopback interface.
Not here: the pages (``pages``, ``data``), the format of published runs (``wire``).
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import threading
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from .._version import __version__
from ..core.result import FAILURES, RunInfo
from ..errors import LedgerError, OptestError
from ..ledger import Ledger
from . import data
from .pages import MEDIA_TYPES, POLICY, asset, script
from .wire import decode

MOST_BYTES = 16 << 20
"""The default limit for the size of a published part."""
_KEPT = 64
"""How many answers are cached until the ledger changes."""
_HEADERS = {
    "Content-Security-Policy": POLICY + "; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
_LOG = logging.getLogger("optest.dashboard")


class Tokens:
    """The tokens that allow publishing; only their hashes are kept, and compared in constant time."""

    def __init__(self, tokens: Sequence[str]) -> None:
        self._hashes = [_hashed(one.encode()) for one in tokens]

    def __bool__(self) -> bool:
        return bool(self._hashes)

    def allow(self, header: str | None) -> bool:
        """Whether an Authorization header has one of the tokens; it is compared with every token."""
        scheme, _, given = (header or "").partition(" ")
        found = _hashed(given.strip().encode("utf-8", "surrogateescape"))
        matches = [hmac.compare_digest(found, one) for one in self._hashes]
        return scheme.lower() == "bearer" and any(matches)


class _Live:
    """The data of the pages from the current ledger; answers are cached until the ledger changes."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._kept: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._names: dict[tuple[str, str], dict[str, str]] = {}
        self._lock = threading.Lock()

    def version(self) -> str:
        """Return a text that changes whenever a run or case is added, or a run ends."""
        return "-".join(map(str, self._ledger.mark()))

    def script(self, name: str) -> str | None:
        """Return the data script ``name``, or None if it does not exist."""
        version = self.version()
        key = (version, name)
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        found = self._data(name, version)
        if found is None:
            return None
        text = script(name, found)
        with self._lock:
            self._kept[key] = text
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return text

    def _data(self, name: str, version: str) -> dict[str, Any] | None:
        runs = [data.Shown(one) for one in self._ledger.runs()]
        several = _together(runs)
        if name == "index":
            listed = [*several, *runs[-data.TREND :]]
            return {**data.index(self._ledger, listed, live=True), "version": version}
        key, _, part = name.partition("/")
        if key == "coverage":
            names = {one.backend for one in runs}
            backend = next((one for one in names if data.key_of(one) == part), None)
            return None if backend is None else data.coverage(self._ledger, backend)
        chosen = next((one for one in [*several, *runs] if one.key == key), None)
        return None if chosen is None else self._part(chosen, part, version)

    def _operator(self, shown: data.Shown, key: str, version: str) -> str | None:
        """Return the operator with ``key`` among those in ``shown``, or None."""
        place = (version, shown.key)
        found = self._names.get(place)
        if found is None:
            names = data.overview(self._ledger, shown.runs)["operators"]
            found = {data.key_of(name): name for name in names}
            others = {one: kept for one, kept in self._names.items() if one[0] == version}
            self._names = {**others, place: found}
        return found.get(key)

    def _part(self, shown: data.Shown, part: str, version: str) -> dict[str, Any] | None:
        cases = self._ledger.cases
        makers: Mapping[str, Callable[[], dict[str, Any]]] = {
            "overview": lambda: data.overview(self._ledger, shown.runs),
            "failures": lambda: data.failures(cases(shown.runs, statuses=FAILURES)),
            "distributions": lambda: data.distributions(cases(shown.runs, metrics=True)),
        }
        if part in makers:
            return makers[part]()
        operator = self._operator(shown, part, version)
        if operator is None:
            return None
        return data.operator_cases(cases(shown.runs, op=operator, metrics=True))


def make_app(
    ledger: Ledger,
    tokens: Sequence[str] = (),
    *,
    most_bytes: int = MOST_BYTES,
    hosts: Sequence[str] = ("localhost", "127.0.0.1", "[::1]"),
) -> Starlette:
    """Return the application; without ``tokens`` it takes no results.

    ``hosts`` are the host names that it answers to, "*" for any.
    """
    live, allowed = _Live(ledger), Tokens(tokens)

    async def page(request: Request) -> Response:
        name = request.path_params.get("name") or "index.html"
        if name not in MEDIA_TYPES:
            return _refuse(404, "there is no such page")
        return Response(asset(name), headers={**_HEADERS, "Content-Type": MEDIA_TYPES[name]})

    async def data_script(request: Request) -> Response:
        if _from_elsewhere(request):
            return _refuse(403, "the data is for this server's own pages")
        found = await run_in_threadpool(live.script, request.path_params["name"])
        if found is None:
            return _refuse(404, "there is no such data")
        return Response(found, headers={**_HEADERS, "Content-Type": "text/javascript; charset=utf-8"})

    async def version(request: Request) -> Response:
        if _from_elsewhere(request):
            return _refuse(403, "the data is for this server's own pages")
        return JSONResponse(
            {"version": await run_in_threadpool(live.version), "optest": __version__}, headers=_HEADERS
        )

    async def take(request: Request) -> Response:
        if not allowed:
            return _refuse(403, "this server takes no results: it was started without a token")
        if not allowed.allow(request.headers.get("authorization")):
            return _refuse(401, "the token is missing or wrong", {"WWW-Authenticate": "Bearer"})
        body = await _body(request, most_bytes)
        if body is None:
            return _refuse(413, f"a part may have {most_bytes} bytes; send smaller ones")
        return await run_in_threadpool(_store, ledger, body)

    routes = [
        Route("/", page),
        Route("/api/version", version),
        Route("/api/runs", take, methods=["POST"]),
        Route("/data/{name:path}.js", data_script),
        Route("/{name}", page),
    ]
    middleware = [
        Middleware(TrustedHostMiddleware, allowed_hosts=list(hosts)),
        Middleware(GZipMiddleware, minimum_size=2000, compresslevel=5),
    ]
    handlers: Mapping[Any, Any] = {OptestError: _told}
    return Starlette(routes=routes, middleware=middleware, exception_handlers=handlers)


def _from_elsewhere(request: Request) -> bool:
    """Whether the request comes from a page of another site.

    The data consists of scripts, which a page of any site could otherwise load and read. Browsers send
    ``Sec-Fetch-Site``; those too old for it obey ``Cross-Origin-Resource-Policy``.
    """
    return request.headers.get("sec-fetch-site", "none") not in ("same-origin", "none")


def _together(runs: Iterable[data.Shown]) -> list[data.Shown]:
    """Return a combined view for every backend that has several runs."""
    found: dict[str, list[RunInfo]] = defaultdict(list)
    for one in runs:
        found[one.backend].append(one.newest)
    return [data.together(several) for several in found.values() if len(several) > 1]


async def _body(request: Request, most: int) -> bytes | None:
    """Return the body; None if it is too large, even if its headers claim otherwise."""
    said = request.headers.get("content-length", "0")
    if not said.isdigit() or int(said) > most:
        return None
    parts, size = [], 0
    try:
        async for part in request.stream():
            size += len(part)
            if size > most:
                return None
            parts.append(part)
    except ClientDisconnect:
        return b""  # half a body is not JSON; the client is gone
    return b"".join(parts)


def _store(ledger: Ledger, body: bytes) -> Response:
    try:
        run, results, summary = decode(body)
    except OptestError as error:
        return _refuse(422, error.message)
    try:
        added = ledger.add(run, results, summary)
    except LedgerError:
        added = ledger.add(run, results, summary)  # another part added the run first; now it is there
    except OptestError as error:
        return _refuse(409, error.message)
    _LOG.info("run %s: %d cases, %d of them new", run.run_id, len(results), added)
    return JSONResponse(
        {"run_id": run.run_id, "added": added, "known": len(results) - added}, headers=_HEADERS
    )


async def _told(request: Request, error: Exception) -> Response:
    """Answer that the ledger cannot be used, so that the sender may try again; details go to the log."""
    _LOG.error("%s", error)
    return _refuse(503, "the ledger cannot be used at the moment")


def _refuse(code: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    return JSONResponse({"error": message}, code, headers={**_HEADERS, **(headers or {})})


def _hashed(text: bytes) -> bytes:
    return hashlib.sha256(text).digest()
