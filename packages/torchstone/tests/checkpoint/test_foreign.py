"""Checkpoints of others: files of torch.save and safetensors, folders of torch.distributed.checkpoint."""

from __future__ import annotations

import os
import pickle
from collections import Counter, OrderedDict
from pathlib import Path
from typing import Any

import numpy
import pytest
import safetensors.torch
import torch
from torch.distributed import checkpoint as dcp

from torchstone import checkpoint
from torchstone.errors import CheckpointDamaged, CheckpointError, CheckpointMismatch

ALONE = "ignore:torch.distributed is disabled:UserWarning"


def trained() -> dict[str, Any]:
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.8, 0.9))
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 3])
    model(torch.randn(4, 2)).sum().backward()
    optimizer.step()
    scheduler.step()
    return {"model": model, "optimizer": optimizer, "scheduler": scheduler}


def agree(one: Any, other: Any) -> None:
    if isinstance(one, torch.Tensor):
        assert torch.equal(one, other)
        assert one.dtype == other.dtype
    elif isinstance(one, dict):
        assert list(one) == list(other)
        for key in one:
            agree(one[key], other[key])
    else:
        assert one == other


@pytest.mark.parametrize("kind", ["torch", "dcp"])
@pytest.mark.parametrize("optimizer", ["Adam", "SGD", "LBFGS"])
def test_there_and_back(tmp_path: Path, kind: Any, optimizer: str) -> None:
    state = trained()
    state["optimizer"] = getattr(torch.optim, optimizer)(state["model"].parameters(), lr=0.1)
    for _ in range(2):
        state["optimizer"].step(lambda: state["model"](torch.ones(4, 2)).square().sum())
    path = checkpoint.save(tmp_path / "x", **state, step=7, loss=0.5)
    other = checkpoint.convert(path, tmp_path / "other", to=kind)
    again = trained()
    again["optimizer"] = getattr(torch.optim, optimizer)(again["model"].parameters(), lr=0.1)
    loaded = checkpoint.load(other, **again)
    assert (loaded.step, loaded.metadata) == (7, {"loss": 0.5})
    for name in state:
        agree(again[name].state_dict(), state[name].state_dict())
    back = checkpoint.convert(other, tmp_path / "back")
    for name in state:
        agree(checkpoint.load(back)[name], checkpoint.load(path)[name])
    assert checkpoint.load(back).step == 7


@pytest.mark.parametrize("kind", ["torch", "dcp"])
def test_values_that_weights_only_refuses_become_plain_ones(tmp_path: Path, kind: Any) -> None:
    array = numpy.arange(3.0)
    values = {
        "ordered": OrderedDict(b=array, a=OrderedDict(c={numpy.int64(1)})),
        "counts": Counter({"x": numpy.int64(2)}),
        "set": {numpy.float32(0.5), (1, frozenset({2, 3}))},
        "frozen": frozenset({1, 2}),
        "keys": {numpy.int64(3): [array], frozenset({4}): None},
        "format": torch.channels_last,
        "generator": numpy.random.default_rng(0),
    }
    path = checkpoint.save(tmp_path / "x", **values)
    other = checkpoint.convert(path, tmp_path / "other", to=kind)
    if kind == "torch":
        torch.load(other, weights_only=True)
    back = checkpoint.convert(other, tmp_path / "back")
    for name in (other, back):
        found = checkpoint.load(name).metadata
        assert torch.equal(found["ordered"].pop("b"), torch.from_numpy(array))
        assert found["ordered"] == {"a": {"c": {1}}}
        assert isinstance(found["ordered"], OrderedDict if kind == "torch" else dict)
        assert found["counts"] == Counter(x=2)
        assert found["counts"]["y"] == 0
        assert found["set"] == {0.5, (1, (2, 3))}
        assert found["frozen"] == {1, 2}
        assert torch.equal(found["keys"].pop(3)[0], torch.from_numpy(array))
        assert found["keys"] == {(4,): None}
        assert found["format"] == "channels_last"
        generator = numpy.random.default_rng(1)
        generator.bit_generator.state = found["generator"]["numpy"]
        assert generator.random() == numpy.random.default_rng(0).random()


def test_versions_of_modules_stay_with_converted_models(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(2))
    path = checkpoint.convert(checkpoint.save(tmp_path / "x", model=model), tmp_path / "y", to="torch")
    found = torch.load(path, weights_only=True)["model"]
    assert found._metadata == model.state_dict()._metadata


def test_a_plain_state_dict(tmp_path: Path) -> None:
    state, again = trained(), trained()
    torch.save(state["model"].state_dict(), tmp_path / "x.pt")
    checkpoint.load(tmp_path / "x.pt", model=again["model"])
    agree(dict(again["model"].state_dict()), dict(state["model"].state_dict()))
    path = checkpoint.save(tmp_path / "x", model=state["model"])
    out = checkpoint.convert(path, tmp_path / "out.pt", to="torch", section="model")
    trained()["model"].load_state_dict(torch.load(out, weights_only=True))
    checkpoint.convert(path, out, to="torch")  # an existing file is replaced


