"""Every overload in the registry with symbolic sizes: one program, against eager at several sizes.

``make test`` takes a stratified sample with a symbolic first axis, ``make conformance`` all overloads, also
with every axis symbolic.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence

import pytest
import torch
from torch.export import Dim

import torchstone
from operator_samples import Sample, load_samples
from torchstone import lowering
from torchstone.compiler.graphs import to_numpy
from torchstone.dtypes import BOOL, FLOAT32, FLOAT64, INT64
from torchstone.errors import CaptureError, InputMismatch, UnsupportedShape
from torchstone.lowering import Lowering
from torchstone.parity.operators import compare_outputs, eager_results
from torchstone.program import Program
from torchstone.shapes import evaluate

REGISTRY = [entry for entry in lowering.load() if entry.overload.namespace == "aten"]
SAMPLES = load_samples()
_REFUSALS = (RuntimeError, NotImplementedError, TypeError, ValueError, IndexError)

NOT_TRACED = {
    "_new_zeros_with_same_feature_meta.default": "PyTorch's metadata function asks for the storage's offset",
    "resize.default": "PyTorch's metadata function changes sizes in place",
}
"""Overloads that ``torch.export`` cannot trace with symbolic sizes, and why."""
NEED_NUMBERS = {
    "_convert_weight_to_int4pack_for_cpu.default": "weights are packed in blocks of rows",
    "slice_scatter.default": "the sample's slice says how many rows it takes",
}
"""Lowerings that need the first axis as a number, and why."""
OWN_VALUES = {
    **dict.fromkeys(
        (
            "_embedding_bag.default",
            "_embedding_bag_forward_only.default",
            "_embedding_bag_backward.default",
            "_embedding_bag_dense_backward.default",
            "_embedding_bag_per_sample_weights_backward.default",
            "embedding_bag.default",
            "embedding_bag.padding_idx",
        ),
        "offsets ascend, and bags follow from them",
    ),
    "_ctc_loss.Tensor": "eager PyTorch's second result is as wide as the largest length says",
    "_grouped_mm.default": "eager PyTorch leaves rows of no group uninitialized",
    "_weight_int8pack_mm.default": "eager PyTorch sums in another order, which whole numbers only hide",
    "linalg_cholesky_ex.default": "repeated rows are not positive definite",
    "linalg_ldl_solve.default": "pivots belong to their factors",
}
"""Overloads whose arguments cannot grow by repeated rows, and why."""
ONE_SIZE = {
    "first axis": {
        "_pdist_backward.default": "n rows have n (n - 1) / 2 distances, and sizes change by the same number",
        "masked_scatter_backward.default": "eager PyTorch takes fewer rows only, and one row is out of range",
    },
    "every axis": {
        "_reshape_alias.default": "the call's numbers say how many elements there are",
        "_reshape_alias_copy.default": "the call's numbers say how many elements there are",
    },
}
"""Overloads whose programs refuse all other sizes that the test tries and eager PyTorch accepts, and why."""


class Call(torch.nn.Module):
    """A module that calls an overload with the sample's tensors as inputs."""

    def __init__(self, entry: Lowering, sample: Sample) -> None:
        super().__init__()
        self.overload, self.sample = entry.overload, sample

    def with_tensors(self, tensors: Sequence[torch.Tensor]) -> Sample:
        feed = iter(tensors)
        found = self.sample.map(lambda _: next(feed))
        found.canonical = self.sample.canonical
        return found

    def forward(self, *tensors: torch.Tensor) -> list[torch.Tensor]:
        return eager_results(self.overload, self.with_tensors(tensors))


def first_sample(entry: Lowering) -> Sample | None:
    """Return the first sample that eager PyTorch accepts and that has a tensor with several rows."""
    plain = [dtype for dtype in (FLOAT32, FLOAT64, INT64, BOOL) if dtype in entry.dtypes]
    dtype = (plain or sorted(entry.dtypes, key=str))[0]
    for sample in SAMPLES[entry.overload].make(dtype.torch):
        if not any(tensor.dim() and tensor.numel() and max(tensor.shape) > 1 for tensor in sample.tensors()):
            continue
        try:
            eager_results(entry.overload, sample.map(torch.clone))
        except _REFUSALS:
            continue
        return sample
    return None


def exported(call: Call, *, every_axis: bool) -> Program:
    tensors = call.sample.tensors()
    sizes = tuple(
        {axis: Dim.AUTO for axis, n in enumerate(one.shape) if n > 1 and (every_axis or not axis)}
        for one in tensors
    )
    if not any(sizes):
        pytest.skip("no tensor has several rows")
    return torchstone.export(call, tuple(map(torch.clone, tensors)), dynamic_shapes=(sizes,))


