"""Samples of ``lowering.aten.convolution``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from torchstone.torch_internals.operators import namespace

from . import Make, Sample, samples

aten = namespace("aten")

Case = tuple[str, tuple[int, ...], tuple[int, ...], bool, dict[str, Any]]
"""A note, the shapes of the input and the weight, whether there is a bias, and the other arguments."""

CASES: list[Case] = [
    ("plain", (2, 3, 5, 6), (4, 3, 3, 2), True, {}),
    ("strided", (2, 3, 7, 8), (4, 3, 3, 3), True, {"stride": [2, 3], "padding": [1, 2]}),
    ("transposed", (2, 3, 4, 5), (3, 2, 3, 3), True,
     {"transposed": True, "stride": [2, 3], "padding": [1, 0], "output_padding": [1, 2]}),
    ("grouped", (2, 4, 5, 5), (6, 2, 3, 3), False, {"groups": 2, "padding": [1, 1]}),
    ("depthwise", (2, 3, 6, 6), (6, 1, 3, 3), True, {"groups": 3, "stride": [2, 2], "padding": [1, 1]}),
    ("dilated", (1, 2, 9, 8), (3, 2, 3, 2), False, {"dilation": [2, 3], "padding": [2, 1], "stride": [2, 1]}),
    ("transposed, grouped, dilated", (1, 4, 3, 4), (4, 3, 2, 3), True,
     {"transposed": True, "groups": 2, "dilation": [2, 1], "stride": [3, 2], "output_padding": [1, 0]}),
    ("1-d", (2, 3, 9), (4, 3, 3), True, {"stride": [2], "padding": [1], "dilation": [1]}),
    ("transposed, output padded by a stride", (2, 3, 4, 4), (3, 2, 2, 2), True,
     {"transposed": True, "dilation": [3, 2], "padding": [1, 1], "output_padding": [2, 1]}),
    ("1-d transposed", (2, 3, 4), (3, 5, 3), False, {"transposed": True, "stride": [2], "padding": [2]}),
    ("3-d", (1, 2, 4, 5, 3), (3, 2, 2, 3, 1), True, {"stride": [1, 2, 1], "padding": [1, 0, 1]}),
    ("3-d transposed", (1, 2, 2, 3, 2), (2, 3, 2, 2, 2), True, {"transposed": True, "stride": [2, 1, 2]}),
    ("one for all", (1, 2, 6, 6), (2, 2, 2, 2), False, {"stride": [2], "padding": [1], "dilation": [2]}),
    ("pointwise", (2, 3, 4, 4), (5, 3, 1, 1), True, {}),
    ("padding beyond the kernel", (1, 2, 3, 3), (2, 2, 1, 1), True, {"padding": [2, 1], "stride": [2, 2]}),
    ("pointwise, strided", (2, 3, 5, 6), (4, 3, 1, 1), True, {"stride": [2, 3]}),
    ("pointwise, long", (2, 3, 12, 13), (4, 3, 1, 1), False, {}),
    ("side by side", (2, 3, 7, 6), (4, 3, 2, 3), True, {"stride": [3, 3]}),
    (
        "side by side, transposed",
        (2, 3, 3, 4),
        (3, 2, 2, 1),
        True,
        {"transposed": True, "stride": [2, 3], "padding": [1, 0], "output_padding": [1, 2]},
    ),
    ("one channel", (2, 1, 5, 6), (3, 1, 3, 3), True, {"padding": [1, 1], "stride": [1, 2]}),
    ("depthwise back", (2, 3, 4, 3), (3, 1, 3, 2), True, {"transposed": True, "groups": 3, "stride": [2, 3]}),
    ("long kernel of one channel", (1, 1, 2, 140), (2, 1, 1, 130), False, {"padding": [0, 1]}),
    ("rows left over", (1, 1, 8, 7), (2, 1, 2, 3), False, {"stride": [3, 3]}),
]  # fmt: skip
EMPTY: Case = ("no batch", (0, 2, 4, 4), (3, 2, 3, 3), True, {})


def cases(make: Make) -> list[Case]:
    """Return all cases; the empty batch, which eager accepts in any dtype, only if others convolve too."""
    convolves = make.is_complex or (make.is_float and make.dtype.itemsize > 1)
    return [*CASES, EMPTY] if convolves else CASES


def arguments(spatial: int, bias: torch.Tensor | list[int] | None, options: dict[str, Any]) -> list[object]:
    """Return ``bias`` and the arguments after it in the schema of ``convolution``."""
    return [
        bias,
        options.get("stride", [1] * spatial),
        options.get("padding", [0] * spatial),
        options.get("dilation", [1] * spatial),
        options.get("transposed", False),
        options.get("output_padding", [0] * spatial),
        options.get("groups", 1),
    ]


def _channels(kernel: tuple[int, ...], options: dict[str, Any]) -> int:
    return kernel[1] * options.get("groups", 1) if options.get("transposed") else kernel[0]


@samples(aten.convolution.default)
def _convolution(make: Make) -> Iterator[Sample]:
    for note, shape, kernel, biased, options in cases(make):
        bias = make(_channels(kernel, options)) if biased else None
        yield Sample((make(*shape), make(*kernel), *arguments(len(shape) - 2, bias, options)), note=note)
    yield Sample(
        (make.transposed(4, 5, 3, 2), make.transposed(2, 3, 3, 3), None, *arguments(2, None, {})[1:])
    )


@samples(
    aten.convolution_backward.default,
    gradient=False,
    reason="second derivatives are tested through convolution",
)
def _convolution_backward(make: Make) -> Iterator[Sample]:
    for position, (note, shape, kernel, biased, options) in enumerate(cases(make)):
        bias = [_channels(kernel, options)] if biased else None
        input, weight, rest = make(*shape), make(*kernel), arguments(len(shape) - 2, bias, options)
        meta = [t.to("meta", torch.float32) for t in (input, weight)]
        grad = make(*aten.convolution.default(*meta, None, *rest[1:]).shape)
        in_weight = position % 5 != 4
        mask = [position % 5 != 3, in_weight, biased and in_weight]  # eager makes bias and weight's together
        yield Sample((grad, input, weight, *rest, mask), note=note)


@samples(aten._convolution.default)
def _underscore_convolution(make: Make) -> Iterator[Sample]:
    for note, shape, kernel, _, options in CASES[:5]:
        rest = arguments(len(shape) - 2, None, options)
        yield Sample((make(*shape), make(*kernel), *rest, False, False, True, True), note=note)


@samples(aten.conv_tbc.default)
def _conv_tbc(make: Make) -> Iterator[Sample]:
    yield Sample((make(7, 2, 3), make(3, 3, 4), make(4), 1))
    yield Sample((make(5, 1, 2), make(2, 2, 3), make(3)), note="no padding")
    yield Sample((make.transposed(6, 2, 3), make.transposed(1, 3, 4), make(4), 2), note="non-contiguous")
