"""A surface in a file, and what became of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from torchstone.errors import GapsError, SnapshotError
from torchstone.gaps.diff import compare_snapshots
from torchstone.gaps.signatures import Parameter, Signature
from torchstone.gaps.snapshot import Snapshot, load_snapshot, take_snapshot, to_json
from torchstone.gaps.surface import Api


@pytest.fixture(scope="module")
def taken() -> Snapshot:
    return take_snapshot(["torch.mps", "torch.amp"])


def test_a_file_holds_the_whole_snapshot(taken: Snapshot, tmp_path: Path) -> None:
    path = tmp_path / "torch.json"
    path.write_text(to_json(taken), "utf-8")
    assert load_snapshot(path) == taken
    assert len(taken.apis) > 20
    assert taken.torch[0].isdigit()
    assert len(taken.commit) == 40


def test_the_same_torch_gives_the_same_text(taken: Snapshot) -> None:
    program = (
        "from torchstone.gaps.snapshot import take_snapshot, to_json\n"
        "print(to_json(take_snapshot(['torch.mps', 'torch.amp'])), end='')\n"
    )
    environment = os.environ | {"PYTHONHASHSEED": "7"}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment, timeout=120
    )
    assert done.stdout == to_json(taken)


def damaged(**changes: Any) -> str:
    head = {"format": "torchstone-api-snapshot", "format_version": 1, "torch": "2", "commit": "", "apis": []}
    return json.dumps(head | {"namespaces": [], "unreadable": {}, "branches": []} | changes)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is not a snapshot: it is not JSON"),
        ("[]", "is not a snapshot of an API surface"),
        ('{"format": "torchstone-gap-log"}', "is not a snapshot of an API surface"),
        (damaged(format_version=2), "has snapshot format 2; this Torchstone reads 1"),
        (damaged(apis=[{"kind": "function"}]), "is damaged: KeyError: 'name'"),
        (damaged(apis=[1]), "is damaged: "),
        (damaged(apis=[{"name": "a", "kind": "value", "signatures": [{"returns": None}]}]), "is damaged: "),
    ],
)
def test_what_is_no_snapshot_is_refused(text: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "torch.json"
    path.write_text(text)
    with pytest.raises(SnapshotError) as caught:
        load_snapshot(path)
    assert says in caught.value.message
    assert str(path) in caught.value.message
    assert "torchstone gaps snapshot" in str(caught.value.hint)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(GapsError, match=r"cannot read .*gone\.json: No such file"):
        load_snapshot(tmp_path / "gone.json")


def api(name: str, *parameters: str, home: str = "", kind: str = "function") -> Api:
    each = tuple(Parameter(one, "positional or keyword") for one in parameters)
    return Api(name, kind, home, (Signature(each),))


def snapshot(*apis: Api, version: str = "1.0") -> Snapshot:
    return Snapshot(version, "", ("torch",), {one.name: one for one in apis}, {})


def test_what_is_new_gone_moved_and_changed() -> None:
    old = snapshot(
        api("torch.same", "a"),
        api("torch.gone", "a"),
        api("torch.old.place", "a", "b", home="torch._impl.place"),
        api("torch.util.helper", "x", "y"),
        api("torch.called", "a", "b"),
        api("torch.kind", "a"),
    )
    new = snapshot(
        api("torch.same", "a"),
        api("torch.fresh", "z"),
        api("torch.new.place", "a", home="torch._impl.place"),
        api("torch.utils.helper", "x", "y"),
        api("torch.called", "b", "a"),
        api("torch.kind", "a", kind="class"),
        version="2.0",
    )
    found = compare_snapshots(old, new)
    assert (found.old, found.new) == ("torch 1.0", "torch 2.0")
    assert [one.name for one in found.added] == ["torch.fresh"]
    assert [one.name for one in found.removed] == ["torch.gone"]
    assert [(was.name, now.name) for was, now in found.moved] == [
        ("torch.old.place", "torch.new.place"),
        ("torch.util.helper", "torch.utils.helper"),
    ]
    assert {name: [one.text for one in how] for name, how in found.changed} == {
        "torch.called": ["order was a, b, now b, a"],
        "torch.kind": ["was a function, now a class"],
        "torch.new.place": ["`b` removed"],
    }
    assert json.loads(json.dumps(found.to_dict()))["moved"][0] == {
        "from": "torch.old.place",
        "to": "torch.new.place",
    }


def test_what_moved_where_is_not_guessed() -> None:
    """Two removed names that could both have become one new name are reported as two removals."""
    old = snapshot(api("torch.a.helper", "x"), api("torch.b.helper", "x"))
    found = compare_snapshots(old, snapshot(api("torch.c.helper", "x")))
    assert (len(found.added), len(found.removed), found.moved) == (1, 2, ())


def test_a_snapshot_does_not_differ_from_itself(taken: Snapshot) -> None:
    found = compare_snapshots(taken, taken)
    assert (found.added, found.removed, found.moved, found.changed) == ((), (), (), ())


def test_snapshots_of_different_namespaces_are_not_compared(taken: Snapshot) -> None:
    with pytest.raises(GapsError, match=r"only one has torch\.amp"):
        compare_snapshots(taken, replace(taken, namespaces=("torch.mps",)))
