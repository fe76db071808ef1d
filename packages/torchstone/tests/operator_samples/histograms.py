"""Samples of ``lowering.aten.histograms``."""

from __future__ import annotations

from collections.abc import Iterator

from torchstone.torch_internals.operators import namespace

from . import Make, Sample, samples

aten = namespace("aten")


@samples(aten.histc.default, gradient=False)
def _histc(make: Make) -> Iterator[Sample]:
    yield Sample((make(4, 5), 4, -8, 8))
    yield Sample((make.tensor([0, 1, 1, 2, 5]), 5), note="range of the data")
    yield Sample((make.tensor([2, 2]), 3), note="equal elements")
    yield Sample((make(0), 3), note="empty")
    yield Sample((make(), 1))
    if make.is_float:
        yield Sample((make.tensor([0.5, float("nan"), 1.5, 9.0]), 4, 0, 2), note="NaN and outside")


@samples(aten.histogram.bins_tensor, gradient=False)
def _histogram(make: Make) -> Iterator[Sample]:
    edges = make.tensor([-5.0, -1.0, 0.0, 4.0])
    yield Sample((make(4, 5), edges))
    yield Sample((make(6), edges), {"weight": make(6), "density": True})
    yield Sample((edges, edges), note="on the edges")
    yield Sample((make(0), edges), note="empty")


@samples(aten.histogram.bin_ct, gradient=False)
def _histogram_bin_ct(make: Make) -> Iterator[Sample]:
    yield Sample((make(4, 5), 4))
    yield Sample((make(6), 3), {"range": [-4.0, 4.0], "weight": make(6)})
    yield Sample((make(7), 5), {"density": True})
    yield Sample((make(0), 3), note="empty")
    yield Sample((make(1).expand(3), 2), note="equal elements")


@samples(aten._histogramdd_bin_edges.default, gradient=False)
def _histogramdd_bin_edges(make: Make) -> Iterator[Sample]:
    yield Sample((make(6, 2), [3, 4]))
    yield Sample((make(2, 3, 2), [2, 2]), {"range": [-4.0, 4.0, 0.0, 1.0]})
    yield Sample((make(5, 1), [3]))


@samples(aten._histogramdd_from_bin_cts.default, gradient=False)
def _histogramdd_from_bin_cts(make: Make) -> Iterator[Sample]:
    yield Sample((make(6, 2), [3, 4]))
    yield Sample((make(2, 3, 2), [2, 2]), {"range": [-4.0, 4.0, -1.0, 6.0], "weight": make(2, 3)})
    yield Sample((make(6, 2), [2, 3]), {"density": True})


@samples(aten._histogramdd_from_bin_tensors.default, gradient=False)
def _histogramdd_from_bin_tensors(make: Make) -> Iterator[Sample]:
    edges = [make.tensor([-5.0, -1.0, 0.0, 4.0]), make.tensor([-6.0, 1.0, 6.0])]
    yield Sample((make(9, 2), edges))
    yield Sample((make(9, 2), edges), {"weight": make(9), "density": True})
    yield Sample((make(5, 1), edges[:1]))
