"""Campaigns: thousands of hostile inputs and random programs, from a seed and a number, in a child process.

    python tests/campaigns/campaign.py artifacts --count 20000 --journal artifacts.jsonl
    python tests/campaigns/campaign.py commands --count 2000 --journal commands.jsonl
    python tests/campaigns/campaign.py programs --count 10000 --journal programs.jsonl
    python tests/campaigns/campaign.py exports --count 10000 --journal exports.jsonl
    python tests/campaigns/campaign.py scripts --count 75 --journal scripts.jsonl
    python tests/campaigns/campaign.py overloads --count 2000 --journal overloads.jsonl
    python tests/campaigns/campaign.py bisect --count 52 --journal bisect.jsonl
    python tests/campaigns/campaign.py modules --count 3618 --journal modules.jsonl

The journal has one line per input: what it was and how it ended. An interrupted campaign resumes after the
last line of its journal. The exit code is 1 if any input ended as no input may: with a crash, a hang, a
traceback, a wrong answer, lost data or an exit code that means nothing. ``--only N`` repeats one input.
``--first N`` begins at input N, so several processes, each with its journal, can share the inputs.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import multiprocessing
import resource
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

MODULES = {
    "artifacts": "damaged_artifacts",
    "commands": "hostile_commands",
    "programs": "compiled_programs",
    "exports": "exported_programs",
    "scripts": "redirected_scripts",
    "overloads": "hand_called",
    "bisect": "injected_faults",
    "modules": "database_modules",
}
_MOST_MEMORY = 8 << 30
"""The limit of a child's data in bytes. An input that needs more fails, and does not exhaust the machine."""
LIMIT_S = 180.0
"""Seconds after which an input counts as a hang. The slowest inputs that end take a tenth of that."""


@dataclass(frozen=True)
class Outcome:
    """How one input ended. ``defect`` says what is wrong, and is empty if all is well."""

    number: int
    what: str
    ended: str
    defect: str = ""


def attempt(campaign: str, seed: int, numbers: list[int], limit_s: float = LIMIT_S) -> Iterator[Outcome]:
    """Try the inputs ``numbers`` of a campaign, in order; a child that dies or hangs is replaced."""
    child = None
    with tempfile.TemporaryDirectory(prefix="campaign-") as folder:
        for number in numbers:
            child = child or _Child(campaign, seed, Path(folder))
            outcome = child.attempt(number, limit_s)
            if not child.alive:
                child = None
            yield outcome
        if child is not None:
            child.stop()


class _Child:
    """A process that tries one input after the other."""

    def __init__(self, campaign: str, seed: int, folder: Path) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(
            target=_work, args=(MODULES[campaign], seed, folder, theirs), daemon=True
        )
        self._process.start()
        theirs.close()
        self.alive = True
        if not self._pipe.poll(600):
            raise RuntimeError("the child did not start")
        self._pipe.recv()

    def attempt(self, number: int, limit_s: float) -> Outcome:
        what = "unknown"
        try:
            self._pipe.send(number)
            if self._pipe.poll(limit_s):
                what = self._pipe.recv()  # sent before the input is tried
                if self._pipe.poll(limit_s):
                    return Outcome(number, what, *self._pipe.recv())
            self.stop()
            return Outcome(number, what, "hang", f"it did not end within {limit_s:g} s")
        except (EOFError, ConnectionError):
            self.stop()
            return Outcome(number, what, "crash", f"the process ended with {self._process.exitcode}")

    def stop(self) -> None:
        self.alive = False
        self._pipe.close()
        self._process.join(2)
        self._process.kill()
        self._process.join()


def _work(name: str, seed: int, folder: Path, pipe: Connection) -> None:
    """Run in the child: prepare the campaign, then try each number that the parent sends."""
    resource.setrlimit(resource.RLIMIT_DATA, (_MOST_MEMORY, _MOST_MEMORY))
    module = importlib.import_module(name)
    tries = module.prepare(seed, folder)
    gc.freeze()  # what is loaded stays: scanning it again and again would take a tenth of the time
    gc.set_threshold(20_000, 50, 100)
    pipe.send("ready")
    while True:
        try:
            number = pipe.recv()
        except EOFError:
            return
        made = tries.make(number)
        pipe.send(made.what)
        try:
            found = tries.attempt(made)
        except Exception:  # noqa: BLE001  # what was tried raised what nothing may raise
            found = ("traceback", traceback.format_exc(limit=-8))
        pipe.send(found)


def _earlier(journal: Path, head: dict[str, Any]) -> list[Outcome]:
    """Return the outcomes in the journal. Exit if it belongs to another campaign or seed."""
    if not journal.exists():
        return []
    lines = journal.read_text("utf-8").splitlines()
    if not lines or json.loads(lines[0]) != head:
        sys.exit(f"{journal} is the journal of another campaign: give another --journal")
    return [Outcome(**json.loads(line)) for line in lines[1:]]


def main() -> int:
    parser = argparse.ArgumentParser(description="Try hostile inputs, and say which ended as none may.")
    parser.add_argument("campaign", choices=MODULES)
    parser.add_argument("--first", type=int, default=0, help="the number to begin with")
    parser.add_argument("--count", type=int, default=1000, help="how many inputs to try")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--journal", type=Path)
    parser.add_argument("--only", type=int, help="repeat one input")
    given = parser.parse_args()
    if given.only is not None:
        for outcome in attempt(given.campaign, given.seed, [given.only]):
            print(f"{outcome.what}\n{outcome.ended}: {outcome.defect}")
        return 0
    journal = given.journal or Path(f"{given.campaign}.jsonl")
    head = {"campaign": given.campaign, "seed": given.seed} | ({"first": given.first} if given.first else {})
    outcomes = _earlier(journal, head)
    numbers = list(range(given.first, given.first + given.count))
    with journal.open("a", encoding="utf-8") as file:
        if not file.tell():
            file.write(json.dumps(head) + "\n")
        for one in attempt(given.campaign, given.seed, numbers[len(outcomes) :]):
            file.write(json.dumps(asdict(one)) + "\n")
            file.flush()
            outcomes.append(one)
            if one.defect:
                print(f"{one.number}: {one.what}\n  {one.ended}: {one.defect}", flush=True)
    bad = [one for one in outcomes if one.defect]
    ended = Counter(one.ended for one in outcomes)
    print(f"{len(outcomes)} inputs: {', '.join(f'{count} {name}' for name, count in ended.most_common())}")
    print(f"{len(bad)} ended as none may")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
