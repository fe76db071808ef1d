"""Bags of embeddings with many indices are computed part by part, where eager PyTorch uses one pass."""

from __future__ import annotations

import pytest
from torch._ops import OpOverload

from operator_samples import load_samples
from operator_samples.embedding_bag import INDICES, aten
from torchstone import lowering
from torchstone.dtypes import FLOAT32
from torchstone.lowering.aten import embedding_bag
from torchstone.parity.operators import check_forward

WIDTH = 3
"""The width of the rows in the samples."""
OVERLOADS = [
    aten._embedding_bag.default,
    aten._embedding_bag_backward.default,
    aten._embedding_bag_dense_backward.default,
]


@pytest.mark.kept(
    "aten._embedding_bag.default-a rest",
    "aten._embedding_bag_backward.default-whole parts",
    "aten._embedding_bag_dense_backward.default-a rest",
)
@pytest.mark.parametrize("length", [2, 4], ids=["whole parts", "a rest"])
@pytest.mark.parametrize("overload", OVERLOADS, ids=str)
def test_parts_agree_with_eager(overload: OpOverload, length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding_bag, "_PART", length * WIDTH)
    loops: list[int] = []
    loop = embedding_bag.hlo.fori
    monkeypatch.setattr(embedding_bag.hlo, "fori", lambda *given: loops.append(length) or loop(*given))
    lowering.load()
    samples = load_samples()[overload].make(FLOAT32.torch)
    assert len(INDICES) > length
    failed = [outcome.describe() for outcome in check_forward(overload, samples) if not outcome.passed]
    assert not failed, "\n\n".join(failed)
    assert loops
