"""Loading into objects: what fits, what does not, and that a refusal changes nothing."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch

from checkpoint_cases.bits import same
from torchstone import checkpoint
from torchstone.errors import CheckpointError, CheckpointMismatch


def state_of(model: torch.nn.Module) -> dict[str, Any]:
    return {name: one.clone() for name, one in model.state_dict().items()}


def unchanged(model: torch.nn.Module, before: dict[str, Any]) -> bool:
    return all(torch.equal(one, before[name]) for name, one in model.state_dict().items())


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 4))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    return checkpoint.save(tmp_path / "saved", model=model, optimizer=optimizer, step=3)


class Other(torch.nn.Module):
    """A module with one missing name, one extra name, another shape and another dtype."""

    def __init__(self) -> None:
        super().__init__()
        self.add_module("0", torch.nn.Linear(2, 3, dtype=torch.float64))
        self.add_module("1", torch.nn.Linear(3, 5, bias=False))
        self.extra = torch.nn.Parameter(torch.ones(2))


def test_every_difference_is_in_one_error_and_nothing_changes(saved: Path) -> None:
    model = Other()
    before = state_of(model)
    with pytest.raises(CheckpointMismatch) as caught:
        checkpoint.load(saved, model=model)
    assert str(caught.value) == (
        f"the checkpoint {saved} does not fit what it is loaded into:\n"
        "  not in the checkpoint (1): extra\n"
        "  not in the model (1): 1.bias\n"
        "  another shape (1): 1.weight [4, 3] in the checkpoint, [5, 3] in the model\n"
        "  another dtype (2): 0.weight float32 in the checkpoint, float64 in the model, "
        "0.bias float32 in the checkpoint, float64 in the model\n"
        "  next: make the objects as they were at the save; strict=False loads what fits of a model, "
        "select= names a part of it, cast=True converts dtypes"
    )
    assert unchanged(model, before)


def test_what_fits_is_loaded_and_the_rest_reported(saved: Path) -> None:
    model = Other()
    report = checkpoint.load(saved, model=model, strict=False, cast=True).report
    assert (report.missing, report.unexpected, list(report.shape)) == (["extra"], ["1.bias"], ["1.weight"])
    assert report.loaded == ["0.weight", "0.bias"]
    assert not report.fits
    found = checkpoint.load(saved)["model"]
    assert torch.equal(model.state_dict()["0.weight"], found["0.weight"].double())
    assert torch.equal(model.extra, torch.ones(2))


def test_a_part_of_the_model(saved: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 4))
    before = state_of(model)
    loaded = checkpoint.load(saved, model=model, select="0.*")
    assert loaded.report.fits
    assert loaded.report.loaded == ["0.weight", "0.bias"]
    assert torch.equal(model[0].weight, loaded["model"]["0.weight"])
    assert torch.equal(model[1].weight, before["1.weight"])


def test_an_optimizer_over_other_parameters(saved: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 5))
    optimizer = torch.optim.Adam(model.parameters())
    with pytest.raises(CheckpointMismatch) as caught:
        checkpoint.load(saved, optimizer=optimizer)
    assert "parameter 2 of group 0 of optimizer has the shape [4, 3] in the checkpoint, [5, 3] here" in str(
        caught.value
    )
    assert optimizer.state_dict()["state"] == {}
    fewer = torch.optim.Adam(model[0].parameters())
    with pytest.raises(
        CheckpointMismatch, match=r"groups of \[4\] parameters in the checkpoint, of \[2\] here"
    ):
        checkpoint.load(saved, optimizer=fewer, strict=False)


def test_a_model_that_fits_is_left_alone_when_the_optimizer_does_not(saved: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 4))
    before = state_of(model)
    with pytest.raises(CheckpointMismatch):
        checkpoint.load(saved, model=model, optimizer=torch.optim.Adam(model[0].parameters()))
    assert unchanged(model, before)


def test_parts_that_are_not_there(saved: Path) -> None:
    with pytest.raises(CheckpointMismatch) as caught:
        checkpoint.load(saved, scaler=torch.amp.GradScaler("cpu"))
    assert "has no scaler; it has model, optimizer, rng, metadata" in str(caught.value)
    with pytest.raises(CheckpointMismatch, match=r"the parts of model are 0\.bias"):
        checkpoint.load(saved, model={"g": torch.nn.Linear(1, 1)})
    with pytest.raises(CheckpointError, match="cannot load into model: a Tensor has no load_state_dict"):
        checkpoint.load(saved, model=torch.ones(2))


def test_weights_that_are_tied_here_and_differ_there(tmp_path: Path) -> None:
    state = {"a.weight": torch.ones(2, 2), "b.weight": torch.zeros(2, 2)}
    path = checkpoint.save(tmp_path / "x", model=state)
    model = torch.nn.ModuleDict({name: torch.nn.Linear(2, 2, bias=False) for name in "ab"})
    model["b"].weight = model["a"].weight
    with pytest.raises(CheckpointMismatch, match=r"unequal in the checkpoint \(1\): a.weight = b.weight"):
        checkpoint.load(path, model=model)
    state["b.weight"].fill_(1)
    checkpoint.load(checkpoint.save(path, model=state), model=model)
    assert torch.equal(model["a"].weight, torch.ones(2, 2))


def test_objects_that_refuse_a_state_are_named(tmp_path: Path) -> None:
    path = checkpoint.save(tmp_path / "x", scaler=torch.amp.GradScaler("cpu", enabled=False))
    with pytest.raises(CheckpointMismatch, match="the GradScaler scaler does not take the state"):
        checkpoint.load(path, scaler=torch.amp.GradScaler("cpu"))


class Choosy(torch.nn.Linear):
    """A module that refuses extra state after it has loaded its tensors."""

    def __init__(self) -> None:
        super().__init__(2, 2)
        self.extra = 1

    def get_extra_state(self) -> int:
        return self.extra

    def set_extra_state(self, state: int) -> None:
        self.extra = state
        if state == 7:
            raise ValueError("7 is not allowed")


@pytest.mark.parametrize("refused", ["scaler", "model", "rng"])
def test_an_object_that_refuses_its_state_leaves_the_others_as_they_were(
    tmp_path: Path, refused: str
) -> None:
    def objects() -> dict[str, Any]:
        model = Choosy()
        optimizer = torch.optim.Adam(model.parameters(), lr=torch.rand(()).item())
        model(torch.rand(1, 2)).sum().backward()
        optimizer.step()
        scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 3])
        data = torch.utils.data.DataLoader(list(range(4)), generator=torch.Generator().manual_seed(4))
        loader = checkpoint.ResumableLoader(data)
        return {"model": model, "optimizer": optimizer, "scheduler": scheduler, "loader": loader}

    saved, here = objects(), objects()
    if refused == "model":
        saved["model"].extra = 7
    path = checkpoint.save(
        tmp_path / "x", **saved, scaler=torch.amp.GradScaler("cpu", enabled=refused != "scaler")
    )
    here["scaler"] = torch.amp.GradScaler("cpu", init_scale=64.0)
    if refused == "rng":
        content = {name: one.state_dict() for name, one in {**saved, "scaler": here["scaler"]}.items()}
        content["rng"] = {"torch": torch.ones(3, dtype=torch.uint8), "numpy": {}, "python": ()}
        path = tmp_path / "other"
        torch.save(content, path)
    iter(here["loader"]).__next__()
    before = {name: copy.deepcopy(one.state_dict()) for name, one in here.items()}
    tensors = [one["exp_avg"] for one in here["optimizer"].state.values()]
    generators = torch.get_rng_state()
    with pytest.raises(CheckpointMismatch, match=r"do(es)? not take the state in the checkpoint"):
        checkpoint.load(path, **here)
    for name, one in here.items():
        assert same(one.state_dict(), before[name]), name
    assert all(
        one["exp_avg"] is old for one, old in zip(here["optimizer"].state.values(), tensors, strict=True)
    )
    assert torch.equal(torch.get_rng_state(), generators)


def test_mapped_tensors_leave_the_files_alone(saved: Path) -> None:
    file = next(saved.rglob("model-*"))
    before = file.read_bytes()
    found = checkpoint.load(saved, mmap=True)["model"]["0.weight"]
    found.fill_(7)
    assert torch.equal(found, torch.full((3, 2), 7.0))
    assert file.read_bytes() == before


def test_what_is_open_stays_readable_when_it_is_replaced(saved: Path) -> None:
    opened = checkpoint.load(saved, verify=False)
    checkpoint.save(saved, step=4)
    assert opened["model"]["0.weight"].shape == (3, 2)
    assert opened.step == 3
    assert checkpoint.load(saved).step == 4
    opened.close()
    with pytest.raises(CheckpointError, match="has been closed"):
        opened["optimizer"]


def test_lazy_parameters_take_the_shape_of_the_checkpoint(saved: Path) -> None:
    model = torch.nn.Sequential(torch.nn.LazyLinear(3), torch.nn.LazyLinear(4))
    checkpoint.load(saved, model=model)
    assert model[0].weight.shape == (3, 2)
