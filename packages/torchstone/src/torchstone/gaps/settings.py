"""Checks of one API, either in the four settings that code written for CUDA can run in or with any provider.

The tests of fixed gaps, and those that ``torchstone gaps scaffold`` writes, use these checks.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from enum import StrEnum

from ..errors import GapsError
from .answers import GapKind
from .compare import compare, takes_device
from .providers import make_provider
from .surface import OPEN_CLASSES, Api, read_surface, resolve
from .trials import run_trials


class Setting(StrEnum):
    """The device that the code asks for, and the device that does the work."""

    REDIRECTED = "cuda-redirected"
    """The code says CUDA; an accelerator does the work."""
    DIRECT = "accelerator"
    """The code says the accelerator's own name, without a redirection."""
    FALLBACK = "cuda-on-cpu"
    """The code says CUDA, but there is only the CPU."""
    EXPLICIT = "explicit-cpu"
    """The code says CPU inside a redirection to an accelerator; the work must stay on the CPU."""


SETTINGS = tuple(Setting)


def accelerator() -> str | None:
    """Return the device type of this machine's accelerator; None if there is only the CPU."""
    import torch

    found = torch.accelerator.current_accelerator()
    return None if found is None else found.type


def check(name: str, setting: Setting, kind: str | None = None) -> None:
    """Raise AssertionError, with all gaps in its message, if the API ``name`` has a gap in ``setting``.

    A gap that the redirection itself explains counts only if it is of ``kind``.
    Raises :class:`GapsError` if the setting needs an accelerator and there is none.
    """
    here = accelerator()
    if here is None and setting is not Setting.FALLBACK:
        raise GapsError(
            f"{setting} needs an accelerator, and none is here", hint="skip it: see accelerator()"
        )
    found = _CHECKS[setting](find_api(name), here or "cpu", kind)
    assert not found, f"{name}, {setting}: " + "; ".join(found)


def check_provider(provider: str, name: str, kind: str) -> None:
    """Raise AssertionError, with all such gaps, if ``provider`` has a gap of ``kind`` in the API ``name``."""
    gaps = compare(make_provider(provider), [find_api(name)]).gaps()
    found = [gap.description for gap in gaps if gap.kind == kind]
    assert not found, f"{name}, {provider}: " + "; ".join(found)


def find_api(name: str) -> Api:
    """Return the record of one API. Raises :class:`GapsError` if PyTorch has no such public name."""
    namespace = name.rpartition(".")[0]
    inside = isinstance(resolve(namespace), type) and namespace not in OPEN_CLASSES
    scope = namespace.rpartition(".")[0] if inside else namespace
    found = read_surface([scope]).apis.get(name)
    if found is None:
        raise GapsError(f"{name} is not a public name of the installed PyTorch")
    return found


def _through_redirection(api: Api, target: str, kind: str | None) -> list[str]:
    gaps = compare(make_provider(f"redirect:{target}"), [api]).gaps()
    return [
        f"{gap.kind}: {gap.description}"
        for gap in gaps
        if gap.kind == kind or (gap.kind is not GapKind.REFINEMENT and not gap.explanation)
    ]


def _with_device(api: Api, device: str, target: str | None) -> list[str]:
    """Return the differences of a call for ``device``, inside a redirection to ``target`` if given."""
    if api.name.startswith("torch.cuda."):
        return []  # its name says CUDA, so no call can mean another device
    from ..redirect import redirected

    found = run_trials(
        [api],
        lambda one: resolve(one.name),
        lambda one: resolve(one.name),
        device,
        inside=lambda: redirected(target=target, policy="quiet") if target else nullcontext(),
        exact=False,
        takes_device=takes_device(api),
    )
    return [text for trial in found.values() for text in trial.differences]


_CHECKS: dict[Setting, Callable[[Api, str, str | None], list[str]]] = {
    Setting.REDIRECTED: lambda api, accelerator, kind: _through_redirection(api, accelerator, kind),
    Setting.DIRECT: lambda api, accelerator, _: _with_device(api, accelerator, None),
    Setting.FALLBACK: lambda api, _, kind: _through_redirection(api, "cpu", kind),
    Setting.EXPLICIT: lambda api, accelerator, _: _with_device(api, "cpu", accelerator),
}
