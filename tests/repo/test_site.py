"""The documentation site: it builds without a warning, and a broken link stops it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def build(config: Path, into: Path) -> subprocess.CompletedProcess[str]:
    command: list[str | Path] = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--config-file",
        config,
        "--site-dir",
        into,
    ]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=300, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = build(ROOT / "mkdocs.yml", folder)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


def test_each_document_has_a_page(site: Path) -> None:
    documents = {page.relative_to(ROOT / "docs") for page in (ROOT / "docs").rglob("*.md")}
    expected = {
        (path.with_name("index.html") if path.name == "README.md" else path.with_suffix(".html"))
        for path in documents
    }
    assert {path for path in expected if not (site / path).is_file()} == set()
    assert (site / "coverage.html").is_file()
    assert (site / "changelog.html").is_file()


def test_the_home_page_links_to_the_documents(site: Path) -> None:
    home = (site / "index.html").read_text("utf-8")
    assert 'href="backend.html"' in home
    assert "docs/" not in re.findall(r'href="([^"#]*)', home)


def test_the_reference_comes_from_the_docstrings(site: Path) -> None:
    text = (site / "reference" / "torchstone.html").read_text("utf-8")
    assert "InputMismatch" in text
    assert "dynamic_shapes" in text
    assert ":class:" not in text


def test_each_operator_has_a_page(site: Path) -> None:
    packets = {name.rpartition(".")[0] for name in json.loads((ROOT / "docs" / "operators.json").read_text())}
    assert {name for name in packets if not (site / "operators" / f"{name}.html").is_file()} == set()
    page = (site / "operators" / "aten.index_select.html").read_text("utf-8")
    for expected in ("Tensor self, int dim, Tensor index", "stablehlo.gather", "the nearest element is read"):
        assert expected in page


def test_a_page_loads_nothing_from_other_hosts(site: Path) -> None:
    home = (site / "index.html").read_text("utf-8")
    loaded = re.findall(r'<(?:script|link|img)[^>]*(?:src|href)="(https?://[^"]+)"', home)
    assert loaded == []


@pytest.mark.conformance
def test_a_broken_link_stops_the_build(tmp_path: Path) -> None:
    for name in ("tools", "packages"):
        (tmp_path / name).symlink_to(ROOT / name)
    for name in ("README.md", "COVERAGE.md", "CHANGELOG.md", "mkdocs.yml"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    page = tmp_path / "docs" / "backend.md"
    page.write_text(page.read_text("utf-8") + "\n[nowhere](gone.md)\n", "utf-8")
    done = build(tmp_path / "mkdocs.yml", tmp_path / "site")
    assert done.returncode != 0
    assert "gone.md" in done.stderr
