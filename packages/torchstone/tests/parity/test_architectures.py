"""Current architectures of Hugging Face, tiny: export, ``torch.compile``, gradients, training, whole steps.

``make test`` runs one, ``make conformance`` all.
"""

from __future__ import annotations

import pytest
import torch

from torchstone.parity.model import load_model
from torchstone.parity.suite import names_of, run_suite
from torchstone.parity.suite_pages import markdown
from torchstone.parity.zoo import ARCHITECTURES, MODELS

LOOKS_AT_VALUES = {"tiny-detr": "if not torch.isfinite(hidden_states).all()"}
"""Code by model: a whole step refuses it, because it branches on values in training."""
STAGES = ["artifact", "compiled", "gradients", "training", "step"]
PARTS = ("moe", "mamba", "t5", "detr", "wav2vec2", "whisper", "diffusion")
"""Parts of names, one for each kind of model that must be there."""


def test_the_kinds_of_architectures() -> None:
    assert len(ARCHITECTURES) >= 28
    assert all(any(part in name for name in ARCHITECTURES) for part in PARTS)
    assert not ARCHITECTURES.keys() & MODELS.keys()
    assert set(names_of((), architectures=True)) >= ARCHITECTURES.keys()


@pytest.mark.parametrize("name", ["tiny-qwen3-moe", "tiny-sd3"])
def test_an_architecture_is_the_same_at_every_call(name: str) -> None:
    before = torch.random.get_rng_state()
    first, again = load_model(name), load_model(name)
    assert torch.equal(before, torch.random.get_rng_state())
    for one, other in zip(first.args, again.args, strict=True):
        assert torch.equal(one, other)
    state = again.model.state_dict()  # type: ignore[attr-defined]
    for key, value in first.model.state_dict().items():  # type: ignore[attr-defined]
        assert torch.equal(value, state[key])


@pytest.mark.kept("tiny-bert")
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_an_architecture_in_every_stage(name: str) -> None:
    report = run_suite([name], steps=2)
    (model,) = report.to_dict()["models"]
    assert list(model["errors"]) == (["step"] if name in LOOKS_AT_VALUES else [])
    assert LOOKS_AT_VALUES.get(name, "") in model["errors"].get("step", "")
    assert report.passed is (name not in LOOKS_AT_VALUES), markdown(report)
    assert [stage["stage"] for stage in model["stages"] if stage["verdict"] != "passed"] == list(
        model["errors"]
    )
    assert model["compilation"]["fallback_calls"] == 0
    assert [stage["stage"] for stage in model["stages"]] == STAGES
