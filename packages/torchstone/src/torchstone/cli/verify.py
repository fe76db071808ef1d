"""``torchstone verify``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from optest.console import FAILURES, OK, echo, print_json, print_table

from .command import MODEL, command, placed, precision, settings
from .output import progress

if TYPE_CHECKING:
    from ..parity.verify import Verification


@command("verify")
@MODEL
@precision
@click.option(
    "--gradients/--no-gradients", default=True, help="Compare every parameter's gradient (default)."
)
@placed
def verify(
    model: str,
    rtol: float | None,
    atol: float | None,
    dtype: Any,
    gradients: bool,
    device: str | None,
    engine: str | None,
    as_json: bool,
) -> int:
    """Compare MODEL with eager PyTorch: artifact, compiled forward, gradients.

    An element passes if it is within the tolerance (the defaults of
    torch.testing.assert_close). If it is not, and always in 16 bits, it passes
    if its error is at most twice the error that eager PyTorch with other
    roundings shows.
    """
    with progress() as stage, settings(device=device, engine=engine):
        stage("loading the model")
        from ..parity.model import load_model
        from ..parity.verify import verify as verify_model

        found = verify_model(
            load_model(model), dtype=dtype, rtol=rtol, atol=atol, gradients=gradients, progress=stage
        )
    if as_json:
        print_json(found.to_dict())
    else:
        _print(found)
    return OK if found.passed else FAILURES


def _print(found: Verification) -> None:
    rows = [
        (line.stage, line.tensors, f"{line.max_abs:.2e} ({line.max_ulp} ULP)", line.by_float64, line.verdict)
        for line in found.summary()
    ]
    print_table(
        ("stage", "tensors", "largest difference", "judged by float64", "verdict"),
        rows,
        title=f"{found.model} in {found.dtype}",
    )
    for check in found.failures:
        echo(f"{check.stage} {check.name}: {check.comparison.summary()}")
    for name, error in found.errors.items():
        echo(f"{name}: {error}")
    for note in found.notes:
        echo(f"note: {note}")
    seen = found.compilation
    echo(
        f"graphs: {seen.graphs.total()}, breaks: {seen.breaks.total()}; "
        f"operator calls compiled: {seen.native.total()}, in eager: {seen.fallbacks.total()}"
    )
    echo("passed" if found.passed else "failed")
