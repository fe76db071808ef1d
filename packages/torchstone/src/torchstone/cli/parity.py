"""``torchstone parity``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from optest.console import FAILURES, OK, echo, print_json, print_table
from optest.options import REPEATS_OR_NONE

from .command import command, placed, precision, settings
from .output import progress, require_files, write_whole


@command("parity")
@click.argument("models", metavar="[MODEL]...", nargs=-1)
@click.option("--quick", is_flag=True, help="Two small models in place of the suite.")
@click.option("--architectures", is_flag=True, help="Architectures of Hugging Face too, tiny.")
@click.option("--inventory", is_flag=True, help="The models of the inventory too.")
@precision
@click.option("--steps", type=REPEATS_OR_NONE, default=3, show_default=True, help="Training steps; 0: none.")
@click.option("--optimizer", type=click.Choice(["sgd", "adamw"]), default="sgd", show_default=True)
@click.option("--markdown", type=click.Path(path_type=Path, dir_okay=False), help="Also write this report.")
@click.option("--html", type=click.Path(path_type=Path, dir_okay=False), help="Also write this page.")
@placed
def parity(
    models: tuple[str, ...],
    quick: bool,
    architectures: bool,
    inventory: bool,
    rtol: float | None,
    atol: float | None,
    dtype: Any,
    steps: int,
    optimizer: str,
    markdown: Path | None,
    html: Path | None,
    device: str | None,
    engine: str | None,
    as_json: bool,
) -> int:
    """Compare a suite of models, or each MODEL, with eager PyTorch.

    Compares the outputs of the artifact and of torch.compile, and every
    gradient. After training steps (torch.compile with PyTorch's optimizer, and
    whole steps) it compares losses, parameters, buffers and the optimizer's
    state. Exits with 1 if anything differs or does not compile.

    Without MODEL: an MLP, a CNN, ResNet, U-Net, an autoencoder, BERT, GPT-2,
    Llama, ViT, an LSTM, a mixture of experts and DLRM.
    """
    require_files(markdown=markdown, html=html)
    with progress() as stage, settings(device=device, engine=engine):
        from ..parity.suite import names_of, run_suite
        from ..parity.suite_pages import markdown as markdown_of
        from ..parity.suite_pages import page, sections, verdict

        report = run_suite(
            names_of(models, quick=quick, inventory=inventory, architectures=architectures),
            dtype=dtype,
            rtol=rtol,
            atol=atol,
            steps=steps,
            optimizer=optimizer,
            progress=stage,
        )
    for path, text in ((markdown, markdown_of), (html, page)):
        if path is not None:
            write_whole(path, text(report).encode())
    if as_json:
        print_json(report.to_dict())
    else:
        for section in sections(report):
            print_table(section.columns, section.rows, title=section.title)
        echo(verdict(report))
    return OK if report.passed else FAILURES
