"""Normalizations. Inputs have the names of ``torch.nn.functional`` as aliases."""

from __future__ import annotations

from typing import Any

from ...core.roundoff import Stages
from ..descriptor import AttributeSpec, OperatorDescriptor, Setup, Shape
from ..domain import Domain
from .build import FLOATS, alike, axis, need, operator, setup

_EPS = AttributeSpec(float, 1e-5, minimum=0, doc="added to the variance")
_POSITIVE = Domain(low=0.2, high=3.0)


def _normalization(
    name: str,
    doc: str,
    aliases: tuple[str, ...],
    setups: tuple[Setup, ...],
    shapes: Any,
    attributes: dict[str, AttributeSpec],
    *,
    domain: dict[str, Domain] | None = None,
    mutates: tuple[str, ...] = (),
) -> OperatorDescriptor:
    return operator(
        name,
        "normalization",
        doc,
        dtypes=alike(len(aliases), FLOATS),
        setups=setups,
        shapes=shapes,
        torch=f"torch.nn.functional.{name}",
        attributes=attributes,
        domain=domain,
        rounding=Stages(),
        tags=("reduction", "differentiable", "edge:nan-only"),
        aliases=aliases,
        mutates=mutates,
    )


def _channels(shape: Shape, *others: Shape, **attributes: Any) -> Shape:
    need(len(shape) >= 2, f"{list(shape)} has no channels: dimension 1 is missing")
    for one in others:
        need(one == (shape[1],), f"{list(one)} must be [{shape[1]}], one entry per channel")
    return shape


def _groups(shape: Shape, weight: Shape, bias: Shape, *, num_groups: int, eps: float) -> Shape:
    _channels(shape, weight, bias)
    need(shape[1] % num_groups == 0, f"{shape[1]} channels do not split into {num_groups} groups")
    return shape


def _trailing(shape: Shape, *others: Shape, normalized_shape: tuple[int, ...], eps: float) -> Shape:
    last = tuple(normalized_shape)
    need(bool(last) and shape[-len(last) :] == last, f"{list(shape)} does not end in {list(last)}")
    for one in others:
        need(one == last, f"{list(one)} must be {list(last)}")
    return shape


def _along(shape: Shape, *, p: float, dim: int, eps: float) -> Shape:
    axis(dim, len(shape))
    return shape


def _per_channel(shape: Shape, count: int, note: str = "", **attributes: Any) -> Setup:
    return setup(shape, *((shape[1],),) * count, note=note, **attributes)


def _last(shape: Shape, rank: int, inputs: int, note: str = "", **attributes: Any) -> Setup:
    last = shape[-rank:]
    return setup(shape, *(last,) * inputs, note=note, normalized_shape=list(last), **attributes)


_GROUP_SHAPES = (
    ((2, 6, 5), 3),
    ((2, 4, 3, 4), 2),
    ((1, 8, 7), 8),
    ((3, 8, 2, 3), 1),
    ((2, 6), 2),
    ((1, 2, 33), 1),
    ((0, 4, 3), 2),
)


def _trailing_setups(inputs: int) -> tuple[Setup, ...]:
    return (
        _last((4, 16), 1, inputs),
        _last((2, 3, 10), 1, inputs),
        _last((2, 3, 4, 5), 2, inputs),
        _last((5, 33), 1, inputs, eps=1e-2),
        _last((3, 4), 2, inputs, note="everything"),
        _last((7,), 1, inputs, note="vector"),
        _last((3, 1), 1, inputs, note="size 1"),
        _last((0, 8), 1, inputs, note="empty"),
        _last((2, 130), 1, inputs, eps=1e-3, note="long"),
    )


