"""Make the log of a provider: read the surface, compare it with the provider, and add the decisions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from ..errors import GapsError
from .branches import BranchIndex, counts, scan_torch
from .compare import compare
from .decisions import load_decisions, shipped_decisions
from .log import Log, load_entries, make_log
from .mapping import load_mapping
from .providers import make_provider
from .surface import read_surface, without_aliases
from .usage import Usage, scan_usage


def analyze(
    provider: str,
    *,
    namespaces: Sequence[str] = (),
    decisions: Path | None = None,
    usage: Sequence[Path] = (),
    previous: Path | None = None,
    stage: Callable[[str], None] = lambda text: None,
) -> Log:
    """Return the gap log of ``provider`` over ``namespaces``, by default those that the provider covers.

    ``decisions``: a TOML file to use instead of the shipped one; ``usage``: folders of code using PyTorch;
    ``previous``: an earlier log in JSON; ``stage``: called with the name of each stage. Raises
    :class:`GapsError` if one of these is invalid, or if the provider has no answer for any of the names.
    """
    chosen = make_provider(provider)
    decided = shipped_decisions(provider) if decisions is None else load_decisions(decisions)
    known = load_entries(previous) if previous else None
    stage("counting uses")
    used = scan_usage(usage, stage) if usage else Usage()
    stage("reading PyTorch's public names")
    surface = read_surface(namespaces or chosen.scope)
    apis = without_aliases(surface.apis.values())
    stage("reading PyTorch's sources")
    homes = {
        ".".join(parts[:end])
        for api in apis
        for parts in [api.home.split(".")]
        for end in range(1, len(parts))
    }
    branches = scan_torch(homes)
    stage(f"comparing {chosen.name}")
    comparison = compare(chosen, apis, BranchIndex(branches))
    if not comparison.findings:
        raise GapsError(
            f"nothing is compared: {chosen.name} answers for none of the {len(apis)} public names in "
            f"{', '.join(namespaces)}",
            hint=f"it is about {', '.join(chosen.scope)}: leave --namespace out, or name one of these",
        )
    return make_log(
        comparison,
        decided,
        versions(),
        usage=used,
        mapping=load_mapping(),
        branches=counts(branches),
        previous=known,
        read=surface.namespaces if namespaces else None,
    )


def versions() -> dict[str, str]:
    """Return the versions of Torchstone and PyTorch, and PyTorch's git commit, for the head of the log."""
    import torch

    from .._version import __version__

    return {
        "torchstone": __version__,
        "torch": torch.__version__.partition("+")[0],
        "commit": torch.version.git_version or "",
    }
