from __future__ import annotations

import contextlib
import http.client
import json
import logging
import socket
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest

from optest.dashboard.publish import Published, Publisher
from optest.dashboard.wire import MOST_RESULTS, encode
from optest.errors import EnvironmentError_, UsageError
from optest.ledger import Ledger

Serve = Callable[..., str]


def post(url: str, body: bytes, token: str | None = "sesame", **headers: str) -> tuple[int, dict[str, Any]]:
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    request = urllib.request.Request(f"{url}/api/runs", body, headers, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def part(recorder: Any, count: int = 3) -> bytes:
    run_id = recorder.run([recorder.case("add", sample=number) for number in range(count)])
    [run] = [one for one in recorder.ledger.runs() if one.run_id == run_id]
    [results] = recorder.ledger.outgoing(run)
    return encode(run, results, recorder.ledger.summary(run_id))


def changed(body: bytes, change: Callable[[dict[str, Any]], object]) -> bytes:
    message = json.loads(body)
    change(message)
    return json.dumps(message).encode()


def test_a_published_run_arrives_as_it_was(hostile: Any, ledger: Ledger, serve: Serve) -> None:
    """The run arrives in SQLite and in PostgreSQL, and sending it again changes nothing."""
    publisher = Publisher(serve(ledger), "sesame")
    for run in hostile.ledger.runs():
        assert publisher.publish(hostile.ledger, run) == Published(run.run_id, 11, 0)
        assert publisher.publish(hostile.ledger, run) == Published(run.run_id, 0, 11)
        assert list(ledger.results(run.run_id)) == list(hostile.ledger.results(run.run_id))
        assert ledger.summary(run.run_id) is not None
    assert ledger.runs() == hostile.ledger.runs()


def test_metrics_come_along_and_a_run_may_come_in_parts(recorder: Any, tmp_path: Any, serve: Serve) -> None:
    comparison = {"output": "out", "passed": True, "count": 6, "mismatches": 0,
                  "max_abs": float("inf"), "max_rel": None, "max_ulp": 2.0**80,
                  "accuracy": {"ulp_error": 0.5, "control_ulp_error": None}}  # fmt: skip
    recorder.run([recorder.case("add", sample=n, comparisons=(comparison,)) for n in range(1005)])
    target = Ledger(tmp_path / "target.sqlite")
    [run] = recorder.ledger.runs()
    assert Publisher(serve(target), "sesame").publish(recorder.ledger, run).added == 1005
    [op] = target.history("add")
    assert (op["passed"], op["max_ulp"]) == (1005, 2.0**80)
    assert [one.comparisons for batch in target.outgoing(run) for one in batch] == [(comparison,)] * 1005


@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer wrong", "Basic sesame", "Bearer \xe9", "sesame"]
)
def test_nobody_without_the_token(recorder: Any, tmp_path: Any, serve: Serve, header: str | None) -> None:
    target = Ledger(tmp_path / "target.sqlite")
    given = {} if header is None else {"Authorization": header}
    code, told = post(serve(target), part(recorder), None, **given)
    assert (code, told) == (401, {"error": "the token is missing or wrong"})
    assert target.runs() == []


def test_a_server_without_tokens_takes_nothing(recorder: Any, tmp_path: Any, serve: Serve) -> None:
    target = Ledger(tmp_path / "target.sqlite")
    code, told = post(serve(target, ()), part(recorder), "")
    assert code == 403
    assert "started without a token" in told["error"]


