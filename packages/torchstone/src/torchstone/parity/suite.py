"""Compare a suite of models with eager PyTorch, and report the results.

Each model goes through :func:`~.verify.verify`, training steps included. A model that fails does not stop
the others, whatever it raises.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from ..runtime import get_engine
from .model import Model, find_factory, load_model
from .verification import Check, DType, Verification
from .verify import verify
from .zoo import ARCHITECTURES, INVENTORY, families, networks

SUITE: dict[str, Callable[[], tuple[torch.nn.Module, tuple[Any, ...]]]] = {
    "mlp": networks.mlp,
    "cnn": networks.cnn,
    "resnet18": partial(networks.resnet18, 48),
    "unet": partial(families.unet, 2),
    "autoencoder": partial(families.autoencoder, 8),
    "bert": partial(networks.bert, 2, 128),
    "gpt2": partial(networks.gpt2, 2, 128),
    "llama": partial(families.llama, 2),
    "vit": partial(networks.vit, 2, 128),
    "lstm": partial(families.lstm, 4),
    "mixtral": partial(families.mixtral, 2),
    "dlrm": partial(families.dlrm, 16),
}
"""One model of each family, small enough for a run over all of them."""
QUICK = ("mlp", "cnn")
"""The models of a quick run."""


@dataclass(frozen=True)
class HotSpot:
    """A tensor that differs; ``source`` is the line of user code that it comes from, if known."""

    model: str
    check: Check
    source: str

    def to_dict(self) -> dict[str, Any]:
        own = {"model": self.model, "stage": self.check.stage, "name": self.check.name, "source": self.source}
        return {**own, **self.check.comparison.to_dict()}


@dataclass
class Entry:
    """One model of a suite. ``error`` says why it could not be compared at all."""

    name: str
    seconds: float = 0.0
    found: Verification | None = None
    hot_spots: list[HotSpot] = field(default_factory=list)
    error: str = ""

    @property
    def passed(self) -> bool:
        return not self.error and self.found is not None and self.found.passed

    def to_dict(self) -> dict[str, Any]:
        data: dict[str, Any] = {
            "name": self.name,
            "passed": self.passed,
            "seconds": self.seconds,
            "error": self.error,
        }
        if self.found is not None:
            whole = self.found.to_dict()
            data |= {key: whole[key] for key in ("errors", "notes", "compilation")}
            data["stages"] = [line.to_dict() for line in self.found.summary()]
        return data


@dataclass
class SuiteReport:
    """The results of :func:`run_suite`, in the order of the models."""

    settings: dict[str, Any]
    entries: list[Entry] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return bool(self.entries) and all(entry.passed for entry in self.entries)

    @property
    def hot_spots(self) -> list[HotSpot]:
        """The tensors that differ, those with the largest share of wrong elements first."""
        found = [spot for entry in self.entries for spot in entry.hot_spots]
        return sorted(found, key=lambda spot: -_badness(spot.check))

    def unsupported(self) -> list[dict[str, Any]]:
        """Return the operators that do not compile or that run in eager PyTorch, with models and lines."""
        found: dict[str, dict[str, Any]] = {}
        for entry in self.entries:
            for node in entry.found.unsupported if entry.found is not None else ():
                one = found.setdefault(
                    node.overload, {"overload": node.overload, "reason": node.reason, "count": 0}
                )
                one["count"] += node.count
                one.setdefault("models", {})[entry.name] = list(node.locations)
        return sorted(found.values(), key=lambda one: (-len(one["models"]), one["overload"]))

    def to_dict(self) -> dict[str, Any]:
        return {
            "passed": self.passed,
            "settings": self.settings,
            "models": [entry.to_dict() for entry in self.entries],
            "unsupported": self.unsupported(),
            "hot_spots": [spot.to_dict() for spot in self.hot_spots],
        }


def run_suite(
    names: Sequence[str] = tuple(SUITE),
    *,
    dtype: DType = "float32",
    rtol: float | None = None,
    atol: float | None = None,
    steps: int = 3,
    optimizer: str = "sgd",
    progress: Callable[[str], None] = lambda stage: None,
) -> SuiteReport:
    """Compare the models that ``names`` stand for: names in :data:`SUITE`, or what commands take as MODEL.

    ``steps`` training steps are compared through ``torch.compile`` and as whole steps; 0 leaves them out.
    See :func:`~.verify.verify` for the other arguments. Raises the errors of
    :func:`~torchstone.runtime.get_engine` if the engine or device does not exist; every other problem is in
    the report.
    """
    get_engine()
    settings = {"dtype": dtype, "rtol": rtol, "atol": atol, "steps": steps, "optimizer": optimizer}
    report = SuiteReport(settings)
    for name in names:
        entry = Entry(name)
        report.entries.append(entry)
        started = time.perf_counter()
        try:
            model = load(name)
            entry.found = verify(
                model,
                dtype=dtype,
                rtol=rtol,
                atol=atol,
                steps=steps,
                optimizer=optimizer,
                progress=lambda stage, name=name: progress(f"{name}: {stage}"),  # type: ignore[misc]
            )
            entry.hot_spots = [
                HotSpot(name, one, source_of(model.model, one)) for one in entry.found.failures
            ]
        except Exception as error:  # noqa: BLE001 - the other models are compared all the same
            entry.error = f"{type(error).__name__}: {error}"
        entry.seconds = time.perf_counter() - started
    return report


def load(name: str) -> Model:
    """Return the model of the suite with this name, else the one that :func:`~.model.load_model` finds."""
    if name not in SUITE:
        return load_model(name)
    torch.manual_seed(0)
    model, args = SUITE[name]()
    return Model(name, model, args)


def names_of(
    chosen: Iterable[str], *, quick: bool = False, inventory: bool = False, architectures: bool = False
) -> list[str]:
    """Return the names of the models to run: those chosen, else the suite.

    ``architectures`` and ``inventory`` add the models of these tables. Raises
    :class:`~torchstone.errors.ModelError` for a name without a model, before a long run begins.
    """
    chosen = list(chosen)
    for name in chosen:
        if name not in SUITE:
            find_factory(name)
    names = chosen or list(QUICK if quick else SUITE)
    more = [*(ARCHITECTURES if architectures else ()), *(INVENTORY if inventory else ())]
    return list(dict.fromkeys([*names, *more]))


def source_of(model: Any, check: Check) -> str:
    """Return ``file:line`` of the user's ``forward`` that a tensor belongs to; empty if there is none."""
    path = check.name.rpartition(" ")[2]  # names are like "gradient of a.b.weight", "buffer a.c"
    owners = [model]
    for part in path.split("."):
        below = getattr(owners[-1], part, None) if isinstance(owners[-1], torch.nn.Module) else None
        if not isinstance(below, torch.nn.Module):
            break
        owners.append(below)
    for owner in reversed(owners):
        function = type(owner).forward if isinstance(owner, torch.nn.Module) else owner
        code = getattr(inspect.unwrap(function), "__code__", None)
        if code is not None and not function.__module__.startswith("torch."):
            return f"{code.co_filename}:{code.co_firstlineno}"
    return ""


def _badness(check: Check) -> float:
    """Return how wrong a tensor is, between 0 and 1: the share of its elements that differ."""
    found = check.comparison
    return found.mismatches / found.count if found.count else 1.0
