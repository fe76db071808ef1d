"""Checks of one API: in the four settings that code written for CUDA meets, or of any provider.

Tests of fixed gaps, and those that ``torchstone gaps scaffold`` writes, are made of these.
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
    """Who asks for what, and what stands behind it."""

    REDIRECTED = "cuda-redirected"
    """The code says CUDA; an accelerator does the work."""
    DIRECT = "accelerator"
    """The code says the accelerator's own name, without a redirection."""
    FALLBACK = "cuda-on-cpu"
    """The code says CUDA; there is only the CPU."""
    EXPLICIT = "explicit-cpu"
    """The code says CPU, inside a redirection to an accelerator: it stays there."""


SETTINGS = tuple(Setting)


def accelerator() -> str | None:
    """The type of the device other than the CPU that is here; None if there is none."""
    import torch

    found = torch.accelerator.current_accelerator()
    return None if found is None else found.type


def check(name: str, setting: Setting, kind: str | None = None) -> None:
    """AssertionError with every gap that the API ``name`` shows in ``setting``.

    A gap that the redirection itself explains counts only if it is of ``kind``.
    Raises :class:`GapsError` where a setting needs an accelerator and none is here.
    """
    here = accelerator()
    if here is None and setting is not Setting.FALLBACK:
        raise GapsError(
            f"{setting} needs an accelerator, and none is here", hint="skip it: see accelerator()"
        )
    found = _CHECKS[setting](find_api(name), here or "cpu", kind)
    assert not found, f"{name}, {setting}: " + "; ".join(found)


def check_provider(provider: str, name: str, kind: str) -> None:
    """AssertionError with every gap of ``kind`` that ``provider`` has at the API ``name``."""
    gaps = compare(make_provider(provider), [find_api(name)]).gaps()
    found = [gap.description for gap in gaps if gap.kind == kind]
    assert not found, f"{name}, {provider}: " + "; ".join(found)


def find_api(name: str) -> Api:
    """The API's record. Raises :class:`GapsError` where PyTorch has no such public name."""
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
    """The API called for ``device``, inside a redirection to ``target`` or outside any."""
    if api.name.startswith("torch.cuda."):
        return []  # says CUDA by its name: no call of it means another device
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
