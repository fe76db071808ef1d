"""The log written down: complete in each form, and harmless whatever the names are."""

from __future__ import annotations

import csv
import io
import json
from html.parser import HTMLParser

import pytest

from torchstone.gaps.answers import Answer, Finding, Gap, GapKind, Status, Trial
from torchstone.gaps.compare import Comparison
from torchstone.gaps.decisions import Decisions
from torchstone.gaps.log import Log, make_log
from torchstone.gaps.render import COLUMNS, FORMATS, to_csv, to_html, to_json, to_markdown
from torchstone.gaps.surface import Api

HOSTILE = '</script><script>alert("x")</script>| `a` \\ [b](javascript:c) *d* &amp; \n# e,"f"'


@pytest.fixture(scope="module")
def log() -> Log:
    findings = {
        name: Finding(
            Api(name, "function"),
            Answer(Status.ABSENT, equivalent=HOSTILE, note=""),
            Trial(1),
            (Gap(Api(name, "function"), kind, HOSTILE),),
            Status.ABSENT,
        )
        for name, kind in ((f"torch.{HOSTILE}", GapKind.BEHAVIOUR), ("torch.plain", GapKind.SIGNATURE))
    }
    findings["torch.fine.one"] = Finding(Api("torch.fine.one", "function"), Answer(Status.MATCH), None)
    versions = {"torchstone": "0.1.0", "torch": HOSTILE, "commit": ""}
    return make_log(Comparison(HOSTILE, HOSTILE, findings), Decisions(), versions)


class Page(HTMLParser):
    """The tags of a page, and the text outside scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        if not self.tags or self.tags[-1] not in ("script", "style"):
            self.text += data


def test_names_stay_text_in_the_page(log: Log) -> None:
    page = Page(to_html(log))
    assert page.tags.count("script") == 1
    assert page.tags.count("tr") == 4 + len(log.entries)
    assert HOSTILE in page.text
    assert "a" not in page.tags  # no link


def test_the_page_needs_nothing_from_elsewhere(log: Log) -> None:
    text = to_html(log)
    assert "http" not in text
    assert "src=" not in text


def test_names_stay_inside_their_cell_in_markdown(log: Log) -> None:
    lines = to_markdown(log).splitlines()
    rows = [line for line in lines if line.startswith("| gap-")]
    assert len(rows) == len(log.entries)
    for row in rows:
        unescaped = row.replace("\\\\", "").replace("\\|", "")
        assert unescaped.count("|") == len(COLUMNS) + 1
    assert not any(line.startswith(("# e", "<script")) for line in lines)
    assert "<script" not in to_markdown(log).replace("\\<", "")


def test_csv_gives_the_fields_back(log: Log) -> None:
    rows = list(csv.DictReader(io.StringIO(to_csv(log))))
    assert [row["api"] for row in rows] == [one.api for one in log.entries]
    assert rows[0]["description"] == HOSTILE


def test_json_gives_everything_back(log: Log) -> None:
    read = json.loads(to_json(log))
    assert read["provider"] == HOSTILE
    assert [one["id"] for one in read["entries"]] == [one.id for one in log.entries]
    assert read["summary"]["torch.fine"] == {"match": 1}
    assert read["tried"] == {"torch": 2}


def test_every_form_has_every_gap(log: Log) -> None:
    assert set(FORMATS) == {"markdown", "csv", "json", "html"}
    for write in FORMATS.values():
        assert all(one.id in write(log) for one in log.entries)
