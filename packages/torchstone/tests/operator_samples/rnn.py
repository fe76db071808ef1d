"""Samples of ``lowering.aten.rnn``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from . import Make, Sample, samples

own = torch.ops.torchstone
TIME, BATCH, INPUTS, HIDDEN = 4, 2, 3, 5
SIZES = (4, 4, 2, 1)
"""The numbers of sequences in the steps of a packed sample."""


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

    def states(self, batch: int) -> list[torch.Tensor]:
        count = self.layers * (1 + self.bidirectional)
        widths = [self.projection or HIDDEN, *([HIDDEN] if self.gates == 4 else [])]
        return [self.random(count, batch, width) for width in widths]

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
        states = self.states(BATCH)
        hx = states if self.gates == 4 else states[0]
        options = (self.biases, self.layers, 0.0, False, self.bidirectional, self.batch_first)
        return Sample((self.random(*lead, INPUTS), hx, self.params(), *options), note=note)

    def packed(self, sizes: tuple[int, ...] = SIZES, note: str = "") -> Sample:
        states = self.states(sizes[0])
        hx = states if self.gates == 4 else states[0]
        options = (self.biases, self.layers, 0.0, False, self.bidirectional)
        data, batch_sizes = self.random(sum(sizes), INPUTS), torch.tensor(sizes)
        return Sample((data, batch_sizes, hx, self.params(), *options), note=note)

    def layer(self, mode: str, *, packed: bool = False, reverse: bool = False) -> Sample:
        """Arguments of ``rnn_layer``."""
        width, batch = self.projection or HIDDEN, SIZES[0] if packed else BATCH
        lead = (sum(SIZES),) if packed else (TIME, BATCH)
        gates = self.random(*lead, self.gates * HIDDEN)
        hx = [state[0] for state in self.states(batch)]
        weight = self.random(self.gates * HIDDEN, width)
        bias = self.random(self.gates * HIDDEN) if self.biases else None
        projection = self.random(width, HIDDEN) if self.projection else None
        sizes = torch.tensor(SIZES) if packed else None
        return Sample((gates, hx, weight, bias, projection, sizes, mode, reverse))

    def layer_backward(self, mode: str, *, packed: bool = False, reverse: bool = False) -> Sample:
        """Arguments of ``rnn_layer_backward``: random gradients of what that layer returns."""
        given = self.layer(mode, packed=packed, reverse=reverse).args
        hx, weight, projection, sizes = given[1], given[2], given[4], given[5]
        output, *made = own.rnn_layer(*given)
        grads, saved = [self.random(*state.shape) for state in hx], made[len(hx) :]
        return Sample((self.random(*output.shape), grads, saved, weight, projection, sizes, mode, reverse))


def networks(make: Make, gates: int) -> Iterator[Sample]:
    """The options that all recurrent networks have."""
    yield Network(make, gates).sample()
    yield Network(make, gates, layers=2, bidirectional=True).sample(note="two layers, two directions")
    yield Network(make, gates, biases=False, batch_first=True).sample(note="no biases, batch first")
    yield Network(make, gates).sample(time=1, note="one step")
    yield Network(make, gates, bidirectional=True).sample(time=128, note="whole blocks of steps")


def packed_networks(make: Make, gates: int) -> Iterator[Sample]:
    """Yield the same networks over packed sequences."""
    yield Network(make, gates, bidirectional=True).packed(note="two directions")
    yield Network(make, gates, layers=2).packed((3, 3, 3), note="two layers, equal lengths")
    yield Network(make, gates, biases=False).packed((1, 1), note="one sequence")


@samples(own.lstm.default)
def _lstm(make: Make) -> Iterator[Sample]:
    yield from networks(make, 4)
    yield Network(make, 4, projection=2).sample(note="projected")
    yield Network(make, 4, layers=2, bidirectional=True, projection=2).sample(note="projected, all options")


@samples(own.gru.default)
def _gru(make: Make) -> Iterator[Sample]:
    yield from networks(make, 3)


@samples(own.rnn_tanh.default, own.rnn_relu.default)
def _rnn(make: Make) -> Iterator[Sample]:
    yield from networks(make, 1)


@samples(own.lstm_packed.default)
def _lstm_packed(make: Make) -> Iterator[Sample]:
    yield from packed_networks(make, 4)
    yield Network(make, 4, bidirectional=True, projection=2).packed(note="projected")


@samples(own.gru_packed.default)
def _gru_packed(make: Make) -> Iterator[Sample]:
    yield from packed_networks(make, 3)


@samples(own.rnn_tanh_packed.default, own.rnn_relu_packed.default)
def _rnn_packed(make: Make) -> Iterator[Sample]:
    yield from packed_networks(make, 1)


MODES = {"lstm": 4, "gru": 3, "rnn_tanh": 1}


@samples(own.rnn_layer.default)
def _layer(make: Make) -> Iterator[Sample]:
    for mode, gates in MODES.items():
        yield Network(make, gates).layer(mode)
        yield Network(make, gates, biases=False).layer(mode, packed=True, reverse=True)
    yield Network(make, 4, projection=2).layer("lstm", packed=True)
    if not make.is_complex:
        yield Network(make, 1).layer("rnn_relu", reverse=True)


@samples(
    own.rnn_layer_backward.default,
    gradient=False,
    reason="gradients of recurrent networks have none themselves",
)
def _layer_backward(make: Make) -> Iterator[Sample]:
    for mode, gates in MODES.items():
        yield Network(make, gates).layer_backward(mode)
        yield Network(make, gates, biases=False).layer_backward(mode, packed=True, reverse=True)
    yield Network(make, 4, projection=2).layer_backward("lstm", packed=True)
    if not make.is_complex:
        yield Network(make, 1).layer_backward("rnn_relu", reverse=True)


@samples(own.pack_padded_sequence.default)
def _pack(make: Make) -> Iterator[Sample]:
    yield Sample((make(4, 3, 2), torch.tensor([4, 3, 1]), False))
    yield Sample((make(2, 3), torch.tensor([3, 3]), True), note="batch first, no features")


@samples(own.pad_packed_sequence.default)
def _pad(make: Make) -> Iterator[Sample]:
    yield Sample((make(12, 2), torch.tensor([3, 2, 2, 1]), 3, False, 0.0, -1))
    yield Sample((make(6, 2), torch.tensor([2, 1, 0]), 2, True, 1.0, 5), note="batch first, longer")
