"""A PyTorch device, given by name: each API is called on it and on the CPU."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch

from ...errors import GapsError
from ..answers import Answer, Provider, Status, Trial
from ..compare import takes_device
from ..surface import SCOPE, Api, resolve
from ..trials import callable_safely, run_trials


@dataclass(frozen=True)
class DeviceProvider:
    """A PyTorch device; ``device`` is its name, with or without an index."""

    device: str

    scope = SCOPE
    watched = None

    @property
    def name(self) -> str:
        return f"device:{self.device}"

    @property
    def compared(self) -> str:
        return f"the same call on {self.device} and on the CPU; values within the tolerance of their dtype"

    def answers(self, apis: Iterable[Api]) -> Mapping[str, Answer]:
        return {api.name: found for api in apis if (found := self.answer(api)) is not None}

    def answer(self, api: Api) -> Answer | None:
        """Return a match for every API that can be called; only a trial can tell what it does there."""
        if api.name.startswith("torch.cuda.") or not callable_safely(api):
            return None
        return Answer(Status.MATCH)

    def trials(self, apis: Iterable[Api]) -> Mapping[str, Trial]:
        found: dict[str, Trial] = {}
        chosen = list(apis)
        for by_device in (True, False):
            found |= run_trials(
                [api for api in chosen if takes_device(api) is by_device],
                lambda api: resolve(api.name),
                lambda api: resolve(api.name),
                self.device,
                place=torch.device(self.device).type,
                exact=False,
                takes_device=by_device,
            )
        return found


def make(rest: str) -> Provider:
    """Return the provider of a device. Raises :class:`GapsError` if PyTorch has no such device here."""
    try:
        torch.empty(1, device=rest or "?")
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise GapsError(
            f"there is no device {rest!r} here: {str(error).partition(chr(10))[0]}",
            hint="name one that torch.empty(1, device=…) takes, as in device:cpu",
        ) from error
    return DeviceProvider(rest)
