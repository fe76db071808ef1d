"""The table of changes to PyTorch: nested, restored by identity, of this thread only."""

import threading
from types import SimpleNamespace

import pytest

from torchstone.torch_internals.patches import (
    ABSENT,
    Members,
    Patch,
    attributes,
    functions,
    is_tracing,
    patched,
    tracing,
)


def in_other_thread(function):
    found = []
    thread = threading.Thread(target=lambda: found.append(function()))
    thread.start()
    thread.join()
    return found[0]


def test_entries_are_put_in_place_and_restored_by_identity():
    first = object()
    table = {"kept": first}
    with patched(Patch(table, {"kept": 1, "new": 2})):
        assert table == {"kept": 1, "new": 2}
    assert list(table) == ["kept"]
    assert table["kept"] is first


def test_an_entry_can_be_taken_out_meanwhile():
    first = object()
    table = {"kept": first}
    with patched(Patch(table, {"kept": ABSENT})):
        assert table == {}
    assert table["kept"] is first


def test_blocks_nest_also_with_the_same_patch():
    table = {"name": "theirs"}
    patch = Patch(table, {"name": "ours"})
    with patched(patch):
        with patched(patch), patched(Patch(table, {"name": "inner"})):
            assert table["name"] == "inner"
        assert table["name"] == "ours"
    assert table["name"] == "theirs"


def test_entries_are_restored_after_an_exception():
    table = {"name": "theirs"}
    with pytest.raises(KeyError), patched(Patch(table, {"name": "ours"})):
        raise KeyError
    assert table["name"] == "theirs"
    assert not is_tracing()


def test_a_failure_half_way_takes_out_what_was_placed():
    table = {}
    with pytest.raises(TypeError), patched(Patch(table, {"name": "ours"}), attributes(int, name=1)):
        raise AssertionError("not reached")
    assert table == {}


@pytest.mark.parametrize("theirs", ["changed", ABSENT])
def test_what_someone_else_put_there_meanwhile_survives(theirs):
    table = {"name": "before"}
    with patched(Patch(table, {"name": "ours"})):
        Patch(table, {}).write({"name": theirs})
    assert table.get("name", ABSENT) == theirs


def test_attributes_of_classes_are_the_identical_objects_afterwards():
    class Theirs:
        def method(self):
            return "theirs"

    before = vars(Theirs)["method"]
    with patched(functions(Theirs, method=lambda self: "ours")):
        assert Theirs().method() == "ours"
        assert in_other_thread(Theirs().method) == "theirs"
    assert vars(Theirs)["method"] is before


def test_static_methods_stay_static():
    class Theirs:
        @staticmethod
        def largest(values):
            return max(values)

    before = vars(Theirs)["largest"]
    with patched(functions(Theirs, largest=sum)):
        assert Theirs.largest([1, 2]) == Theirs().largest([1, 2]) == 3
        assert in_other_thread(lambda: Theirs().largest([1, 2])) == 2
    assert vars(Theirs)["largest"] is before


def test_inherited_attributes_are_inherited_again():
    class Base:
        name = "theirs"

    class Theirs(Base):
        pass

    with patched(attributes(Theirs, name="ours")):
        assert (Base.name, Theirs.name) == ("theirs", "ours")
    assert "name" not in vars(Theirs)


def test_members_of_a_set():
    members = {1}
    with patched(Patch(Members(members), {1: True, 2: True})):
        assert members == {1, 2}
    assert members == {1}


def test_a_stand_in_that_someone_kept_does_what_the_original_did():
    module = SimpleNamespace(name=lambda: "theirs")
    with patched(functions(module, name=lambda: "ours")):
        kept = module.name
    assert kept() == "theirs"


def test_caches_of_a_table_are_told_of_both_changes():
    table, told = {}, []
    with patched(Patch(table, {"name": 1}, lambda: told.append(dict(table)))):
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
