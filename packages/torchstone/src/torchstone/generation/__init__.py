"""Generation: a causal language model, its key-value cache and its sampling, as programs in one file.

Running a generator needs neither torch nor transformers. Exporting one needs both; that is the task of
:mod:`.models`, :mod:`.capture` and :mod:`.sampling`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import MissingExtra
from .generator import Generator
from .stored import Settings, load_stored

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = ["Generator", "Settings", "export_generation", "load_generation"]


def export_generation(
    model: PreTrainedModel,
    *,
    max_length: int,
    batch_size: int = 1,
    buckets: Sequence[int] | None = None,
    decode_lengths: Sequence[int] | None = None,
    tokens_per_call: int = 32,
    stablehlo_version: str = "current",
    engine: str | None = None,
    device: str | None = None,
) -> Generator:
    """Export a causal language model of Hugging Face transformers as programs that generate tokens.

    ``max_length`` is the length of the key-value cache, which holds a prompt and the tokens after it.
    ``buckets`` are prompt lengths; each gets a program (default: 16, 64, 256, … and ``max_length``).
    ``decode_lengths`` are numbers of cache columns. A token is decoded by the program for the smallest of
    them that holds it, and attention reads only those columns (default: 128, 512, 2048, … and
    ``max_length``). One call of the engine makes up to ``tokens_per_call`` tokens. Options of
    ``model.generation_config`` are the defaults of :meth:`Generator.generate`. Raises
    :class:`~torchstone.errors.ConfigError` for invalid sizes, :class:`~torchstone.errors.CaptureError` for
    models that are not supported, :class:`~torchstone.errors.UnsupportedOperators`, and
    :class:`~torchstone.errors.MissingExtra`.
    """
    try:
        from .capture import captured
        from .models import settings_of
    except ModuleNotFoundError as error:
        if error.name != "transformers":
            raise
        raise MissingExtra("export_generation needs Hugging Face transformers", extra="models") from error
    settings = settings_of(model, max_length, batch_size, buckets, decode_lengths, tokens_per_call)
    return Generator(captured(model, settings, stablehlo_version), engine=engine, device=device)


def load_generation(path: str | Path, *, engine: str | None = None, device: str | None = None) -> Generator:
    """Load the generator saved at ``path``. Needs neither torch nor transformers.

    Raises :class:`~torchstone.errors.ArtifactError` unless ``path`` is the complete, unaltered file of a
    generator of a known version. Nothing in the file is executed before the first call.
    """
    return Generator(load_stored(path), engine=engine, device=device)
