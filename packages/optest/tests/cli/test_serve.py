"""The commands ``optest serve`` and ``optest publish``, as processes and in this process."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from optest.cli.app import cli
from optest.ledger import Ledger

pytest.importorskip("uvicorn", reason="the extra dashboard is not installed")


def test_a_server_and_a_publisher(recorder: Any, tmp_path: Path) -> None:
    """The server listens on loopback, and its output does not show the tokens from the file."""
    recorder.run([recorder.case("add")])
    recorder.run([recorder.case("add"), recorder.case("mul")])
    (tmp_path / "tokens").write_text("\nfirst-secret\nsecond-secret\n")
    words = [sys.executable, "-c", "from optest.cli import main; main()", "serve", "--port", "0"]
    words += ["--ledger", str(tmp_path / "server.sqlite"), "--token-file", str(tmp_path / "tokens")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONUNBUFFERED": "1"}
    server = subprocess.Popen(
        words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        assert server.stdout is not None
        address, _, rest = server.stdout.readline().strip().partition(" ")
        assert address.startswith("http://127.0.0.1:")
        assert rest == "(takes results)"
        given = ["publish", "--url", address, "--ledger", recorder.ledger.place, "--json"]

        def publish(token: str, *more: str) -> tuple[int, dict[str, Any]]:
            done = CliRunner(env={"OPTEST_TOKEN": token}).invoke(cli, [*given, *more], standalone_mode=False)
            return done.return_value, json.loads(done.output)

        assert publish("second-secret") == (
            0,
            {"runs": [{"run": "20260101-000002-abcdef", "added": 2, "known": 0}]},
        )
        assert [one["added"] for one in publish("first-secret", "--all")[1]["runs"]] == [1, 0]
        code, told = publish("third-secret")
        assert code == 2
        assert "(401): the token is missing or wrong" in told["error"]["message"]
        assert "OPTEST_TOKEN" in publish("")[1]["error"]["hint"]
    finally:
        server.send_signal(signal.SIGINT)
        said, _ = server.communicate(timeout=30)
    assert server.returncode == 130
    assert "POST /api/runs" in said
    assert "secret" not in said
    assert len(Ledger(tmp_path / "server.sqlite").runs()) == 2


def test_what_a_server_cannot_start_with(tmp_path: Path) -> None:
    def serve(*words: str) -> tuple[int, dict[str, str]]:
        given = ["serve", "--ledger", str(tmp_path / "l.sqlite"), "--json", *words]
        done = CliRunner(env={"OPTEST_TOKEN": ""}).invoke(cli, given, standalone_mode=False)
        return done.return_value, json.loads(done.output)["error"]

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        code, told = serve("--port", port)
    assert (code, told["message"]) == (3, f"127.0.0.1:{port} cannot be listened on: Address already in use")
    (tmp_path / "empty").touch()
    assert serve("--token-file", str(tmp_path / "empty"))[1]["message"].endswith("has no token")
    assert serve("--token-file", str(tmp_path / "none"))[0] == 3
    assert serve("--host", "no.such.host.invalid")[0] == 3
