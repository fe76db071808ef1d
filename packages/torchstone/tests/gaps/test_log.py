"""The log: what is explained, what is urgent, what is new or fixed, and what fails a build."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from torchstone.errors import GapsError
from torchstone.gaps.answers import Answer, Finding, Gap, GapKind, Status
from torchstone.gaps.compare import Comparison
from torchstone.gaps.decisions import Decisions, load_decisions, parse_decisions, shipped_decisions
from torchstone.gaps.log import Log, identify, load_entries, make_log
from torchstone.gaps.mapping import load_mapping
from torchstone.gaps.render import to_json
from torchstone.gaps.surface import Api, resolve
from torchstone.gaps.usage import Usage, scan_usage

VERSIONS = {"torchstone": "0.1.0", "torch": "2.13.0", "commit": "c0ffee"}


def comparison(*gaps: Gap) -> Comparison:
    findings = {gap.api.name: Finding(gap.api, Answer(Status.ABSENT), None, (gap,)) for gap in gaps}
    return Comparison("redirect:cpu", "both sides", findings)


def gap(name: str, kind: GapKind = GapKind.BEHAVIOUR, *, loud: bool = False, why: str = "") -> Gap:
    return Gap(Api(name, "function"), kind, "differs", loud, why)


def decided(text: str) -> Decisions:
    return parse_decisions(f"format = 1\n{text}", "gaps.toml")


def log(*gaps: Gap, decisions: str = "", usage: Usage | None = None) -> Log:
    return make_log(comparison(*gaps), decided(decisions), VERSIONS, usage=usage)


ACCEPTED = '[[gap]]\napi = "torch.cuda.a"\nnote = "it is so"\n'


def test_an_id_depends_on_name_and_kind_alone() -> None:
    first = log(gap("torch.cuda.a")).entries[0]
    again = log(replace(gap("torch.cuda.a"), description="other words"), decisions=ACCEPTED).entries[0]
    assert first.id == again.id == identify("torch.cuda.a", GapKind.BEHAVIOUR) == "gap-bcb2048d46"
    assert identify("torch.cuda.a", GapKind.SIGNATURE) != first.id


def test_the_gaps_of_one_name_and_kind_are_one_entry() -> None:
    both = Finding(
        Api("torch.a", "function"),
        Answer(Status.MODIFIED),
        None,
        (gap("torch.a", why="meant"), replace(gap("torch.a"), description="other values")),
    )
    (entry,) = make_log(Comparison("x", "", {"torch.a": both}), Decisions(), VERSIONS).entries
    assert entry.description == "differs; other values"
    # The note does not explain the difference that the trial found.
    assert entry.status == "open"


def test_an_unexplained_gap_is_a_problem() -> None:
    found = log(gap("torch.cuda.a"), gap("torch.cuda.b", why="the target has none"))
    assert [(one.api, one.status) for one in found.entries] == [
        ("torch.cuda.a", "open"),
        ("torch.cuda.b", "explained"),
    ]
    assert found.problems == (f"{found.entries[0].id} torch.cuda.a (behaviour) is not explained: differs",)


def test_a_decision_settles_a_gap() -> None:
    found = log(gap("torch.cuda.a"), decisions=ACCEPTED)
    assert (found.entries[0].status, found.entries[0].note, found.problems) == ("accepted", "it is so", ())


def test_a_decision_about_nothing_is_a_problem() -> None:
    found = log(gap("torch.cuda.b", why="x"), decisions=ACCEPTED)
    assert found.problems == (
        "gaps.toml decides torch.cuda.a, which is not a gap: remove it, or mark it fixed",
    )


def test_a_decision_about_another_kind_is_about_nothing() -> None:
    wrong = ACCEPTED + 'kind = "signature"\n'
    found = log(gap("torch.cuda.a"), decisions=wrong)
    assert len(found.problems) == 2


def test_the_nearest_decision_counts_and_the_others_must_count_somewhere() -> None:
    wide = '[[gap]]\napi = "torch.cuda.*"\nnote = "all of it"\n'
    found = log(gap("torch.cuda.a"), gap("torch.cuda.b"), decisions=ACCEPTED + wide)
    assert [one.note for one in found.entries] == ["it is so", "all of it"]
    assert found.problems == ()
    assert "decides torch.cuda.*" in log(gap("torch.cuda.a"), decisions=ACCEPTED + wide).problems[0]


FIXED = ACCEPTED + 'status = "fixed"\ntest = "tests/test_a.py::test_a"\n'


def test_a_fixed_gap_that_is_back_is_a_problem() -> None:
    assert log(decisions=FIXED).problems == ()
    (problem,) = log(gap("torch.cuda.a"), decisions=FIXED).problems
    assert "torch.cuda.a (behaviour) is back, although it was fixed" in problem


def test_an_earlier_log_tells_what_is_new_and_what_is_fixed(tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    earlier = log(gap("torch.cuda.a"), gap("torch.cuda.b"), gap("torch.cuda.meant", why="because"))
    path.write_text(to_json(earlier), "utf-8")
    later = make_log(
        comparison(gap("torch.cuda.b", why="x"), gap("torch.cuda.c", why="x")),
        decided(FIXED),
        {**VERSIONS, "torch": "2.14.0"},
        previous=load_entries(path),
    )
    now, then = "torchstone 0.1.0, torch 2.14.0", "torchstone 0.1.0, torch 2.13.0"
    assert [(one.api, one.first_seen, one.fixed_in) for one in later.entries] == [
        ("torch.cuda.a", then, now),
        ("torch.cuda.b", then, ""),
        ("torch.cuda.c", now, ""),
    ]
    fixed = later.entries[0]
    assert (fixed.status, fixed.note, fixed.test) == ("fixed", "it is so", "tests/test_a.py::test_a")
    assert later.problems == ()
    # A fixed entry stays fixed, with the version that fixed it.
    path.write_text(to_json(later), "utf-8")
    again = make_log(comparison(), decided(FIXED), VERSIONS, previous=load_entries(path))
    assert [(one.api, one.fixed_in) for one in again.entries] == [("torch.cuda.a", now)]


def test_a_narrower_comparison_says_nothing_of_the_rest() -> None:
    earlier = {one.id: one for one in log(gap("torch.fft.a"), gap("torch.cuda.a")).entries}
    decisions = decided(ACCEPTED + '[[gap]]\napi = "torch.cuda.*"\nnote = "all"\n')
    narrow = make_log(comparison(), decisions, VERSIONS, previous=earlier, read={"torch.fft"})
    assert [one.api for one in narrow.entries] == ["torch.fft.a"]
    assert narrow.problems == (
        f"{narrow.entries[0].id} torch.fft.a (behaviour) is gone: decide that it is fixed, and name its test",
    )
    whole = make_log(comparison(), decisions, VERSIONS, previous=earlier)
    assert [one.api for one in whole.entries] == ["torch.cuda.a", "torch.fft.a"]
    assert len(whole.problems) == 4


def test_a_fixed_gap_without_a_test_is_a_problem(tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    path.write_text(to_json(log(gap("torch.cuda.a"))), "utf-8")
    (problem,) = make_log(comparison(), Decisions(), VERSIONS, previous=load_entries(path)).problems
    assert "torch.cuda.a (behaviour) is gone: decide that it is fixed, and name its test" in problem


@pytest.mark.parametrize("text", ["", "{}", '{"format": "torchstone-gap-log", "format_version": 9}', "[1]"])
def test_what_is_no_log_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    path.write_text(text)
    with pytest.raises(GapsError, match="is not a gap log"):
        load_entries(path)


def test_silent_goes_before_loud_and_used_before_unused() -> None:
    usage = Usage({"torch.cuda.loud": 9, "torch.cuda.used": 3, "torch.cuda.more": 5})
    found = log(
        gap("torch.cuda.loud", loud=True),
        gap("torch.cuda.rare", loud=True),
        gap("torch.cuda.unused"),
        gap("torch.cuda.used"),
        gap("torch.cuda.more"),
        gap("torch.cuda.look", GapKind.REFINEMENT),
        gap("torch.cuda.meant", why="because"),
        usage=usage,
    )
    assert [(one.api.rpartition(".")[2], one.severity, one.priority) for one in found.plan()] == [
        ("more", "high", 1),
        ("used", "high", 1),
        ("loud", "medium", 2),
        ("unused", "high", 2),
        ("rare", "medium", 3),
        ("look", "low", 4),
    ]


def test_what_is_planned_is_in_the_plan_with_its_own_severity() -> None:
    planned = ACCEPTED + 'status = "planned"\nseverity = "high"\naction = "write it"\n'
    (entry,) = log(gap("torch.cuda.a", GapKind.REFINEMENT), decisions=planned).plan()
    assert (entry.severity, entry.action) == ("high", "write it")
    assert log(gap("torch.cuda.a"), decisions=ACCEPTED).plan() == []


def test_uses_are_counted_in_real_code(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import torch\nfrom torch.cuda import synchronize as wait\n"
        "x = torch.zeros(3).cuda()\nwait()\nwait()\ntorch.cuda.empty_cache()\nx.cuda()\n"
    )
    (tmp_path / "old.py").write_text("print 'python 2'\n")
    said: list[str] = []
    found = scan_usage([tmp_path], said.append)
    assert said[0] == f"counting uses below {tmp_path}: 0 files"
    assert (found.files, found.unreadable) == (1, 1)
    assert found.of("torch.cuda.empty_cache") == 1
    assert found.of("torch.cuda.synchronize") == 3
    assert found.of("torch.Tensor.cuda") == 2
    assert found.of("torch.cuda.reset_peak_memory_stats") == 0
    with pytest.raises(GapsError, match=r"there is no .*gone"):
        scan_usage([tmp_path / "gone"])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("format = [", "is not TOML"),
        ("", "has format None, not 1"),
        ("format = 2", "has format 2, not 1"),
        ("format = 1\n[gaps]\n", "has an unknown table gaps"),
        ('format = 1\n[[gap]]\napi = "a"', "entry 1 has no note"),
        ('format = 1\n[[gap]]\nnote = "a"', "entry 1 has no api"),
        ('format = 1\n[[gap]]\napi = "a"\nnote = " "', "entry 1 has no note"),
        ('format = 1\n[[gap]]\napi = "a"\nnote = 1', "entry 1: note is not text"),
        ('format = 1\n[[gap]]\napi = "a"\nnote = "b"\nwhy = "c"', "entry 1: unknown key why"),
        ('format = 1\n[[gap]]\napi = "a"\nnote = "b"\nkind = "odd"', "entry 1: 'odd' is not a valid GapKind"),
        ('format = 1\n[[gap]]\napi = "a"\nnote = "b"\nstatus = "done"', "entry 1: status 'done'"),
        (
            'format = 1\n[[gap]]\napi = "a"\nnote = "b"\nstatus = "fixed"',
            "entry 1: a is fixed without a test",
        ),
        (f"format = 1\n{ACCEPTED}{ACCEPTED}", "decides torch.cuda.a twice"),
    ],
)
def test_decisions_that_are_not_in_order_are_refused(text: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "gaps.toml"
    path.write_text(text)
    with pytest.raises(GapsError) as caught:
        load_decisions(path)
    assert says in caught.value.message
    assert str(path) in caught.value.message


def test_decisions_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(GapsError, match=r"cannot read the decisions .*gone\.toml"):
        load_decisions(tmp_path / "gone.toml")
    assert load_decisions(None).entries == ()


def test_decisions_are_shipped_for_the_redirection_alone() -> None:
    assert shipped_decisions("redirect:cpu") == shipped_decisions("redirect")
    assert shipped_decisions("redirect").entries
    assert shipped_decisions("module:a=b").entries == ()


def test_the_mapping_relates_modules_that_exist() -> None:
    import importlib

    table = load_mapping()
    for one in table.relations:
        importlib.import_module(one.ours)
        resolve(one.torch)
    assert table.ours("redirect:cpu", "torch.cuda.Stream.query").startswith("torchstone.redirect")
    assert table.ours("redirect", "torch.cudart") == table.ours("redirect", "torch.Tensor.to")
    assert table.ours("module:a=b", "torch.add") == ""


def test_a_gap_is_found_by_its_id() -> None:
    found = log(gap("torch.cuda.a"))
    assert found.find(found.entries[0].id) is found.entries[0]
    with pytest.raises(GapsError, match="there is no gap gap-0"):
        found.find("gap-0")


def test_the_log_is_json() -> None:
    found = log(gap("torch.cuda.a"))
    read = json.loads(to_json(found))
    assert read["entries"][0]["api"] == "torch.cuda.a"
    assert read["problems"] == list(found.problems)
