"""What is stored comes back bit for bit: tensors, Python values, states of optimizers and the rest."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter, OrderedDict
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

from checkpoint_cases.bits import same
from torchstone import checkpoint
from torchstone.errors import CheckpointError, CheckpointUnstorable

DTYPES = sorted(
    {
        one
        for one in vars(torch).values()
        if isinstance(one, torch.dtype) and not str(one).startswith("torch.q")
    },
    key=str,
)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("mmap", [False, True])
@pytest.mark.filterwarnings("ignore:ComplexHalf")
def test_tensors_of_every_dtype(tmp_path: Path, dtype: torch.dtype, mmap: bool) -> None:
    tensors = {}
    for shape in ((), (0,), (0, 3), (5,), (2, 3, 4)):
        count = torch.Size(shape).numel() * dtype.itemsize
        raw = torch.randint(0, 2 if dtype == torch.bool else 256, (count,), dtype=torch.uint8)
        tensors[str(shape)] = raw.view(dtype).reshape(shape) if count else torch.empty(shape, dtype=dtype)
    found = checkpoint.load(checkpoint.save(tmp_path / "x", **tensors), mmap=mmap).metadata
    assert same(found, tensors)


def test_tensors_of_every_form(tmp_path: Path) -> None:
    base = torch.randn(4, 6)
    forms = {
        "transposed": base.t(),
        "channels last": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        "conjugated": torch.randn(3, dtype=torch.complex64).conj(),
        "negated": torch.randn(3, dtype=torch.complex64).conj().imag,
        "parameter": torch.nn.Parameter(torch.randn(3)),
    }
    found = checkpoint.load(checkpoint.save(tmp_path / "x", **forms)).metadata
    for name, tensor in forms.items():
        assert same(found[name], tensor.detach().resolve_conj().resolve_neg()), name
    # Tensors that are not dense are loaded as dense ones.
    other = {"every second": base[:, ::2], "expanded": torch.ones(1).expand(3), "part": base[1:3, 2:4]}
    found = checkpoint.load(checkpoint.save(tmp_path / "y", **other)).metadata
    for name, tensor in other.items():
        assert same(found[name], tensor.contiguous()), name


def test_python_values(tmp_path: Path) -> None:
    values = {
        "plain": [None, True, False, 0, -1, 2**63, -(2**200), 10**5000, 0.1, -0.0, 5e-324],
        "not finite": [float("nan"), float("inf"), float("-inf")],
        "complex": complex(1, float("inf")),
        "text": ["", "é", "\udcff", "\x00", "a/b~c"],
        "bytes": b"\x00\xff",
        "nested": {"a": (1, [2, (3,)], {}), "b": [], "c": ()},
        "keys": {0: "a", "0": "b", None: "c", (1, "x"): "d", 1.5: "e"},
        "sets": [{1, 2}, frozenset({"a"}), set()],
        "classes": [OrderedDict(b=1, a=2), Counter("aab"), torch.Size((2, 3))],
        "torch": [torch.float8_e4m3fn, torch.device("cuda:1"), torch.strided, torch.channels_last],
        "numpy": [numpy.arange(6.0).reshape(2, 3), numpy.float32(1.5), numpy.bool_(True), numpy.array(3)],
    }
    found = checkpoint.load(checkpoint.save(tmp_path / "x", **values)).metadata
    for name, value in values.items():
        assert same(found[name], value), name


def test_arrays_of_the_other_byte_order_keep_their_values(tmp_path: Path) -> None:
    array = numpy.arange(3, dtype=">i4")
    found = checkpoint.load(checkpoint.save(tmp_path / "x", array=array)).metadata["array"]
    assert found.tolist() == [0, 1, 2]


ITSELF: list[Any] = []
ITSELF.append(ITSELF)
ODD = {
    "lambda": (lambda: 0, "it is a builtins.function"),
    "object": (object(), "it is a builtins.object"),
    "class": (int, "it is a builtins.type"),
    "array of objects": (numpy.array([None]), "it is a NumPy array of object"),
    "array of texts": (numpy.array(["a"]), "it is a NumPy array of <U1"),
    "itself": (ITSELF, "it is nested too deeply, or contains itself"),
    "sparse": (torch.ones(2).to_sparse(), "its layout is torch.sparse_coo"),
    "meta": (torch.ones(2, device="meta"), "it is on the meta device and has no data"),
    "loader": (torch.utils.data.DataLoader([1]), "a DataLoader does not know how far it has come"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", ODD)
def test_what_would_need_pickle_is_refused_by_its_key(tmp_path: Path, name: str) -> None:
    value, reason = ODD[name]
    with pytest.raises(CheckpointUnstorable) as caught:
        checkpoint.save(tmp_path / "x", config={"parts": [1, value]})
    assert reason in str(caught.value)
    if "loader" not in name:
        assert "metadata['config']['parts']['1']" in str(caught.value)
    assert caught.value.hint
    assert not (tmp_path / "x").exists()


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_quantized_tensors_are_refused(tmp_path: Path) -> None:
    tensor = torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8)
    with pytest.raises(CheckpointUnstorable, match=r"metadata\['q'\]: its dtype is torch.qint8"):
        checkpoint.save(tmp_path / "x", q=tensor)


@pytest.mark.parametrize("options", [{"step": 1.5}, {"step": True}, {"shard_size": 0}])
def test_options_are_checked(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError, match=f"{next(iter(options))} is "):
        checkpoint.save(tmp_path / "x", **options)


def test_names_with_odd_characters(tmp_path: Path) -> None:
    names = ["a/b", "a~1b", "~0", "", "__metadata__", "ü\n", "\udcff", "a.b", "x" * 5000, "~tensor-3", "\x00"]
    state = {name: torch.randn(2) for name in names}
    found = checkpoint.load(checkpoint.save(tmp_path / "x", model=state))["model"]
    assert same(found, state)


def test_tied_weights_are_stored_once_and_tied_again(tmp_path: Path) -> None:
    model = torch.nn.ModuleDict({"in": torch.nn.Linear(300, 300), "out": torch.nn.Linear(300, 300)})
    model["out"].weight = model["in"].weight
    path = checkpoint.save(tmp_path / "x", model=model)
    size = sum(file.stat().st_size for file in path.rglob("model-*"))
    assert size < 2 * 300 * 300 * 4
    for mmap in (False, True):
        found = checkpoint.load(path, mmap=mmap)["model"]
        assert found["in.weight"] is found["out.weight"]


def test_large_states_are_sharded(tmp_path: Path) -> None:
    state = {f"w{i}": torch.randn(100) for i in range(10)} | {"large": torch.randn(1000)}
    path = checkpoint.save(tmp_path / "x", model=state, shard_size=1000)
    files = sorted(path.rglob("model-*.safetensors"))
    assert [file.name for file in files] == [f"model-{i:05}-of-00006.safetensors" for i in range(1, 7)]
    assert sum(file.stat().st_size > 2000 for file in files) == 1
    assert same(checkpoint.load(path)["model"], state)


OPTIMIZERS: dict[str, Any] = {
    "ASGD": {}, "Adadelta": {}, "Adafactor": {}, "Adagrad": {}, "Adam": {"amsgrad": True}, "AdamW": {},
    "Adamax": {}, "LBFGS": {"max_iter": 3}, "Muon": {}, "NAdam": {}, "RAdam": {},
    "RMSprop": {"momentum": 0.1}, "Rprop": {}, "SGD": {"momentum": 0.9, "nesterov": True}, "SparseAdam": {},
}  # fmt: skip


def test_every_optimizer_is_tried() -> None:
    assert set(OPTIMIZERS) == {
        name
        for name, one in vars(torch.optim).items()
        if isinstance(one, type)
        and issubclass(one, torch.optim.Optimizer)
        and one is not torch.optim.Optimizer
    }


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(tmp_path: Path, name: str) -> None:
    """The state is restored, and the next steps equal those of the run that was not interrupted."""

    def make() -> tuple[torch.nn.Parameter, torch.optim.Optimizer]:
        weight = torch.nn.Parameter(torch.arange(6.0).reshape(2, 3) / 7)
        return weight, getattr(torch.optim, name)([weight], lr=0.01, **OPTIMIZERS[name])

    def train(weight: torch.nn.Parameter, optimizer: torch.optim.Optimizer) -> None:
        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = (weight.sin() ** 2).sum()
            loss.backward()
            if name == "SparseAdam":
                weight.grad = weight.grad.to_sparse()  # type: ignore[union-attr]
            return loss

        for _ in range(4):
            optimizer.step(closure)  # type: ignore[arg-type]

    weight, optimizer = make()
    train(weight, optimizer)
    path = checkpoint.save(tmp_path / "x", model={"weight": weight}, optimizer=optimizer)
    assert same(checkpoint.load(path)["optimizer"], optimizer.state_dict())
    again, other = make()
    loaded = checkpoint.load(path, optimizer=other)
    with torch.no_grad():
        again.copy_(loaded["model"]["weight"])
    assert same(other.state_dict(), optimizer.state_dict())
    train(weight, optimizer)
    train(again, other)
    assert same(again.data, weight.data)


SCHEDULERS: dict[str, Any] = {
    "LambdaLR": {"lr_lambda": lambda epoch: 0.9**epoch},
    "MultiplicativeLR": {"lr_lambda": lambda epoch: 0.9},
    "StepLR": {"step_size": 2},
    "MultiStepLR": {"milestones": [2, 4, 4]},
    "ConstantLR": {},
    "LinearLR": {},
    "ExponentialLR": {"gamma": 0.9},
    "PolynomialLR": {},
    "CosineAnnealingLR": {"T_max": 7},
    "CosineAnnealingWarmRestarts": {"T_0": 3},
    "CyclicLR": {"base_lr": 0.01, "max_lr": 0.1, "cycle_momentum": False},
    "OneCycleLR": {"max_lr": 0.1, "total_steps": 30},
    "ReduceLROnPlateau": {"patience": 1},
    "ChainedScheduler": {},
    "SequentialLR": {},
}


@pytest.mark.parametrize("name", SCHEDULERS)
@pytest.mark.filterwarnings("ignore:.*scheduler:UserWarning")
def test_schedulers(tmp_path: Path, name: str) -> None:
    schedulers: Any = torch.optim.lr_scheduler

    def make() -> tuple[torch.optim.Optimizer, Any]:
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=0.5)
        if name in ("ChainedScheduler", "SequentialLR"):
            parts = [schedulers.ConstantLR(optimizer), schedulers.ExponentialLR(optimizer, 0.9)]
            return optimizer, (
                schedulers.ChainedScheduler(parts)
                if name == "ChainedScheduler"
                else schedulers.SequentialLR(optimizer, parts, milestones=[3])
            )
        return optimizer, getattr(schedulers, name)(optimizer, **SCHEDULERS[name])

    def rates(optimizer: torch.optim.Optimizer, scheduler: Any) -> list[float]:
        found = []
        for _ in range(5):
            optimizer.step()
            scheduler.step(*([1.0] if name == "ReduceLROnPlateau" else []))
            found.append(optimizer.param_groups[0]["lr"])
        return found

    optimizer, scheduler = make()
    rates(optimizer, scheduler)
    path = checkpoint.save(tmp_path / "x", optimizer=optimizer, scheduler=scheduler)
    again = make()
    checkpoint.load(path, optimizer=again[0], scheduler=again[1])
    assert rates(*again) == rates(optimizer, scheduler)


def test_a_scaler(tmp_path: Path) -> None:
    scaler, again = torch.amp.GradScaler("cpu", init_scale=8.0), torch.amp.GradScaler("cpu")
    path = checkpoint.save(tmp_path / "x", scaler=scaler)
    checkpoint.load(path, scaler=again)
    assert again.state_dict() == scaler.state_dict()


def test_several_objects_of_one_kind(tmp_path: Path) -> None:
    def make() -> dict[str, Any]:
        first, second = torch.nn.Linear(2, 2), torch.nn.Linear(2, 3)
        return {
            "model": {"g": first, "d": second},
            "optimizer": [torch.optim.SGD(one.parameters(), 0.1, momentum=0.9) for one in (first, second)],
        }

    state, again = make(), make()
    checkpoint.load(checkpoint.save(tmp_path / "x", **state), **again)
    for name in "gd":
        assert same(again["model"][name].state_dict(), state["model"][name].state_dict())


def test_random_generators(tmp_path: Path) -> None:
    own = [torch.Generator().manual_seed(1), numpy.random.default_rng(2), random.Random(3)]
    torch.rand(1), numpy.random.rand(), random.random()
    path = checkpoint.save(tmp_path / "x", loader=own)

    def draw() -> list[float]:
        return [
            torch.rand(()).item(),
            numpy.random.rand(),
            numpy.random.standard_normal(),
            random.random(),
            torch.rand((), generator=own[0]).item(),  # type: ignore[call-overload]
            own[1].random(),  # type: ignore[union-attr]
            own[2].random(),  # type: ignore[union-attr]
        ]

    expected = draw()
    draw()
    checkpoint.load(path, loader=own, rng=True)
    assert draw() == expected
    checkpoint.load(path, loader=own)
    assert draw()[0] != expected[0]  # without an optimizer, the global generators are left alone
    quiet = checkpoint.save(tmp_path / "y", rng=False)
    assert "rng" not in checkpoint.load(quiet)


def test_a_compiled_module_is_the_module(tmp_path: Path) -> None:
    model, again = torch.nn.Linear(2, 3), torch.nn.Linear(2, 3)
    path = checkpoint.save(tmp_path / "x", model=torch.compile(model, backend="eager"))
    assert list(checkpoint.load(path)["model"]) == ["weight", "bias"]
    checkpoint.load(path, model=torch.compile(again, backend="eager"))
    assert same(again.state_dict(), model.state_dict())


def test_versions_of_modules_are_kept(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(2))
    found = checkpoint.load(checkpoint.save(tmp_path / "x", model=model))["model"]
    assert found._metadata == model.state_dict()._metadata  # type: ignore[attr-defined]


@pytest.mark.parametrize("change", ["in place", "freed"])
def test_a_save_in_the_background_has_the_state_of_its_call(tmp_path: Path, change: str) -> None:
    model = torch.nn.Linear(500, 500)
    before = {name: one.clone() for name, one in model.state_dict().items()}
    note = {"list": [1]}
    saved = checkpoint.save_async(tmp_path / "x", model=model, note=note)
    with torch.no_grad():
        for parameter in model.parameters():
            if change == "in place":
                parameter.fill_(7)
            else:  # an engine does this to a buffer that is donated to it
                parameter.untyped_storage().resize_(0)
    note["list"].append(2)
    found = checkpoint.load(saved.result())
    assert same(dict(found["model"]), before)
    assert found.metadata == {"note": {"list": [1]}}


def test_an_error_in_the_background_is_the_futures(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    future = checkpoint.save_async(tmp_path / "file", step=1)
    with pytest.raises(CheckpointError, match="something else is there"):
        future.result()
    assert checkpoint.load(checkpoint.save(tmp_path / "x", step=2)).step == 2


LEAVES = """
import sys, torch
from torchstone import checkpoint
checkpoint.save_async(sys.argv[1], step=4, w=torch.ones(10**6))
"""


def test_a_process_ends_after_its_save_in_the_background(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", LEAVES, tmp_path / "x"], check=True, timeout=120)
    assert checkpoint.load(tmp_path / "x").metadata["w"].sum() == 10**6
