"""Conversion of checkpoints from one kind to another."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal, get_args

from ..errors import CheckpointError
from . import foreign
from .disk import failures_of
from .loading import open_checkpoint
from .saving import collect, turns, write

Kind = Literal["torchstone", "torch", "safetensors", "dcp"]


def convert(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    to: Kind = "torchstone",
    section: str = "",
) -> Path:
    """Write the checkpoint at ``source`` to ``target`` in another form.

    ``to`` is ``torchstone``, ``torch`` (a file of ``torch.save``, readable with ``weights_only``), ``dcp``
    (a new folder of ``torch.distributed.checkpoint``) or ``safetensors`` (the model's tensors). With
    ``section``, only that part is written, and a file of ``torch.save`` holds it directly:
    ``section="model"`` gives the plain state dict that ``model.load_state_dict(torch.load(file))`` takes.
    What ``weights_only`` refuses becomes plainer: a NumPy array becomes a tensor, a frozen set becomes a set.
    Raises :class:`~torchstone.errors.CheckpointError` for an unknown section, and if ``safetensors`` cannot
    hold a section because it has more than tensors.
    """
    if to not in get_args(Kind):
        raise CheckpointError(
            f"there is no kind of checkpoint {to!r}", hint=f"choose one of {', '.join(get_args(Kind))}"
        )
    path = Path(target)
    with open_checkpoint(Path(source)) as opened:
        wanted = section or ("model" if to == "safetensors" else "")
        if wanted and wanted not in opened:
            raise CheckpointError(
                f"the checkpoint {opened.path} has no {wanted}", hint=f"it has {', '.join(opened)}"
            )
        content = {name: opened[name] for name in ([wanted] if wanted else opened)}
        if to == "torchstone":
            metadata = content.pop("metadata", {})
            state = collect(content, step=opened.step, rng=False, metadata=metadata)
            return turns.run(lambda: write(path, state))
        with failures_of(f"write {path}"):
            if opened.step is not None and not wanted:
                content["step"] = opened.step
            foreign.write(path, to, content[section] if section and to == "torch" else content)
    return path