OPERATORS = (
    _normalization(
        "batch_norm",
        "Each channel less its mean, over its deviation: the running ones, or in training the batch's own.",
        ("input", "running_mean", "running_var", "weight", "bias"),
        (
            _per_channel((4, 3), 4),
            _per_channel((4, 3, 5), 4, training=True),
            _per_channel((2, 3, 4, 5), 4),
            _per_channel((2, 3, 4, 5), 4, training=True),
            _per_channel((2, 2, 3, 2, 3), 4, eps=1e-2),
            _per_channel((6, 2), 4, training=True, eps=1e-1),
            _per_channel((1, 1), 4, note="size 1"),
            _per_channel((0, 3, 4), 4, note="empty"),
            _per_channel((1, 33, 2), 4),
        ),
        _channels,
        {
            "training": AttributeSpec(bool, False, doc="whether to use the batch's own statistics"),
            "eps": _EPS,
        },
        domain={"input2": _POSITIVE},
        mutates=("input1", "input2"),
    ),
    _normalization(
        "layer_norm",
        "The last dimensions less their mean, over their deviation.",
        ("input", "weight", "bias"),
        _trailing_setups(2),
        _trailing,
        {"normalized_shape": AttributeSpec(list, doc="sizes of the dimensions"), "eps": _EPS},
    ),
    _normalization(
        "rms_norm",
        "The last dimensions over the root of their mean square.",
        ("input", "weight"),
        _trailing_setups(1),
        _trailing,
        {
            "normalized_shape": AttributeSpec(list, doc="sizes of the dimensions"),
            "eps": AttributeSpec(float, 1e-6, minimum=0, doc="added to the mean square"),
        },
    ),
    _normalization(
        "group_norm",
        "Each group of channels less its mean, over its deviation.",
        ("input", "weight", "bias"),
        (
            *(
                _per_channel(shape, 2, note="" if shape[0] else "empty", num_groups=count)
                for shape, count in _GROUP_SHAPES
            ),
            _per_channel((2, 6, 4), 2, num_groups=2, eps=1e-1),
        ),
        _groups,
        {"num_groups": AttributeSpec(int, minimum=1, doc="number of groups"), "eps": _EPS},
    ),
    _normalization(
        "instance_norm",
        "Each channel of each sample less its mean, over its deviation.",
        ("input", "weight", "bias"),
        (
            _per_channel((2, 3, 5), 2),
            _per_channel((2, 3, 4, 5), 2),
            _per_channel((1, 2, 2, 3, 4), 2),
            _per_channel((3, 1, 9), 2),
            _per_channel((1, 5, 33), 2),
            _per_channel((2, 3, 6), 2, eps=1e-1),
            _per_channel((1, 1, 9), 2, note="one channel"),
            _per_channel((2, 2, 3, 1), 2, eps=1e-3),
            _per_channel((0, 2, 4), 2, note="empty"),
        ),
        _channels,
        {"eps": _EPS},
    ),
    _normalization(
        "normalize",
        "x / max(p-norm along dim, eps).",
        ("input",),
        (
            setup((4, 7)),
            setup((2, 5, 3)),
            setup((4, 7), dim=0),
            setup((2, 3, 4, 5), p=1.0, dim=-1),
            setup((6, 5), p=3.0),
            setup((6, 5), eps=5.0, note="eps above the norm"),
            setup((1, 1), note="size 1"),
            setup((9,), dim=0, note="vector"),
            setup((0, 4), note="empty"),
        ),
        _along,
        {
            "p": AttributeSpec(float, 2.0, doc="which norm"),
            "dim": AttributeSpec(int, 1, doc="the dimension"),
            "eps": AttributeSpec(float, 1e-12, minimum=0, doc="least divisor"),
        },
    ),
    _normalization(
        "local_response_norm",
        "x / (k + alpha · mean of squares of size channels around)^beta.",
        ("input",),
        (
            setup((2, 5, 4), size=3),
            setup((2, 5, 4), size=2, alpha=0.5),
            setup((1, 6, 3, 3), size=5, alpha=1.0, beta=0.5),
            setup((1, 6, 3, 3), size=4, alpha=2.0, k=2.0),
            setup((1, 4, 2, 2, 3), size=3, alpha=1.0),
            setup((3, 1, 7), size=1, alpha=1.0, note="one channel"),
            setup((1, 2, 1), size=3, alpha=0.25, note="window larger than the channels"),
            setup((2, 9, 3), size=9, alpha=3.0),
            setup((0, 4, 3), size=3, alpha=1.0, note="empty"),
        ),
        lambda shape, **attributes: _channels(shape),
        {
            "size": AttributeSpec(int, minimum=1, doc="channels in a window"),
            "alpha": AttributeSpec(float, 1e-4, doc="factor of the mean square"),
            "beta": AttributeSpec(float, 0.75, doc="exponent"),
            "k": AttributeSpec(float, 1.0, doc="added to the divisor"),
        },
    ),
)
