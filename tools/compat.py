"""Checks every tested version of PyTorch and Python in its own environment, and resumes where it stopped.

    python tools/compat.py                   # all versions and checks that have not passed with this code
    python tools/compat.py --only 2.14.1     # one version of PyTorch; --only 3.12: one of Python
    python tools/compat.py --page            # write the page from what is recorded

An environment takes several GB. It is made in ``.compat/VERSION``, next to its results, from which a later
run resumes. ``docs/compatibility.json`` keeps the newest result of every check, whichever machine it ran on.
``docs/compatibility.md`` is written from it.

Interpreters are looked for on the PATH; ``PYENV_VERSION=3.11.7:3.12.1`` puts some of pyenv's there. Others
need not be installed: packages of another Debian release will do, unpacked into a folder with their C library
(``apt-get download``, ``dpkg-deb -x``). Then tell the program where that library is:
``patchelf --set-interpreter LIB/ld-linux-x86-64.so.2 --force-rpath --set-rpath LIB PYTHON``.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from markdown_tables import table
from revisions import revision

ROOT = Path(__file__).resolve().parents[1]
PLACE, RECORD, PAGE = ROOT / ".compat", ROOT / "docs/compatibility.json", ROOT / "docs/compatibility.md"
VERSIONS = ROOT / "packages/torchstone/src/torchstone/torch_internals/versions.py"
MODELS = ("mlp", "cnn", "resnet18", "bert", "gpt2", "vit")
PYTHONS = ("3.12", "3.13", "3.14")
"""The other versions of Python that are checked, besides the one used to check the versions of PyTorch."""
FOLLOWS_TORCH = ("torch", "torchao", "sympy", "setuptools")
"""Pins of ``constraints.txt`` that fit one version of PyTorch only."""
ENOUGH = 0.99
"""The share of a version's overloads that must work."""
TESTS = "packages/torchstone/tests"

INTRODUCTION = """\
# Compatibility

`make compat` makes an environment for each version of PyTorch that is supported and runs the checks
below in it. The packages declare these versions. Any other version warns once: operators that it has
changed [are left out](adr/013-versions-of-pytorch.md), and `torchstone doctor` lists them. Each version of
Python other than 3.11 gets fewer checks, with one version of PyTorch. "Earlier code" marks results of
other code than the versions of PyTorch were checked with. This page is written by
`tools/compat.py`.
"""


@dataclass(frozen=True)
class Check:
    """One command that runs in each environment. If ``reported``, it writes a file with a result per test."""

    name: str
    words: tuple[str, ...]
    reported: bool = False


@dataclass(frozen=True)
class Outcome:
    """How a check ended. ``failed`` names the tests that did not pass, of ``total``, if the check has tests.

    ``sources`` is the code that was checked, as :func:`sources` names it.
    """

    code: int
    seconds: float
    total: int = 0
    failed: tuple[str, ...] = ()
    closing: str = ""
    sources: str = ""


def checks() -> Iterator[Check]:
    yield Check("doctor", ("torchstone", "doctor"))
    yield Check("demo", ("torchstone", "demo"))
    for model in MODELS:
        yield Check(f"verify {model}", ("torchstone", "verify", model))
    pytest = ("python", "-m", "pytest", "-q", "-p", "no:cacheprovider")
    operators = (f"{TESTS}/lowering/test_operators.py", "-k", "test_forward")
    yield Check("sample of the operator database", (*pytest, f"{TESTS}/parity/test_opinfo.py"), reported=True)
    yield Check("operators", (*pytest, *operators), reported=True)
    suite = ("--suite", "builtin", "--backend", "torchstone", "--ledger", "none", "--resume")
    yield Check("builtin suite", ("optest", "run", *suite))


def python_checks(python: str) -> Iterator[Check]:
    sources = ("packages/optest/src", "packages/torchstone/src")
    yield Check("types", ("python", "-m", "mypy", "--python-version", python, *sources))
    pure = [
        f"packages/optest/tests/{part}" for part in ("core", "coverage", "faults", "generators", "operators")
    ]
    yield Check("tests of optest", ("python", "-m", "pytest", "-q", "-p", "no:cacheprovider", *pure), True)
    names = ("doctor", "demo", f"verify {MODELS[0]}", "sample of the operator database", "operators")
    yield from (check for check in checks() if check.name in names)


def tested_versions() -> tuple[str, ...]:
    """Return the versions of PyTorch that Torchstone names as tested, read without importing it."""
    found = re.search(r"^TESTED = \((.*)\)$", VERSIONS.read_text("utf-8"), re.MULTILINE)
    assert found is not None
    return tuple(re.findall(r'"(.*?)"', found[1]))


