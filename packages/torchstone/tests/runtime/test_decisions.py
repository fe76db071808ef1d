"""Choices between candidates that are measured once and remembered."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from torchstone.errors import CacheWarning
from torchstone.runtime import decisions
from torchstone.runtime.cache import DiskCache
from torchstone.runtime.decisions import Candidate, Decisions

SLOW, FAST = 4e-3, 0.0


class Asked:
    """Candidates that count how often they are prepared."""

    def __init__(self, **seconds: float) -> None:
        self.seconds = seconds
        self.prepared: list[str] = []

    def candidates(self) -> dict[str, Candidate]:
        return {name: self._candidate(name) for name in self.seconds}

    def _candidate(self, name: str) -> Candidate:
        def run() -> Sequence[Any]:
            time.sleep(self.seconds[name])
            return [1]

        def prepare() -> Callable[[], Sequence[Any]]:
            self.prepared.append(name)
            return run

        return prepare


@pytest.fixture(autouse=True)
def quiet_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "_is_busy", lambda: False)


def kept_in(folder: Path | None, machine: str = "this one") -> Decisions:
    disk = None if folder is None else DiskCache(folder)
    return Decisions({"machine": machine}, lambda: disk, lambda: 1 << 20)


def ask(found: Decisions, candidates: dict[str, Candidate], **changes: Any) -> decisions.Decision:
    options = {"agree": lambda one, other: one == other, "handover_s": 1e-3, "budget_s": 5.0}
    return found.best({"what": "sum", "size": 3}, candidates, **{**options, **changes})


def test_the_fastest_is_chosen() -> None:
    found = ask(kept_in(None), Asked(default=SLOW, other=FAST).candidates())
    assert found.chosen == "other"
    assert found.seconds["default"] > SLOW > found.seconds["other"]


def test_the_default_stays_where_little_is_saved() -> None:
    candidates = Asked(default=SLOW, other=FAST).candidates()
    assert ask(kept_in(None), candidates, handover_s=1.0).chosen == "default"


@pytest.mark.parametrize(("gain", "chosen"), [(1.5, "other"), (1e9, "default")])
def test_another_one_must_be_so_many_times_as_fast(gain: float, chosen: str) -> None:
    candidates = Asked(default=SLOW, other=FAST).candidates()
    assert ask(kept_in(None), candidates, handover_s=0.0, gain=gain).chosen == chosen


def test_a_choice_is_made_once(tmp_path: Path) -> None:
    asked = Asked(default=SLOW, other=FAST)
    first = kept_in(tmp_path)
    chosen = [ask(one, asked.candidates()).chosen for one in (first, first, kept_in(tmp_path))]
    assert chosen == ["other"] * 3
    assert asked.prepared == ["default", "other"]


def test_another_machine_measures_itself(tmp_path: Path) -> None:
    asked = Asked(default=SLOW, other=FAST)
    for machine in ("this one", "another"):
        ask(kept_in(tmp_path, machine), asked.candidates())
    assert asked.prepared == ["default", "other"] * 2


def test_a_choice_on_a_busy_machine_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "_is_busy", lambda: True)
    asked = Asked(default=SLOW, other=FAST)
    for _ in range(2):
        assert ask(kept_in(tmp_path), asked.candidates()).chosen == "other"
    assert asked.prepared == ["default", "other"] * 2


def test_a_damaged_file_is_measured_again(tmp_path: Path) -> None:
    asked = Asked(default=SLOW, other=FAST)
    ask(kept_in(tmp_path), asked.candidates())
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:-3])
    with pytest.warns(CacheWarning, match="damaged"):
        assert ask(kept_in(tmp_path), asked.candidates()).chosen == "other"


def test_a_choice_that_is_no_longer_offered_is_made_anew(tmp_path: Path) -> None:
    ask(kept_in(tmp_path), Asked(default=SLOW, other=FAST).candidates())
    assert ask(kept_in(tmp_path), Asked(default=SLOW, third=SLOW).candidates()).chosen == "default"


def test_a_candidate_that_fails_or_departs_is_dropped() -> None:
    def failing() -> Callable[[], Sequence[Any]]:
        raise OSError("no such kernel")

    candidates = Asked(default=SLOW).candidates()
    found = ask(
        kept_in(None),
        {**candidates, "failing": failing, "wrong": lambda: lambda: [2], "right": lambda: lambda: [1]},
    )
    assert found.chosen == "right"
    assert found.dropped == {"failing": "OSError: no such kernel", "wrong": "its results differ"}


def test_without_the_default_nothing_is_measured() -> None:
    def failing() -> Callable[[], Sequence[Any]]:
        raise OSError("no such kernel")

    asked = Asked(other=FAST)
    assert ask(kept_in(None), {"default": failing, **asked.candidates()}).chosen == "default"
    assert asked.prepared == []


def test_a_budget_that_is_spent_keeps_the_default(tmp_path: Path) -> None:
    asked = Asked(default=SLOW, other=FAST)
    found = ask(kept_in(tmp_path), asked.candidates(), budget_s=SLOW / 4)
    assert (found.chosen, dict(found.seconds)) == ("default", {})
    assert asked.prepared == ["default"]
    assert not list(tmp_path.iterdir())


def take_turns(found: decisions.Turns, seconds: dict[str, float], most: int = 1000) -> list[str]:
    """Return the candidates in the order in which they did the work until one was chosen."""
    done = []
    while found.decision is None and len(done) < most:
        done.append(found.next)
        found.took(seconds[found.next])
    return done


def turns(found: Decisions, **changes: Any) -> decisions.Turns:
    options = {"handover_s": 1e-3, "gain": 1.0, **changes}
    return found.in_turns({"what": "step", "size": 3}, ["default", "other"], **options)


def test_turns_choose_the_fastest() -> None:
    found = turns(kept_in(None))
    assert found.next == "default"
    done = take_turns(found, {"default": 0.03, "other": 0.02})
    assert set(done) == {"default", "other"}
    assert done[0] == "default"
    assert found.next == "other"
    assert found.decision == decisions.Decision(
        "other", {"default": pytest.approx(0.03), "other": pytest.approx(0.02)}
    )
    found.took(5.0)  # one slow call changes nothing
    assert found.next == "other"


@pytest.mark.parametrize("changes", [{"gain": 2.0}, {"handover_s": 0.02}])
def test_turns_keep_the_default_where_little_is_saved(changes: dict[str, float]) -> None:
    found = turns(kept_in(None), **changes)
    take_turns(found, {"default": 0.03, "other": 0.02})
    assert found.next == "default"


@pytest.mark.parametrize(("other", "chosen"), [(0.029, "other"), (0.031, "other"), (0.034, "default")])
def test_turns_prefer_a_candidate_that_is_not_much_slower(other: float, chosen: str) -> None:
    found = turns(kept_in(None), gain=2.0, allowed={"other": 1.1})
    take_turns(found, {"default": 0.03, "other": other})
    assert found.next == chosen


@pytest.mark.parametrize(("other", "taken"), [(0.9, 4), (0.5, 8), (0.43, 12), (0.41, 20)])
@pytest.mark.parametrize("slower", ["default", "other"])
def test_the_slower_a_candidate_the_fewer_its_turns(other: float, taken: int, slower: str) -> None:
    found = turns(kept_in(None))
    seconds = dict.fromkeys(("default", "other"), 0.4) | {slower: other}
    done = take_turns(found, seconds)
    assert (done.count("default"), done.count("other")) == (taken, taken)
    assert found.next == ("other" if slower == "default" else "default")


def test_first_calls_of_a_turn_are_not_measured() -> None:
    found = turns(kept_in(None))
    before = ""
    while found.decision is None:
        name, settles = found.next, found.next != before
        found.took(9.0 if settles else {"default": 0.03, "other": 0.02}[name])
        before = name
    assert found.decision.seconds == {"default": pytest.approx(0.03), "other": pytest.approx(0.02)}


def test_turns_are_taken_once(tmp_path: Path) -> None:
    take_turns(turns(kept_in(tmp_path)), {"default": 0.03, "other": 0.02})
    assert turns(kept_in(tmp_path)).next == "other"
    assert turns(kept_in(tmp_path, "another")).decision is None


def test_a_candidate_that_is_dropped_gets_no_more_turns() -> None:
    found = turns(kept_in(None))
    while found.next == "default":
        found.took(0.03)
    found.drop("it failed")
    assert found.decision is not None
    assert (found.next, found.decision.dropped) == ("default", {"other": "it failed"})


@pytest.mark.parametrize("failing", ["default", "other"])
def test_a_candidate_that_fails_later_is_dropped(failing: str) -> None:
    """The caller's work continues."""
    asked, calls = Asked(default=SLOW, other=FAST), [0]

    def prepare() -> Callable[[], Sequence[Any]]:
        def run() -> Sequence[Any]:
            calls[0] += 1
            if calls[0] > 2:
                raise MemoryError("no more")
            return [1]

        return run

    found = ask(kept_in(None), {**asked.candidates(), failing: prepare})
    assert found.chosen == "default"
    assert dict(found.dropped) == {failing: "MemoryError: no more"}


def test_results_that_cannot_be_compared_differ() -> None:
    def agree(*_: Any) -> bool:
        raise ValueError("not the same number of results")

    found = ask(kept_in(None), Asked(default=SLOW, other=FAST).candidates(), agree=agree)
    assert found.chosen == "default"
    assert dict(found.dropped) == {"other": "ValueError: not the same number of results"}
