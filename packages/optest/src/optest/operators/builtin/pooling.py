"""Pooling: the largest or the mean of windows, of fixed size or of fixed number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...core.roundoff import Rounding, Stages
from ..descriptor import AttributeSpec, OperatorDescriptor, Setup, Shape
from ..domain import Domain
from .build import FLOATS, alike, gives, need, operator, same, setup, spread

_SPREAD = (int, list)
_KERNEL = AttributeSpec(_SPREAD, doc="size of the window")
_STRIDE = AttributeSpec((int, list, type(None)), None, doc="step; null: the kernel's size")
_PADDING = AttributeSpec(_SPREAD, 0, doc="added on both sides: at most half the kernel")
_DILATION = AttributeSpec(_SPREAD, 1, doc="distance of the window's elements")
_CEIL = AttributeSpec(bool, False, doc="whether a window may hang over the end")
_SIZE = AttributeSpec(_SPREAD, doc="size of the result")
_MAX = {
    "kernel_size": _KERNEL,
    "stride": _STRIDE,
    "padding": _PADDING,
    "dilation": _DILATION,
    "ceil_mode": _CEIL,
}
_AVERAGE = {
    "kernel_size": _KERNEL,
    "stride": _STRIDE,
    "padding": _PADDING,
    "ceil_mode": _CEIL,
    "count_include_pad": AttributeSpec(bool, True, doc="whether padding counts in the mean"),
}
_DIVISOR = {"divisor_override": AttributeSpec((int, type(None)), None, doc="what to divide by instead")}


def _windows(rank: int) -> Any:
    def shape(
        inputs: Shape,
        *,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        **attributes: Any,
    ) -> Shape:
        _check(rank, inputs)
        kernels = spread(kernel_size, rank, "kernel_size")
        sizes = []
        for size, kernel, step, pad, gap in zip(
            inputs[-rank:],
            kernels,
            kernels if stride is None else spread(stride, rank, "stride"),
            spread(padding, rank, "padding"),
            spread(dilation, rank, "dilation"),
            strict=True,
        ):
            need(2 * pad <= kernel, f"padding {pad} is more than half the kernel's {kernel}")
            left = size + 2 * pad - gap * (kernel - 1) - 1
            count = (left + (step - 1 if ceil_mode else 0)) // step + 1
            if ceil_mode and (count - 1) * step >= size + pad:
                count -= 1  # the last window would start in the padding
            need(count >= 1, f"a window of {kernel} (dilation {gap}) does not fit {size} with padding {pad}")
            sizes.append(count)
        return (*inputs[:-rank], *sizes)

    return shape


def _adaptive(rank: int) -> Any:
    def shape(inputs: Shape, *, output_size: Any) -> Shape:
        _check(rank, inputs)
        return (*inputs[:-rank], *spread(output_size, rank, "output_size"))

    return shape


def _check(rank: int, inputs: Shape) -> None:
    known = len(inputs) in (rank + 1, rank + 2)
    need(known, f"{list(inputs)} must be [batch, channels] or [channels] and {rank} spatial sizes")
    need(all(inputs[-rank:]), f"{list(inputs)} has no elements to pool")


def _pool(
    name: str,
    doc: str,
    shapes: Any,
    setups: tuple[Setup, ...],
    attributes: Mapping[str, AttributeSpec],
    *,
    dtypes: tuple[str, ...] = FLOATS,
    outputs: int = 1,
    domain: Domain | None = None,
    infinite: bool = True,
    rounding: Rounding | None = None,
) -> OperatorDescriptor:
    return operator(
        name,
        "pooling",
        doc,
        dtypes=alike(1, dtypes),
        setups=setups,
        shapes=shapes,
        torch=f"torch.nn.functional.{name}",
        types=same if outputs == 1 else gives("=", "int64"),
        outputs=outputs,
        attributes=attributes,
        domain={} if domain is None else {"input0": domain},
        rounding=rounding,
        tags=(
            "reduction",
            "differentiable",
            "edge:nan" if infinite else "edge:nan-only",
            *(("exact",) if "max_pool" in name else ()),
        ),
    )


def _max_setups(rank: int) -> tuple[Setup, ...]:
    wide, odd = (8, 6, 4)[:rank], (9, 7, 5)[:rank]
    return (
        setup((2, 3, *wide), kernel_size=2),
        setup((1, 2, *odd), kernel_size=3, stride=2),
        setup((1, 2, *odd), kernel_size=3, stride=1, padding=1),
        setup((1, 2, *odd), kernel_size=2, stride=3, ceil_mode=True),
        setup((1, 2, *wide), kernel_size=3, stride=2, ceil_mode=True),
        setup((1, 2, *odd), kernel_size=2, stride=1, dilation=2),
        setup((2, *wide), kernel_size=2, note="no batch"),
        setup((1, 1, *(1,) * rank), kernel_size=1, note="size 1"),
        setup((0, 2, *wide), kernel_size=2, note="empty"),
        setup((1, 2, *odd), kernel_size=[3, 2, 2][:rank], stride=[2, 1, 2][:rank], padding=[1, 0, 1][:rank]),
    )


def _average_setups(rank: int) -> tuple[Setup, ...]:
    wide, odd = (8, 6, 4)[:rank], (9, 7, 5)[:rank]
    return (
        setup((2, 3, *wide), kernel_size=2),
        setup((1, 2, *odd), kernel_size=3, stride=2),
        setup((1, 2, *odd), kernel_size=3, stride=1, padding=1),
        setup((1, 2, *odd), kernel_size=3, padding=1, count_include_pad=False),
        setup((1, 2, *odd), kernel_size=2, stride=3, ceil_mode=True),
        setup((1, 2, *wide), kernel_size=3, stride=2, padding=1, ceil_mode=True),
        setup((2, *wide), kernel_size=2, note="no batch"),
        setup((1, 1, *(1,) * rank), kernel_size=1, note="size 1"),
        setup((0, 2, *wide), kernel_size=2, note="empty"),
    )


_MAX_DOC = "The largest of each window; padding never wins, NaN always does."
_AVERAGE_DOC = "The mean of each window."
_CHOSEN_DOC = "and where it is, counted over the spatial dimensions; the first of equal ones."
_ADAPTIVE_2D = (
    setup((2, 3, 8, 6), output_size=[4, 3]),
    setup((1, 2, 7, 9), output_size=[3, 4], note="sizes that do not divide"),
    setup((1, 2, 5, 5), output_size=1),
    setup((1, 2, 3, 4), output_size=[5, 6], note="larger than the input"),
    setup((2, 6, 5), output_size=[4, 5], note="no batch"),
    setup((1, 1, 1, 1), output_size=1, note="size 1"),
    setup((0, 2, 4, 4), output_size=2, note="empty"),
    setup((1, 2, 10, 3), output_size=[7, 2]),
)

OPERATORS = (
    _pool("max_pool1d", _MAX_DOC, _windows(1), _max_setups(1), _MAX),
    _pool("max_pool2d", _MAX_DOC, _windows(2), _max_setups(2), _MAX),
    _pool("max_pool3d", _MAX_DOC, _windows(3), _max_setups(3), _MAX),
    _pool(
        "max_pool2d_with_indices",
        f"The largest of each window, {_CHOSEN_DOC}",
        lambda inputs, **attributes: (_windows(2)(inputs, **attributes),) * 2,
        _max_setups(2),
        _MAX,
        outputs=2,
        domain=Domain(low=-3, high=3, ties=True),
    ),
    _pool("avg_pool1d", _AVERAGE_DOC, _windows(1), _average_setups(1), _AVERAGE),
    _pool(
        "avg_pool2d",
        _AVERAGE_DOC,
        _windows(2),
        (*_average_setups(2), setup((1, 2, 6, 5), kernel_size=[3, 2], stride=1, divisor_override=5)),
        _AVERAGE | _DIVISOR,
    ),
    _pool(
        "avg_pool3d",
        _AVERAGE_DOC,
        _windows(3),
        (*_average_setups(3), setup((1, 2, 4, 5, 3), kernel_size=2, stride=1, divisor_override=3)),
        _AVERAGE | _DIVISOR,
    ),
    _pool(
        "adaptive_avg_pool1d",
        "The means of output_size windows that cover the input evenly.",
        _adaptive(1),
        (
            setup((2, 3, 8), output_size=4),
            setup((1, 2, 7), output_size=3, note="sizes that do not divide"),
            setup((1, 2, 5), output_size=1),
            setup((1, 2, 3), output_size=5, note="larger than the input"),
            setup((2, 6), output_size=4, note="no batch"),
            setup((1, 1, 1), output_size=1, note="size 1"),
            setup((0, 2, 4), output_size=2, note="empty"),
            setup((1, 2, 10), output_size=7),
        ),
        {"output_size": _SIZE},
    ),
    _pool(
        "adaptive_avg_pool2d",
        "The means of output_size windows that cover the input evenly.",
        _adaptive(2),
        _ADAPTIVE_2D,
        {"output_size": _SIZE},
    ),
    _pool(
        "adaptive_max_pool2d_with_indices",
        f"The largest of output_size windows that cover the input evenly, {_CHOSEN_DOC}",
        lambda inputs, **attributes: (_adaptive(2)(inputs, **attributes),) * 2,
        _ADAPTIVE_2D,
        {"output_size": _SIZE},
        outputs=2,
        domain=Domain(low=-3, high=3, ties=True),
        infinite=False,
    ),
    _pool(
        "lp_pool2d",
        "(Σ x^norm_type)^(1/norm_type) of each window.",
        _windows(2),
        (
            setup((2, 3, 8, 6), norm_type=2.0, kernel_size=2),
            setup((1, 2, 9, 7), norm_type=2.0, kernel_size=3, stride=2),
            setup((1, 2, 9, 7), norm_type=1.0, kernel_size=3, stride=1),
            setup((1, 2, 9, 7), norm_type=3.0, kernel_size=[2, 3]),
            setup((1, 2, 4, 5), norm_type=0.5, kernel_size=2),
            setup((2, 8, 6), norm_type=4.0, kernel_size=2, note="no batch"),
            setup((1, 1, 1, 1), norm_type=2.0, kernel_size=1, note="size 1"),
            setup((0, 2, 4, 4), norm_type=2.0, kernel_size=2, note="empty"),
        ),
        {
            "norm_type": AttributeSpec(float, doc="the exponent"),
            "kernel_size": _KERNEL,
            "stride": _STRIDE,
        },
        domain=Domain(low=0.0, high=4.0),
        infinite=False,
        rounding=Stages(),
    ),
)
