"""Samples of ``lowering.aten.random``. ``lowering/test_random.py`` tests the distributions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from torchstone.torch_internals.operators import namespace

from . import Make, Sample, samples

aten = namespace("aten")
prims = torch.ops.prims


def _shapes(make: Make) -> list[list[int]]:
    """Return shapes to draw; an empty one only in float32, since PyTorch allows it in any dtype."""
    empty = [[0, 3]] if make.dtype is torch.float32 else []
    return [[2, 3], [], [1], *empty]


_GENERATOR: dict[str, Any] = {"generator": None}


@samples(aten.rand.default, aten.randn.default, random=True)
def _of_shape(make: Make) -> Iterator[Sample]:
    for shape in _shapes(make):
        yield Sample((shape,), {"dtype": make.dtype})


@samples(aten.rand.generator, aten.randn.generator, random=True)
def _of_shape_generator(make: Make) -> Iterator[Sample]:
    yield Sample(([2, 3],), {"dtype": make.dtype, **_GENERATOR})


@samples(
    aten.rand_like.default,
    aten.randn_like.default,
    aten.normal_functional.default,
    aten.exponential.default,
    aten.log_normal.default,
    aten.cauchy.default,
    random=True,
)
def _of_tensor(make: Make) -> Iterator[Sample]:
    for shape in _shapes(make):
        yield Sample((make(*shape),))
    yield Sample((make.transposed(2, 3),), note="non-contiguous")


@samples(aten.rand_like.generator, aten.randn_like.generator, random=True)
def _of_tensor_generator(make: Make) -> Iterator[Sample]:
    yield Sample((make(2, 3),), _GENERATOR)


@samples(prims.uniform.default, random=True)
def _uniform(make: Make) -> Iterator[Sample]:
    options = {"low": -1.0, "high": 2.0, "dtype": make.dtype, "device": torch.device("cpu")}
    yield Sample(([2, 3],), {**options, "stride": [3, 1]})
    yield Sample(([],), {**options, "stride": []})


@samples(aten.normal.Tensor_float, random=True)
def _normal_of_means(make: Make) -> Iterator[Sample]:
    for shape in _shapes(make):
        yield Sample((make(*shape), 2.0))


@samples(aten.normal.float_Tensor, random=True)
def _normal_of_deviations(make: Make) -> Iterator[Sample]:
    for shape in _shapes(make):
        yield Sample((0.5, make(*shape, low=0, high=2)))


@samples(aten.normal.Tensor_Tensor, random=True)
def _normal_of_both(make: Make) -> Iterator[Sample]:
    for shape in _shapes(make):
        yield Sample((make(*shape), make(*shape, low=0, high=2)))
    yield Sample((make(3, 1), make(2, low=0, high=1)), note="broadcast")


@samples(aten.normal.float_float, random=True)
def _normal_of_shape(make: Make) -> Iterator[Sample]:
    for shape in _shapes(make):
        yield Sample((1.0, 2.0, shape), {"dtype": make.dtype})


@samples(aten.geometric.default, aten.bernoulli.p, random=True)
def _with_probability(make: Make) -> Iterator[Sample]:
    for shape in _shapes(make):
        yield Sample((make(*shape), 0.3))
    yield Sample((make(2), 1.0))


@samples(aten.randint.default, random=True)
def _randint(make: Make) -> Iterator[Sample]:
    for shape in _shapes(make):
        yield Sample((5, shape), {"dtype": make.dtype})


@samples(aten.randint.generator, random=True)
def _randint_generator(make: Make) -> Iterator[Sample]:
    yield Sample((5, [2, 3]), {"dtype": make.dtype, **_GENERATOR})


@samples(aten.randint.low, random=True)
def _randint_low(make: Make) -> Iterator[Sample]:
    for shape in _shapes(make):
        yield Sample((2, 5, shape), {"dtype": make.dtype})


@samples(aten.randint.low_generator, random=True)
def _randint_low_generator(make: Make) -> Iterator[Sample]:
    yield Sample((2, 5, [2, 3]), {"dtype": make.dtype, **_GENERATOR})


@samples(aten.randint_like.default, random=True)
def _randint_like(make: Make) -> Iterator[Sample]:
    for shape in _shapes(make):
        yield Sample((make(*shape), 5))


@samples(aten.randint_like.generator, random=True)
def _randint_like_generator(make: Make) -> Iterator[Sample]:
    yield Sample((make(2, 3), 5), _GENERATOR)


@samples(aten.randint_like.Tensor, random=True)
def _randint_like_tensor(make: Make) -> Iterator[Sample]:
    yield Sample((make(2, 3), torch.tensor(5)))


@samples(aten.randint_like.low_dtype, random=True)
def _randint_like_low(make: Make) -> Iterator[Sample]:
    for shape in _shapes(make):
        yield Sample((make(*shape), 2, 5))
    if make.dtype is torch.float32:
        yield Sample((make(2), 2, 5), {"dtype": torch.int32})


@samples(aten.randint_like.low_generator_dtype, random=True)
def _randint_like_low_generator(make: Make) -> Iterator[Sample]:
    yield Sample((make(2, 3), 2, 5), _GENERATOR)


@samples(aten.bernoulli.Tensor, random=True)
def _bernoulli_tensor(make: Make) -> Iterator[Sample]:
    for shape in _shapes(make):
        yield Sample((make(*shape), torch.rand(shape)))
    yield Sample((make(2, 3), torch.rand(3, dtype=torch.float64)), note="broadcast")


@samples(aten.bernoulli.default, random=True)
def _bernoulli(make: Make) -> Iterator[Sample]:
    for shape in _shapes(make):
        yield Sample((make(*shape, low=0, high=1),))


@samples(aten.native_dropout.default, random=True)
def _dropout(make: Make) -> Iterator[Sample]:
    if make.is_float:
        for shape in ([2, 3], [], [1]):  # no empty tensor: for it eager returns a mask in another dtype
            yield Sample((make(*shape), 0.3, True))
    for p, train in ((0.0, True), (1.0, True), (0.5, False), (0.5, None)):
        yield Sample((make(2, 3), p, train))


@samples(aten.rrelu_with_noise.default, aten.rrelu_with_noise_functional.default, random=True)
def _rrelu(make: Make) -> Iterator[Sample]:
    for training in (True, False):
        for shape in _shapes(make):
            yield Sample((make(*shape), make(*shape), 0.1, 0.4, training))