@pytest.mark.parametrize("names", [("model_state_dict", "optimizer_state_dict"), ("state_dict", "optimizer")])
def test_usual_names_of_parts(tmp_path: Path, names: tuple[str, str]) -> None:
    state, again = trained(), trained()
    parts = {names[0]: state["model"].state_dict(), names[1]: state["optimizer"].state_dict(), "epoch": 3}
    torch.save(parts, tmp_path / "x.pt")
    loaded = checkpoint.load(tmp_path / "x.pt", model=again["model"], optimizer=again["optimizer"])
    assert loaded.metadata == {"epoch": 3}
    agree(again["optimizer"].state_dict(), state["optimizer"].state_dict())


def test_safetensors(tmp_path: Path) -> None:
    model = torch.nn.ModuleDict({"a": torch.nn.Linear(2, 2), "b": torch.nn.Linear(2, 2)})
    model["b"].weight = model["a"].weight
    path = checkpoint.save(tmp_path / "x", model=model)
    out = checkpoint.convert(path, tmp_path / "x.safetensors", to="safetensors")
    agree(safetensors.torch.load_file(out), dict(sorted(model.state_dict().items())))
    checkpoint.load(out, model=model)
    with pytest.raises(CheckpointMismatch, match="another shape"):
        checkpoint.load(out, model=torch.nn.ModuleDict({name: torch.nn.Linear(2, 3) for name in "ab"}))
    (own,) = path.rglob("model-*.safetensors")  # the safetensors library reads what is written here
    assert set(safetensors.torch.load_file(own)) == {"a.weight", "a.bias", "b.bias"}


@pytest.mark.filterwarnings(ALONE)
def test_dcp_as_others_write_and_read_it(tmp_path: Path) -> None:
    state, again = trained(), trained()
    dcp.save({"model": state["model"].state_dict(), "step": 4}, checkpoint_id=tmp_path / "theirs")
    assert checkpoint.load(tmp_path / "theirs", model=again["model"]).step == 4
    agree(dict(again["model"].state_dict()), dict(state["model"].state_dict()))
    path = checkpoint.convert(
        checkpoint.save(tmp_path / "x", model=state["model"]), tmp_path / "ours", to="dcp"
    )
    target = {"model": trained()["model"].state_dict()}
    dcp.load(target, checkpoint_id=path)
    agree(dict(target["model"]), dict(state["model"].state_dict()))


class Evil:
    """Runs code when it is unpickled."""

    def __reduce__(self) -> Any:
        return os.system, ("touch owned",)


@pytest.mark.filterwarnings(ALONE)
@pytest.mark.parametrize("kind", ["torch", "dcp metadata", "dcp value"])
def test_reading_runs_no_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "x"
    if kind == "torch":
        torch.save({"model": Evil()}, path)
    else:
        dcp.save(
            {"model": {"w": torch.ones(2), "x": Evil() if kind == "dcp value" else 1}}, checkpoint_id=path
        )
    if kind == "dcp metadata":
        (path / ".metadata").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(CheckpointDamaged) as caught:
        checkpoint.load(path)
    assert f"cannot read {path} as a " in str(caught.value)
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize("kind", ["torch", "dcp", "safetensors"])
def test_damage(tmp_path: Path, kind: Any) -> None:
    path = checkpoint.save(tmp_path / "x", model=torch.nn.Linear(20, 20))
    out = checkpoint.convert(path, tmp_path / "x.safetensors", to=kind)
    file = out if out.is_file() else next(out.glob("*.distcp"))
    file.write_bytes(file.read_bytes()[:-900])
    with pytest.raises(CheckpointError):
        checkpoint.load(out)


def test_sections_that_only_have_a_known_name_are_metadata(tmp_path: Path) -> None:
    model = torch.nn.Linear(1, 1)
    generator = torch.get_rng_state()
    content = {
        "model": model.state_dict(),
        "rng": {"cpu": generator},
        "metadata": ["x", 1],
        "step": torch.tensor(7),
    }
    torch.save(content, tmp_path / "x.pt")
    optimizer = torch.optim.SGD(model.parameters())
    torch.save({**content, "optimizer": optimizer.state_dict()}, tmp_path / "y.pt")
    for name in ("x.pt", "y.pt"):
        loaded = checkpoint.load(tmp_path / name, model=model)
        assert loaded.step == 7
        assert loaded.metadata["metadata"] == ["x", 1]
        assert torch.equal(loaded.metadata["rng"]["cpu"], generator)
    assert checkpoint.load(tmp_path / "y.pt", model=model, optimizer=optimizer).step == 7


