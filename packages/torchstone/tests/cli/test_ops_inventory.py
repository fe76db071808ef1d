"""``torchstone ops --inventory``: the record as table and JSON, and how options combine."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from torchstone.parity.inventory import results


def test_the_record_as_a_table(torchstone: Callable[..., Any]) -> None:
    done = torchstone("ops", "--inventory")
    assert done.code == 0
    assert "280 of 280 operators run" in done.stdout
    assert "162 of 162 models run" in done.stdout
    for name in ("separable_conv2d", "torch.fft.hfft", "sdpa_dropout"):
        assert name in done.stdout


def test_the_record_as_json(torchstone: Callable[..., Any]) -> None:
    found = json.loads(torchstone("ops", "--inventory", "--json").stdout)
    assert found == results.recorded()
    for row in found["operators"]:
        assert {"family", "name", "calls", "status", "backward", "dtypes", "reason"} <= row.keys()
    for row in found["models"]:
        assert {"family", "name", "status", "backward", "batch", "reason"} <= row.keys()
    by_name = {row["name"]: row for row in found["operators"]}
    assert by_name["nnz"]["calls"] == [
        "sparse.to_sparse()._nnz()",
        "torch.sparse_csr_tensor(crow, columns, entries, (4, 6))._nnz()",
    ]


@pytest.mark.parametrize(("wrong", "code"), [(False, 0), (True, 1)])
def test_run_records_and_judges(
    torchstone: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, wrong: bool, code: int
) -> None:
    status = "differs" if wrong else "lowered"

    def pretend(kind: str, entries: Any) -> list[dict[str, Any]]:
        return [
            {
                "family": e.family,
                "name": e.name,
                "status": status,
                "backward": "none",
                "batch": [],
                "reason": "",
            }
            for e in entries
        ]

    monkeypatch.setattr(results, "run", pretend)
    target = tmp_path / "found.json"
    done = torchstone("ops", "--inventory", "--run", "--output", str(target))
    assert done.code == code
    assert json.loads(target.read_text())["operators"][0]["status"] == status


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--run",), "--inventory --run"),
        (("--inventory", "mlp"), "takes no MODEL"),
        (("--inventory", "--output", "x.json"), "--output says where --run writes"),
    ],
)
def test_options_that_do_not_fit(
    torchstone: Callable[..., Any], arguments: tuple[str, ...], said: str
) -> None:
    done = torchstone("ops", *arguments)
    assert done.code == 2
    assert said in done.stderr


def test_a_folder_that_is_not_there(torchstone: Callable[..., Any], tmp_path: Path) -> None:
    done = torchstone("ops", "--inventory", "--run", "--output", str(tmp_path / "none" / "found.json"))
    assert done.code == 2
    assert f"cannot write {tmp_path / 'none' / 'found.json'}: No such file or directory" in done.stderr
    assert "--output" in done.stderr
