"""``optest serve`` and ``publish``: a live dashboard, and sending runs to it."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import click

from ..console import OK, echo, print_json
from .command import command
from .coverage import LEDGER

_TOKEN = "OPTEST_TOKEN"
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


@command("serve")
@LEDGER
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to bind to.")
@click.option("--port", type=click.IntRange(0, 65535), default=8321, show_default=True, help="0 for any.")
@click.option(
    "--name", "names", multiple=True, metavar="HOST", help="A host name that it is reached by; * for any."
)
@click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Tokens that may publish, one per line.  [default: OPTEST_TOKEN]",
)
@click.option(
    "--max-size", type=click.IntRange(1), default=16, show_default=True, help="MiB of a published part."
)
def serve(
    ledger: str | None,
    host: str,
    port: int,
    names: tuple[str, ...],
    token_file: Path | None,
    max_size: int,
    as_json: bool,
) -> int:
    """Show the current state of a ledger, and take runs that other machines publish.

    The server only listens on this machine unless --host says otherwise. Without a token it takes no runs.
    """
    from ..errors import MissingExtra
    from ..session import open_ledger

    try:
        import uvicorn

        from ..dashboard.server import make_app
    except ImportError as error:
        raise MissingExtra(f"optest serve needs {error.name}", extra="dashboard") from error
    tokens = _tokens(token_file)
    app = make_app(open_ledger(ledger), tokens, most_bytes=max_size << 20, hosts=(*_LOOPBACK, host, *names))
    listener = _listen(host, port)
    address = "http://{}:{}".format(f"[{host}]" if ":" in host else host, listener.getsockname()[1])
    if as_json:
        print_json({"address": address, "takes_results": bool(tokens)})
    else:
        echo(f"{address} ({'takes' if tokens else 'shows, but takes no'} results)")
    uvicorn.Server(uvicorn.Config(app, log_level="info", server_header=False)).run(sockets=[listener])
    return OK


@command("publish")
@click.option("--url", required=True, metavar="URL", help="The server, like https://results.example.")
@LEDGER
@click.option("--run", "runs", multiple=True, metavar="RUN", help="A run to send.  [default: the newest]")
@click.option("--all", "every", is_flag=True, help="Every run of the ledger.")
def publish(url: str, ledger: str | None, runs: tuple[str, ...], every: bool, as_json: bool) -> int:
    """Send recorded runs to a server (optest serve). OPTEST_TOKEN has the token.

    Results that the server already has are not added twice, so a run may be sent again.
    """
    from ..dashboard.publish import Publisher
    from ..errors import UsageError
    from ..session import open_ledger

    token = os.environ.get(_TOKEN, "")
    if not token:
        raise UsageError("there is no token", f"{_TOKEN}=… optest publish --url {url}")
    publisher = Publisher(url, token)
    opened = open_ledger(ledger, create=False)
    known = opened.runs()
    wanted = {one.run_id for one in known} if every else {opened.find_run(one) for one in runs or ("latest",)}
    sent = [publisher.publish(opened, one) for one in known if one.run_id in wanted]
    if as_json:
        print_json({"runs": [{"run": one.run_id, "added": one.added, "known": one.known} for one in sent]})
        return OK
    for one in sent:
        echo(f"{one.run_id}: {one.added} cases added, {one.known} were there")
    return OK


def _listen(host: str, port: int) -> socket.socket:
    from ..errors import EnvironmentError_

    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=128)
    except UnicodeError as error:
        raise EnvironmentError_(
            f"{host!r} is not the name of a host: {error}", "give another --host"
        ) from None
    except OSError as error:
        why = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
        raise EnvironmentError_(
            f"{host}:{port} cannot be listened on: {why}", "give another --port"
        ) from None


def _tokens(file: Path | None) -> list[str]:
    """Read tokens from the file or the environment, never from the command line, which everybody can see."""
    from ..errors import EnvironmentError_, UsageError
    from ..files import read_whole

    if file is None:
        return [os.environ[_TOKEN]] if os.environ.get(_TOKEN) else []
    try:
        found = [line.strip() for line in read_whole(file).decode("utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise EnvironmentError_(f"the tokens in {file} cannot be read: {error}") from None
    if not found:
        raise UsageError(f"{file} has no token")
    return found
