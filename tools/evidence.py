"""Records the run from which the coverage pages are computed; run it again to resume where it was stopped.

    python tools/evidence.py                     # what Stages 1 to 4 check, all samples, twice
    python tools/evidence.py --stage 3 --most 4  # what Stages 1 to 3 check, at most 4 samples of a group
    python tools/evidence.py --stage 3 --most 4 --whole forward --whole backward  # but all of these
    python tools/evidence.py --backend torch:pjrt --stage 3  # of the eager device
    python tools/evidence.py --list              # the commands, and how long they will take

Reliability means that two runs agree, so every command runs in two passes. The results belong to one
commit and stay in ``.evidence/COMMIT``. If a command was stopped, its finished groups do not run again.
On several machines, give each one a ``--shard I/N``, then merge the ledgers (``optest merge``) and write
the page (``optest coverage``).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from revisions import revision

ROOT = Path(__file__).resolve().parents[1]
PAGES = {
    "torchstone": ("COVERAGE.md", "docs/coverage-details.md"),
    "torch:pjrt": ("docs/coverage-device.md", "docs/coverage-device-details.md"),
}
"""The page of each backend, and the page of details that it links to."""
SUITE = "opinfo"

USUAL, BESIDE = "float32", ("int64", "complex64")
"""The dtype of phases that run in one dtype, and the dtypes for entries that do not support it."""
GRADIENTS = ("float32", "float64", "complex64", "complex128")
"""The dtypes of ``backward``: the major ones, and those for operators that have no major one."""
STAGES = {
    3: ("errors", "noncontiguous", "out", "inplace", "perf"),
    4: ("promotion", "determinism", "dynamic_batch", "second_order", "forward_mode", "stress"),
}
"""The phases that run in one dtype, by the first stage that checks them."""
SECONDS = 0.5
"""The estimate until a command has run: how long one process takes for a group of at most 4 samples."""
CACHE = 32 << 30
"""The limit of the compilation cache in bytes. A pass fills several GiB, which the next pass reuses."""
MORE = 3
"""How many times longer a group takes if all its samples run."""


@dataclass(frozen=True)
class Part:
    """One ``optest run``: a phase and a dtype of the suite, for all entries or only for ``entries``."""

    phase: str
    dtype: str
    entries: tuple[str, ...] = ()
    groups: int = 0

    @property
    def name(self) -> str:
        return f"{self.phase} {self.dtype}"

    @property
    def words(self) -> list[str]:
        which = [word for entry in self.entries for word in ("--op", entry)]
        return ["--suite", SUITE, "--dtype", self.dtype, "--phase", self.phase, *which]


def parts_of(stage: int, *, device: bool = False) -> list[Part]:
    """Return the parts: forward in all dtypes, and what else the criteria and stages up to ``stage`` need.

    ``device`` adds the phases that only a device has.
    """
    from optest.torch.opinfo.databases import entries_of
    from optest.torch.opinfo.groups import DEVICE_PHASES

    entries = entries_of(SUITE)
    dtypes = {dtype for one in entries.values() for dtype in one.dtypes}

    def part(phase: str, dtype: str, names: Sequence[str] | None = None) -> Part:
        chosen = entries if names is None else names
        having = [
            name for name in chosen if dtype in entries[name].dtypes and entries[name].has(phase, dtype)
        ]
        return Part(phase, dtype, () if names is None else tuple(having), len(having))

    without: dict[str, list[str]] = defaultdict(list)
    for name, one in entries.items():
        if one.dtypes and USUAL not in one.dtypes:
            without[next((each for each in BESIDE if each in one.dtypes), one.dtypes[0])].append(name)
    found = [part("forward", dtype) for dtype in sorted(dtypes, key=lambda one: (one != USUAL, one))]
    found += [part("backward", dtype) for dtype in GRADIENTS]
    beside = [phase for number, phases in STAGES.items() if number <= stage for phase in phases]
    for phase in (*beside, *(DEVICE_PHASES if device else ())):
        found += [
            part(phase, USUAL),
            *(part(phase, dtype, names) for dtype, names in sorted(without.items())),
        ]
    return [one for one in found if one.groups]


class Run:
    """All passes over the parts, recorded in a folder that is named after the commit."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given = given
        self.page, self.details = pages_of(given)
        self.commit = commit_of(ROOT)
        narrowed = [f"most{given.most}", *(f"whole-{one}" for one in given.whole)] if given.most else []
        narrowed += [given.shard.replace("/", "of")] if given.shard else []
        backend = [] if given.backend == "torchstone" else [re.sub(r"\W", "-", given.backend)]
        self.folder = Path(given.folder) / "-".join([self.commit, *backend, *narrowed])
        self.ledger = self.folder / "ledger.sqlite"
        parts = parts_of(given.stage, device=given.backend.startswith("torch:"))
        self.steps = [(number, one) for number in range(1, given.passes + 1) for one in parts]

    def steps_left(self) -> list[tuple[int, Part]]:
        done = self._done()
        return [step for step in self.steps if _key(*step) not in done]

    def estimate(self) -> float:
        """Return the seconds left, from the time that finished parts took, or a guess if there are none."""
        done = self._done()
        took = [(done[_key(*step)], self._weight(step[1])) for step in self.steps if _key(*step) in done]
        each = SECONDS / self.given.workers
        if took:
            each = sum(seconds for seconds, _ in took) / sum(groups for _, groups in took)
        return each * sum(self._weight(part) for _, part in self.steps_left())

    def _weight(self, part: Part) -> int:
        return part.groups * (1 if self._most(part) else MORE)

    def command(self, part: Part, ledger: Path) -> list[str]:
        words = ["optest", "run", *part.words, "--backend", self.given.backend]
        words += ["--workers", str(self.given.workers)]
        words += ["--timeout", str(self.given.timeout), "--ledger", str(ledger)]
        words += ["--most", str(most)] if (most := self._most(part)) else []
        words += ["--shard", self.given.shard] if self.given.shard else []
        return [*words, "--no-color", "--resume"]

    def _most(self, part: Part) -> int | None:
        return None if part.phase in self.given.whole else self.given.most

    def go(self) -> int:
        """Run the steps that are left, and return the exit code."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for number, part in self.steps_left():
            place = self.steps.index((number, part)) + 1
            print(
                f"[{place}/{len(self.steps)}] pass {number}: {part.name}, {part.groups} groups; "
                f"about {_spoken(self.estimate())} left",
                flush=True,
            )
            code = self._step(number, part)
            if code:
                return code
        if self.given.shard:
            print(f"{self.ledger}: merge it with those of the other shards (optest merge)")
            return 0
        return self._write()

    def _step(self, number: int, part: Part) -> int:
        """Run one command with its own ledger. Merge that into the main ledger once it is complete."""
        fresh = self.folder / "part.sqlite"
        fresh.unlink(missing_ok=True)  # left by a stopped command; its journal has the results
        started = time.monotonic()
        log = self.folder / f"{number} {part.name}.log".replace(" ", "-")
        with log.open("w") as file:
            code = self._optest(self.command(part, fresh), file)
        if code not in (0, 1):  # 1: some cases failed, which is a valid result
            print(f"it exited with {code}; see {log}; the same command goes on from there", flush=True)
            return code
        self._optest(["optest", "merge", str(fresh), "--ledger", str(self.ledger)], subprocess.DEVNULL)
        self._note(_key(number, part), time.monotonic() - started)
        fresh.unlink()
        print(f"    {_closing(log)}", flush=True)
        return 0

    def _write(self) -> int:
        given = ["--ledger", str(self.ledger), "--backend", self.given.backend]
        given += ["--stages", str(ROOT / "tools" / "stages.toml")]
        given += ["--evidence", self.given.evidence] if self.given.evidence else []
        self._optest(
            ["optest", "coverage", *given, "-o", self.page, "--details", self.details],
            subprocess.DEVNULL,
        )
        print(f"{self.page} is written from {self.ledger}", flush=True)
        return self._optest(["optest", "stage", *given, "--at-least", str(min(self.given.stage, 3))], None)

    def _optest(self, words: Sequence[str], output: Any) -> int:
        """Run ``optest`` as a process. Ctrl-C is meant for that process, so keep waiting until it ends."""
        facts = {"OPTEST_HOME": str(self.folder / "home"), "OPTEST_COMMIT": self.commit}
        environment = {"TORCHSTONE_CACHE_MAX_BYTES": str(CACHE), **os.environ, **facts}
        command = [sys.executable, "-W", "ignore", "-m", *words]
        with subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=output, stderr=output and subprocess.STDOUT
        ) as process:
            while True:
                try:
                    return process.wait()
                except KeyboardInterrupt:
                    continue

    def _done(self) -> dict[str, float]:
        file = self.folder / "done.json"
        found: dict[str, float] = json.loads(file.read_text()) if file.exists() else {}
        return found

    def _note(self, key: str, seconds: float) -> None:
        file = self.folder / "done.json"
        draft = file.with_suffix(".draft")
        draft.write_text(json.dumps({**self._done(), key: round(seconds, 1)}, indent=1))
        draft.replace(file)


def _key(number: int, part: Part) -> str:
    return f"{number} {shlex.join(part.words)}"


def _closing(log: Path) -> str:
    """Return the summary of a run, from the end of its log."""
    said = (line for line in reversed(log.read_text("utf-8", "replace").splitlines()) if " in " in line)
    return next(said, "")


def _spoken(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"


def commit_of(root: Path) -> str:
    """Return the commit and a hash of uncommitted changes, except to the pages that this program writes."""
    return revision(root, ["--short=12", "HEAD"], [".", *(f":!{one}" for one in chain(*PAGES.values()))])


def pages_of(given: argparse.Namespace) -> tuple[str, str]:
    """Return the paths of the two pages. Exit if none are known: another backend's would be overwritten."""
    page, details = PAGES.get(given.backend, ("", ""))
    page, details = given.output or page, given.details or details
    if not page or not details:
        sys.exit(f"no page is known for the backend {given.backend}: say where with -o and --details")
    return page, details


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--stage", type=int, choices=tuple(STAGES), default=4, help="record what it looks at")
    parser.add_argument("--backend", default="torchstone", help="what is tested")
    parser.add_argument("--most", type=int, help="samples of a group at most")
    parser.add_argument(
        "--whole",
        action="append",
        default=[],
        choices=("forward", "backward", *(phase for phases in STAGES.values() for phase in phases)),
        help="a phase of which all samples run, whatever --most says (may be repeated)",
    )
    parser.add_argument("--passes", type=int, default=2, help="how often everything runs")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--timeout", type=int, default=120, help="seconds for a case")
    parser.add_argument("--shard", help="I/N: only that part of every command")
    parser.add_argument("--evidence", help="attestations, for what no result can show")
    parser.add_argument("--folder", default=".evidence", help="where ledgers and journals are kept")
    parser.add_argument("-o", "--output", help="the page; each backend that is recorded here has its own")
    parser.add_argument("--details", help="the page that it links to")
    parser.add_argument("--list", action="store_true", help="print the commands that are left")
    return parser


def commands(run: Run) -> Iterator[str]:
    for number, part in run.steps_left():
        yield f"{number}: {shlex.join(run.command(part, run.ledger))}"


def main() -> int:
    os.chdir(ROOT)
    run = Run(options().parse_args())
    if run.given.list:
        print("\n".join(commands(run)))
        print(f"{len(run.steps_left())} of {len(run.steps)} are left: about {_spoken(run.estimate())}")
        return 0
    return run.go()


if __name__ == "__main__":
    sys.exit(main())
