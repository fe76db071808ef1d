"""Samples of ``lowering.aten.strided``."""

from __future__ import annotations

from collections.abc import Iterator

from torchstone.torch_internals.operators import namespace

from . import Make, Sample, samples

aten = namespace("aten")
REASON = "PyTorch's derivative writes through strided views, which the tracer of these tests refuses"


@samples(aten.as_strided.default, aten.as_strided_copy.default, gradient=False, reason=REASON)
def _as_strided(make: Make) -> Iterator[Sample]:
    yield Sample((make(3, 4), [2, 2], [4, 1], 1))
    yield Sample((make(9), [4, 3], [2, 1]), note="overlap")
    yield Sample((make.transposed(3, 4), [3, 2], [1, 3]), note="the storage of a transposed tensor")
    yield Sample((make(6, 2)[:, 0], [3], [4]), note="a base with gaps")
    yield Sample((make(), [2, 2], [0, 0]), note="0-d repeated")
    yield Sample((make(0, 3), [2, 0], [1, 1]), note="empty")
    yield Sample((make(3).expand(2, 3), [3], [1]), note="an expanded base")
    yield Sample((make(4, 3)[1:], [2], [3], 3), note="a base with an offset")


@samples(aten.as_strided_scatter.default, gradient=False, reason=REASON)
def _as_strided_scatter(make: Make) -> Iterator[Sample]:
    yield Sample((make(3, 4), make(2, 2), [2, 2], [4, 1], 1))
    yield Sample((make(9), make(3), [3], [2]))
    yield Sample(
        (make.transposed(3, 4), make(3, 2), [3, 2], [1, 3]), note="the storage of a transposed tensor"
    )
    yield Sample((make(0, 3), make(2, 0), [2, 0], [1, 1]), note="empty")
    yield Sample((make(2), make(), [], [], 1), note="0-d source")


@samples(aten.resize.default, gradient=False, reason="PyTorch does not differentiate it")
def _resize(make: Make) -> Iterator[Sample]:
    yield Sample((make(3, 4), [2, 5]))
    yield Sample((make(2, 3), [2, 3]), note="as it is")
    yield Sample((make(3, 4), [0, 2]), note="to nothing")
    yield Sample((make.transposed(3, 4), [4, 3]), note="a transposed operand")
    yield Sample((make(), [1, 1]), note="0-d")
