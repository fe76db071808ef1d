"""``torchstone run``."""

from __future__ import annotations

import io
import time
from pathlib import Path
from typing import Any

import click

from optest.console import OK, echo, print_json, print_table
from optest.options import SEED, Number

from .command import command, placed
from .output import progress, require_files, write_whole


def _sizes(ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, int]:
    """Convert ``("s0=4",)`` to ``{"s0": 4}``."""
    found = {}
    for value in values:
        name, equals, size = value.partition("=")
        if not (equals and name and size.isdecimal() and len(size) < 19):
            raise click.BadParameter(f"{value!r} is not NAME=SIZE, as in s0=4")
        found[name] = int(size)
    return found


@command("run")
@click.argument("artifact", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--input",
    "inputs",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A .npy file (or the arrays of a .npz file) for the next input; repeat it.",
)
@click.option(
    "--seed",
    type=SEED,
    default=0,
    show_default=True,
    help="Of the random inputs, used where no --input is given.",
)
@click.option(
    "--dim",
    "sizes",
    multiple=True,
    callback=_sizes,
    metavar="NAME=SIZE",
    help="A symbolic size of random inputs.",
)
@click.option(
    "--output", type=click.Path(dir_okay=False, path_type=Path), help="A .npz file for the outputs."
)
@click.option(
    "--isolated",
    is_flag=True,
    help="Run in a child process that may crash or be stopped: for files that you do not trust.",
)
@click.option(
    "--timeout",
    "timeout_s",
    default=300.0,
    show_default=True,
    type=Number(0.1, 86400),
    metavar="SECONDS",
    help="How long --isolated waits for the child process.",
)
@placed
def run(
    artifact: Path,
    inputs: tuple[Path, ...],
    seed: int,
    sizes: dict[str, int],
    output: Path | None,
    isolated: bool,
    timeout_s: float,
    device: str | None,
    engine: str | None,
    as_json: bool,
) -> int:
    """Run an ARTIFACT; needs no PyTorch.

    Random inputs have a standard normal distribution. Integers are 0 or 1, so
    that they are valid as indices.
    """
    require_files(output=output)
    with progress() as stage:
        stage("loading")
        import numpy

        from ..artifact import load_artifact
        from ..parity.replay import random_inputs, read_inputs

        signature = load_artifact(artifact).signature
        arrays = read_inputs(inputs) if inputs else random_inputs(signature, seed, sizes)
        stage("compiling and running")
        started = time.perf_counter()
        if isolated:
            outputs = _call_isolated(artifact, arrays, timeout_s, device, engine)
        else:
            outputs = _call_here(artifact, arrays, device, engine)
        seconds = time.perf_counter() - started
        if output is not None:
            content = io.BytesIO()
            numpy.savez(content, allow_pickle=False, **outputs)
            write_whole(output, content.getvalue())
    described = [{"name": name, **_described(array)} for name, array in outputs.items()]
    if as_json:
        print_json({"artifact": str(artifact), "first_call_s": seconds, "outputs": described})
    else:
        rows = [[_cell(value) for value in entry.values()] for entry in described]
        print_table(("output", "dtype", "shape", "smallest", "mean", "largest"), rows)
        echo(f"first call, with compilation: {seconds:.3f} s")
    return OK


def _call_here(artifact: Path, arrays: Any, device: str | None, engine: str | None) -> dict[str, Any]:
    from ..api import load
    from ..parity.replay import call

    return call(load(artifact, device=device, engine=engine), arrays)


def _call_isolated(
    artifact: Path, arrays: Any, timeout_s: float, device: str | None, engine: str | None
) -> dict[str, Any]:
    """Return the outputs of one call in a child process; :class:`EngineError` if that crashes or hangs."""
    from ..artifact import load_artifact
    from ..config import config, override
    from ..parity.replay import output_specs, run_fresh

    with override(device=device or config.device, engine=engine or config.engine):
        results = run_fresh(artifact, arrays, timeout_s=timeout_s)
    return dict(zip(output_specs(load_artifact(artifact).signature), results, strict=True))


def _cell(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _described(array: Any) -> dict[str, Any]:
    """Return dtype, shape, least, mean and largest value: of the moduli if complex, None if empty."""
    import numpy

    if array.size == 0:
        low = mean = high = None
    else:
        real = numpy.abs(array) if array.dtype.kind == "c" else array.astype(numpy.float64)
        low, mean, high = (float(function(real)) for function in (numpy.min, numpy.mean, numpy.max))
    return {"dtype": array.dtype.name, "shape": list(array.shape), "min": low, "mean": mean, "max": high}
