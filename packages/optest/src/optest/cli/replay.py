"""``optest replay``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..console import OK, echo, print_json
from .command import command, load_plugins
from .run import WHAT, WHERE, options_of, told, with_options

_EVERYTHING = {"filters": (), "shard": None, "reports": ()}


@command("replay")
@click.argument("case_id")
@with_options(*WHAT, *WHERE)
@click.option(
    "--script",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Shrink the case, and write a script that shows the failure by itself.",
)
def replay(case_id: str, script: Path | None, as_json: bool, **given: Any) -> int:
    """Run one case again: CASE_ID, or its beginning, as reports have it.

    It is looked for in the plan, suite or operators that are named, else in the
    ledger, else in the built-in suite; on the backend it ran on, or on --backend.
    """
    from ..session import find_case, replay_script, run_session

    failed_plugins = load_plugins(as_json)
    options = find_case(
        case_id,
        lambda **more: options_of(**{**_EVERYTHING, **given, **more}),
        named=bool(given["plan"] or given["suite"] or given["op"]),
    )
    if script is not None:
        shrunk = replay_script(options, script)
        if as_json:
            print_json({"case": case_id, "script": str(script), "shrunk_to": shrunk})
        else:
            echo(f"{script}: {shrunk}")
        return OK
    return told(run_session(options, terminal=not as_json), as_json, failed_plugins)