def optimizer_of(shapes: list[list[int]], *, split: bool = False) -> torch.optim.Optimizer:
    parameters = [torch.nn.Parameter(torch.ones(shape)) for shape in shapes]
    groups = [{"params": [one]} for one in parameters] if split else [{"params": parameters}]
    optimizer = torch.optim.Adam(groups)
    for one in parameters:
        one.grad = torch.ones_like(one)
    optimizer.step()
    return optimizer


@pytest.mark.filterwarnings(ALONE)
@pytest.mark.parametrize("kind", ["torch", "dcp", "state dict"])
@pytest.mark.parametrize(
    ("other", "text"),
    [
        ({"shapes": [[3, 2]]}, r"groups of \[1\] parameters in the checkpoint, of \[2\] here"),
        ({"shapes": [[3, 2], [3], [3]]}, r"groups of \[3\] parameters in the checkpoint, of \[2\] here"),
        (
            {"shapes": [[3, 2], [3]], "split": True},
            r"groups of \[1, 1\] parameters in the checkpoint, of \[2\]",
        ),
        ({"shapes": [[3, 2], [4]]}, r"parameter 1 of group 0 of optimizer has the shape \[4\] in the check"),
    ],
    ids=["fewer", "more", "groups", "shape"],
)
def test_an_optimizer_of_other_parameters_changes_nothing(
    tmp_path: Path, kind: str, other: Any, text: str
) -> None:
    model = torch.nn.Linear(2, 3)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.5)
    saved = {"model": torch.nn.Linear(2, 3).state_dict(), "optimizer": optimizer_of(**other).state_dict()}
    if kind == "torch":
        torch.save(saved, tmp_path / "x")
    elif kind == "dcp":
        dcp.save(saved, checkpoint_id=tmp_path / "x")
    else:
        checkpoint.save(tmp_path / "x", **saved)
    before = {name: one.clone() for name, one in model.state_dict().items()}
    with pytest.raises(CheckpointMismatch, match=text):
        checkpoint.load(tmp_path / "x", model=model, optimizer=optimizer, rng=False)
    agree(dict(model.state_dict()), before)
    assert optimizer.state_dict()["state"] == {}
    assert optimizer.param_groups[0]["lr"] == 0.5


def test_what_is_not_the_state_of_an_optimizer_changes_nothing(tmp_path: Path) -> None:
    model = torch.nn.Linear(2, 3)
    optimizer = torch.optim.SGD(model.parameters())
    before = {name: one.clone() for name, one in model.state_dict().items()}
    torch.save({"model": torch.nn.Linear(2, 3).state_dict(), "optimizer": {"lr": 1}}, tmp_path / "x")
    with pytest.raises(CheckpointMismatch, match="optimizer in the checkpoint is not the state of an optimi"):
        checkpoint.load(tmp_path / "x", model=model, optimizer=optimizer)
    agree(dict(model.state_dict()), before)


def test_a_model_without_memory_is_refused(tmp_path: Path) -> None:
    path = checkpoint.save(tmp_path / "x", model=torch.nn.Linear(2, 2))
    with pytest.raises(CheckpointMismatch, match=r"weight is on the meta device"):
        checkpoint.load(path, model=torch.nn.Linear(2, 2, device="meta"))


def test_what_convert_cannot_do(tmp_path: Path) -> None:
    path = checkpoint.save(tmp_path / "x", step=1)
    with pytest.raises(CheckpointError, match="there is no kind of checkpoint 'zip'"):
        checkpoint.convert(path, tmp_path / "y", to="zip")  # type: ignore[arg-type]
    with pytest.raises(CheckpointError, match="has no model"):
        checkpoint.convert(path, tmp_path / "y", to="safetensors")
    checkpoint.convert(path, tmp_path / "d", to="dcp")
    with pytest.raises(CheckpointError, match="d exists already"):
        checkpoint.convert(path, tmp_path / "d", to="dcp")
    with pytest.raises(CheckpointError, match=r"cannot write .*no/such/file"):
        checkpoint.convert(path, tmp_path / "no" / "such" / "file", to="torch")
    with pytest.raises(CheckpointError, match="holds tensors only"):
        checkpoint.convert(checkpoint.save(tmp_path / "z", model={"a": 1}), tmp_path / "y", to="safetensors")
    trained = torch.nn.Linear(2, 2)
    state = checkpoint.save(tmp_path / "s", model=trained, optimizer=torch.optim.Adam(trained.parameters()))
    with pytest.raises(CheckpointError, match="the optimizer has other state too"):
        checkpoint.convert(state, tmp_path / "y", to="safetensors", section="optimizer")
    assert not (tmp_path / "y").exists()
