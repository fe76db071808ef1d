"""``optest replay``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..console import OK, echo, print_json
from .command import command, load_plugins
from .run import WHAT, WHERE, options_of, refuse_for_suites, told, with_options

if TYPE_CHECKING:
    from ..core.result import CaseResult

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
    """Run one case again: CASE_ID, or its beginning, as reports show it.

    The case is looked up in the plan, suite or operators that are named, else in the
    ledger, else in the built-in suite. It runs on the backend it ran on, or on --backend.
    """
    from ..session import find_case, recorded_case, replay_script, run_session

    failed_plugins = load_plugins(as_json)
    named = bool(given["plan"] or given["suite"] or given["op"])
    recorded = None if named else recorded_case(case_id, given["ledger"])
    if recorded is not None and recorded.origin is not None:
        return _replay_sample(recorded, script, as_json, failed_plugins, **given)
    options = find_case(case_id, lambda **more: options_of(**{**_EVERYTHING, **given, **more}), named=named)
    if script is not None:
        return _scripted(case_id, script, replay_script(options, script), as_json)
    return told(run_session(options, terminal=not as_json), as_json, failed_plugins)


def _replay_sample(
    recorded: CaseResult,
    script: Path | None,
    as_json: bool,
    failed_plugins: list[dict[str, str]],
    **given: Any,
) -> int:
    """Run a sample of one of PyTorch's databases again."""
    from ..torch.opinfo.session import replay_sample, sample_script

    refuse_for_suites(given)
    if script is not None:
        return _scripted(recorded.case_id, script, sample_script(recorded, given["backend"], script), as_json)
    places = {name: given[name] for name in ("backend", "chip", "timeout", "ledger")}
    return told(replay_sample(recorded, places, terminal=not as_json), as_json, failed_plugins)


def _scripted(case_id: str, script: Path, shrunk: str, as_json: bool) -> int:
    if as_json:
        print_json({"case": case_id, "script": str(script), "shrunk_to": shrunk})
    else:
        echo(f"{script}: {shrunk}")
    return OK
