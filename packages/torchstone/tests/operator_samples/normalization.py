"""Samples of ``lowering.aten.normalization``."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from torchstone.torch_internals.operators import namespace

from . import Make, Sample, samples

aten = namespace("aten")


@samples(aten.native_layer_norm.default)
def _layer_norm(make: Make) -> Iterator[Sample]:
    yield Sample((make(3, 5), [5], make(5), make(5), 1e-5))
    yield Sample((make(2, 3, 4), [3, 4], None, None, 1e-3), note="two axes, no weight")
    yield Sample((make.transposed(4, 3), [3], None, make(3), 1e-5), note="non-contiguous, bias only")
    yield Sample((make(0, 4), [4], make(4), make(4), 1e-5), note="empty")
    yield Sample((make(4), [4], make(4), None, 1e-5), note="no outer axes")
    yield Sample((make(3, 1), [1], make(1), make(1), 1e-5), note="size 1")
    wide = torch.float32
    yield Sample((make(3, 5), [5], make(5, dtype=wide), make(5, dtype=wide), 1e-5), note="float32 weight")
    yield Sample((make(2, 64, low=100, high=101), [64], make(64), make(64), 1e-5), note="large mean")


@samples(aten.native_layer_norm_backward.default, gradient=False)
def _layer_norm_backward(make: Make) -> Iterator[Sample]:
    def sample(
        x: torch.Tensor,
        normalized: list[int],
        weight: torch.Tensor | None,
        bias: torch.Tensor | None,
        mask: list[bool],
        note: str = "",
    ) -> Sample:
        _, mean, rstd = aten.native_layer_norm(x, normalized, weight, bias, 1e-5)
        return Sample((make(*x.shape), x, normalized, mean, rstd, weight, bias, mask), note=note)

    if not make.is_float:
        return
    yield sample(make(3, 5), [5], make(5), make(5), [True, True, True])
    yield sample(make(2, 3, 4), [3, 4], None, None, [True, False, False], "no weight")
    yield sample(make(3, 5), [5], make(5), make(5), [False, True, True], "only the parameters'")
    yield sample(make(0, 4), [4], make(4), make(4), [True, True, True], "empty")
    yield sample(make.transposed(4, 3), [3], make(3), None, [True, True, False], "non-contiguous")


@samples(aten._fused_rms_norm.default)
def _rms_norm(make: Make) -> Iterator[Sample]:
    yield Sample((make(3, 5), [5], make(5), 1e-5))
    yield Sample((make(2, 3, 4), [3, 4], None, None), note="two axes, default epsilon")
    yield Sample((make.transposed(4, 3), [3], make(3), 1e-3), note="non-contiguous")
    yield Sample((make(0, 4), [4], make(4), 1e-5), note="empty")
    yield Sample((make(3, 1), [1], make(1), None), note="size 1")


@samples(aten._fused_rms_norm_backward.default, gradient=False)
def _rms_norm_backward(make: Make) -> Iterator[Sample]:
    def sample(x: torch.Tensor, weight: torch.Tensor | None, mask: list[bool], note: str = "") -> Sample:
        _, rstd = aten._fused_rms_norm(x, [x.shape[-1]], weight, 1e-5)
        return Sample((make(*x.shape), x, [x.shape[-1]], rstd, weight, mask), note=note)

    if not make.is_float:
        return
    yield sample(make(3, 5), make(5), [True, True])
    yield sample(make(3, 5), None, [True, False], "no weight")
    yield sample(make.transposed(4, 3), make(3), [True, True], "non-contiguous")
    yield sample(make(0, 4), make(4), [True, True], "empty")


@samples(aten.native_group_norm.default)
def _group_norm(make: Make) -> Iterator[Sample]:
    yield Sample((make(2, 6, 3), make(6), make(6), 2, 6, 3, 3, 1e-5))
    yield Sample((make(2, 4, 2, 2), None, None, 2, 4, 4, 2, 1e-3), note="no weight, 2-d")
    yield Sample((make(2, 4), make(4), None, 2, 4, 1, 1, 1e-5), note="one group, no axes")
    yield Sample((make(2, 4, 3), make(4), make(4), 2, 4, 3, 4, 1e-5), note="as many groups as channels")
    wide = torch.float32
    yield Sample(
        (make(2, 4, 3), make(4, dtype=wide), make(4, dtype=wide), 2, 4, 3, 2, 1e-5), note="float32 weight"
    )
    yield Sample((make(0, 4, 3), make(4), make(4), 0, 4, 3, 2, 1e-5), note="empty")


@samples(aten.native_group_norm_backward.default, gradient=False)
def _group_norm_backward(make: Make) -> Iterator[Sample]:
    def sample(
        x: torch.Tensor, weight: torch.Tensor | None, group: int, mask: list[bool], note: str = ""
    ) -> Sample:
        n, c = x.shape[:2]
        size = x.numel() // (n * c)
        _, mean, rstd = aten.native_group_norm(x, weight, None, n, c, size, group, 1e-5)
        return Sample((make(*x.shape), x, mean, rstd, weight, n, c, size, group, mask), note=note)

    if not make.is_float:
        return
    yield sample(make(2, 6, 3), make(6), 3, [True, True, True])
    yield sample(make(2, 4, 2, 2), None, 2, [True, False, False], "no weight")
    yield sample(make(2, 4, 3), make(4), 1, [False, True, True], "only the parameters'")
