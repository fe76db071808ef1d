"""A data loader that can resume in the middle of an epoch, with the same batches and random numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.utils.data import DataLoader

from .states import give_random_state, random_state


class ResumableLoader:
    """A ``DataLoader`` whose ``state_dict`` says how the epoch began and how many batches have been given.

    >>> loader = ResumableLoader(DataLoader(dataset, batch_size=32, shuffle=True))   # doctest: +SKIP
    >>> for inputs, targets in loader: ...                                            # doctest: +SKIP

    After :meth:`load_state_dict`, the next iteration repeats the epoch from its beginning, drops the batches
    that were given before, and gives the rest. The batches, their order, and what workers draw are the same
    as in the saved run. It takes time to make the batches that are dropped. The dataset must be the same.
    """

    def __init__(self, loader: DataLoader[Any]) -> None:
        self.loader = loader
        self._given: int | None = None
        self._start: dict[str, Any] | None = None
        self._resumes = False

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Any]:
        skipped = self._given if self._resumes and self._given is not None else None
        if skipped is None:
            self._start = self._randomness()
            self._given = 0
        self._resumes = False
        batches = self._again(skipped) if skipped is not None else iter(self.loader)
        for batch in batches:
            self._given = (self._given or 0) + 1
            yield batch
        self._given = self._start = None

    def _again(self, skipped: int) -> Iterator[Any]:
        """Return an iterator over the interrupted epoch, without its first ``skipped`` batches."""
        present = random_state()
        assert self._start is not None
        give_random_state(self._start["global"])
        for generator, state in zip(self._generators(), self._start["generators"], strict=True):
            generator.set_state(state.clone())
        batches = iter(self.loader)
        for _ in range(skipped):
            next(batches, None)
        give_random_state(present)
        return batches

    def state_dict(self) -> dict[str, Any]:
        """Return the place in the epoch, as tensors, numbers and None."""
        return {
            "given": self._given,
            "start": self._start,
            "generators": [one.get_state() for one in self._generators()],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from ``state`` at the next iteration."""
        generators = self._generators()
        if len(generators) != len(state["generators"]):
            raise ValueError(f"it had {len(state['generators'])} generators, and has {len(generators)} here")
        for generator, saved in zip(generators, state["generators"], strict=True):
            generator.set_state(saved.clone())
        self._given, self._start = state["given"], state["start"]
        self._resumes = True

    def _randomness(self) -> dict[str, Any]:
        return {
            "global": random_state(),
            "generators": [one.get_state() for one in self._generators()],
        }

    def _generators(self) -> list[torch.Generator]:
        """Return the generators that belong to the loader and its samplers."""
        owners = (self.loader, self.loader.sampler, getattr(self.loader.batch_sampler, "sampler", None))
        found = [getattr(one, "generator", None) for one in owners]
        return list({id(one): one for one in found if isinstance(one, torch.Generator)}.values())
