"""Compiled code needs memory mappings, of which a process has a limited number."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from pathlib import Path

import pytest

from torchstone.errors import EngineError
from torchstone.runtime import mappings

LIMIT = Path("/proc/sys/vm/max_map_count")


class Program:
    """A kept program, which uses ``count`` memory mappings."""

    def __init__(self, count: int) -> None:
        self.count = count


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> list[Program]:
    """The programs that the process keeps. Their mappings are its only ones, and it may have 1,000."""
    held = weakref.WeakSet[Program]()

    class Recorded(list[Program]):
        def append(self, one: Program) -> None:
            held.add(one)
            super().append(one)

    found = Recorded()
    monkeypatch.setattr(mappings, "mappings", lambda: (sum(one.count for one in held), 1000))
    monkeypatch.setattr(mappings, "_releases", [found.clear])
    return found


def test_kept_programs_are_given_up_before_there_are_too_many(kept: list[Program]) -> None:
    watch = mappings.Watch()
    for _ in range(500):
        watch.make_room()
        kept.append(Program(10))
        assert len(kept) < 90
    assert len(kept) > 10


def test_what_others_hold_is_not_given_up_in_vain(kept: list[Program]) -> None:
    watch, others = mappings.Watch(), [Program(10) for _ in range(60)]
    for one in others:
        kept.append(one)
    times = 0
    for _ in range(64):
        watch.make_room()
        times += not kept
        kept.append(Program(1))
    assert times == 1


def test_a_program_that_could_get_none_is_refused(kept: list[Program]) -> None:
    watch, others = mappings.Watch(), [Program(10) for _ in range(92)]
    for one in others:
        kept.append(one)
    for _ in range(3):
        with pytest.raises(EngineError, match="this process has 920 of 1000 memory mappings"):
            watch.make_room()
    del others[40:], one
    gc.collect()
    watch.make_room()


EXHAUST = """
import ctypes, mmap, sys
import torch, torchstone
from torchstone.errors import EngineError
from torchstone.runtime.mappings import mappings

program = torchstone.export(torch.sin, (torch.ones(2),))
program(torch.ones(2))
used, limit = mappings()
pages = (int(limit * 0.97) - used) // 2
memory = mmap.mmap(-1, (2 * pages + 2) * mmap.PAGESIZE)
first = ctypes.addressof(ctypes.c_char.from_buffer(memory))
protect = ctypes.CDLL(None).mprotect
for page in range(pages):  # every second page has other rights, so each is a mapping
    assert not protect(ctypes.c_void_p(first + 2 * page * mmap.PAGESIZE), mmap.PAGESIZE, 1)
print(program(torch.ones(2)).shape)
try:
    for size in range(3, 40):
        torchstone.export(torch.sin, (torch.ones(size),))(torch.ones(size))
except EngineError as error:
    print(error)
"""


@pytest.mark.conformance
@pytest.mark.skipif(
    not LIMIT.exists() or int(LIMIT.read_text()) > 200_000,
    reason="the limit of memory mappings is missing or too high to reach",
)
def test_a_process_without_mappings_is_told_so() -> None:
    """Such a process used to end with a segmentation fault."""
    child = subprocess.run([sys.executable, "-c", EXHAUST], capture_output=True, text=True, timeout=120)
    assert child.returncode == 0, child.stderr
    assert "memory mappings, and compiled programs need more" in child.stdout
