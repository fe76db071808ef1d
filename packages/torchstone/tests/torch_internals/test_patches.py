"""The table of changes to PyTorch: nested, restored by identity, of this thread only."""

import threading
from types import SimpleNamespace

import pytest

from torchstone.torch_internals.patches import ABSENT, Patch, is_tracing, patched, replacing, tracing


def in_other_thread(function):
    found = []
    thread = threading.Thread(target=lambda: found.append(function()))
    thread.start()
    thread.join()
    return found[0]


def test_entries_are_put_in_place_and_restored_by_identity():
    first = object()
    table = {"kept": first}
    with patched(Patch(table, "kept", 1), Patch(table, "new", 2)):
        assert table == {"kept": 1, "new": 2}
    assert list(table) == ["kept"]
    assert table["kept"] is first


def test_an_entry_can_be_taken_out_meanwhile():
    first = object()
    table = {"kept": first}
    with patched(Patch(table, "kept", ABSENT)):
        assert table == {}
    assert table["kept"] is first


def test_blocks_nest_also_with_the_same_patch():
    table = {"name": "theirs"}
    patch = Patch(table, "name", "ours")
    with patched(patch):
        with patched(patch), patched(Patch(table, "name", "inner")):
            assert table["name"] == "inner"
        assert table["name"] == "ours"
    assert table["name"] == "theirs"


def test_entries_are_restored_after_an_exception():
    table = {"name": "theirs"}
    with pytest.raises(KeyError), patched(Patch(table, "name", "ours")):
        raise KeyError
    assert table["name"] == "theirs"
    assert not is_tracing()


def test_a_failure_half_way_takes_out_what_was_placed():
    table = {}
    with (
        pytest.raises(TypeError),
        patched(Patch(table, "name", "ours"), Patch((), "x", 1, is_attribute=True)),
    ):
        raise AssertionError("not reached")
    assert table == {}


@pytest.mark.parametrize("theirs", ["changed", ABSENT])
def test_what_someone_else_put_there_meanwhile_survives(theirs):
    table = {"name": "before"}
    with patched(Patch(table, "name", "ours")):
        Patch(table, "name", theirs).write(theirs)
    assert table.get("name", ABSENT) == theirs


def test_attributes_of_classes_are_the_identical_objects_afterwards():
    class Theirs:
        def method(self):
            return "theirs"

    before = vars(Theirs)["method"]
    with patched(replacing(Theirs, "method", lambda self: "ours")):
        assert Theirs().method() == "ours"
        assert in_other_thread(Theirs().method) == "theirs"
    assert vars(Theirs)["method"] is before


def test_a_stand_in_that_someone_kept_does_what_the_original_did():
    module = SimpleNamespace(name=lambda: "theirs")
    with patched(replacing(module, "name", lambda: "ours")):
        kept = module.name
    assert kept() == "theirs"


def test_caches_of_a_table_are_told_of_both_changes():
    table, told = {}, []
    with patched(Patch(table, "name", 1, changed=lambda: told.append(dict(table)))):
        pass
    assert told == [{"name": 1}, {}]


def test_one_thread_traces_at_a_time_and_may_nest():
    order = []

    def other():
        with tracing():
            order.append("other")

    with tracing(), tracing():
        thread = threading.Thread(target=other)
        thread.start()
        thread.join(0.2)
        assert is_tracing()
        assert not in_other_thread(is_tracing)
        order.append("first")
    thread.join()
    assert order == ["first", "other"]
