"""``make release``: check whether this tree is ready to be published.

Checks that the tree is committed, that all distributions have the same version, and that the changelog has
a section for it. Builds each wheel from its source distribution and runs the tests of packaging. Writes the
requirements and the size of each distribution into ``docs/packages.md``; ``--sizes`` builds and does only
that. Publishes nothing.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Iterable
from email import message_from_bytes
from pathlib import Path

from markdown_tables import table

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("torchstone", "optest", "optest-full")
"""The distributions, by their folders in ``packages``."""
_VERSION = re.compile(r'^__version__ = "([^"]+)"$', re.MULTILINE)
_HEAD = """\
<!-- Written by `make release` (or `.venv/bin/python tools/release.py --sizes`): edit tools/release.py. -->

# Packages

`pip install torchstone` installs the compiler, the `torch.compile` backend, the runtime, the redirection of
CUDA code and the command line. The tools that test it (operator suites, fault injection, gap analysis) come
with `torchstone[proof]`. `pip install optest` installs only optest, without PyTorch and Torchstone.
[Decision 15](adr/015-lean-wheels.md) gives the reasons.

"""


def versions(root: Path) -> dict[str, str]:
    """Return each distribution's version, by the path of the file that states it."""
    found = {}
    for folder in FOLDERS:
        project = root / "packages" / folder / "pyproject.toml"
        named = tomllib.loads(project.read_text("utf-8"))["project"].get("version")
        if named is not None:
            found[project.relative_to(root).as_posix()] = str(named)
            continue
        source = project.parent / "src" / folder / "_version.py"
        match = _VERSION.search(source.read_text("utf-8"))
        found[source.relative_to(root).as_posix()] = match[1] if match else "none"
    return found


def problems(root: Path) -> list[str]:
    """Return the problems that must be fixed before anything is built."""
    found = []
    said = versions(root)
    if len(set(said.values())) > 1:
        listed = ", ".join(f"{place} has {version}" for place, version in said.items())
        found.append(f"the versions differ: {listed}")
    version = next(iter(said.values()))
    changelog = (root / "CHANGELOG.md").read_text("utf-8")
    sections = re.findall(r"^## \[([^\]]+)\](.*)$", changelog, re.MULTILINE)
    dated = {name: rest for name, rest in sections if name != "Unreleased"}
    if version not in dated:
        found.append(
            f"CHANGELOG.md has no section {version}: rename [Unreleased] to [{version}] - YYYY-MM-DD"
        )
    elif not re.fullmatch(r" - \d{4}-\d\d-\d\d", dated[version]):
        found.append(f"CHANGELOG.md gives the section {version} no date: write ## [{version}] - YYYY-MM-DD")
    elif sections[0][0] != "Unreleased" and sections[0][0] != version:
        found.append(f"CHANGELOG.md begins with {sections[0][0]}, not with {version}")
    changed = subprocess.run(
        ["git", "status", "--porcelain"], cwd=root, capture_output=True, text=True, check=True
    ).stdout.split("\n")
    if changed != [""]:
        found.append(f"{len(changed) - 1} file(s) are not committed, such as {changed[0][3:]}")
    return found


def build(root: Path, out: Path) -> list[tuple[Path, Path]]:
    """Build each package and return (wheel, source distribution); the wheel is built from the latter."""
    made = []
    for folder in FOLDERS:
        place = out / folder
        words = ["-m", "build", "--no-isolation", "--outdir", str(place), str(root / "packages" / folder)]
        subprocess.run([sys.executable, *words], check=True, capture_output=True)
        made.append((next(place.glob("*.whl")), next(place.glob("*.tar.gz"))))
    return made


def page(made: Iterable[tuple[Path, Path]]) -> str:
    """Return the documentation page about the built packages."""
    rows = []
    for wheel, sdist in made:
        with zipfile.ZipFile(wheel) as archive:
            files = [name for name in archive.namelist() if ".dist-info/" not in name]
            (name,) = (one for one in archive.namelist() if one.endswith(".dist-info/METADATA"))
            metadata = message_from_bytes(archive.read(name))
        required = [
            line.partition(" ;")[0]
            for line in metadata.get_all("Requires-Dist", [])
            if "extra ==" not in line
        ]
        brings = ", ".join(f"`{re.split('[<>=!;]', line)[0]}`" for line in required)
        size, packed = (f"{path.stat().st_size / 1000:,.0f} kB" for path in (wheel, sdist))
        extras = ", ".join(f"`{one}`" for one in metadata.get_all("Provides-Extra", []))
        rows.append((f"`{metadata['Name']}`", size, packed, f"{len(files):,}", brings, extras))
    return _HEAD + table(("distribution", "wheel", "sdist", "files", "requires", "extras"), rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--sizes", action="store_true", help="only build, and write docs/packages.md")
    given = parser.parse_args()
    if not given.sizes and (found := problems(ROOT)):
        for problem in found:
            print(f"release: {problem}", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        made = build(ROOT, Path(folder))
        (ROOT / "docs" / "packages.md").write_text(page(made), "utf-8")
    print("wrote docs/packages.md")
    if given.sizes:
        return 0
    tests = subprocess.run([sys.executable, "-m", "pytest", "-q", "tests/repo/test_packaging.py"], cwd=ROOT)
    if tests.returncode:
        return 1
    version = next(iter(versions(ROOT).values()))
    print(f"ready: commit docs/packages.md, tag v{version}, and upload what `python -m build` makes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
