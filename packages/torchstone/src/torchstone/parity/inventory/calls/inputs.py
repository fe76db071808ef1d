"""The example inputs that calls mention by name.

``FOLLOWING`` has inputs that are made in the dtype of the call; ``FIXED`` has inputs with their own dtype.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping

import torch

Maker = Callable[[torch.dtype], torch.Tensor]

LOWEST, HIGHEST = -3.0, 3.0


def _random(name: str, shape: tuple[int, ...], low: float, high: float) -> Maker:
    """Return a maker of fixed random values in [low, high); integers are floored, and ≥ 0 if unsigned."""

    def make(dtype: torch.dtype) -> torch.Tensor:
        generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
        values = low + (high - low) * torch.rand((2, *shape), generator=generator, dtype=torch.float64)
        if dtype.is_complex:
            return torch.complex(values[0], values[1]).to(dtype)
        if dtype.is_floating_point:
            return values[0].to(dtype)
        whole = values[0].floor()
        if not dtype.is_signed:
            whole = whole.clamp(min=0)
        return (whole > 0).to(dtype) if dtype == torch.bool else whole.to(dtype)

    return make


_SHAPES: Mapping[str, tuple[int, ...]] = {
    "x": (3, 4),
    "y": (3, 4),
    "row": (4,),
    "column": (3,),
    "narrow": (2, 4),
    "tall": (4, 2),
    "wide": (3, 2),
    "pair": (2,),
    "triple": (3,),
    "single": (3, 1, 4),
    "cube": (2, 3, 4),
    "cubes": (2, 4, 2),
    "product": (2, 3, 2),
    "interleaved": (3, 4, 2),
    "signal": (2, 4, 7),
    "image": (2, 4, 6, 5),
    "volume": (1, 2, 4, 3, 4),
    "kernel": (6, 4, 3),
    "kernel2d": (6, 4, 3, 2),
    "kernel3d": (3, 2, 2, 2, 2),
    "transposed": (4, 6, 3),
    "transposed2d": (4, 6, 3, 2),
    "transposed3d": (2, 3, 2, 2, 2),
    "depthwise": (4, 1, 3, 3),
    "pointwise": (6, 4, 1, 1),
    "channels": (4,),
    "filters": (6,),
    "table": (10, 4),
    "queries": (2, 2, 3, 4),
    "keys": (2, 2, 5, 4),
    "values": (2, 2, 5, 4),
    "sequence": (5, 2, 4),
    "memory": (6, 2, 4),
    "step": (2, 4),
    "state": (2, 3),
    "cell": (2, 3),
    "entries": (5,),
    "blocks": (2, 2, 3),
    "left": (4, 3),
    "right": (3, 6),
    "base": (4, 3),
    "tokens_weights": (2, 3),
}

FOLLOWING: dict[str, Maker] = {
    **{name: _random(name, shape, LOWEST, HIGHEST) for name, shape in _SHAPES.items()},
    "positive": _random("positive", (3, 4), 1.1, 5),
    "unit": _random("unit", (3, 4), -0.9, 0.9),
    "exponent": _random("exponent", (3, 4), 0, 4),
    "probabilities": _random("probabilities", (3, 4), 0.05, 0.95),
    "scores": _random("scores", (3, 4), -2, 2),
    "frames": lambda dtype: _random("frames", (6, 2, 5), -2, 2)(dtype).log_softmax(-1),
    "square": _random("square", (6, 6), -2, 2),
    "sparse": lambda dtype: _random("sparse", (4, 6), 1, 4)(dtype) * (torch.arange(24).view(4, 6) % 3 == 1),
    "blocky": lambda dtype: (
        _random("blocky", (4, 6), 1, 4)(dtype)
        * torch.tensor([[1, 0], [0, 1]]).repeat_interleave(2, 0).repeat_interleave(3, 1)
    ),
    "halved": lambda dtype: (
        _random("halved", (64, 64), 1, 4)(dtype) * torch.tensor([1, 0, 0, 1]).repeat(64, 16)
    ),
    "features": _random("features", (8, 64), -2, 2),
}
"""Makers of the inputs that have the requested dtype."""


def _integers(*values: object) -> Callable[[], torch.Tensor]:
    return lambda: torch.tensor(values)


FIXED: dict[str, Callable[[], torch.Tensor]] = {
    "mask": lambda: torch.arange(12).view(3, 4) % 3 != 1,
    "index": _integers(2, 0),
    "places": _integers([0, 3, 1, 2], [2, 1, 3, 0]),
    "rows": _integers([2, 0, 1, 1]),
    "positions": _integers(0, 11, 5),
    "labels": _integers(3, 0, 1),
    "signs": lambda: torch.tensor([1.0, -1.0, 1.0]),
    "targets": _integers([1, 2, 2], [3, 1, 4]),
    "input_lengths": _integers(6, 5),
    "target_lengths": _integers(3, 2),
    "tokens": _integers([1, 0, 7], [9, 1, 3]),
    "bags": _integers(1, 0, 7, 9, 1, 3),
    "offsets": _integers(0, 2, 2),
    "lengths": _integers(5, 3),
    "allowed": lambda: torch.ones(3, 5, dtype=torch.bool).tril(1),
    "indices": _integers([0, 1, 3, 3, 1], [2, 0, 5, 1, 0]),
    "sorted_indices": _integers([0, 1, 1, 3, 3], [2, 0, 4, 1, 5]),
    "crow": _integers(0, 2, 2, 3, 5),
    "columns": _integers(0, 4, 1, 2, 5),
    "ccol": _integers(0, 1, 2, 3, 3, 4, 5),
    "row_places": _integers(0, 2, 1, 3, 0),
    "block_rows": _integers(0, 1, 2),
    "block_columns": _integers(0, 1),
    "scales": lambda: torch.tensor([0.1, 0.05, 0.2, 0.1]),
    "zeros": lambda: torch.tensor([0, 3, -2, 10], dtype=torch.int32),
}
"""Makers of the inputs that have their own dtype, whatever dtype is requested."""
