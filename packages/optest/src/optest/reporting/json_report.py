"""The JSON report, written case by case; see ``schema`` for its form."""

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
    """Writes one line per case, so that neither writer nor a line-wise reader holds all of them."""

    name, suffix = "json", "json"

    def on_start(self, run: RunInfo, total: int | None) -> None:
        super().on_start(run, total)
        self._separator = ""
        self._head = f'{{"schema_version": {VERSION},\n"run": {_text(run.to_dict(), RunRecord)},\n"cases": ['

    def on_case_result(self, result: CaseResult) -> None:
        """Raises :class:`ReportError` for a result that the schema does not allow."""
        text = result.json
        if "Infinity" in text or "NaN" in text:  # perhaps an attribute, which strict JSON has no number for
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
        """The head, if nothing is written yet, and ``case``."""
        if self._head:
            self.file.write(self._head)
            self._head = ""
        if case:
            self.file.write(f"{self._separator}\n{case}")
            self._separator = ","


def _text(data: dict[str, Any], model: type[BaseModel]) -> str:
    """``data`` as JSON that ``model`` has checked."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    check(text, model)
    return text
