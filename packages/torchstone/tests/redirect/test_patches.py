"""Every patched name: accounted for, true to its signature, and gone when the scope ends."""

from __future__ import annotations

import contextlib
import inspect
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest
import torch

import torchstone
from torchstone.redirect import Patch, patches
from torchstone.redirect.rows import TREATMENTS

NOT_TREATED = ("absent", "deliberate")
NAMES = {patch.name: patch for patch in patches()}
REPLACED = [patch for patch in patches() if patch.places]
FUNCTIONS = [patch for patch in REPLACED if callable(patch.original)]


def lying(patch: Patch) -> list[Any]:
    return [vars(place.owner).get(place.attribute) for place in patch.places]


def test_every_public_name_of_torch_cuda_has_a_treatment() -> None:
    missing = [name for name in torch.cuda.__all__ if f"torch.cuda.{name}" not in NAMES]
    assert missing == []


def test_few_names_of_torch_cuda_are_left_alone_and_each_says_why() -> None:
    left = [NAMES[f"torch.cuda.{name}"] for name in torch.cuda.__all__]
    left = [patch for patch in left if patch.treatment in NOT_TREATED]
    assert 0 < len(left) <= 0.15 * len(torch.cuda.__all__)
    notes = Counter(patch.note for patch in left)
    assert all(len(note) > 20 for note in notes)


def test_names_are_unique_and_treatments_known() -> None:
    assert max(Counter(patch.name for patch in patches()).values()) == 1
    assert {patch.treatment for patch in patches()} <= set(TREATMENTS)
    assert all(patch.note for patch in patches())


@pytest.mark.parametrize("patch", FUNCTIONS, ids=lambda patch: patch.name)
def test_a_replacement_has_the_signature_of_its_original(patch: Patch) -> None:
    try:
        original = inspect.signature(patch.original, follow_wrapped=False)
    except ValueError:
        return  # a builtin without a signature, whose replacement accepts anything
    assert inspect.signature(patch.replacement, follow_wrapped=False) == original
    assert inspect.signature(patch.replacement) == inspect.signature(patch.original)


def signatures() -> dict[str, str]:
    found = {}
    for name in torch.cuda.__all__:
        with contextlib.suppress(ValueError, TypeError):
            found[name] = str(inspect.signature(getattr(torch.cuda, name), follow_wrapped=False))
    return found


def test_inside_a_scope_functions_and_classes_of_torch_cuda_look_as_ever() -> None:
    outside = signatures()
    with torchstone.redirected(target="cpu"):
        inside = signatures()
    assert {name: inside[name] for name in outside} == outside
    assert len(outside) > 80


@pytest.mark.parametrize("raising", [False, True], ids=["returns", "raises"])
def test_outside_a_scope_every_name_is_the_identical_object(raising: bool) -> None:
    before = [lying(patch) for patch in REPLACED]
    try:
        with torchstone.redirected(target="cpu"):
            inside = [lying(patch) for patch in REPLACED]
            if raising:
                raise KeyError
    except KeyError:
        pass
    after = [lying(patch) for patch in REPLACED]
    for patch, one, two, three in zip(REPLACED, before, inside, after, strict=True):
        assert all(a is b for a, b in zip(one, three, strict=True)), patch.name
        if not patch.name.startswith("torch._dynamo"):  # placed once Dynamo is loaded
            assert all(a is not b for a, b in zip(one, two, strict=True)), patch.name


def test_a_replacement_that_outlives_its_scope_is_the_original_again() -> None:
    with torchstone.redirected(target="cpu"):
        kept, kept_class = torch.cuda.is_available, torch.Generator
        assert kept()
    assert kept() is torch.cuda.is_available()
    assert type(kept_class()) is torch.Generator


PROGRAM = """
import sys, torch, torchstone
import torch.utils.checkpoint
functions = [torch.is_autocast_enabled, torch.cuda.is_available, torch.get_autocast_dtype]
assert "torch._dynamo" not in sys.modules and "torch.distributed.fsdp" not in sys.modules
before = list(sys.meta_path)
with torchstone.redirected(target="cpu"):
    def step(x):
        return x.cuda() + int(torch.cuda.is_available()) + int(x.is_cuda)
    assert torch.compile(step, fullgraph=True, backend="eager")(torch.zeros(1, device="cuda")).item() == 2
    assert torch.cuda.is_available()
    import torch.distributed.fsdp
assert sys.meta_path == before
from torch._dynamo.trace_rules import get_torch_obj_rule_map
assert torch.cuda.is_available in get_torch_obj_rule_map()
from torch._dynamo.variables.torch import constant_fold_functions
assert torch.is_autocast_enabled in constant_fold_functions
from torch._dynamo.device_interface import CudaInterface
assert CudaInterface.get_device_properties is torch.cuda.get_device_properties
"""


def test_modules_of_pytorch_that_are_imported_inside_keep_the_originals() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
