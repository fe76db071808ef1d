"""Samples of ``lowering.aten.rnn``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from . import Make, Sample, samples

own = torch.ops.torchstone
TIME, BATCH, INPUTS, HIDDEN = 4, 2, 3, 5

EXPANDED = "PyTorch expands recurrent networks before it differentiates them"


@dataclass
class Network:
    """The arguments of one recurrent network, by its options."""

    make: Make
    gates: int
    layers: int = 1
    bidirectional: bool = False
    biases: bool = True
    batch_first: bool = False
    projection: int = 0

    def random(self, *shape: int) -> torch.Tensor:
        bound = 0.2 if self.make.is_complex else 1  # complex tanh has poles nearby
        return self.make(*shape, low=-bound, high=bound)

    def state(self, size: int) -> torch.Tensor:
        return self.random(self.layers * (1 + self.bidirectional), BATCH, size)

    def params(self) -> list[torch.Tensor]:
        found = []
        directions, width = 1 + self.bidirectional, self.projection or HIDDEN
        for layer in range(self.layers):
            for _ in range(directions):
                inputs = width * directions if layer else INPUTS
                rows = self.gates * HIDDEN
                found += [self.random(rows, inputs), self.random(rows, width)]
                found += [self.random(rows), self.random(rows)] if self.biases else []
                found += [self.random(width, HIDDEN)] if self.projection else []
        return found

    def sample(self, time: int = TIME, note: str = "") -> Sample:
        lead = (BATCH, time) if self.batch_first else (time, BATCH)
        hidden = self.state(self.projection or HIDDEN)
        state = [hidden, self.state(HIDDEN)] if self.gates == 4 else hidden
        options = (self.biases, self.layers, 0.0, False, self.bidirectional, self.batch_first)
        return Sample((self.random(*lead, INPUTS), state, self.params(), *options), note=note)


def networks(make: Make, gates: int) -> Iterator[Sample]:
    """The options that all recurrent networks have."""
    yield Network(make, gates).sample()
    yield Network(make, gates, layers=2, bidirectional=True).sample(note="two layers, two directions")
    yield Network(make, gates, biases=False, batch_first=True).sample(note="no biases, batch first")
    yield Network(make, gates).sample(time=1, note="one step")


@samples(own.lstm.default, gradient=False, reason=EXPANDED)
def _lstm(make: Make) -> Iterator[Sample]:
    yield from networks(make, 4)
    yield Network(make, 4, projection=2).sample(note="projected")
    yield Network(make, 4, layers=2, bidirectional=True, projection=2).sample(note="projected, all options")


@samples(own.gru.default, gradient=False, reason=EXPANDED)
def _gru(make: Make) -> Iterator[Sample]:
    yield from networks(make, 3)


@samples(own.rnn_tanh.default, own.rnn_relu.default, gradient=False, reason=EXPANDED)
def _rnn(make: Make) -> Iterator[Sample]:
    yield from networks(make, 1)
