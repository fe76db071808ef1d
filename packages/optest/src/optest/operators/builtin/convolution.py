"""Convolutions (cross-correlations, as everywhere in deep learning) and their transposes."""

from __future__ import annotations

from typing import Any

from ...core.roundoff import Sums
from ..descriptor import AttributeSpec, OperatorDescriptor, Setup, Shape
from .build import FLOATS, alike, need, operator, setup, spread

_SPREAD = (int, list)


def _attributes(*, transposed: bool) -> dict[str, AttributeSpec]:
    found = {
        "stride": AttributeSpec(_SPREAD, 1, doc="step, for all or each spatial dimension"),
        "padding": AttributeSpec(_SPREAD, 0, doc="zeros on both sides (transposed: taken off)"),
    }
    if transposed:
        found["output_padding"] = AttributeSpec(_SPREAD, 0, doc="added to the end of the result")
    found["dilation"] = AttributeSpec(_SPREAD, 1, doc="distance of the kernel's elements")
    found["groups"] = AttributeSpec(int, 1, minimum=1, doc="blocks of channels that do not mix")
    return found


def _check(rank: int, inputs: Shape, weight: Shape) -> None:
    need(len(inputs) == rank + 2, f"{list(inputs)} must be [batch, channels] and {rank} spatial sizes")
    need(len(weight) == rank + 2, f"the weight {list(weight)} must have {rank + 2} dimensions")


