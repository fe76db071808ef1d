"""Lists and dicts among the inputs of an export: writes into their tensors, and changes of their entries."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch

import torchstone
from torchstone.errors import CaptureError

Tensor = torch.Tensor


def _writes_in_a_dict(batch: Any) -> Tensor:
    batch["a"].add_(1)
    batch["b"][0].data.mul_(batch["a"])
    total: Tensor = batch["a"] + batch["b"][0]
    return total


def _assigns_data(batch: Any) -> Tensor:
    batch["b"][0].data = batch["a"] * 5
    result: Tensor = batch["b"][0] + 1
    return result


def _works_on_a_copy(batch: Any) -> Tensor:
    batch = dict(batch)
    batch["a"] = batch["a"] * 3
    batch["c"] = batch.pop("b")[0] + batch["a"]
    result: Tensor = batch["c"]
    return result


def _given() -> dict[str, Any]:
    return {"a": torch.ones(3), "b": [torch.arange(3.0)], "n": 2}


@pytest.mark.parametrize("function", [_writes_in_a_dict, _assigns_data, _works_on_a_copy])
def test_writes_into_tensors_in_containers_reach_the_caller(function: Callable[..., Tensor]) -> None:
    program = torchstone.export(function, (_given(),))
    expected, found = _given(), _given()
    for _ in range(2):
        torch.testing.assert_close(program(found), function(expected))
        torch.testing.assert_close(found, expected)


def _replaces(batch: Any) -> Any:
    batch["a"] = batch["a"] + 1
    return batch["a"]


def _adds(batch: Any) -> Any:
    batch["c"] = batch["a"] + 1
    return batch["c"]


def _removes(batch: Any) -> Any:
    return batch.pop("a") + 1


def _appends(batch: Any) -> Any:
    batch["b"].append(batch["a"])
    return batch["a"] + 1


def _counts(batch: Any) -> Any:
    batch["n"] += 1
    return batch["a"] * batch["n"]


@pytest.mark.parametrize(
    ("function", "path"),
    [
        (_replaces, "input 0"),
        (_adds, "input 0"),
        (_removes, "input 0"),
        (_appends, r"input 0\['b'\]"),
        (_counts, "input 0"),
    ],
)
@pytest.mark.parametrize("is_named", [False, True])
def test_changed_entries_are_refused(function: Callable[..., Any], path: str, is_named: bool) -> None:
    given = _given()
    before = copy.copy(given)
    args, kwargs = ((), {"batch": given}) if is_named else ((given,), {})
    path = path.replace("0", "'batch'") if is_named else path
    words = rf"adds, removes or replaces entries of {path}, a container.*\n.*dict\(batch\)"
    with pytest.raises(CaptureError, match=words):
        torchstone.export(function, args, kwargs)
    assert given.keys() == before.keys()
    assert all(value is before[name] for name, value in given.items())
    assert len(given["b"]) == 1
