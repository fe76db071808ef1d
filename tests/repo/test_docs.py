"""The documents: generated tables are current, links lead somewhere, examples run, quotations are true."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import unicodedata
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from types import ModuleType

import pytest

from torchstone.backend.options import Options
from torchstone.cli.main import cli

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
QUOTED = re.compile(r"^<!-- quoted from (\S+) -->\n```py\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def python_of(page: Path) -> str:
    """Return the page's ``python`` blocks, one after the other. Quotations are ``py`` blocks: left out."""
    return "\n".join(code for kind, code in BLOCK.findall(page.read_text("utf-8")) if kind == "python")


def section(text: str, heading: str) -> str:
    """Return the text under a heading of the second level."""
    return text.partition(heading + "\n")[2].partition("\n## ")[0]


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub makes of a page's headings."""
    text = BLOCK.sub("", page.read_text("utf-8"))
    found = set()
    for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE):
        kept = [c for c in heading.lower() if c in " -_" or unicodedata.category(c)[0] in "LN"]
        found.add("".join(kept).replace(" ", "-"))
    return found


def broken_links(page: Path) -> Iterator[str]:
    """Yield a page's relative links whose file or heading does not exist."""
    for link in LINK.findall(BLOCK.sub("", page.read_text("utf-8"))):
        if "://" in link:
            continue
        place, _, anchor = link.partition("#")
        target = (page.parent / place).resolve() if place else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            yield link


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_docs", ROOT / "tools" / "generate_docs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "options", [["--quick"], pytest.param([], marks=pytest.mark.conformance)], ids=["quick", "all"]
)
def test_generated_tables_are_current(options: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "generate_docs.py", "--check", *options],
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout or done.stderr


def test_a_stale_page_is_found(generator: ModuleType, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("old\n")
    assert generator.differences({page: "old\n"}) == ""
    assert "-old\n+new\n" in generator.differences({page: "new\n"})


def test_a_section_is_replaced_and_the_rest_stays(generator: ModuleType) -> None:
    text = "before\n<!-- begin a -->\nold\n<!-- end a -->\nafter\n"
    fresh = generator.replace_section(text, "a", "new\n")
    assert fresh == "before\n<!-- begin a -->\n\nnew\n\n<!-- end a -->\nafter\n"
    assert generator.replace_section(fresh, "a", "new\n") == fresh
    with pytest.raises(ValueError, match="no section"):
        generator.replace_section(text, "b", "new\n")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    assert list(broken_links(page)) == []


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# One `x` & two\n[a](#one-x--two) [b](page.md) [c](gone.md) [d](page.md#gone) [e](https://x.org)\n"
    )
    assert list(broken_links(page)) == ["gone.md", "page.md#gone"]


# The guide to a new operator has a test of its own, step by step.
RUNNABLE = [page for page in PAGES if python_of(page) and page.name != "adding-an-operator.md"]


@pytest.mark.kept("docs/configuration.md", "docs/engines-and-plugins.md")
@pytest.mark.parametrize("name", [name_of(page) for page in RUNNABLE])
def test_python_blocks_run(name: str, tmp_path: Path) -> None:
    """Each page's blocks as one script, in a fresh process and an empty folder."""
    (page,) = [page for page in RUNNABLE if name_of(page) == name]
    script = tmp_path / "page.py"
    script.write_text(python_of(page), "utf-8")
    done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_quotations_are_verbatim(page: Path) -> None:
    quoted = QUOTED.findall(page.read_text("utf-8"))
    assert [path for path, text in quoted if text not in (ROOT / path).read_text("utf-8")] == []
    # Every quotation must name its source: nothing would check it otherwise.
    assert len(quoted) == sum(kind == "py" for kind, _ in BLOCK.findall(page.read_text("utf-8")))


def test_commands_in_the_documents_exist() -> None:
    named = {
        (name_of(page), command)
        for page in PAGES
        for command in re.findall(r"(?:^|`)torchstone ([a-z]+)", page.read_text("utf-8"), re.MULTILINE)
    }
    assert {entry for entry in named if entry[1] not in cli.commands} == set()
    assert {command for _, command in named} >= {"doctor", "ops", "verify"}


def test_the_options_of_the_backend_are_all_described() -> None:
    page = (ROOT / "docs" / "backend.md").read_text("utf-8")
    options = section(page, "## Options")
    assert re.findall(r"^\| `(\w+)`", options, re.MULTILINE) == [item.name for item in fields(Options)]


def test_the_environment_variables_are_all_described() -> None:
    source = ROOT / "packages" / "torchstone" / "src"
    read = {
        variable
        for path in source.rglob("*.py")
        for variable in re.findall(r"\bTORCHSTONE_[A-Z][A-Z_]*\b", path.read_text("utf-8"))
    }
    page = (ROOT / "docs" / "configuration.md").read_text("utf-8")
    assert "TORCHSTONE_TRACEBACK" in read
    assert {variable for variable in read if f"`{variable}" not in page} == set()


def test_the_layers_are_all_described() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    for package, heading in (("torchstone", "## Layers"), ("optest", "## optest")):
        source = ROOT / "packages" / package / "src" / package
        parts = {path.stem for path in source.iterdir() if path.stem[0] != "_" and path.suffix in ("", ".py")}
        rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", section(page, heading), re.MULTILINE)
        assert {name for row in rows for name in re.findall(r"\w+", row)} == parts, package


def test_every_decision_record_is_listed_and_short() -> None:
    folder = ROOT / "docs" / "adr"
    records = sorted(folder.glob("[0-9]*.md"))
    listed = re.findall(r"\[(\d+)\]\(([\w-]+\.md)\)", (folder / "README.md").read_text("utf-8"))
    assert [file for _, file in listed] == [path.name for path in records]
    for (number, _), path in zip(listed, records, strict=True):
        lines = path.read_text("utf-8").splitlines()
        assert lines[0].startswith(f"# {number}. ")
        assert len(lines) <= 60, f"{path.name} is longer than a page"


def test_the_readme_quotes_the_recorded_coverage() -> None:
    def quoted(page: str) -> tuple[str, ...]:
        found = re.search(
            r"(\d+) of (\d+) operators are fully covered \([\d.]+ %\), (\d+) partially",
            (ROOT / page).read_text("utf-8"),
        )
        assert found is not None
        return found.groups()

    covered, meant, partial = quoted("COVERAGE.md")
    readme = " ".join((ROOT / "README.md").read_text("utf-8").split())
    assert f"{covered} of {meant} operators pass in every dtype" in readme
    assert f"The other {partial} are listed" in readme
    covered, meant, _ = quoted("docs/coverage-device.md")
    assert f"{covered} of {meant} operators pass with up to two samples each" in readme