class Environment:
    """A virtual environment with one version of PyTorch and one of Python, by default the running one."""

    def __init__(self, version: str, python: str = "") -> None:
        self.version, self.python, self.name = version, python, python or version
        self.title = f"Python {python}" if python else f"PyTorch {version}"
        self.checks = tuple(python_checks(python) if python else checks())
        self.interpreter = interpreter(python) if python else sys.executable
        self.place = PLACE / self.name
        self.program = self.place / "venv/bin/python"
        self._record = self.place / "results.json"

    def install(self) -> None:
        """Make the environment, unless it is complete. An interrupted installation runs again."""
        stamp = self.place / "installed"
        if stamp.exists():
            return
        self.place.mkdir(parents=True, exist_ok=True)
        if not self.program.exists():
            place = str(self.place / "venv")
            subprocess.run([str(self.interpreter), "-m", "venv", "--without-pip", place], check=True)
        constraints = self.place / "constraints.txt"
        constraints.write_text(constraints_for(self.version), "utf-8")
        packages = (
            "-e",
            "packages/optest",
            "./packages/optest-full[dashboard,torch]",
            "-e",
            "packages/torchstone[demo,models,proof]",
        )
        tests = ("pytest", "pytest-timeout", "pytest-xdist", "packaging")
        types = ("mypy", "types-jsonschema", "types-PyYAML")
        pip = (sys.executable, "-m", "pip", "--python", str(self.program))
        words = ("install", "-c", str(constraints), f"torch=={self.version}", *packages, *tests, *types)
        subprocess.run([*pip, *words], cwd=ROOT, check=True)
        stamp.touch()

    def results(self) -> dict[str, Outcome]:
        """Return the outcomes that were recorded on this machine, by check."""
        return outcomes(json.loads(self._record.read_text("utf-8"))) if self._record.exists() else {}

    def recorded(self) -> dict[str, Outcome]:
        """Return the newest result of each check: this machine's, or else the one kept for the page."""
        kept = json.loads(RECORD.read_text("utf-8")) if RECORD.exists() else {}
        return {**outcomes(kept.get(self.name, {})), **self.results()}

    def shown(self, check: str, code: Collection[str]) -> str:
        """Return a cell of the page. It says "earlier code" if the checked code is not in ``code``."""
        found = self.recorded().get(check)
        if found is None:
            return "no interpreter" if self.interpreter is None else "not run"
        return shown(check, found) + ("" if found.sources in code else ", earlier code")

    def passed(self) -> bool:
        """Whether every check passed. Without an interpreter here, only recorded checks count."""
        found = self.recorded()
        names = [check.name for check in self.checks if self.interpreter or check.name in found]
        return all(name in found and passes(name, found[name]) for name in names)

    def run(self, check: Check) -> Outcome:
        """Run a check and record how it ended."""
        report = self.place / "report.xml"
        report.unlink(missing_ok=True)
        program = str(self.program.with_name(check.words[0]))
        words = [program, *check.words[1:], *((f"--junitxml={report}",) if check.reported else ())]
        log = self.place / f"{check.name.replace(' ', '-')}.log"
        places = {"TORCHSTONE_CACHE_DIR": "cache", "OPTEST_HOME": "optest"}
        variables = os.environ | {name: str(self.place / folder) for name, folder in places.items()}
        started, checked = time.monotonic(), sources()
        with log.open("w", encoding="utf-8") as output:
            done = subprocess.run(
                words, cwd=ROOT, env=variables, stdout=output, stderr=subprocess.STDOUT, check=False
            )
        total, failed = read_report(report) if report.exists() else (0, ())
        closing = closing_line(log.read_text("utf-8"))
        seconds = round(time.monotonic() - started, 1)
        outcome = Outcome(done.returncode, seconds, total, failed, closing, checked)
        recorded = {**self.results(), check.name: outcome}
        self._record.write_text(json.dumps({name: asdict(one) for name, one in recorded.items()}, indent=1))
        return outcome


def closing_line(text: str) -> str:
    """Return the summary of a run: the last line that ends in a duration, as warnings may follow it.

    Without such a line, return the last line.
    """
    lines = text.strip().splitlines() or [""]
    summaries = [line for line in lines if re.search(r" in [\d.]+ ?s( \(.*\))?$", line)]
    return (summaries or lines)[-1]


