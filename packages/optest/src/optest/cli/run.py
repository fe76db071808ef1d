"""``optest run``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..console import echo, print_json
from ..errors import UsageError
from ..options import RETRIES, SECONDS, SEED, TOLERANCE, WORKERS
from .command import command, load_plugins
from .values import NamedShape, flags_of, read_attributes, read_shapes

if TYPE_CHECKING:
    from ..plan.options import RunOptions
    from ..session import Outcome

_PATH = click.Path(path_type=Path)
_EXECUTORS = ("process", "ray")

WHAT = (
    click.option("--op", multiple=True, metavar="OP", help="An operator; with a plan or suite, only these."),
    click.option(
        "--dtype", multiple=True, metavar="DTYPE[,DTYPE…]", help="One for all inputs, or one per input."
    ),
    click.option(
        "--shape",
        multiple=True,
        callback=read_shapes,
        metavar="[INPUT=]8,2048",
        help="Shape of all inputs, or one.",
    ),
    click.option(
        "--attr", multiple=True, callback=read_attributes, metavar="K=V", help="An attribute, as in YAML."
    ),
    click.option("--phase", help="forward, or another phase that the driver knows."),
    click.option("--generator", metavar="MODULE:CLASS", help="Where inputs come from."),
    click.option("--reference", metavar="MODULE:FUNCTION", help="Where right answers come from."),
    click.option("--rtol", type=TOLERANCE, help="Relative tolerance."),
    click.option("--atol", type=TOLERANCE, help="Absolute tolerance."),
    click.option("--seed", type=SEED, help="Seed of the inputs.  [default: 0]"),
    click.option("--plan", type=_PATH, metavar="FILE", help="A YAML plan."),
    click.option(
        "--suite",
        metavar="NAME",
        help="builtin: every operator with its built-in cases; "
        "opinfo, python_ref, module, optim, hop: PyTorch's own databases.",
    ),
)
SAMPLES = (
    click.option(
        "--sample",
        "numbers",
        multiple=True,
        type=click.IntRange(0),
        metavar="N",
        help="In a suite of PyTorch's: only samples of that number.",
    ),
    click.option(
        "--most",
        type=click.IntRange(1),
        metavar="N",
        help="In a suite of PyTorch's: at most N samples of a group.",
    ),
    click.option(
        "--stratify",
        type=click.IntRange(1),
        metavar="N",
        help="In a suite of PyTorch's: N groups, evenly from all families, phases and dtypes.",
    ),
)
WHERE = (
    click.option("--backend", metavar="NAME", help="A kind (gpu, npu, …) or a driver's name."),
    click.option("--chip", metavar="NAME", help="A chip that the driver knows."),
    click.option("--timeout", type=SECONDS, help="Seconds a case may take.  [default: 300]"),
    click.option("--ledger", metavar="PATH|URL|none", help="Where results are kept."),
)
HOW = (
    click.option(
        "--filter", "filters", multiple=True, metavar="[!][KEY=]PATTERN", help="Which cases to keep."
    ),
    click.option(
        "--workers",
        type=WORKERS,
        help="Worker processes.  [default: 1; on a Ray cluster, one per CPU]",
    ),
    click.option("--executor", type=click.Choice(_EXECUTORS), help="Where they are.  [default: process]"),
    click.option("--shard", metavar="I/N", help="Only the I-th of N parts."),
    click.option("--resume", is_flag=True, default=None, help="Go on where an interrupted run stopped."),
    click.option("--retries", type=RETRIES, help="Try failed cases again.  [default: 0]"),
    click.option("--fail-fast", is_flag=True, default=None, help="Stop at the first failure."),
    click.option(
        "--expectations",
        type=_PATH,
        metavar="FILE",
        help="Declared gaps.  [default: the driver's; of a suite of PyTorch's, none]",
    ),
    click.option("--report", "reports", multiple=True, metavar="KIND[:PATH]", help="json, junit or html."),
    click.option("--no-color", is_flag=True, help="No colours."),
)


def with_options(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a decorator that adds options in the given order."""

    def decorate(function: Any) -> Any:
        for one in reversed(options):
            function = one(function)
        return function

    return decorate