def test_any_of_several_tokens_and_none_in_the_log(
    recorder: Any, tmp_path: Any, serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    url = serve(Ledger(tmp_path / "target.sqlite"), ("open-sesame", "second-word"))
    body = part(recorder)
    assert post(url, body, "second-word")[0] == 200
    assert post(url, body, "almost-right")[0] == 401
    assert "3 of them new" in caplog.text
    for secret in ("open-sesame", "second-word", "almost-right"):
        assert secret not in caplog.text


MISTAKES: list[tuple[Callable[[dict[str, Any]], object], str]] = [
    (lambda m: m.pop("run"), "run: Field required"),
    (lambda m: m.update(format=2), "the format is 2; this server takes 1"),
    (lambda m: m.update(extra=1), "extra: Extra inputs are not permitted"),
    (lambda m: m["run"].update(run_id="../../etc"), "run.run_id: String should match pattern"),
    (lambda m: m["run"].update(started="yesterday"), "run.started: String should match pattern"),
    (lambda m: m["run"].update(seed=-1), "run.seed: Input should be greater than or equal to 0"),
    (lambda m: m["run"].update(environment={"a": 3}), "run.environment.a: Input should be a valid string"),
    (lambda m: m["results"][1].update(case_id="x" * 16), "results.1.case_id: String should match pattern"),
    (lambda m: m["results"][1].update(status="fine"), "results.1.status: Input should be 'passed'"),
    (lambda m: m["results"][1].update(op="x" * 301), "results.1.op: String should have at most 300"),
    (lambda m: m["results"][1].update(duration_s=float("nan")), "results.1.duration_s: Input should be"),
    (lambda m: m["results"][1].update(shapes={"x": [-1]}), "results.1.shapes.x.0: Input should be greater"),
    (lambda m: m["results"][1].update(comparisons=[{}]), "results.1.comparisons.0.output: Field required"),
    (lambda m: m["results"][1]["backend"].update(name="other"), "a result is of another backend"),
    (lambda m: m["results"][1].update(reason="\ud800"), "the body is not JSON: 'utf-8' codec can't encode"),
    (lambda m: m.update(results=m["results"] * MOST_RESULTS), "results: List should have at most 5000"),
]


def test_malformed_parts_are_told_and_leave_nothing(recorder: Any, tmp_path: Any, serve: Serve) -> None:
    target = Ledger(tmp_path / "target.sqlite")
    url, body = serve(target), part(recorder)
    for change, expected in MISTAKES:
        code, told = post(url, changed(body, change))
        assert code == 422, told
        assert told["error"].startswith(expected)
    for raw in (b"", b"{", body[:-20], b"[]", b"3", b"\xff\xfe", b"[" * 100_000, b"null"):
        assert post(url, raw)[0] == 422
    assert target.runs() == []
    assert post(url, body)[0] == 200


def test_texts_that_databases_do_not_take_are_taken(recorder: Any, ledger: Ledger, serve: Serve) -> None:
    body = changed(
        part(recorder), lambda m: m["results"][0].update(op="a\0b", stderr_tail="c\0", reason="d\0")
    )
    assert post(serve(ledger), body) == (
        200,
        {"run_id": recorder.ledger.runs()[0].run_id, "added": 3, "known": 0},
    )
    [found] = [one for one in ledger.results(ledger.runs()[0].run_id) if one.reason]
    assert (found.op, found.stderr_tail, found.reason) == ("a\ufffdb", "c\ufffd", "d\ufffd")


def test_a_part_that_is_too_large(recorder: Any, tmp_path: Any, serve: Serve) -> None:
    """The part is refused whether it declares its length or not."""
    target = Ledger(tmp_path / "target.sqlite")
    url, body = serve(target, most_bytes=1000), part(recorder)
    code, told = post(url, body)
    assert (code, told["error"]) == (413, "a part may have 1000 bytes; send smaller ones")
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(url).netloc, timeout=30)
    pieces = (body[start : start + 400] for start in range(0, len(body), 400))
    headers = {"Authorization": "Bearer sesame", "Transfer-Encoding": "chunked"}
    connection.request("POST", "/api/runs", pieces, headers, encode_chunked=True)
    assert connection.getresponse().status == 413
    assert target.runs() == []


def test_another_run_with_the_same_id_is_refused(recorder: Any, tmp_path: Any, serve: Serve) -> None:
    target = Ledger(tmp_path / "target.sqlite")
    url, body = serve(target), part(recorder)
    assert post(url, body)[0] == 200
    code, told = post(url, changed(body, lambda m: m["run"].update(version="9")))
    assert code == 409
    assert told["error"].endswith("version differ")
    assert [one.version for one in target.runs()] == ["0.1.0"]


