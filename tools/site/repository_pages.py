"""Adds pages from the root of the repository to the site, and lists whole folders in its navigation.

MkDocs reads only ``docs/``. This plugin adds README.md, COVERAGE.md, CHANGELOG.md and CONTRIBUTING.md as
pages and adjusts their links. A folder in the navigation (``adr/``) becomes the list of its pages.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
PAGES = {
    "README.md": "index.md",
    "COVERAGE.md": "coverage.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
}
_LINK = re.compile(r"\[([^\]]*)\]\(([^)\s#]*)(#[^)\s]*)?\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """List the pages of each folder that the navigation names."""
    config.nav = _expanded(config.nav, Path(config.docs_dir))
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that live at the root."""
    for source, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text("utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Change links to and from the root so that they lead to pages of the site."""
    here = page.file.src_uri
    source = {target: name for name, target in PAGES.items()}.get(here)
    base = PurePosixPath() if source else PurePosixPath("docs") / PurePosixPath(here).parent

    def change(link: re.Match[str]) -> str:
        text, place, anchor = link[1], link[2], link[3] or ""
        if not place or "://" in place:
            return link[0]
        target = _normal(base / place)
        if target in PAGES:
            found = PAGES[target]
        elif target.startswith("docs/"):
            found = target.removeprefix("docs/")
        else:
            return text  # a file or folder of the repository that the site does not have
        if found + "/README.md" in files.src_uris:
            found += "/README.md"
        up = "../" * (len(PurePosixPath(here).parts) - 1)
        return f"[{text}]({up}{found}{anchor})"

    return _LINK.sub(change, markdown)


def _normal(path: PurePosixPath) -> str:
    parts: list[str] = []
    for part in path.parts:
        if part == "..":
            parts.pop()
        elif part != ".":
            parts.append(part)
    return "/".join(parts)


def _expanded(entry: Any, docs: Path) -> Any:
    """Return a navigation entry with every folder replaced by its pages, README.md first."""
    if isinstance(entry, list):
        return [_expanded(one, docs) for one in entry]
    if isinstance(entry, dict):
        return {title: _expanded(one, docs) for title, one in entry.items()}
    if not entry.endswith("/"):
        return entry
    pages = sorted((docs / entry).glob("*.md"), key=lambda page: (page.name != "README.md", page.name))
    return [page.relative_to(docs).as_posix() for page in pages]
