"""Interpolation, sampling on a grid, and pixels moved between channels and space."""

from __future__ import annotations

from typing import Any

from ...core.roundoff import Stages
from ..descriptor import AttributeSpec, OperatorDescriptor, Setup, Shape
from ..domain import Domain
from .build import FLOATS, MOVED, alike, need, operator, setup, spread
from .shape import movement

_SIZE = AttributeSpec((int, list, type(None)), None, doc="sizes of the result; or give scale_factor")
_FACTOR = AttributeSpec((float, list, type(None)), None, doc="factors of the sizes; or give size")
_ALIGN = AttributeSpec(bool, False, doc="whether the corners' centres coincide")
_LINEAR = {3: "linear", 4: "bilinear", 5: "trilinear"}


def _resized(shape: Shape, *, size: Any, scale_factor: Any, mode: str, align_corners: bool = False) -> Shape:
    need(len(shape) in (3, 4, 5), f"{list(shape)} must be [batch, channels] and 1 to 3 spatial sizes")
    need((size is None) != (scale_factor is None), "give one of size and scale_factor")
    if mode in _LINEAR.values():
        need(mode == _LINEAR[len(shape)], f"{list(shape)} takes the mode {_LINEAR[len(shape)]}, not {mode}")
    if mode == "bicubic":
        need(len(shape) == 4, f"bicubic takes [batch, channels, height, width], not {list(shape)}")
    rank = len(shape) - 2
    if size is not None:
        found = spread(size, rank, "size")
    else:
        factors = scale_factor if isinstance(scale_factor, tuple) else (scale_factor,) * rank
        need(len(factors) == rank, f"scale_factor {list(factors)} needs one entry or {rank}")
        found = tuple(int(one * factor) for one, factor in zip(shape[2:], factors, strict=True))
    need(
        all(shape[1:]) and min(found) > 0,
        f"{list(shape)} cannot become {list(found)}: sizes must be positive",
    )
    return (*shape[:2], *found)


_NEAREST = (
    setup((2, 3, 5), size=[8]),
    setup((1, 2, 9), scale_factor=0.5),
    setup((1, 2, 4, 5), size=[8, 10]),
    setup((1, 2, 7, 6), size=[3, 4]),
    setup((1, 2, 5, 5), scale_factor=[2.0, 1.5]),
    setup((1, 1, 3, 4, 2), size=[4, 3, 5]),
    setup((1, 1, 1, 1), size=[3, 3], note="size 1"),
    setup((2, 1, 4, 4), size=[4, 4], note="same size"),
    setup((1, 1, 6, 6), size=1),
    setup((0, 2, 4, 5), size=[3, 6], note="empty"),
)
_SMOOTH = (
    setup((1, 2, 4, 5), size=[8, 10]),
    setup((1, 2, 4, 5), size=[8, 10], align_corners=True),
    setup((1, 2, 7, 6), size=[3, 4]),
    setup((1, 2, 7, 6), size=[3, 4], align_corners=True),
    setup((2, 1, 5, 5), scale_factor=[2.0, 1.5]),
    setup((1, 1, 1, 1), size=[3, 3], note="size 1"),
    setup((2, 1, 4, 4), size=[4, 4], note="same size"),
    setup((1, 1, 6, 6), size=1, align_corners=True, note="to size 1"),
    setup((0, 2, 4, 5), size=[3, 6], note="empty"),
)


def _interpolation(
    name: str,
    doc: str,
    modes: tuple[str, ...],
    setups: tuple[Setup, ...],
    *,
    aligned: bool,
    dtypes: tuple[str, ...],
) -> OperatorDescriptor:
    return operator(
        name,
        "resize",
        doc,
        dtypes=alike(1, dtypes),
        setups=setups,
        shapes=_resized,
        torch="torch.nn.functional.interpolate",
        attributes={
            "size": _SIZE,
            "scale_factor": _FACTOR,
            "mode": AttributeSpec(str, modes[0], choices=modes, doc="by the number of spatial sizes"),
            **({"align_corners": _ALIGN} if aligned else {}),
        },
        rounding=Stages() if aligned else None,
        tags=("differentiable", "data-movement") if not aligned else ("differentiable",),
    )


def _linear(one: Setup) -> Setup:
    return setup(*one.shapes.values(), note=one.note, mode="bilinear", **one.attributes)


