"""The JSON report, written case by case; see ``schema`` for its format."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ..core.comparison import json_safe
from .files import FileReporter
from .schema import VERSION, CaseRecord, RunRecord, SummaryRecord, check

if TYPE_CHECKING:
    from pydantic import BaseModel

    from ..core.result import CaseResult, RunInfo
    from ..core.summary import Summary


class JsonReporter(FileReporter):
    """Writes one line per case, so that neither the writer nor a line-wise reader holds all of them."""

    name, suffix = "json", "json"

    def on_start(self, run: RunInfo, total: int | None) -> None:
        super().on_start(run, total)
        self._separator = ""
        self._head = f'{{"schema_version": {VERSION},\n"run": {_text(run.to_dict(), RunRecord)},\n"cases": ['

    def on_case_result(self, result: CaseResult) -> None:
        """Write a result; raises :class:`ReportError` if the schema does not allow it."""
        text = result.json
        if "Infinity" in text or "NaN" in text:  # maybe an attribute that strict JSON cannot express
            data = result.to_dict()
            text = _text({**data, "attributes": json_safe(data["attributes"])}, CaseRecord)
        else:
            check(text, CaseRecord)
        self._write(text)

    def on_complete(self, summary: Summary) -> None:
        self._write("")
        self.file.write(f'\n],\n"summary": {_text(summary.to_dict(), SummaryRecord)}}}\n')
        self.commit()

    def _write(self, case: str) -> None:
        """Write ``case``, after the head of the report if nothing is written yet."""
        if self._head:
            self.file.write(self._head)
            self._head = ""
        if case:
            self.file.write(f"{self._separator}\n{case}")
            self._separator = ","


def _text(data: dict[str, Any], model: type[BaseModel]) -> str:
    """Return ``data`` as JSON, after checking it with ``model``."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    check(text, model)
    return text
