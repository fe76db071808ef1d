"""Samples of ``lowering.aten.fft``."""

from __future__ import annotations

from collections.abc import Iterator

from torchstone.torch_internals.operators import namespace

from . import Make, Sample, samples

aten = namespace("aten")


@samples(aten._fft_c2c.default)
def _complex_transforms(make: Make) -> Iterator[Sample]:
    yield Sample((make(3, 8), [1], 0, True))
    yield Sample((make(5, 3), [0], 2, False), note="odd size, first axis")
    yield Sample((make(2, 3, 2, 4, 2), [0, 1, 2, 3, 4], 1, True), note="five axes")
    yield Sample((make(2, 0, 4), [2], 1, False), note="empty")
    yield Sample((make.transposed(6, 4), [1, 0], 0, False), note="non-contiguous")
    yield Sample((make(4, 1), [-1, 0], 2, True), note="negative axis, size 1")
    yield Sample((make(3, 7), [1], 1, False), note="by root, inverse")
    yield Sample((make(3), [], 1, False), note="no axes")


@samples(aten._fft_r2c.default)
def _transforms_of_real(make: Make) -> Iterator[Sample]:
    yield Sample((make(3, 8), [1], 0, True))
    yield Sample((make(5, 3), [0], 2, False), note="odd size, two-sided")
    yield Sample((make(2, 3, 2, 4, 5), [0, 1, 2, 3, 4], 1, True), note="five axes")
    yield Sample((make(0, 4), [1], 1, True), note="empty")
    yield Sample((make.transposed(6, 4), [1, 0], 0, True), note="non-contiguous, last axis first")
    yield Sample((make(4, 1), [-1], 2, True), note="size 1")
    yield Sample((make(3, 7), [0, 1], 1, False), note="by root, two-sided")


@samples(aten._fft_c2r.default)
def _transforms_to_real(make: Make) -> Iterator[Sample]:
    yield Sample((make(3, 5), [1], 2, 8))
    yield Sample((make(5, 3), [1], 0, 5), note="odd size")
    yield Sample((make(2, 3, 2, 4, 3), [0, 1, 2, 3, 4], 1, 4), note="five axes")
    yield Sample((make(0, 3), [1], 1, 4), note="empty")
    yield Sample((make.transposed(4, 6), [1, 0], 1, 7), note="non-contiguous, last axis first")
    yield Sample((make(4, 1), [-1], 2, 1), note="size 1")


@samples(aten.fft_fftfreq.default, aten.fft_rfftfreq.default)
def _frequencies(make: Make) -> Iterator[Sample]:
    yield Sample((8,), {"dtype": make.dtype})
    yield Sample((7, 0.1), {"dtype": make.dtype}, note="odd")
    yield Sample((1, 2.0), {"dtype": make.dtype}, note="one")


@samples(aten.fft_fftshift.default, aten.fft_ifftshift.default)
def _shifts(make: Make) -> Iterator[Sample]:
    yield Sample((make(3, 4), [-1]))
    yield Sample((make(3, 5),), note="all axes, odd sizes")