def grown(tensor: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """``tensor`` repeated or cut to ``shape``; new floating-point elements are a little smaller."""
    for axis, size in enumerate(shape):
        old = tensor.shape[axis]
        if old == size:
            continue
        tensor = tensor.index_select(axis, torch.arange(size) % old)
        if size > old and tensor.dtype in (torch.float32, torch.float64):
            generator = torch.Generator().manual_seed(size + axis)
            new = tensor.narrow(axis, old, size - old)
            factors = 0.7 + 0.3 * torch.rand(new.shape, generator=generator, dtype=tensor.dtype)
            new.mul_(factors.where(new.abs() > 1e-30, 1))  # no subnormal numbers
    return tensor


def other_sizes(
    program: Program, tensors: Sequence[torch.Tensor], difference: int
) -> Iterator[list[torch.Tensor]]:
    """Yield the tensors with all symbols changed by ``difference``, then with one changed at a time."""
    inputs = [spec for spec in program.signature.inputs if spec.kind == "input"]
    example = {
        dim: size
        for spec, tensor in zip(inputs, tensors, strict=True)
        for dim, size in zip(spec.shape, tensor.shape, strict=True)
        if dim in program.signature.symbols
    }
    for changed in {tuple(example), *((name,) for name in example)}:
        sizes = {name: size + difference * (name in changed) for name, size in example.items()}
        yield [
            grown(tensor, [evaluate(dim, sizes) for dim in spec.shape])
            for spec, tensor in zip(inputs, tensors, strict=True)
        ]


def check(call: Call, program: Program, tensors: Sequence[torch.Tensor], *, example: bool) -> str:
    """Check that the program gives eager's results. At other sizes than the example's, either may refuse.

    Return which it was: ``"taken"``, ``"program refuses"``, or ``"eager refuses"``.
    """
    sample = call.with_tensors([tensor.clone() for tensor in tensors])
    try:
        expected = eager_results(call.overload, call.with_tensors([one.clone() for one in tensors]))
    except _REFUSALS:
        assert not example
        return "eager refuses"
    try:
        found = program(*(tensor.clone() for tensor in tensors))
    except InputMismatch:
        assert not example
        return "program refuses"
    if call_name(call) in OWN_VALUES and not example:
        return "taken"
    assert [tuple(one.shape) for one in found] == [tuple(one.shape) for one in expected]
    if SAMPLES[call.overload].random:
        return "taken"
    expected = [want.to(one.dtype) for one, want in zip(found, expected, strict=True)]
    compared = compare_outputs(call.overload, sample, map(to_numpy, found), expected)
    wrong = [one.describe() for one in compared if not one.passed]
    assert not wrong, "\n".join(map(str, (sample, *wrong)))
    return "taken"


def call_name(call: Call) -> str:
    return str(call.overload).removeprefix("aten.")


def run(entry: Lowering, *, every_axis: bool) -> None:
    sample, name = first_sample(entry), entry.name.removeprefix("aten.")
    if sample is None:
        pytest.skip("no sample has several rows")
    call = Call(entry, sample)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # deprecated operators warn
        try:
            program = exported(call, every_axis=every_axis)
        except CaptureError:
            if name not in NOT_TRACED:
                raise
            pytest.skip(NOT_TRACED[name])
        except UnsupportedShape as error:
            # If another argument gives the size as a number, the call may need exactly that size.
            if not (every_axis or name in NEED_NUMBERS or "this call needs" in str(error)):
                raise
            pytest.skip(str(error))
        assert name not in NOT_TRACED
        assert every_axis or name not in NEED_NUMBERS
        tensors = sample.tensors()
        check(call, program, tensors, example=True)
        found: set[str] = set()
        for difference in (3, 1, -1):
            for others in other_sizes(program, tensors, difference):
                found.add(check(call, program, others, example=False))
            if "taken" in found:
                break
        if found == {"eager refuses"} or not program.signature.symbols:
            return
        one_size = ONE_SIZE["every axis" if every_axis else "first axis"]
        assert ("taken" in found) is (name not in one_size), found


@pytest.mark.sampled(36)
@pytest.mark.parametrize("entry", REGISTRY, ids=lambda entry: entry.name.removeprefix("aten."))
def test_a_symbolic_first_axis(entry: Lowering) -> None:
    run(entry, every_axis=False)


@pytest.mark.conformance
@pytest.mark.parametrize("entry", REGISTRY, ids=lambda entry: entry.name.removeprefix("aten."))
def test_every_axis_symbolic(entry: Lowering) -> None:
    run(entry, every_axis=True)
