"""The derivatives that AOTAutograd asks for, by name: reached, and equal to eager PyTorch's.

``make test`` runs some families, ``make conformance`` all.
"""

from __future__ import annotations

import pytest

from torchstone import lowering
from torchstone.parity.derivatives import DERIVATIVES, check

IN_TESTS = ("embedding", "indexing", "pooling", "scan")


def run(family: str) -> None:
    found = check(family)
    assert not found.complaints
    wanted = {name for overloads in DERIVATIVES[family].values() for name in overloads}
    assert wanted <= found.called


@pytest.mark.kept("pooling")
@pytest.mark.parametrize("family", IN_TESTS)
def test_some(family: str) -> None:
    run(family)


@pytest.mark.conformance
@pytest.mark.parametrize("family", sorted(DERIVATIVES.keys() - set(IN_TESTS)))
def test_all(family: str) -> None:
    run(family)


def test_the_table_names_what_is_lowered() -> None:
    lowered = {entry.name.removeprefix("aten.") for entry in lowering.load()}
    named = {name for calls in DERIVATIVES.values() for names in calls.values() for name in names}
    assert not named - lowered
    assert len([name for name in named if "backward" in name]) >= 45


def test_a_missing_call_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DERIVATIVES, "scan", {"torch.cumsum(x, 1)": ("cummax.default",)})  # type: ignore[arg-type]
    with pytest.raises(AssertionError):
        run("scan")
