"""The guide ``docs/adding-an-operator.md``, followed step by step."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from torchstone.errors import LoweringDefinitionError
from torchstone.lowering import registry

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "adding-an-operator.md"
STEP = re.compile(r"^### \d\. ([^\n]+)\n(.*?)(?=^##)", re.MULTILINE | re.DOTALL)
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SHELL = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def steps() -> dict[str, str]:
    """Return the code of each step of the first part by title, in order."""
    first = GUIDE.read_text("utf-8").partition("## In this repository")[0] + "## "
    return {title: "\n".join(PYTHON.findall(body)) for title, body in STEP.findall(first)}


def run(code: str, names: dict[str, Any], title: str = "") -> None:
    """Run ``code`` as a separate module, without this file's ``__future__`` imports."""
    exec(compile(code, f"{GUIDE.name}: {title}", "exec", dont_inherit=True), names)


@pytest.fixture(scope="module")
def followed() -> Iterator[dict[str, Any]]:
    """The names that exist after all steps. Afterwards, the operator's lowering is removed."""
    names: dict[str, Any] = {"__name__": "shop"}
    try:
        for title, code in steps().items():
            run(code, names, title)
        yield names
    finally:
        if "overload" in names:
            registry.remove(names["overload"])


def test_the_guide_has_its_steps() -> None:
    found = steps()
    assert list(found) == ["The operator", "Check that it is missing", "The lowering", "Run it", "Prove it"]
    assert all(found.values())


def test_following_the_guide_gives_a_proved_operator(followed: dict[str, Any]) -> None:
    lowering = registry.get(followed["overload"])
    assert lowering is not None
    assert lowering.documentation == "``cap * tanh(x / cap)``."
    assert "stablehlo.tanh" in followed["program"].mlir_text()


def test_the_checks_of_the_guide_can_fail(followed: dict[str, Any]) -> None:
    """A wrong lowering does not pass the last step of the page."""
    hlo, overload, right = followed["hlo"], followed["overload"], registry.get(followed["overload"])
    assert right is not None
    registry.remove(overload)
    try:

        @followed["lowers"](overload, dtypes=right.dtypes)
        def off_by_little(x: Any, cap: float) -> Any:
            return hlo.tanh(x / cap) * cap * 1.001

        with pytest.raises(AssertionError):
            run(steps()["Prove it"], followed)
    finally:
        registry.remove(overload)
        registry.add(right)


@pytest.mark.parametrize(
    ("signature", "says"),
    [
        ("x", r"leaves out \['cap'\]"),
        ("x, cap, extra", r"takes \['extra'\], which shop.soft_cap.default does not have"),
        ("x, cap", r"never uses its parameter\(s\) \['cap'\]"),
    ],
)
def test_what_the_guide_says_about_mistakes(followed: dict[str, Any], signature: str, says: str) -> None:
    names = dict(followed)
    uses = "x" if "extra" not in signature else "(x, cap, extra)"
    run(f"def lower({signature}):\n    return {uses}\n", names)
    with pytest.raises(LoweringDefinitionError, match=says):
        followed["lowers"](followed["overload"])(names["lower"])


def test_a_second_lowering_is_refused(followed: dict[str, Any]) -> None:
    names = dict(followed)
    run("def lower(x, cap):\n    return x, cap\n", names)
    with pytest.raises(LoweringDefinitionError, match="lowered twice"):
        followed["lowers"](followed["overload"])(names["lower"])


@pytest.mark.conformance
def test_the_test_commands_of_the_guide_select_something() -> None:
    short, full = "".join(SHELL.findall(GUIDE.read_text("utf-8"))).splitlines()
    assert full == f"{short} -m conformance"
    _, _, arguments = full.partition(" -m pytest ")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", *arguments.split()],
        cwd=GUIDE.parents[1],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "test_forward_all[native_layer_norm.default-float32]" in done.stdout
