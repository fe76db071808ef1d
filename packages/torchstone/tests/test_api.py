"""``torchstone.export`` and ``load``: trees, mutation, random numbers, dynamic shapes, errors."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from torch import nn
from torch.export import Dim

import torchstone
from torchstone.artifact import load_artifact, save_artifact
from torchstone.dtypes import FLOAT64
from torchstone.errors import ArtifactError, ConfigError, InputMismatch


class Stateful(nn.Module):
    """Updates a buffer and an input, takes and returns nested values."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor([1.0, 2.0, 3.0]))
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor, factor: int = 3, *, extra: dict[str, torch.Tensor]) -> dict[str, Any]:
        self.calls.add_(1)
        x.mul_(2)
        return {"y": x * self.scale + extra["bias"], "rest": (self.calls * factor, factor, None)}


@pytest.fixture
def stateful(tmp_path: Path) -> Any:
    program = torchstone.export(Stateful(), (torch.ones(2, 3),), {"extra": {"bias": torch.zeros(3)}})
    program.save(tmp_path / "model.stone")
    return torchstone.load(tmp_path / "model.stone")


def test_nested_values_mutation_and_constants(stateful: Any) -> None:
    for call in (1, 2):
        x = torch.ones(2, 3)
        result = stateful(x, extra={"bias": torch.full((3,), 0.5)})
        assert torch.equal(x, torch.full((2, 3), 2.0))
        assert torch.equal(result["y"], torch.tensor([2.5, 4.5, 6.5]).expand(2, 3))
        calls, factor, nothing = result["rest"]
        assert (calls.item(), factor, nothing) == (3.0 * call, 3, None)
    assert stateful.state()["calls"] == 2


@pytest.mark.parametrize(
    "parts",
    [lambda x: x.unsafe_split(1), lambda x: torch.unsafe_split_with_sizes(x, [1, 2])],
    ids=["size", "sizes"],
)
def test_a_write_into_a_part_is_a_write_into_the_input(parts: Any) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        parts(x)[1].mul_(2)
        return x + 1

    ours, eager = torch.ones(3, 2), torch.ones(3, 2)
    assert torch.equal(torchstone.export(function, (torch.ones(3, 2),))(ours), function(eager))
    assert torch.equal(ours, eager)


def test_saved_state_is_the_present_one(stateful: Any, tmp_path: Path) -> None:
    stateful(torch.ones(2, 3), extra={"bias": torch.zeros(3)})
    again = torchstone.load(stateful.save(tmp_path / "again.stone"))
    assert again.state()["calls"] == 1


def test_numpy_in_numpy_out(stateful: Any) -> None:
    x = numpy.ones((2, 3), numpy.float32)
    result = stateful(x, extra={"bias": numpy.zeros(3, numpy.float32)})
    assert isinstance(result["y"], numpy.ndarray)
    assert x.tolist() == [[2.0] * 3] * 2


def test_the_model_itself_is_left_alone() -> None:
    model = Stateful()
    program = torchstone.export(model, (torch.ones(2, 3),), {"extra": {"bias": torch.zeros(3)}})
    program(torch.ones(2, 3), extra={"bias": torch.zeros(3)})
    assert model.calls.item() == 0
    with torch.no_grad():
        model.scale.zero_()
    assert program(torch.ones(2, 3), extra={"bias": torch.zeros(3)})["y"][0].tolist() == [2.0, 4.0, 6.0]


def test_batch_norm_statistics() -> None:
    model = nn.BatchNorm1d(3)
    program = torchstone.export(model, (torch.randn(8, 3),))
    for _ in range(2):
        x = torch.randn(8, 3)
        torch.testing.assert_close(program(x), model(x))
    for name, buffer in model.named_buffers():
        torch.testing.assert_close(torch.from_numpy(numpy.array(program.state()[name])), buffer)


