"""Results of operators: PyTorch makes their tensors from records of DLPack, if it handles these well."""

from __future__ import annotations

import functools
import gc
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from torchstone.device.storage import device
from torchstone.torch_internals import device_tensors

from .test_operators import DTYPES

SIZES = [((), ()), ((3,), (1,)), ((2, 3), (3, 1)), ((2, 3), (1, 2)), ((0, 4), (4, 1)), ((2, 1, 5), (5, 7, 1))]


def describe(tensor: torch.Tensor) -> Any:
    storage = tensor.untyped_storage()
    return tensor.dtype, tensor.device, tensor.shape, tensor.stride(), storage.nbytes(), storage.device


def bytes_of(dtype: torch.dtype, size: tuple[int, ...], stride: tuple[int, ...]) -> int:
    return torch.empty_strided(size, stride, dtype=dtype).untyped_storage().nbytes()


class Maker:
    """Makes tensors; ``quick`` says whether PyTorch reads records for them."""

    def __init__(self, dtype: torch.dtype, size: tuple[int, ...], stride: tuple[int, ...]) -> None:
        nbytes = bytes_of(dtype, size, stride)
        self._read, self._source = device_tensors.maker(device(), dtype, size, stride, nbytes)
        self.quick = isinstance(self._source, functools.partial)

    def __call__(self) -> torch.Tensor:
        return self._read(self._source())


@pytest.mark.parametrize("dtype", DTYPES)
def test_tensors_are_made_quickly_in_every_dtype(dtype: torch.dtype) -> None:
    for size, stride in SIZES:
        make = Maker(dtype, size, stride)
        assert make.quick
        one, other = make(), make()
        nbytes = bytes_of(dtype, size, stride)
        assert describe(one) == describe(device_tensors.plain(device(), dtype, size, stride, nbytes))
        assert one.untyped_storage()._cdata != other.untyped_storage()._cdata


@pytest.mark.parametrize(
    "read",
    [
        None,
        lambda capsule: torch.empty(4),
        lambda capsule: torch.empty(3, device="pjrt"),
        lambda capsule: torch.empty(4, device="pjrt", dtype=torch.int32),
        lambda capsule: 1 / 0,
    ],
)
def test_a_pytorch_that_does_not_read_records(read: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_tensors, "_from_capsule", SimpleNamespace(find=lambda: read))
    make = Maker(torch.float32, (4,), (1,))
    assert not make.quick
    assert describe(make())[:3] == (torch.float32, device(), (4,))


def test_a_pytorch_that_does_not_write_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_tensors, "_to_capsule", SimpleNamespace(find=lambda: None))
    make = Maker(torch.float32, (4,), (1,))
    assert not make.quick
    assert describe(make())[:3] == (torch.float32, device(), (4,))


def test_a_result_outlives_what_made_it() -> None:
    make = Maker(torch.float32, (5,), (1,))
    tensors = [make() for _ in range(100)]
    del make
    gc.collect()
    views = [one[1:] for one in tensors]
    del tensors
    gc.collect()
    assert {view.untyped_storage().nbytes() for view in views} == {20}
    assert all(view.cpu().tolist() == [0.0] * 4 for view in views)
