"""What running the inventory showed: one record for each operator and each model.

``results.json`` beside the inventory is what :func:`run` gave last, with the versions
it ran with. Not here: the comparisons (:mod:`.examples`), the programs
(:mod:`.operations`, :mod:`.zoo`).
"""

from __future__ import annotations

import json
import platform
import subprocess
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib import resources
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from .._version import __version__
from ..api import export
from ..compiler import bounds
from . import inventory
from .examples import check_backward, check_forward, eager_gradients, eager_outputs
from .operations import OPERATIONS, Operation
from .zoo import INVENTORY, Example

RAN = ("lowered", "composite")
"""Statuses of what runs and agrees with eager."""


@dataclass(frozen=True)
class Record:
    """One operator or model.

    ``status``: ``composite`` or ``lowered`` if its artifact runs and agrees with eager
    (as one of Torchstone's composites, or as operations), else ``failed``. ``backward``:
    ``passed``, ``failed``, or ``none`` where PyTorch differentiates nothing. ``dtypes`` are
    those in which it ran.
    """

    family: str
    name: str
    calls: str
    status: str
    backward: str
    dtypes: tuple[str, ...]
    reason: str = ""

    def to_dict(self, *, model: bool) -> dict[str, Any]:
        found = {**asdict(self), "dtypes": list(self.dtypes)}
        return {k: v for k, v in found.items() if not (model and k in ("calls", "dtypes"))}


def run(
    names: Sequence[str] | None = None, progress: Callable[[str], None] = lambda name: None
) -> dict[str, Any]:
    """Run the inventory, or the entries of these names, as a JSON object."""
    operators, models = [], []
    for entry in inventory.operators():
        if names is None or entry.name in names:
            progress(f"{entry.family} {entry.name}")
            operators.append(_run_operator(OPERATIONS[entry.family, entry.name]))
    for entry in inventory.models():
        if names is None or entry.name in names:
            progress(f"{entry.family} {entry.name}")
            operators_reason = (
                "padded to a declared bound" if INVENTORY[entry.name].make().bounds is not None else ""
            )
            models.append(
                _run_example(entry.family, entry.name, INVENTORY[entry.name].make, operators_reason)
            )
    return {
        "operators": [record.to_dict(model=False) for record in operators],
        "models": [record.to_dict(model=True) for record in models],
        "summary": {"operators": summary(operators), "models": summary(models)},
        "versions": _versions(),
    }


def summary(records: Sequence[Record]) -> dict[str, Any]:
    """How many there are, run, and have right gradients, and the count of each status."""
    return {
        "total": len(records),
        "run": sum(record.status in RAN for record in records),
        "differentiated": sum(record.backward == "passed" for record in records),
        "wrong_gradients": sum(record.backward == "failed" for record in records),
        **Counter(record.status for record in records),
    }


def recorded() -> dict[str, Any]:
    """What was recorded last."""
    text = resources.files(inventory).joinpath("results.json").read_text("utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def _run_operator(operation: Operation) -> Record:
    """All dtypes that eager takes in one program; one by one where that fails."""
    taken = [dtype for dtype in operation.dtypes if _eager_takes(operation, dtype)]
    record = _run_example(
        operation.family, operation.name, operation.make, operation.reason, calls=operation.calls
    )
    ran = [dtype for dtype in taken if dtype is operation.dtypes[0] and record.status in RAN]
    rest = [dtype for dtype in taken if dtype is not operation.dtypes[0]]
    if rest and not _problem(lambda: _agree(check_forward(_together(operation, rest)))):
        ran += rest
    else:
        ran += [d for d in rest if not _problem(lambda d=d: _agree(check_forward(operation.make(d))))]  # type: ignore[misc]
    wrong = sorted(str(dtype).removeprefix("torch.") for dtype in set(taken) - set(ran))
    reason = "; ".join(
        filter(None, [record.reason, f"differs from eager in {', '.join(wrong)}" if wrong else ""])
    )
    return Record(
        **{
            **asdict(record),
            "dtypes": tuple(str(dtype).removeprefix("torch.") for dtype in ran),
            "reason": reason,
        }
    )


def _run_example(
    family: str, name: str, make: Callable[[], Example], reason: str, *, calls: str = ""
) -> Record:
    problem = _problem(lambda: _agree(check_forward(make())))
    backward = "none"
    if make().trains and not _problem(lambda: _require(eager_gradients(make()))):
        wrong = _problem(lambda: _agree(check_backward(make())))
        backward = "failed" if wrong else "passed"
        problem = problem or wrong
    status = "failed" if problem and backward != "failed" else _form(make())
    return Record(family, name, calls, status, backward, (), problem or reason)


def _form(example: Example) -> str:
    """``composite`` if the program has one of Torchstone's composites, else ``lowered``."""
    with torch.no_grad(), bounds(**(example.bounds or {})):
        text = export(example.model, example.args, dynamic_shapes=example.dynamic_shapes).mlir_text()
    return "composite" if 'stablehlo.composite "torchstone.' in text else "lowered"


def _together(operation: Operation, dtypes: Sequence[torch.dtype]) -> Example:
    """One example that runs the operation in several dtypes."""
    made = [operation.make(dtype) for dtype in dtypes]

    def every(*args: Any) -> list[Any]:
        feed = iter(args)
        return [each.model(*(next(feed) for _ in each.args)) for each in made]

    return Example(every, tuple(arg for each in made for arg in each.args), bounds=made[0].bounds)


def _eager_takes(operation: Operation, dtype: torch.dtype) -> bool:
    return not _problem(lambda: eager_outputs(operation.make(dtype)))


def _agree(comparisons: Sequence[Any]) -> None:
    wrong = [comparison.describe() for comparison in comparisons if not comparison.passed]
    if wrong:
        raise AssertionError(wrong[0])


def _require(found: Any) -> None:
    if not found:
        raise AssertionError("there is nothing to differentiate")


def _problem(action: Callable[[], Any]) -> str:
    """The first line of what an action raises; empty if it does not."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            action()
    except Exception as error:  # noqa: BLE001 - whatever goes wrong is the result
        return str(error).partition("\n")[0] or type(error).__name__
    return ""


def _versions() -> dict[str, str]:
    return {
        "torchstone": __version__,
        "torch": str(torch.__version__),
        "jax": version("jax"),
        "python": platform.python_version(),
        "commit": _commit(),
    }


def _commit() -> str:
    """The commit of the checkout that this package is part of; empty where it is installed without one."""
    here = Path(__file__).parent
    try:
        done = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=here, capture_output=True, text=True, timeout=10
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
