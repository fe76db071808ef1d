"""``torchstone export``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from optest.console import OK, echo, print_json

from .command import MODEL, command
from .output import data_on, is_stdout, progress, write_whole

if TYPE_CHECKING:
    from ..compiler import Program
    from ..signature import InputSpec, OutputSpec


@command("export")
@MODEL
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file to write; - is stdout.",
)
@click.option(
    "--emit",
    type=click.Choice(["artifact", "mlir", "bytecode", "graph"]),
    default="artifact",
    show_default=True,
    help="The artifact, its module as text or portable bytecode, or the ATen graph before lowering.",
)
@click.option(
    "--functions", is_flag=True, help="In text, call a function for each module of the model, named after it."
)
@click.option(
    "--stablehlo-version",
    default="current",
    show_default=True,
    help="minimum, week_12, week_4, current, or a number such as 0.19.0.",
)
@click.option(
    "--weights",
    type=click.Choice(["arguments", "constants"]),
    default="arguments",
    show_default=True,
    help="Parameters beside the module, or inside it.",
)
def export(
    model: str,
    output: Path,
    emit: str,
    functions: bool,
    stablehlo_version: str,
    weights: Literal["arguments", "constants"],
    as_json: bool,
) -> int:
    """Write MODEL as portable StableHLO. The model stays in its own mode, training or evaluation."""
    to_stdout = is_stdout(output)
    if to_stdout and (emit == "artifact" or as_json):
        raise click.UsageError("-o - is for mlir, bytecode and graph, without --json: give a file")
    if functions and emit != "mlir":
        raise click.UsageError("--functions is for --emit mlir")
    with progress() as stage, data_on(output):
        stage("loading the model")
        from ..artifact import save_artifact
        from ..compiler import build_program
        from ..hlo import resolve_version
        from ..parity.model import load_model

        version = resolve_version(stablehlo_version)
        loaded = load_model(model)
        stage("tracing and lowering the model")
        program = build_program(loaded.model, loaded.args, loaded.kwargs, weights=weights)
        stage("writing")
        if emit == "artifact":
            save_artifact(output, program.artifact(version, share_weights=True))
        else:
            write_whole(output, _content(program, emit, version, functions))
    if not to_stdout:
        _report(program, output, emit, version, as_json)
    return OK


def _content(program: Program, emit: str, version: str, functions: bool) -> bytes:
    if emit == "graph":
        return str(program.graph_module.print_readable(print_output=False)).encode()
    module = program.artifact(version, share_weights=True).module
    if emit == "bytecode":
        return module
    from ..hlo.portable import text_of

    return text_of(module, functions=functions).encode()


def _report(program: Program, output: Path, emit: str, version: str, as_json: bool) -> None:
    signature, size = program.signature, output.stat().st_size if output.is_file() else None
    if as_json:
        print_json(
            {
                "output": str(output),
                "emit": emit,
                "bytes": size,
                "stablehlo_version": version,
                "weights": len(program.weights),
                "inputs": [_described(spec) for spec in signature.inputs if spec.kind == "input"],
                "outputs": [_described(spec) for spec in signature.outputs if spec.kind == "output"],
            }
        )
        return
    written = "" if size is None else f"{size:,} bytes, "
    echo(f"{output}: {emit}, {written}StableHLO {version}, {len(program.weights)} weights beside it")
    specs: list[InputSpec | OutputSpec] = [*signature.inputs, *signature.outputs]
    for spec in specs:
        if spec.kind in ("input", "output"):
            echo(f"  {spec.kind} {spec.name}: {spec.dtype.name}{list(spec.shape)}")


def _described(spec: InputSpec | OutputSpec) -> dict[str, Any]:
    return {"name": spec.name, "dtype": spec.dtype.name, "shape": list(spec.shape)}