def sources() -> str:
    """Return Git's name of the packages' tree, and a hash of changes that are not committed."""
    return revision(ROOT, ["HEAD:packages"], ["packages"])


def constraints_for(version: str) -> str:
    """Return ``constraints.txt``, without the pins that follow PyTorch if they are for another version."""
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    if f"torch=={version}" not in lines:
        lines = [line for line in lines if line.partition("==")[0] not in FOLLOWS_TORCH]
    return "\n".join(lines) + "\n"


def read_report(path: Path) -> tuple[int, tuple[str, ...]]:
    """Return the number of tests in a JUnit report, and the names of those that did not pass."""
    cases = list(ElementTree.parse(path).iter("testcase"))
    bad = [one for one in cases if one.find("failure") is not None or one.find("error") is not None]
    return len(cases), tuple(one.get("name", "") for one in bad)


def passes(check: str, outcome: Outcome) -> bool:
    """Whether a check passes: at most 1 % of the operators may fail, and nothing in other checks."""
    if check == "operators" and outcome.total:
        return len(outcome.failed) <= (1 - ENOUGH) * outcome.total
    return outcome.code == 0


def interpreter(python: str) -> str | None:
    """Return the ``pythonX.Y`` on the PATH, if it runs: pyenv's script for an inactive version fails."""
    found = shutil.which(f"python{python}")
    if found is None:
        return None
    words = (found, "-c", "import sys; print(sys.executable)")
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def outcomes(recorded: dict[str, Any]) -> dict[str, Outcome]:
    """Convert results that were read from a JSON file."""
    return {name: Outcome(**{**one, "failed": tuple(one["failed"])}) for name, one in recorded.items()}


def write(environments: Sequence[Environment]) -> None:
    """Record the results of all environments, and write the page from them."""
    kept = {one.name: {name: asdict(found) for name, found in one.recorded().items()} for one in environments}
    RECORD.write_text(json.dumps({name: one for name, one in kept.items() if one}, indent=1) + "\n", "utf-8")
    PAGE.write_text(page(environments), "utf-8")


def page(environments: Sequence[Environment]) -> str:
    """Return the compatibility page: a row per check, a column per version, then the tests that fail."""
    of_torch, of_python = (
        [one for one in environments if bool(one.python) is kind] for kind in (False, True)
    )
    code = {found.sources for one in of_torch for found in one.recorded().values()}
    parts = [INTRODUCTION, _results(of_torch, code)]
    if of_python:
        parts += [f"With PyTorch {of_python[0].version}:\n", _results(of_python, code)]
    for one in environments:
        failed = [f"- {name}: `{test}`" for name, found in one.recorded().items() for test in found.failed]
        if failed:
            parts.append("\n".join([f"## What does not work with {one.title}\n", *failed, ""]))
    return "\n".join(parts)


def _results(environments: Sequence[Environment], code: Collection[str]) -> str:
    header = ("check", *(one.title for one in environments))
    names = [check.name for check in environments[0].checks]
    return table(header, [(name, *(one.shown(name, code) for one in environments)) for name in names])


def shown(name: str, outcome: Outcome) -> str:
    verdict = "passes" if passes(name, outcome) else "fails"
    return (
        f"{verdict}: {outcome.total - len(outcome.failed)} of {outcome.total}" if outcome.total else verdict
    )


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Run the checks with each version of PyTorch and Python.")
    versions = (*tested_versions(), *PYTHONS)
    parser.add_argument("--only", action="append", choices=versions, help="only this version")
    parser.add_argument("--page", action="store_true", help="run nothing, write the page")
    parser.add_argument("--again", action="store_true", help="run what has passed with this code, too")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the missing checks and write the page. Return 1 if anything fails, else 0."""
    given = options().parse_args(arguments)
    versions = tested_versions()
    environments = [Environment(version) for version in versions]
    environments += [Environment(versions[0], python) for python in PYTHONS]
    for one in () if given.page else environments:
        if given.only and one.name not in given.only:
            continue
        if one.interpreter is None:
            sys.stdout.write(f"{one.name}: there is no python{one.name} on the PATH\n")
            continue
        one.install()
        for check in one.checks:
            known = None if given.again else one.results().get(check.name)
            if known is None or known.sources != sources() or not passes(check.name, known):
                outcome = one.run(check)
                sys.stdout.write(
                    f"{one.name} {check.name}: {shown(check.name, outcome)}, {outcome.closing}\n"
                )
    write(environments)
    return 0 if all(one.passed() for one in environments) else 1


if __name__ == "__main__":
    sys.exit(main())