@pytest.mark.parametrize(
    "source",
    [
        lambda x: x,
        lambda x: x.expand(3, 5, 4).clone(),
        lambda x: x.double(),
        lambda x: x[0] > 0,
        lambda x: x.sum(),
    ],
    ids=["a row", "the whole", "another dtype", "another dtype of a row", "a number"],
)
def test_copies_into_state_broadcast_and_convert(source: Any) -> None:
    """PyTorch's decomposition removes such a copy: readers of the buffer would see the source as it is."""

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("kept", torch.ones(3, 5, 4))
            self.weight = torch.nn.Parameter(torch.ones(3, 5, 4))

        def forward(self, x: torch.Tensor) -> Any:
            self.kept.copy_(source(x))
            with torch.no_grad():
                self.weight.copy_(source(x + 1))
            return -self.kept, self.kept.sum(), self.weight * 2

    model, x = Model(), torch.randn(5, 4)
    program = torchstone.export(model, (x,))
    torch.testing.assert_close(program(x), model(x))
    for name, value in model.state_dict().items():
        torch.testing.assert_close(torch.from_numpy(numpy.array(program.state()[name])), value)


def test_random_numbers_follow_manual_seed() -> None:
    program = torchstone.export(nn.Dropout(0.5), (torch.ones(64),))
    assert [spec.kind for spec in program.signature.inputs] == ["input", "seed"]
    x = torch.ones(64)
    torch.manual_seed(5)
    first, second = program(x), program(x)
    torch.manual_seed(5)
    assert torch.equal(program(x), first)
    assert not torch.equal(first, second)


class TestDynamicShapes:
    @pytest.fixture
    def program(self) -> Any:
        return torchstone.export(
            lambda x, y: (x * 2 + y, x.shape[0]),
            (torch.ones(5, 3), torch.ones(3)),
            dynamic_shapes=({0: Dim("batch", min=2, max=64)}, None),
        )

    def test_one_artifact_many_sizes(self, program: Any, tmp_path: Path) -> None:
        assert "tensor<?x3xf32>" in program.mlir_text()
        loaded = torchstone.load(program.save(tmp_path / "dynamic.stone"))
        for size in (2, 7, 33):
            result, count = loaded(torch.ones(size, 3), torch.ones(3))
            assert torch.equal(result, torch.full((size, 3), 3.0))
            assert count == size

    @pytest.mark.sampled(3)
    @pytest.mark.parametrize(
        "view", [lambda x: x[:, :4], lambda x: x[::2, 1:], lambda x: x.t(), lambda x: x[1]]
    )
    @pytest.mark.parametrize("traced", [False, True])
    def test_an_example_that_is_a_view(self, view: Any, traced: bool) -> None:
        """The tensor behind the view is not an input, and its sizes are not sizes of an input."""
        example = view(torch.randn(4, 6))
        auto = dict.fromkeys(range(example.dim()), Dim.AUTO)
        export = torch.export.export if traced else torchstone.export
        program: Any = export(nn.Sigmoid(), (example,), dynamic_shapes=(auto,))
        if traced:
            program = torchstone.export(program)
        x = torch.randn([size + 3 for size in example.shape])
        torch.testing.assert_close(program(x), x.sigmoid())

    def test_a_named_size_of_a_view(self) -> None:
        """The tensor behind the example has 9 columns, and the program also accepts 9."""
        columns = {1: Dim("columns")}
        program = torchstone.export(torch.sin, (torch.randn(2, 9)[:, 1::2],), dynamic_shapes=(columns,))
        for size in (3, 4, 9):
            x = torch.randn(2, size)
            torch.testing.assert_close(program(x), x.sin())

    def test_out_of_range(self, program: Any) -> None:
        with pytest.raises(InputMismatch, match=r"is 65; the program allows 2 to 64"):
            program(torch.ones(65, 3), torch.ones(3))

    def test_static_dimensions_stay_checked(self, program: Any) -> None:
        with pytest.raises(InputMismatch, match=r"input 0 has shape \(5, 4\); expected \[s\d+, 3\]"):
            program(torch.ones(5, 4), torch.ones(3))


