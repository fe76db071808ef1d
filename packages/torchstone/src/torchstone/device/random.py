"""Random numbers of the device: a seed, and a counter that gives each random operator a seed of its own.

The sequence is the device's: the same seed gives the same numbers on every engine, and not those of the CPU.
PyTorch lets no device written in Python make a ``torch.Generator``, so a generator of the CPU is taken where
an operator has the argument; it then gives the seed of that call.
"""

from __future__ import annotations

import struct
import threading

import numpy
import torch

DEFAULT_SEED = 67280421310721
"""PyTorch's own (c10/core/GeneratorImpl.h)."""
_WORD = (1 << 64) - 1
_lock = threading.Lock()


class _State:
    seed = DEFAULT_SEED
    draws = 0


def draw(generator: torch.Generator | None) -> numpy.ndarray[tuple[int], numpy.dtype[numpy.uint64]]:
    """The seed of one random operator: uint64 ``[2]``, another one at each call."""
    if generator is not None:
        bits = torch.randint(-(1 << 63), (1 << 63) - 1, (2,), generator=generator, device="cpu")
        return bits.numpy().view(numpy.uint64)
    with _lock:
        _State.draws += 1
        return numpy.array([_State.seed, _State.draws], numpy.uint64)


def manual_seed(seed: int) -> None:
    """Start the sequence of ``seed``."""
    with _lock:
        _State.seed, _State.draws = int(seed) & _WORD, 0


def initial_seed() -> int:
    """The seed of the sequence."""
    return _State.seed


def get_state() -> torch.Tensor:
    """Seed and counter as uint8 ``[16]``."""
    with _lock:
        return torch.frombuffer(bytearray(struct.pack("<QQ", _State.seed, _State.draws)), dtype=torch.uint8)


def set_state(state: torch.Tensor) -> None:
    """Go on from what :func:`get_state` returned."""
    if state.dtype != torch.uint8 or state.numel() != 16:
        raise TypeError(
            "RNG state must be a torch.ByteTensor of 16 bytes,"
            f" found {state.numel()} elements of {state.dtype}"
        )
    with _lock:
        _State.seed, _State.draws = struct.unpack("<QQ", bytes(state.cpu().reshape(-1).tolist()))
