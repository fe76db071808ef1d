"""Scripts that are hard-coded for CUDA run unmodified, and compute what their twins compute on the CPU."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from stratified import stratified

HERE = Path(__file__).parent
SCRIPTS = HERE / "scripts"
NAMES = sorted(path.stem for path in SCRIPTS.glob("*.py"))


def test_every_script_is_written_for_cuda_and_has_a_twin_that_is_not() -> None:
    assert len(NAMES) >= 25
    assert sorted(path.stem for path in (SCRIPTS / "twins").glob("*.py")) == NAMES
    for name in NAMES:
        assert re.search(r"cuda", (SCRIPTS / f"{name}.py").read_text()), name
        assert not re.search(r"cuda|torchstone", (SCRIPTS / "twins" / f"{name}.py").read_text()), name


OTHER_KERNELS = {"attention_kernels"}
"""Scripts that select kernels by name. The selected kernel rounds unlike the twin's, which is fused."""


def _difference(folder: Path) -> str | None:
    """Return how a script's result differs from its twin's, to the last bit, or None if they are equal."""
    tolerance = {} if folder.name in OTHER_KERNELS else {"rtol": 0.0, "atol": 0.0}
    found, expected = (
        torch.load(folder / side / "result.pt", map_location="cpu") for side in ("redirected", "twin")
    )
    try:
        torch.testing.assert_close(_plain(found), _plain(expected), **tolerance)
    except AssertionError as error:
        return str(error)
    return None


def _plain(value: Any) -> Any:
    """Convert results to containers that ``assert_close`` accepts; texts in them are compared as they are."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return torch.frombuffer(bytearray(value.encode()), dtype=torch.uint8) if isinstance(value, str) else value


SOME = stratified(NAMES, 3, name=str, stratum=lambda _: None)


@pytest.mark.kept("some")
@pytest.mark.parametrize(
    ("target", "names"),
    [("cpu", SOME), ("cpu", NAMES), ("testdev", NAMES)],
    ids=["some", "cpu", "testdev"],
)
def test_every_script_computes_what_its_twin_computes(target: str, names: list[str], tmp_path: Path) -> None:
    """All scripts run in one process, so the next script and the twins would notice what one left behind."""
    done = subprocess.run(
        [sys.executable, HERE / "run_scripts.py", target, tmp_path, *names],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    ended = json.loads(done.stdout)
    failed = {name: end["said"] for name, end in ended.items() if end["code"] != 0}
    assert not failed, "\n".join(f"== {name}\n{said}" for name, said in failed.items())
    differences = {name: _difference(tmp_path / name) for name in names}
    assert not any(differences.values()), differences
    if target == "testdev":
        assert [name for name, end in ended.items() if not end["kernels"]] == []
