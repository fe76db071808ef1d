"""Arrays and tensors: values, dtypes and strides."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from optest.torch.tensors import to_array, to_tensor  # noqa: E402

NAMES = [
    *("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
    *("float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu"),
]


def array(name: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    size = int(np.prod(shape)) * dtype.itemsize
    if name == "bool":
        return (np.arange(size) % 3 == 0).reshape(shape)
    return np.random.default_rng(0).integers(0, 256, size, np.uint8).view(dtype).reshape(shape)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [(), (0, 3), (4, 5)], ids=str)
def test_every_bit_comes_back(name: str, shape: tuple[int, ...]) -> None:
    given = array(name, shape)
    tensor = to_tensor(given)
    assert (str(tensor.dtype), tuple(tensor.shape)) == (f"torch.{name}", shape)
    found = to_array(tensor)
    assert (found.dtype, found.shape, found.tobytes()) == (given.dtype, shape, given.tobytes())


@pytest.mark.parametrize("name", NAMES)
def test_strides_reach_the_operator(name: str) -> None:
    given = array(name, (4, 5)).T
    tensor = to_tensor(given)
    assert tensor.stride() == (1, 5)
    assert to_array(tensor).tobytes() == given.tobytes()


def test_strides_that_tensors_do_not_have() -> None:
    reverse = np.arange(6.0)[::-1]
    assert to_array(to_tensor(reverse)).tolist() == reverse.tolist()
    spread = np.broadcast_to(np.float32(3), (2, 2))
    assert to_array(to_tensor(spread)).tolist() == [[3, 3], [3, 3]]


def test_the_memory_is_its_own() -> None:
    given = np.zeros(3, np.float32)
    tensor = to_tensor(given)
    tensor += 1
    to_array(tensor)[:] = 7
    assert (given.tolist(), tensor.tolist()) == ([0, 0, 0], [1, 1, 1])


def test_a_dtype_that_pytorch_lacks() -> None:
    with pytest.raises(NotImplementedError, match="PyTorch has no dtype float8_e3m4"):
        to_tensor(np.zeros(2, ml_dtypes.float8_e3m4))
