"""Planning: which groups a suite has, shards, strata, ids."""

from __future__ import annotations

from collections import Counter

import pytest

pytest.importorskip("torch")

from optest.coverage.stages import Operators, load_stages
from optest.errors import UnknownName, UsageError
from optest.torch.opinfo.databases import entries_of
from optest.torch.opinfo.groups import PHASES, SUITES, Group, Selection
from optest.torch.opinfo.phases import planned
from optest.torch.opinfo.planning import plan


def test_every_entry_and_dtype_of_the_cpu_counts() -> None:
    groups = plan(Selection("opinfo", phases=("forward",)))
    pairs = {(one.entry, one.dtype) for one in groups}
    assert len(groups) == len(pairs) == sum(len(one.dtypes) for one in entries_of("opinfo").values())
    assert ("jiterator_unary", "float32") in pairs
    assert len(pairs) > 6000


def test_the_stages_ask_for_operators_and_phases_that_there_are() -> None:
    """No backend could reach a stage that asks for something that no run records."""
    entries, plan = entries_of("opinfo"), load_stages()
    for one in (*plan.stage, *plan.checklist):
        for item in one.item:
            if isinstance(item, Operators):
                assert set(item.phases) <= set(PHASES), item.text
                for names in item.names:
                    assert any(name in entries for name in names.split("|")), names


@pytest.mark.parametrize("suite", SUITES)
def test_every_suite_has_entries_with_cases(suite: str) -> None:
    groups = plan(Selection(suite, dtypes=("float32",), phases=("forward",)))
    assert len(groups) > 10
    assert planned(groups[0])


def test_shards_are_disjoint_and_complete() -> None:
    whole = plan(Selection("opinfo", dtypes=("float32",)))
    parts = [plan(Selection("opinfo", dtypes=("float32",), shard=(i, 5))) for i in range(1, 6)]
    assert Counter(group for part in parts for group in part) == Counter(whole)
    assert min(map(len, parts)) > len(whole) / 8


def test_a_stratified_sample_has_every_family_and_phase() -> None:
    everything = plan(Selection("opinfo", phases=PHASES))
    some = plan(Selection("opinfo", phases=PHASES, stratify=1200))
    assert len(some) == 1200
    assert {one.family for one in some} == {one.family for one in everything}
    assert {one.phase for one in some} == {one.phase for one in everything}
    assert some == plan(Selection("opinfo", phases=PHASES, stratify=1200))


def test_ids_depend_on_all_that_decides_a_sample_and_on_nothing_else() -> None:
    group = Group("opinfo", "add", "float32", "forward")
    others = [
        Group("python_ref", "add", "float32", "forward"),
        Group("opinfo", "sub", "float32", "forward"),
        Group("opinfo", "add", "float64", "forward"),
        Group("opinfo", "add", "float32", "backward"),
        Group("opinfo", "add", "float32", "forward", seed=1),
    ]
    assert len({one.case_id(0) for one in [group, *others]} | {group.case_id(1)}) == 7
    assert Group("opinfo", "add", "float32", "forward", "elementwise").case_id(0) == group.case_id(0)


@pytest.mark.parametrize(
    ("selection", "message"),
    [
        (Selection("opinf"), "unknown suite 'opinf'.*opinfo"),
        (Selection("opinfo", entries=("ad",)), "unknown entry of the suite opinfo 'ad'.*add"),
        (Selection("opinfo", dtypes=("float",)), "unknown dtype 'float'"),
        (Selection("opinfo", phases=("backwards",)), "unknown phase 'backwards'.*backward"),
    ],
)
def test_what_there_is_not(selection: Selection, message: str) -> None:
    with pytest.raises(UnknownName, match=message):
        plan(selection)


def test_a_selection_without_groups() -> None:
    with pytest.raises(UsageError, match="no group of the suite opinfo is left"):
        plan(Selection("opinfo", entries=("bitwise_and",), dtypes=("float32",)))
