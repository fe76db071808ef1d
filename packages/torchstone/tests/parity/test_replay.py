"""Artifacts called with arrays from files, at random and in a fresh process."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy
import pytest
import torch

import torchstone
from torchstone.errors import EngineError, InputMismatch
from torchstone.parity.replay import call, output_specs, random_inputs, read_inputs, run_fresh
from torchstone.program import Program


class Lookup(torch.nn.Module):
    """A model that takes integers and returns a dict of two dtypes."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Parameter(torch.randn(2, 3))

    def forward(self, index: torch.Tensor, *, scale: torch.Tensor) -> dict[str, torch.Tensor]:
        rows = self.table[index] * scale
        return {"rows": rows, "half": rows.to(torch.bfloat16)}


@pytest.fixture(scope="module")
def lookup() -> tuple[Lookup, Program]:
    torch.manual_seed(0)
    model = Lookup()
    return model, torchstone.export(model, (torch.tensor([0, 1, 1]),), {"scale": torch.ones(3)})


@pytest.fixture(scope="module")
def dynamic() -> Program:
    size = torch.export.Dim("size", min=3, max=7)
    return torchstone.export(lambda x: x + 1, (torch.ones(4, 2),), dynamic_shapes=({0: size},))


def test_random_inputs_fit_and_repeat(lookup: tuple[Lookup, Program]) -> None:
    _, program = lookup
    index, scale = random_inputs(program.signature, seed=5)
    assert (index.dtype, index.shape, scale.dtype, scale.shape) == ("int64", (3,), "float32", (3,))
    assert set(index) <= {0, 1}
    again = random_inputs(program.signature, seed=5)
    assert all((one == other).all() for one, other in zip((index, scale), again, strict=True))
    assert (random_inputs(program.signature, seed=6)[1] != scale).all()


def test_symbolic_sizes(dynamic: Program) -> None:
    (symbol,) = dynamic.signature.symbols
    assert random_inputs(dynamic.signature)[0].shape == (3, 2)
    assert random_inputs(dynamic.signature, sizes={symbol: 6})[0].shape == (6, 2)
    with pytest.raises(InputMismatch, match=rf"(?s)no dimension rows\n  next: symbolic dimensions: {symbol}"):
        random_inputs(dynamic.signature, sizes={"rows": 6})
    assert call(dynamic, [numpy.zeros((5, 2), numpy.float32)])["output"].shape == (5, 2)


def test_call_names_outputs_by_path(lookup: tuple[Lookup, Program]) -> None:
    model, program = lookup
    index, scale = numpy.array([1, 0, 1]), numpy.array([1.0, 2.0, 3.0], numpy.float32)
    found = call(program, [index, scale])
    assert list(found) == list(output_specs(program.signature)) == ["output['rows']", "output['half']"]
    expected = model(torch.from_numpy(index), scale=torch.from_numpy(scale))
    numpy.testing.assert_array_equal(found["output['rows']"], expected["rows"].detach().numpy())
    assert found["output['half']"].dtype == ml_dtypes.bfloat16


def test_call_counts_its_inputs(lookup: tuple[Lookup, Program]) -> None:
    with pytest.raises(InputMismatch, match=r"1 input arrays were given; the program takes 2: index: int64"):
        call(lookup[1], [numpy.zeros(3, numpy.int64)])


def test_a_fresh_process_gives_the_same(lookup: tuple[Lookup, Program], tmp_path: Path) -> None:
    _, program = lookup
    inputs = random_inputs(program.signature)
    here = call(program, inputs)
    there = run_fresh(program.save(tmp_path / "lookup.stone"), inputs)
    assert [array.dtype for array in there] == [array.dtype for array in here.values()]
    for one, other in zip(there, here.values(), strict=True):
        numpy.testing.assert_array_equal(one, other)


def test_bfloat16_survives_files(tmp_path: Path) -> None:
    program = torchstone.export(lambda x: x * 2, (torch.ones(3, dtype=torch.bfloat16),))
    array = numpy.array([1, 2.5, -3], ml_dtypes.bfloat16)
    numpy.save(tmp_path / "x.npy", array)  # NumPy itself does not know this dtype
    (found,) = run_fresh(program.save(tmp_path / "twice.stone"), read_inputs([tmp_path / "x.npy"]))
    assert found.dtype == ml_dtypes.bfloat16
    numpy.testing.assert_array_equal(found, array * 2)


def test_a_fresh_process_that_fails_says_why(lookup: tuple[Lookup, Program], tmp_path: Path) -> None:
    path = lookup[1].save(tmp_path / "lookup.stone")
    with pytest.raises(EngineError, match=r"(?s)in a fresh process failed:\n1 input arrays were given"):
        run_fresh(path, [numpy.zeros(3, numpy.int64)])


def test_reading_files(tmp_path: Path) -> None:
    numpy.save(tmp_path / "a.npy", numpy.arange(2))
    numpy.savez(tmp_path / "b.npz", numpy.arange(3), numpy.arange(4))
    found = read_inputs([tmp_path / "b.npz", tmp_path / "a.npy"])
    assert [array.size for array in found] == [3, 4, 2]
    with pytest.raises(InputMismatch, match=r"cannot read the input file .*none.npy: No such file"):
        read_inputs([tmp_path / "none.npy"])
    numpy.save(tmp_path / "objects.npy", numpy.array([{}]), allow_pickle=True)
    with pytest.raises(InputMismatch, match=r"objects.npy is no .npy or .npz file of numbers"):
        read_inputs([tmp_path / "objects.npy"])