def test_the_same_run_from_two_sides_at_once(recorder: Any, ledger: Ledger, serve: Serve) -> None:
    url, body = serve(ledger), part(recorder, 200)
    answers: list[tuple[int, dict[str, Any]]] = []
    threads = [threading.Thread(target=lambda: answers.append(post(url, body))) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert [code for code, _ in answers] == [200] * 4
    assert sum(told["added"] for _, told in answers) == 200
    assert len(list(ledger.results(ledger.runs()[0].run_id))) == 200


def test_a_ledger_that_fails_is_a_temporary_error_without_details(
    recorder: Any, tmp_path: Any, serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    target = Ledger(tmp_path / "target.sqlite")
    url, body = serve(target), part(recorder)
    (tmp_path / "target.sqlite").write_bytes(b"no database" * 1000)
    code, told = post(url, body)
    assert (code, told) == (503, {"error": "the ledger cannot be used at the moment"})
    assert "target.sqlite cannot be" in caplog.text
    waits: list[float] = []
    with pytest.raises(EnvironmentError_, match=r"refused the run \(503\): .* at the moment") as caught:
        Publisher(url, "sesame", sleep=waits.append).publish(recorder.ledger, recorder.ledger.runs()[0])
    assert "nothing is lost" in str(caught.value)
    assert waits == [1.0, 2.0, 4.0]


def test_pages_and_live_data(hostile: Any, serve: Serve, read: Callable[[str], Any]) -> None:
    url = serve(hostile.ledger)

    def get(path: str, **headers: str) -> tuple[int, str, Any]:
        request = urllib.request.Request(url + path, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=30) as response:
                return response.status, response.read().decode(), response.headers
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode(), error.headers

    code, text, headers = get("/")
    assert (code, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert "<title>optest</title>" in text
    _, before, _ = get("/data/index.js")
    assert before.startswith('optest.receive("index", JSON.parse("')
    _, version, _ = get("/api/version")
    hostile.run([hostile.case("new")])
    assert get("/api/version")[1] != version
    _, after, _ = get("/data/index.js")
    assert len(after) > len(before)
    [together] = [one["key"] for one in read(after)["runs"] if one["run_id"] == "newest results of 3 runs"]
    everything = read(get(f"/data/{together}/overview.js")[1])
    assert "new" in everything["operators"]
    place = everything["operators"].index("new")
    assert read(get(f"/data/{together}/{everything['keys'][place]}.js")[1])["cases"][0]["status"] == "passed"
    paths = ("none.js", "../server.py", "0000/overview.js", "%2e%2e/x.js", "coverage/none.js")
    for path in ("/server.py", *(f"/data/{one}" for one in paths)):
        assert get(path)[0] == 404
    assert get("/", Host="evil.example")[0] == 400
    assert get("/api/runs")[0] == 405


def test_addresses_and_tokens_that_cannot_be_used(recorder: Any) -> None:
    for url in ("ftp://x", "results.example", "http://user:pass@host", "http://host/?a=b", ""):
        with pytest.raises(UsageError, match="is not the address of a server"):
            Publisher(url, "sesame")
    for token in ("", "two words", "line\nbreak", "é"):
        with pytest.raises(UsageError, match="the token is not one word"):
            Publisher("http://host", token)
    recorder.run([recorder.case("add")])
    with pytest.raises(EnvironmentError_, match="cannot be reached") as caught:
        Publisher("http://127.0.0.1:9", "sesame", sleep=lambda _: None).publish(
            recorder.ledger, recorder.ledger.runs()[0]
        )
    assert "sesame" not in str(caught.value)


def test_the_token_is_not_sent_on(recorder: Any, tmp_path: Any, serve: Serve) -> None:
    """A redirect is not followed, so the token reaches no other server."""
    uvicorn = pytest.importorskip("uvicorn")
    from starlette.applications import Starlette
    from starlette.responses import RedirectResponse
    from starlette.routing import Route

    target = serve(Ledger(tmp_path / "target.sqlite"))
    app = Starlette(
        routes=[Route("/api/runs", lambda _: RedirectResponse(f"{target}/api/runs", 307), methods=["POST"])]
    )
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        pass
    port = server.servers[0].sockets[0].getsockname()[1]
    recorder.run([recorder.case("add")])
    with pytest.raises(UsageError, match=r"refused the run \(307\)"):
        Publisher(f"http://127.0.0.1:{port}", "sesame").publish(recorder.ledger, recorder.ledger.runs()[0])
    server.should_exit = True
    thread.join(10)


@pytest.mark.parametrize(
    ("site", "code"),
    [("cross-site", 403), ("same-site", 403), ("same-origin", 200), ("none", 200), ("", 200)],
)
def test_data_are_for_the_servers_own_pages(recorder: Any, serve: Serve, site: str, code: int) -> None:
    """Data are scripts, which a page of any other site could otherwise load and read."""
    recorder.run([recorder.case("add")])
    url = serve(recorder.ledger)
    for path in ("/data/index.js", "/api/version"):
        request = urllib.request.Request(url + path, headers={"Sec-Fetch-Site": site} if site else {})
        try:
            with urllib.request.urlopen(request, timeout=30) as response:
                found, headers = response.status, response.headers
        except urllib.error.HTTPError as error:
            found, headers = error.code, error.headers
        assert found == code
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize(
    "url", ["http://[::1", "http://h:port", "http://h:99999", "http://u:s3cret@h", "http://"]
)
def test_bad_addresses_are_usage_errors(url: str) -> None:
    with pytest.raises(UsageError, match="is not the address of a server") as caught:
        Publisher(url, "token")
    assert "s3cret" not in str(caught.value)


def test_a_server_that_drips_is_not_waited_for(recorder: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("optest.dashboard.publish._TIMEOUT_S", 0.3)
    recorder.run([recorder.case("add")])
    listener = socket.create_server(("127.0.0.1", 0))

    def drip() -> None:
        while True:
            connection, _ = listener.accept()
            with contextlib.suppress(OSError), connection:
                connection.recv(1 << 16)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 600\r\n\r\n")
                for _ in range(600):
                    connection.sendall(b" ")
                    time.sleep(0.05)

    threading.Thread(target=drip, daemon=True).start()
    publisher = Publisher(f"http://127.0.0.1:{listener.getsockname()[1]}", "token", sleep=lambda s: None)
    [run] = recorder.ledger.runs()
    started = time.monotonic()
    with pytest.raises(EnvironmentError_, match="cannot be reached: the answer took too long"):
        publisher.publish(recorder.ledger, run)
    assert time.monotonic() - started < 20
