"""The benchmark of whole models: resuming, joining, comparing. No test here measures real times."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from benchmarks import figure, speed


def record(seconds: float, **more: Any) -> dict[str, Any]:
    names = {"eager": 2e-3, "inductor": 4e-3, "torchstone": seconds}
    return {
        "model": "mlp",
        "mode": "inference",
        "batch": 128,
        "machine": "abacus, 2 threads",
        "versions": {"torch": "2.13.0"},
        "limit_s": 5e-4,
        "seconds": {name: [value, value * 1.01] for name, value in names.items()},
        "single_s": names,
        "first_call_s": dict.fromkeys(names, 0.5),
        "failed": {},
        "peak_memory_bytes": 1,
        "cold": True,
        **more,
    }


def write(folder: Path, process: int, made: dict[str, Any]) -> Path:
    folder.mkdir(exist_ok=True)
    file = folder / f"mlp-inference-128-{process}.json"
    file.write_text(json.dumps(made))
    return file


def test_processes_are_joined(tmp_path: Path) -> None:
    write(tmp_path, 0, record(1e-3))
    write(
        tmp_path,
        1,
        record(1e-3, cold=False, first_call_s=dict.fromkeys(("eager", "inductor", "torchstone"), 0.1)),
    )
    (figures,) = speed.read(tmp_path).values()
    assert figures.ratios["torchstone"] == pytest.approx(2)
    assert figures.ratios["inductor"] == pytest.approx(0.5)
    assert figures.share == pytest.approx(0.5, rel=0.02)
    assert (figures.cold_s["torchstone"], figures.warm_s["torchstone"]) == (0.5, 0.1)
    row = speed.table_rows([figures], "inference")[-1]
    assert (row[0], row[5:8]) == ("geometric mean", ["0.50", "2.00", "-"])
    page = speed.page(tmp_path, "speed.svg")
    assert "| mlp (128) | 2.01 |" in page
    assert "Measured on: abacus, 2 threads, torch 2.13.0.\n\n![" in page


def test_the_picture_has_a_bar_for_each_candidate(tmp_path: Path) -> None:
    write(tmp_path, 0, record(5e-4))
    root = ElementTree.fromstring(figure.svg(speed.read(tmp_path).values()))
    words = [node.text for node in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"inference, times as fast as eager", "mlp (128)", "0.50", "4.00"} <= set(words)
    widths = [float(node.get("width", 0)) for node in root.iter("{http://www.w3.org/2000/svg}rect")]
    assert max(widths) == 3 * 130  # a bar that is cut off
    assert "training, times as fast as eager" not in words


def test_what_became_slower_is_named(tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    write(before, 0, record(1e-3))
    write(after, 0, record(1.5e-3))
    assert speed.compare(before, before) == []
    (line,) = speed.compare(before, after)
    assert line.startswith("mlp (128) inference: 1.01 ms before, 1.51 ms now")
    assert speed.compare(after, before) == []


def test_a_model_that_fails_or_is_missing_is_named(tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    write(before, 0, record(1e-3))
    broken = record(1e-3, failed={"torchstone": "LoweringBug: x"})
    del broken["seconds"]["torchstone"], broken["single_s"]["torchstone"]
    file = write(after, 0, broken)
    assert "fails now: LoweringBug: x" in speed.compare(before, after)[0]
    file.unlink()
    assert "not measured" in speed.compare(before, after)[0]


@pytest.mark.conformance
def test_a_model_is_measured_once(tmp_path: Path) -> None:
    options: dict[str, Any] = {"batch": 4, "processes": 1, "seconds": 0.1}
    speed.measure(tmp_path, ["mlp"], ["inference"], **options)
    (file,) = tmp_path.glob("*.json")
    found = json.loads(file.read_text())
    assert set(found["seconds"]) == {"eager", "inductor", "torchstone"}
    assert not found["failed"]
    assert found["flops"] == 2 * 4 * (3 * 1024 * 1024 + 1024 * 10)
    written = file.stat().st_mtime_ns
    speed.measure(tmp_path, ["mlp"], ["inference"], **options)
    assert file.stat().st_mtime_ns == written


def test_unknown_models_are_named() -> None:
    assert speed.names_of("classic") == speed.CLASSICS
    with pytest.raises(ValueError, match=r"unknown model.*nonsense.*there are"):
        speed.names_of("mlp,nonsense")
