"""The demo on real data: train, export, reload in another process, classify; all through the compiler.

A small CNN learns scikit-learn's handwritten digits through ``compile_step``: forward
pass, backward pass and Adam's update are one program. ``torch.compile`` without fallback
then classifies. The same training runs in eager PyTorch, in alternating epochs, to compare
results and times. Not here: how the report is shown.
"""

from __future__ import annotations

import copy
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from optest.core.comparator import compare
from optest.core.comparison import Comparison

from ..api import export
from ..compiler.graphs import to_numpy
from ..errors import MissingExtra
from ..training import compile_step
from .compilation import Compilation, compiled, plain_errors, watched
from .replay import run_fresh

ENOUGH = 0.97
"""Test accuracy that the compiled model and its artifact must reach."""

BATCH, EPOCHS, HELD_OUT = 64, 20, 360
SETTLING, WARM_UP = 14, 5
"""How many epochs, and first steps of each later epoch, the steady-state time leaves out.

After about 270 steps ``compile_step`` has measured the ways to compute a step and chosen the fastest.
"""


@dataclass(frozen=True)
class Digits:
    """Images ``[n, 1, 8, 8]`` in [0, 1] and labels ``[n]``, for training and held out."""

    images: torch.Tensor
    labels: torch.Tensor
    test_images: torch.Tensor
    test_labels: torch.Tensor


@dataclass(frozen=True)
class Accuracy:
    """The fraction of the held-out digits that each way classifies correctly."""

    eager: float
    compiled: float
    artifact: float


@dataclass
class DemoReport:
    """The measurements of the demo.

    ``accuracy.eager`` is that of the twin trained in eager PyTorch. ``differences``
    compares the held-out digits' logits with eager's for the same weights. Times
    are of one training step; ``speed`` is the median over epochs of eager's time
    divided by the compiled time.
    """

    accuracy: Accuracy
    differences: dict[str, Comparison]
    compilation: Compilation
    first_call_s: float
    step_s: float
    eager_step_s: float
    speed: float
    artifact_bytes: int
    failures: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return not self.failures

    def rows(self) -> list[tuple[str, str]]:
        """Return the report as the rows of a table: label and value."""
        seen, graphs = self.compilation, self.compilation.graphs
        kinds = ", ".join(f"{count} {kind}" for kind, count in graphs.items())
        return [
            ("test accuracy, trained in eager", f"{self.accuracy.eager:.2%}"),
            ("test accuracy, trained compiled", f"{self.accuracy.compiled:.2%}"),
            ("test accuracy, artifact in a fresh process", f"{self.accuracy.artifact:.2%}"),
            *(
                (f"largest difference, {name} against eager", f"{found.max_abs:.2e} ({found.max_ulp} ULP)")
                for name, found in self.differences.items()
            ),
            ("operators lowered", f"{len(seen.native)} in {seen.native.total()} calls"),
            ("operators that fell back to eager", str(seen.fallbacks.total())),
            ("graphs", f"{graphs.total()} ({kinds})"),
            ("graph breaks", str(seen.breaks.total())),
            ("first step, with compilation", f"{self.first_call_s:.2f} s"),
            ("steady step", f"{1e3 * self.step_s:.2f} ms; eager {1e3 * self.eager_step_s:.2f} ms"),
            ("speed against eager (median of epochs)", f"{self.speed:.2f}×"),
            ("artifact", f"{self.artifact_bytes / 1024:.0f} KiB"),
        ]

    def to_dict(self) -> dict[str, Any]:
        return {
            "passed": self.passed,
            "failures": list(self.failures),
            "accuracy": vars(self.accuracy),
            "differences": {name: found.to_dict() for name, found in self.differences.items()},
            "compilation": self.compilation.to_dict(),
            "first_call_s": self.first_call_s,
            "step_s": self.step_s,
            "eager_step_s": self.eager_step_s,
            "speed": self.speed,
            "artifact_bytes": self.artifact_bytes,
        }


def run_demo(progress: Callable[[str], None] = lambda stage: None) -> DemoReport:
    """Train, export, reload, classify, compare; ``progress`` is called with each stage as it begins.

    Raises :class:`~torchstone.errors.MissingExtra` without scikit-learn, and
    :class:`~torchstone.errors.FallbackRefused` if an operator would run in
    eager. All other problems are in ``failures``. Resets Dynamo and restores
    PyTorch's random state.
    """
    digits = load_digits()
    with torch.random.fork_rng(devices=[]), watched() as compilation, plain_errors():
        torch.manual_seed(0)
        model = small_cnn()
        twin = copy.deepcopy(model)
        progress("training, compiled and in eager in turns")
        first_call_s, seconds, eager_seconds = _train_both(model, twin, digits)
        model.eval()
        twin.eval()
        progress("classifying the held-out digits")
        with torch.no_grad():
            logits = compiled(model)(digits.test_images)
            expected = to_numpy(model(digits.test_images))
            exact = to_numpy(copy.deepcopy(model).double()(digits.test_images.double()))
            eager_accuracy = _accuracy(twin(digits.test_images), digits)
        progress("exporting, and classifying in a fresh process")
        replayed, size = _through_artifact(model, digits)
    report = DemoReport(
        accuracy=Accuracy(
            eager_accuracy, _accuracy(logits, digits), _accuracy(torch.from_numpy(replayed), digits)
        ),
        differences={
            "compiled": compare(to_numpy(logits), expected, reference=exact),
            "artifact": compare(replayed, expected, reference=exact),
        },
        compilation=compilation,
        first_call_s=first_call_s,
        step_s=statistics.median(seconds),
        eager_step_s=statistics.median(eager_seconds),
        speed=statistics.median(e / c for c, e in zip(seconds, eager_seconds, strict=True)),
        artifact_bytes=size,
    )
    report.failures += verdict(report)
    return report