@command("run")
@with_options(*WHAT, *SAMPLES, *WHERE, *HOW)
def run(no_color: bool, as_json: bool, **given: Any) -> int:
    """Run cases on a backend and judge the results.

    Name what to run with --op, a plan or a suite. Repeat --dtype, --shape and --attr
    for alternatives.

    \b
    --filter keeps cases by op, category, tag, dtype, phase, note or id:
      --filter op=conv* --filter '!dtype=bfloat16'
    """
    from ..torch.opinfo.groups import SUITES

    failed_plugins = load_plugins(as_json)
    if given["suite"] in SUITES:
        return _run_suite(no_color, as_json, failed_plugins, **given)
    from ..session import run_session

    _refuse({name: given.pop(name) for name in SUITES_ONLY}, "a suite of PyTorch's only: --suite opinfo")
    options = options_of(**given)
    return told(run_session(options, terminal=not as_json, color=not no_color), as_json, failed_plugins)


SUITES_ONLY = ("numbers", "most", "stratify")
_NOT_FOR_SUITES = ("shape", "attr", "generator", "reference", "rtol", "atol", "plan", "filters")


def _run_suite(no_color: bool, as_json: bool, failed_plugins: list[dict[str, str]], **given: Any) -> int:
    from ..core.summary import cost_split
    from ..plan.options import ReportRequest, RunOptions, parse_shard
    from ..torch.opinfo.groups import DEFAULT_PHASES, Selection
    from ..torch.opinfo.session import run_suite

    refuse_for_suites(given)
    selection = Selection(
        given["suite"],
        entries=given["op"],
        dtypes=given["dtype"],
        phases=tuple(given["phase"].split(",")) if given["phase"] else DEFAULT_PHASES,
        samples=given["numbers"],
        most=given["most"],
        stratify=given["stratify"],
        shard=parse_shard(given["shard"]) if given["shard"] else (1, 1),
        seed=given["seed"] or 0,
    )
    options = RunOptions(
        suite=selection.suite,
        seed=selection.seed,
        shard=selection.shard,
        backend=given["backend"],
        chip=given["chip"],
        workers=given["workers"] or 1,
        executor=given["executor"] or _EXECUTORS[0],
        timeout=given["timeout"],
        retries=given["retries"] or 0,
        fail_fast=bool(given["fail_fast"]),
        resume=bool(given["resume"]),
        reports=tuple(ReportRequest.parse(text) for text in given["reports"]),
        ledger=given["ledger"],
        expectations=given["expectations"],
    )
    outcome = run_suite(selection, options, terminal=not as_json, color=not no_color)
    if not as_json and (split := cost_split(outcome.summary.seconds)):
        echo(split)
    return told(outcome, as_json, failed_plugins)


def refuse_for_suites(given: Mapping[str, Any]) -> None:
    """Raise :class:`UsageError` for a flag that PyTorch's suites do not take."""
    wrong = {name: given[name] for name in _NOT_FOR_SUITES if name in given}
    _refuse(wrong, "optest's own operators, not for PyTorch's suites")


def _refuse(given: Mapping[str, Any], where: str) -> None:
    """Raise :class:`UsageError` for a flag that was given but has no meaning here."""
    for name, value in given.items():
        if value is not None and value != ():
            raise UsageError(f"--{_FLAGS.get(name, name)} is for {where}")


_FLAGS = {"numbers": "sample", "filters": "filter"}


def told(outcome: Outcome, as_json: bool, failed_plugins: list[dict[str, str]]) -> int:
    """Print what the reporters have not printed, and return the exit code of the run."""
    if as_json:
        print_json(outcome.to_dict() | {"failed_plugins": failed_plugins})
    else:
        for problem in outcome.problems:
            echo(f"expectations: {problem}", err=True)
    return outcome.exit_code


def options_of(
    *,
    op: tuple[str, ...],
    dtype: tuple[str, ...],
    shape: tuple[NamedShape, ...],
    attr: tuple[tuple[str, Any], ...],
    phase: str | None,
    generator: str | None,
    reference: str | None,
    rtol: float | None,
    atol: float | None,
    seed: int | None,
    **rest: Any,
) -> RunOptions:
    """Make run options from flags as click passes them."""
    from ..plan.options import resolve

    flags = flags_of(
        op=op, dtype=dtype, shape=shape, attr=attr, phase=phase, generator=generator, reference=reference,
        rtol=rtol, atol=atol, seed=seed,
    )  # fmt: skip
    return resolve(flags=flags, seed=seed, **rest)