def _grid_shape(inputs: Shape, grid: Shape, **attributes: Any) -> Shape:
    fits = len(inputs) == 4 and len(grid) == 4 and inputs[0] == grid[0] and grid[3] == 2
    need(fits, f"{list(inputs)} must be [batch, channels, h, w] and the grid {list(grid)} [batch, h, w, 2]")
    need(all(inputs[2:]), f"{list(inputs)} has no pixels")
    return (inputs[0], inputs[1], *grid[1:3])


def _shuffled(shape: Shape, *, upscale_factor: int) -> Shape:
    need(len(shape) >= 3, f"{list(shape)} must be [..., channels, height, width]")
    square = upscale_factor**2
    need(shape[-3] % square == 0, f"{shape[-3]} channels are not a multiple of {square}")
    return (*shape[:-3], shape[-3] // square, shape[-2] * upscale_factor, shape[-1] * upscale_factor)


def _unshuffled(shape: Shape, *, downscale_factor: int) -> Shape:
    need(len(shape) >= 3, f"{list(shape)} must be [..., channels, height, width]")
    whole = shape[-2] % downscale_factor == 0 == shape[-1] % downscale_factor
    need(whole, f"{shape[-2]}×{shape[-1]} is not divisible by {downscale_factor}")
    return (
        *shape[:-3],
        shape[-3] * downscale_factor**2,
        shape[-2] // downscale_factor,
        shape[-1] // downscale_factor,
    )


def _channels(shape: Shape, *, groups: int) -> Shape:
    need(len(shape) >= 3 and shape[1] % groups == 0, f"{list(shape)} has no channels in {groups} groups")
    return shape


_GRIDS: tuple[Any, ...] = (
    ({}, (1, 2, 4, 5), (1, 3, 4, 2)),
    ({"align_corners": True}, (2, 1, 4, 5), (2, 3, 3, 2)),
    ({"mode": "nearest"}, (1, 2, 4, 5), (1, 3, 4, 2)),
    ({"mode": "nearest", "align_corners": True}, (1, 2, 5, 5), (1, 4, 4, 2)),
    ({"padding_mode": "border"}, (1, 2, 4, 5), (1, 6, 3, 2)),
    ({"padding_mode": "reflection"}, (1, 2, 4, 5), (1, 6, 3, 2)),
    ({"padding_mode": "reflection", "align_corners": True}, (1, 2, 3, 4), (1, 5, 3, 2)),
    ({"mode": "nearest", "padding_mode": "border"}, (1, 1, 3, 4), (1, 5, 5, 2)),
    ({}, (1, 1, 1, 1), (1, 2, 2, 2)),
    ({"note": "empty"}, (0, 2, 3, 4), (0, 2, 2, 2)),
    ({"note": "empty grid"}, (1, 2, 3, 4), (1, 0, 2, 2)),
)


def _shuffle(
    name: str,
    doc: str,
    factor: tuple[str, str],
    setups: tuple[Setup, ...],
    shapes: Any,
    dtypes: tuple[str, ...] = MOVED,
) -> OperatorDescriptor:
    """Describe a function that moves elements between axes; ``factor`` is its attribute's name and doc."""
    attribute, meaning = factor
    return movement(
        name,
        doc,
        setups,
        shapes,
        {attribute: AttributeSpec(int, minimum=1, doc=meaning)},
        dtypes=dtypes,
        torch=f"torch.nn.functional.{name}",
        category="resize",
    )


_SHUFFLED = (
    setup((1, 4, 2, 3), upscale_factor=2),
    setup((2, 9, 2, 2), upscale_factor=3),
    setup((1, 36, 1, 2), upscale_factor=3),
    setup((1, 8, 3, 1), upscale_factor=2),
    setup((12, 2, 3), upscale_factor=2, note="no batch"),
    setup((2, 1, 4, 2, 2), upscale_factor=2, note="two batches"),
    setup((1, 3, 2, 2), upscale_factor=1, note="nothing"),
    setup((1, 1, 1, 1), upscale_factor=1, note="size 1"),
    setup((0, 4, 2, 2), upscale_factor=2, note="empty"),
)
_UNSHUFFLED = (
    setup((1, 1, 4, 6), downscale_factor=2),
    setup((2, 2, 6, 3), downscale_factor=3),
    setup((1, 3, 2, 8), downscale_factor=2),
    setup((3, 4, 4), downscale_factor=2, note="no batch"),
    setup((2, 1, 2, 4, 2), downscale_factor=2, note="two batches"),
    setup((1, 3, 2, 2), downscale_factor=1, note="nothing"),
    setup((1, 1, 1, 1), downscale_factor=1, note="size 1"),
    setup((1, 2, 4, 2), downscale_factor=2),
    setup((0, 2, 4, 2), downscale_factor=2, note="empty"),
)
_CHANNELS = (
    setup((1, 6, 2, 3), groups=2),
    setup((1, 6, 2, 3), groups=3),
    setup((2, 4, 3, 1), groups=4),
    setup((2, 8, 5), groups=2),
    setup((1, 4, 2, 2, 2), groups=2),
    setup((1, 5, 2, 2), groups=1, note="nothing"),
    setup((1, 1, 1, 1), groups=1, note="size 1"),
    setup((2, 12, 1, 2), groups=4),
    setup((0, 4, 2, 2), groups=2, note="empty"),
)

OPERATORS = (
    _interpolation(
        "interpolate_nearest",
        "Each result from the input at floor(i · scale).",
        ("nearest",),
        _NEAREST,
        aligned=False,
        dtypes=FLOATS,
    ),
    _interpolation(
        "interpolate_nearest_exact",
        "Each result from the input at floor((i + ½) · scale).",
        ("nearest-exact",),
        _NEAREST,
        aligned=False,
        dtypes=FLOATS,
    ),
    _interpolation(
        "interpolate_linear",
        "Linear between the nearest inputs, along 1 to 3 spatial dimensions.",
        ("linear", "bilinear", "trilinear"),
        (
            *(_linear(one) for one in _SMOOTH),
            setup((2, 3, 5), size=[8]),
            setup((2, 3, 9), size=[4], align_corners=True),
            setup((1, 1, 3, 4, 2), size=[4, 3, 5], mode="trilinear"),
            setup((1, 1, 3, 4, 2), size=[4, 3, 5], mode="trilinear", align_corners=True),
        ),
        aligned=True,
        dtypes=FLOATS,
    ),
    _interpolation(
        "interpolate_bicubic",
        "Cubic convolution (a = −0.75) of the 4×4 nearest inputs, the border repeated.",
        ("bicubic",),
        _SMOOTH,
        aligned=True,
        dtypes=FLOATS,
    ),
    operator(
        "grid_sample",
        "resize",
        "The input at the places of a grid, from −1 to 1 along width and height.",
        dtypes=alike(2, FLOATS),
        setups=tuple(setup(*shapes, **attributes) for attributes, *shapes in _GRIDS),
        shapes=_grid_shape,
        torch="torch.nn.functional.grid_sample",
        attributes={
            "mode": AttributeSpec(str, "bilinear", choices=("bilinear", "nearest"), doc="how to interpolate"),
            "padding_mode": AttributeSpec(
                str, "zeros", choices=("zeros", "border", "reflection"), doc="what lies outside"
            ),
            "align_corners": AttributeSpec(bool, False, doc="whether ±1 are the corners' centres"),
        },
        domain={"input1": Domain(low=-1.4, high=1.4)},
        # Roundings: a place (+ 1, size, − 1, halved, 3 to reflect), a weight, two products, a sum of four.
        rounding=Stages(13, shifted={"input1": 1.0}),
        tags=("differentiable", "index"),
        aliases=("input", "grid"),
    ),
    _shuffle(
        "pixel_shuffle",
        "Channels in groups of upscale_factor² become squares of pixels.",
        ("upscale_factor", "side of a square"),
        _SHUFFLED,
        _shuffled,
    ),
    _shuffle(
        "pixel_unshuffle",
        "Squares of downscale_factor² pixels become channels.",
        ("downscale_factor", "side of a square"),
        _UNSHUFFLED,
        _unshuffled,
    ),
    _shuffle(
        "channel_shuffle",
        "Channels dealt out to groups, one each in turn.",
        ("groups", "number of groups"),
        _CHANNELS,
        _channels,
        dtypes=FLOATS,
    ),
)