class TestWrongCalls:
    @pytest.fixture
    def program(self) -> Any:
        return torchstone.export(
            lambda x, flag, mask=None: x * 2 if flag else x, (torch.ones(2, 3), True), {"mask": None}
        )

    def test_dtype(self, program: Any) -> None:
        with pytest.raises(InputMismatch, match=r"input 0.*float64.*float32|input 0.*float32.*float64"):
            program(torch.ones(2, 3, dtype=torch.float64), True, mask=None)

    def test_shape(self, program: Any) -> None:
        with pytest.raises(InputMismatch, match=r"input 0 has shape \(3, 2\); expected \[2, 3\]") as caught:
            program(torch.ones(3, 2), True, mask=None)
        assert "dynamic_shapes" in str(caught.value)

    def test_rank(self, program: Any) -> None:
        with pytest.raises(InputMismatch, match="input 0 has 1 dimensions; expected 2"):
            program(torch.ones(6), True, mask=None)

    def test_python_value(self, program: Any) -> None:
        with pytest.raises(InputMismatch, match="is False; the program was exported for True"):
            program(torch.ones(2, 3), False, mask=None)

    def test_missing_argument(self, program: Any) -> None:
        with pytest.raises(InputMismatch, match=r"takes 2 positional argument\(s\), and 1 were given"):
            program(torch.ones(2, 3), mask=None)

    def test_unknown_keyword(self, program: Any) -> None:
        with pytest.raises(InputMismatch, match=r"unknown \['masque'\]"):
            program(torch.ones(2, 3), True, mask=None, masque=1)

    def test_not_a_tensor(self, program: Any) -> None:
        with pytest.raises(InputMismatch, match="input 0 is a list; expected a float32 tensor"):
            program([1.0, 2.0], True, mask=None)


def test_another_version_has_the_weights_of_the_program(tmp_path: Path) -> None:
    """The saved version has the program's weights, not those that the model has by then."""
    model, x = nn.Linear(3, 2), torch.randn(4, 3)
    program = torchstone.export(model, (x,))
    expected = program(x)
    with torch.no_grad():
        model.weight.zero_()
    old = torchstone.load(program.save(tmp_path / "old.stone", stablehlo_version="minimum"))
    assert torch.equal(old(x), expected)


def test_versions_of_a_loaded_program_are_fixed(tmp_path: Path) -> None:
    program = torchstone.export(nn.ReLU(), (torch.ones(2),))
    old = torchstone.load(program.save(tmp_path / "old.stone", stablehlo_version="minimum"))
    assert old.signature.stablehlo_version == "0.9.0"
    assert old(torch.tensor([-1.0, 1.0])).tolist() == [0.0, 1.0]
    with pytest.raises(ConfigError, match=r"was loaded with StableHLO 0\.9\.0"):
        old.save(tmp_path / "new.stone", stablehlo_version="current")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda spec: replace(spec, shape=(4, 3)),
            "the result 'linear' is float32[4, 2] in the module, and float32[4, 3] in its signature",
        ),
        (
            lambda spec: replace(spec, dtype=FLOAT64),
            "the result 'linear' is float32[4, 2] in the module, and float64[4, 2] in its signature",
        ),
        (None, "the module has 1 results, and its signature 2"),
    ],
)
def test_a_module_that_is_not_what_its_signature_says(tmp_path: Path, change: Any, message: str) -> None:
    """A checksum does not catch this: whoever changes a file can change both."""
    file = torchstone.export(torch.nn.Linear(3, 2), (torch.ones(4, 3),)).save(tmp_path / "file")
    artifact = load_artifact(file)
    (output,) = artifact.signature.outputs
    outputs = (change(output),) if change else (output, replace(output, name="more"))
    tree: Any = {"tuple": [{"leaf": 0}, {"leaf": 1}]} if change is None else artifact.signature.output_tree
    signature = replace(artifact.signature, outputs=outputs, output_tree=tree)
    save_artifact(file, replace(artifact, signature=signature))
    program = torchstone.load(file)
    with pytest.raises(ArtifactError, match=re.escape(message)):
        program(numpy.ones((4, 3), numpy.float32))
