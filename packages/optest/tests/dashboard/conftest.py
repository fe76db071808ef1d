"""A browser, and a ledger with hostile names."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from optest.core.result import Status

HOSTILE = "</script><img src=x onerror=\"document.title='owned'\">"


def accuracy(error: float, control: float) -> dict[str, Any]:
    """Return the ledger's record of a comparison with these errors in ULP."""
    return {
        "output": "output0", "passed": True, "count": 6, "mismatches": 0, "max_abs": 0.0, "max_rel": 0.0,
        "max_ulp": 7.0, "accuracy": {"ulp_error": error, "control_ulp_error": control},
    }  # fmt: skip


@pytest.fixture
def hostile(recorder: Any) -> Any:
    """Two runs whose texts are attacks; they have failing, unsupported and passing cases."""
    texts: dict[str, Any] = dict.fromkeys(("category", "reason", "rerun", "stderr_tail"), HOSTILE)
    texts["comparisons"] = (accuracy(3.0, 1.5),)
    texts |= {"attributes": {HOSTILE: HOSTILE}, "origin": {"values": HOSTILE, "note": HOSTILE}}
    for version, status in (("0.1.0", Status.MISMATCH), ("0.2.0", Status.PASSED)):
        recorder.run(
            [
                *recorder.operator("add"),
                recorder.case(
                    HOSTILE, status=Status.MISMATCH, shapes={HOSTILE: (2,)}, **texts
                ),
                recorder.case("eig", category="linalg", status=Status.UNSUPPORTED, reason="no lowering"),
                recorder.case("matmul", category="linalg", status=status, reason="wrong sign", duration_s=2.0,
                              rerun="optest run --filter id=1"),
            ],
            version=version,
            command_line=HOSTILE,
            environment={"python": "3.11", HOSTILE: HOSTILE},
        )  # fmt: skip
    return recorder


@pytest.fixture
def read() -> Callable[[str | Path], Any]:
    """Return a function that reads the data in a data script, which is given as text or as a file."""

    def read(source: str | Path) -> Any:
        text = source.read_text() if isinstance(source, Path) else source
        found = re.fullmatch(r'optest\.receive\((".*?"), JSON\.parse\((".*")\)\);\n', text, re.DOTALL)
        assert found is not None
        return json.loads(json.loads(found[2]))

    return read


@pytest.fixture(scope="module")
def browser(require_tool: Callable[[str], str]) -> Iterator[Any]:
    """Headless Chromium that logs its requests, so that tests can check where they go."""
    chromium, driver = require_tool("chromium"), require_tool("chromedriver")
    if "CI" not in os.environ:
        pytest.importorskip("selenium", reason="selenium is not installed")
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for argument in ("--headless=new", "--disable-dev-shm-usage", "--window-size=1400,900"):
        options.add_argument(argument)
    if os.geteuid() == 0:
        options.add_argument("--no-sandbox")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    found = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield found
    found.quit()