def _convolution_shape(rank: int) -> Any:
    def shape(
        inputs: Shape, weight: Shape, bias: Shape, *, stride: Any, padding: Any, dilation: Any, groups: int
    ) -> Shape:
        _check(rank, inputs, weight)
        need(inputs[1] == weight[1] * groups, f"{inputs[1]} channels are not {groups} groups of {weight[1]}")
        need(weight[0] % groups == 0, f"{weight[0]} output channels do not split into {groups} groups")
        need(bias == (weight[0],), f"the bias {list(bias)} must be [{weight[0]}]")
        sizes = []
        for size, kernel, step, pad, gap in zip(
            inputs[2:],
            weight[2:],
            spread(stride, rank, "stride"),
            spread(padding, rank, "padding"),
            spread(dilation, rank, "dilation"),
            strict=True,
        ):
            left = size + 2 * pad - gap * (kernel - 1) - 1
            need(left >= 0, f"a kernel of {kernel} (dilation {gap}) is larger than {size} with padding {pad}")
            sizes.append(left // step + 1)
        return (inputs[0], weight[0], *sizes)

    return shape


def _transposed_shape(rank: int) -> Any:
    def shape(
        inputs: Shape,
        weight: Shape,
        bias: Shape,
        *,
        stride: Any,
        padding: Any,
        output_padding: Any,
        dilation: Any,
        groups: int,
    ) -> Shape:
        _check(rank, inputs, weight)
        need(
            inputs[1] == weight[0], f"{inputs[1]} channels, but the weight {list(weight)} is for {weight[0]}"
        )
        need(weight[0] % groups == 0, f"{weight[0]} channels do not split into {groups} groups")
        need(bias == (weight[1] * groups,), f"the bias {list(bias)} must be [{weight[1] * groups}]")
        sizes = []
        for size, kernel, step, pad, extra, gap in zip(
            inputs[2:],
            weight[2:],
            spread(stride, rank, "stride"),
            spread(padding, rank, "padding"),
            spread(output_padding, rank, "output_padding"),
            spread(dilation, rank, "dilation"),
            strict=True,
        ):
            need(extra < max(step, gap), f"output_padding {extra} must be below the stride or the dilation")
            sizes.append((size - 1) * step - 2 * pad + gap * (kernel - 1) + extra + 1)
            need(sizes[-1] >= 1, f"padding {pad} leaves nothing of a result of {sizes[-1] + 2 * pad}")
        return (inputs[0], weight[1] * groups, *sizes)

    return shape


def _operator(rank: int, setups: tuple[Setup, ...], *, transposed: bool) -> OperatorDescriptor:
    name = f"conv_transpose{rank}d" if transposed else f"conv{rank}d"
    what = "transposed convolution (the gradient of one)" if transposed else "convolution"
    return operator(
        name,
        "convolution",
        f"A {rank}-d {what} with bias; the kernel is not mirrored.",
        dtypes=alike(3, FLOATS),
        setups=setups,
        shapes=_transposed_shape(rank) if transposed else _convolution_shape(rank),
        torch=f"torch.nn.functional.{name}",
        attributes=_attributes(transposed=transposed),
        rounding=Sums("input2"),
        tags=("reduction", "differentiable"),
        aliases=("input", "weight", "bias"),
    )


OPERATORS = (
    _operator(
        1,
        (
            setup((2, 3, 10), (4, 3, 3), (4,)),
            setup((1, 2, 9), (3, 2, 2), (3,), stride=2),
            setup((2, 2, 7), (2, 2, 3), (2,), padding=2),
            setup((1, 2, 12), (2, 2, 3), (2,), dilation=3),
            setup((2, 4, 8), (6, 2, 3), (6,), groups=2),
            setup((1, 3, 8), (3, 1, 4), (3,), groups=3, padding=1, note="depthwise"),
            setup((1, 1, 1), (1, 1, 1), (1,), note="size 1"),
            setup((0, 2, 5), (3, 2, 2), (3,), note="empty"),
            setup((1, 2, 11), (2, 2, 3), (2,), stride=[3], padding=[1], dilation=[2]),
        ),
        transposed=False,
    ),
    _operator(
        2,
        (
            setup((2, 3, 7, 6), (4, 3, 3, 3), (4,)),
            setup((1, 2, 8, 8), (3, 2, 3, 3), (3,), stride=2, padding=1),
            setup((1, 2, 9, 7), (2, 2, 3, 2), (2,), stride=[2, 1], padding=[0, 1]),
            setup((1, 2, 9, 9), (2, 2, 3, 3), (2,), dilation=[2, 3]),
            setup((2, 4, 5, 5), (6, 2, 2, 2), (6,), groups=2),
            setup((1, 4, 6, 6), (4, 1, 3, 3), (4,), groups=4, padding=1, note="depthwise"),
            setup((2, 5, 4, 3), (3, 5, 1, 1), (3,), note="1×1"),
            setup((1, 1, 1, 1), (1, 1, 1, 1), (1,), note="size 1"),
            setup((0, 2, 5, 5), (3, 2, 3, 3), (3,), note="empty"),
            setup((1, 1, 3, 3), (2, 1, 5, 5), (2,), padding=2, note="kernel larger than the input"),
        ),
        transposed=False,
    ),
    _operator(
        3,
        (
            setup((1, 2, 4, 5, 4), (3, 2, 2, 3, 2), (3,)),
            setup((2, 1, 5, 4, 4), (2, 1, 3, 2, 2), (2,), stride=2),
            setup((1, 2, 3, 3, 3), (2, 2, 3, 3, 3), (2,), padding=1),
            setup((1, 1, 6, 6, 5), (1, 1, 2, 2, 2), (1,), dilation=[3, 2, 1]),
            setup((1, 4, 3, 3, 3), (2, 2, 2, 2, 2), (2,), groups=2),
            setup((1, 2, 3, 4, 2), (2, 1, 1, 2, 1), (2,), groups=2, note="depthwise"),
            setup((1, 1, 1, 1, 1), (1, 1, 1, 1, 1), (1,), note="size 1"),
            setup((0, 2, 3, 3, 3), (3, 2, 2, 2, 2), (3,), note="empty"),
            setup((1, 1, 4, 3, 5), (2, 1, 3, 2, 3), (2,), stride=[1, 2, 3], padding=[1, 0, 2]),
        ),
        transposed=False,
    ),
    _operator(
        1,
        (
            setup((2, 3, 5), (3, 4, 3), (4,)),
            setup((1, 2, 6), (2, 3, 3), (3,), stride=2),
            setup((2, 2, 7), (2, 2, 3), (2,), padding=1),
            setup((1, 2, 5), (2, 2, 3), (2,), dilation=3),
            setup((2, 4, 4), (4, 3, 2), (6,), groups=2),
            setup((1, 2, 4), (2, 2, 3), (2,), stride=3, padding=1, output_padding=2),
            setup((1, 1, 1), (1, 1, 1), (1,), note="size 1"),
            setup((0, 2, 5), (2, 3, 2), (3,), note="empty"),
            setup((1, 3, 4), (3, 1, 2), (3,), groups=3, stride=[2], note="depthwise"),
        ),
        transposed=True,
    ),
    _operator(
        2,
        (
            setup((2, 3, 4, 5), (3, 4, 3, 2), (4,)),
            setup((1, 2, 4, 4), (2, 3, 3, 3), (3,), stride=2, padding=1, output_padding=1),
            setup((1, 2, 3, 4), (2, 2, 3, 2), (2,), stride=[2, 1], padding=[1, 0]),
            setup((1, 2, 3, 3), (2, 2, 2, 3), (2,), dilation=[2, 3]),
            setup((2, 4, 3, 3), (4, 2, 2, 2), (4,), groups=2),
            setup((1, 3, 4, 4), (3, 1, 2, 2), (3,), groups=3, stride=2, note="depthwise"),
            setup((2, 3, 2, 2), (3, 5, 1, 1), (5,), note="1×1"),
            setup((1, 1, 1, 1), (1, 1, 1, 1), (1,), note="size 1"),
            setup((0, 2, 3, 3), (2, 3, 2, 2), (3,), note="empty"),
        ),
        transposed=True,
    ),
)