def verdict(report: DemoReport) -> list[str]:
    """Return all problems in a report."""
    found = [
        f"the {name} model classifies {share:.2%} right; at least {ENOUGH:.0%} are needed"
        for name, share in (("compiled", report.accuracy.compiled), ("artifact's", report.accuracy.artifact))
        if share < ENOUGH
    ]
    for name, comparison in report.differences.items():
        if not comparison.passed:
            found.append(f"{name} differs from eager: {comparison.summary()}")
    if report.compilation.fallbacks:
        found.append(f"operators fell back to eager: {', '.join(report.compilation.fallbacks)}")
    found += [f"graph break: {reason}" for reason in report.compilation.breaks]
    missing = {"step", "inference"} - set(report.compilation.graphs)
    return found + [f"no {kind} graph was compiled" for kind in sorted(missing)]


def load_digits() -> Digits:
    """Load scikit-learn's 1,797 digits, shuffled; raises :class:`~torchstone.errors.MissingExtra`."""
    try:
        from sklearn.datasets import load_digits as load
    except ImportError as error:
        raise MissingExtra("the demo needs scikit-learn, which brings its digits", extra="demo") from error
    pixels, labels = load(return_X_y=True)
    order = numpy.random.default_rng(0).permutation(len(labels))
    images = torch.from_numpy((pixels[order] / 16).astype(numpy.float32)).reshape(-1, 1, 8, 8)
    targets = torch.from_numpy(labels[order].astype(numpy.int64))
    return Digits(images[HELD_OUT:], targets[HELD_OUT:], images[:HELD_OUT], targets[:HELD_OUT])


def small_cnn() -> nn.Sequential:
    """Make two convolutions with batch norm, pooling and a linear layer: ``[n, 1, 8, 8]`` → ``[n, 10]``."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 10),
    )


Step = Callable[[torch.Tensor, torch.Tensor], object]


def _adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=3e-3)


def _eager_step(model: nn.Module) -> Step:
    optimizer = _adam(model)

    def step(images: torch.Tensor, labels: torch.Tensor) -> None:
        optimizer.zero_grad()
        cross_entropy(model(images), labels).backward()
        optimizer.step()

    return step


def _train_both(model: nn.Module, twin: nn.Module, digits: Digits) -> tuple[float, list[float], list[float]]:
    """Train both models on the same batches, and return times in seconds.

    They are the time of the first compiled step, and for each epoch the median time of a step, compiled
    and eager. The models take turns by epochs, so that neither disturbs the other's threads.
    """
    steps: list[Step] = [compile_step(model, _adam(model), cross_entropy), _eager_step(twin)]
    seconds: tuple[list[float], list[float]] = ([], [])
    first_call_s = 0.0
    for epoch in range(EPOCHS):
        order = torch.randperm(len(digits.labels))
        whole = len(order) // BATCH * BATCH  # whole batches only: one shape, so one program
        batches = [(digits.images[batch], digits.labels[batch]) for batch in order[:whole].split(BATCH)]
        for step, found in zip(steps, seconds, strict=True):
            times = [_timed(step, *batch) for batch in batches]
            first_call_s = first_call_s or times[0]
            if epoch >= SETTLING:
                found.append(statistics.median(times[WARM_UP:]))
    return first_call_s, *seconds


def _timed(step: Step, images: torch.Tensor, labels: torch.Tensor) -> float:
    started = time.perf_counter()
    step(images, labels)
    return time.perf_counter() - started


def _accuracy(logits: torch.Tensor, digits: Digits) -> float:
    return (logits.argmax(1) == digits.test_labels).float().mean().item()


def _through_artifact(model: nn.Module, digits: Digits) -> tuple[numpy.ndarray[Any, Any], int]:
    """Return the held-out digits' logits from an artifact in a fresh process, and its size in bytes."""
    program = export(model, (digits.test_images,))
    with tempfile.TemporaryDirectory(prefix="torchstone-") as folder:
        path = program.save(Path(folder, "digits.stone"))
        (logits,) = run_fresh(path, [to_numpy(digits.test_images)])
        return logits, path.stat().st_size
