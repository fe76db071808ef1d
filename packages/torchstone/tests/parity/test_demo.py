"""The demo's parts and its verdict; the whole of it is run by the test of ``examples/train_digits.py``."""

from __future__ import annotations

from collections import Counter

import numpy
import pytest
import torch

from optest.core.comparator import compare
from torchstone.backend.records import GraphRecord
from torchstone.errors import UnsupportedNode
from torchstone.parity.compilation import Compilation, compiled, watched
from torchstone.parity.demo import Accuracy, DemoReport, load_digits, verdict


def report() -> DemoReport:
    """A report that passes."""
    same = compare(numpy.ones(3, numpy.float32), numpy.ones(3, numpy.float32))
    return DemoReport(
        accuracy=Accuracy(0.99, 0.98, 0.98),
        differences={"compiled": same, "artifact": same},
        compilation=Compilation([GraphRecord(kind) for kind in ("step", "inference")]),
        first_call_s=1.0,
        step_s=0.01,
        eager_step_s=0.01,
        speed=1.0,
        artifact_bytes=1,
    )


def test_a_good_report_has_no_failures() -> None:
    assert verdict(report()) == []


def test_low_accuracy_fails() -> None:
    bad = report()
    bad.accuracy = Accuracy(0.99, 0.96, 0.9)
    assert verdict(bad) == [
        "the compiled model classifies 96.00% right; at least 97% are needed",
        "the artifact's model classifies 90.00% right; at least 97% are needed",
    ]


def test_a_difference_fails() -> None:
    bad = report()
    wrong = compare(numpy.zeros(3, numpy.float32), numpy.ones(3, numpy.float32))
    bad.differences = {"artifact": wrong}
    (failure,) = verdict(bad)
    assert failure.startswith("artifact differs from eager: mismatch: 3 of 3 float32 elements")


def test_a_fallback_a_break_and_a_missing_graph_fail() -> None:
    bad = report()
    node = UnsupportedNode("aten.mystery.default", 2, "no lowering")
    bad.compilation = Compilation([GraphRecord("inference", fallbacks=[node])], Counter({"a print": 1}))
    assert verdict(bad) == [
        "operators fell back to eager: aten.mystery.default",
        "graph break: a print",
        "no step graph was compiled",
    ]


def test_breaks_that_torch_optim_asks_for_pass() -> None:
    good = report()
    good.compilation.deliberate_breaks = 2
    assert verdict(good) == []


def test_digits_are_whole_and_apart() -> None:
    pytest.importorskip("sklearn", reason="the extra torchstone[demo] is not installed")
    digits = load_digits()
    assert digits.images.shape == (1437, 1, 8, 8)
    assert digits.test_images.shape == (360, 1, 8, 8)
    assert digits.images.min() == 0
    assert digits.images.max() == 1
    everything = torch.cat([digits.labels, digits.test_labels])
    assert torch.bincount(everything).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]


def test_what_is_watched_counts_from_zero() -> None:
    for _ in range(2):
        with watched() as seen:
            compiled(lambda x: x * 2)(torch.ones(2))
        assert (dict(seen.graphs), dict(seen.native)) == ({"inference": 1}, {"aten.mul.Tensor": 1})
        assert (seen.breaks.total(), seen.fallbacks.total()) == (0, 0)
