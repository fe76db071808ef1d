from __future__ import annotations

import torch

from optest.torch.opinfo.values import _shown


def test_values_are_short_and_exact() -> None:
    assert _shown(torch.tensor([[0.1, float("nan")], [-0.0, float("inf")]])) == (
        "float32 [2, 2] 0.100000001, nan, -0, inf"
    )
    assert _shown(torch.arange(100)).endswith("22, 23, …")
    assert _shown(torch.tensor([True, False])) == "bool [2] True, False"
    assert _shown(torch.tensor(1 + 2j)) == "complex64 [] (1+2j)"
    assert _shown(torch.zeros(0, 3)) == "float32 [0, 3] "
