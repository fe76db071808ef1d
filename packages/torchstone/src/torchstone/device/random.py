"""Random numbers of the device: a seed, and a counter that gives each random operator a seed of its own.

The same seed gives the same numbers on every engine, but not those of PyTorch's CPU. A call that gets a
generator takes its seed from the generator. PyTorch does not let a device written in Python make generators,
so those of the device are CPU generators that report another device. A plain CPU generator works as well.
"""

from __future__ import annotations

import struct
import threading
from typing import Any

import numpy
import torch

from . import storage
from .calls import check_device
from .storage import DEVICE_TYPE

DEFAULT_SEED = 67280421310721
"""PyTorch's default seed (c10/core/GeneratorImpl.h)."""
_WORD = (1 << 64) - 1
_lock = threading.Lock()


class Generator(torch.Generator):
    """A source of seeds for the operators that it is passed to: ``torch.Generator("pjrt")``."""

    def __new__(cls, device: Any = DEVICE_TYPE) -> Generator:
        check_device(torch.device(device))
        return super().__new__(cls)

    def __init__(self, device: Any = DEVICE_TYPE) -> None:
        """Start with PyTorch's default seed."""

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """The one device."""
        return storage.device()

    def clone_state(self) -> Generator:
        """Return a new generator that continues from this one's state."""
        return _generator(self.get_state())

    def __reduce__(self) -> tuple[Any, ...]:
        return _generator, (self.get_state(),)

    def __repr__(self) -> str:
        return f"torch.Generator(device='{self.device}')"


def _generator(state: torch.Tensor) -> Generator:
    found = Generator()
    found.set_state(state)
    return found


class _State:
    seed = DEFAULT_SEED
    draws = 0


def draw(generator: torch.Generator | None) -> numpy.ndarray[tuple[int], numpy.dtype[numpy.uint64]]:
    """Return the seed of one random operator as uint64 ``[2]``; each call returns a new one."""
    if generator is not None:
        bits = torch.randint(-(1 << 63), (1 << 63) - 1, (2,), generator=generator, device="cpu")
        return bits.numpy().view(numpy.uint64)
    with _lock:
        _State.draws += 1
        return numpy.array([_State.seed, _State.draws], numpy.uint64)


def manual_seed(seed: int) -> None:
    """Start the random sequence of ``seed``."""
    with _lock:
        _State.seed, _State.draws = int(seed) & _WORD, 0


def initial_seed() -> int:
    """Return the seed of the random sequence."""
    return _State.seed


def get_state() -> torch.Tensor:
    """Return the seed and the counter as uint8 ``[16]``."""
    with _lock:
        return torch.frombuffer(bytearray(struct.pack("<QQ", _State.seed, _State.draws)), dtype=torch.uint8)


def set_state(state: torch.Tensor) -> None:
    """Continue the sequence from a state that :func:`get_state` returned."""
    if state.dtype != torch.uint8 or state.numel() != 16:
        raise TypeError(
            "RNG state must be a torch.ByteTensor of 16 bytes,"
            f" found {state.numel()} elements of {state.dtype}"
        )
    with _lock:
        _State.seed, _State.draws = struct.unpack("<QQ", bytes(state.cpu().reshape(-1).tolist()))
