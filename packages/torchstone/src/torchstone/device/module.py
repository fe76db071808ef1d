"""``torch.pjrt``: the device's own functions, under the names that ``torch.cuda`` uses for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from .. import dtypes
from ..config import config
from ..runtime import forks
from . import engine, random, storage
from .calls import check_device
from .events import Event as Event
from .events import Stream
from .fallback import counts
from .lazy import lazy as lazy
from .lazy import run_all
from .random import Generator as Generator
from .storage import DEVICE_TYPE, memory

# Devices ------------------------------------------------------------------------------------


def is_available() -> bool:
    """Return True: the engine's CPU device always exists."""
    return True


def is_initialized() -> bool:
    """Whether the engine has been started."""
    return engine.is_started()


def init() -> None:
    """Start the engine."""
    engine.engine()


def device_count() -> int:
    """Return 1: PyTorch gives a device written in Python only one index."""
    return 1


def current_device() -> int:
    """Return 0, the index of the only device."""
    return 0


def set_device(device: Any) -> None:
    """Do nothing if ``device`` is the one device; raise ``RuntimeError`` for another index."""
    check_device(_as_device(device))


class device:
    """``with torch.pjrt.device(0)``: does nothing, since there is one device; another index is refused."""

    def __init__(self, device: Any) -> None:
        self.idx = 0
        if device is not None and device != -1:
            check_device(_as_device(device))

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, *_: Any) -> None:
        """Do nothing."""


def get_device_name(device: Any = None) -> str:
    """Return the name of the PJRT device behind the device, such as ``cpu:0``."""
    _one(device)
    return engine.place().name


def supported_dtypes() -> set[torch.dtype]:
    """Return the dtypes that tensors of the device may have."""
    return {one.torch for one in dtypes.COPYABLE}


def get_device_capability(device: Any = None) -> dict[str, Any]:
    """Return ``supported_dtypes`` of tensors, for ``torch.accelerator.get_device_capability``."""
    _one(device)
    return {"supported_dtypes": supported_dtypes()}


def is_bf16_supported() -> bool:
    """Return True: the device has bfloat16."""
    return True


def _one(device: Any) -> torch.device:
    """Return the one device if ``device`` is None or names it; raise for another index."""
    found = storage.device() if device is None else _as_device(device)
    check_device(found)
    return found


def _as_device(device: Any) -> torch.device:
    return torch.device(DEVICE_TYPE, device) if isinstance(device, int) else torch.device(device)


def _is_in_bad_fork() -> bool:
    return forks.threads_lost


_initialized = True
"""Read by ``torch.utils.checkpoint``, which saves a device's random state only if this is true."""


# Work ---------------------------------------------------------------------------------------


def synchronize(device: Any = None) -> None:
    """Run pending calls, and wait for all work of the device."""
    _one(device)
    if engine.is_started():
        run_all()
        engine.synchronize()


def current_stream(device: Any = None) -> Stream:
    """Return the one stream."""
    return Stream(_one(device))


default_stream = current_stream


def set_stream(stream: torch.Stream) -> None:
    """Do nothing: there is only one stream."""


@contextmanager
def stream(stream: torch.Stream | None) -> Iterator[None]:
    """``with torch.pjrt.stream(s)``: does nothing, since there is only one stream."""
    yield


# Random numbers --------------------------------------------------------------------------------


def manual_seed(seed: int) -> None:
    """Start the random sequence of ``seed``; ``torch.manual_seed`` calls this."""
    random.manual_seed(seed)


def manual_seed_all(seed: int) -> None:
    """Start the random sequence of ``seed``, like :func:`manual_seed`."""
    random.manual_seed(seed)


def seed() -> None:
    """Start a random sequence from a nondeterministic seed."""
    random.manual_seed(torch.Generator().seed())


seed_all = seed


def initial_seed() -> int:
    """Return the seed of the random sequence."""
    return random.initial_seed()


def get_rng_state(device: Any = DEVICE_TYPE) -> torch.Tensor:
    """Return the state of the random sequence: its seed and position, as uint8 ``[16]``."""
    _one(device)
    return random.get_state()


def set_rng_state(new_state: torch.Tensor, device: Any = DEVICE_TYPE) -> None:
    """Continue the random sequence from a state that :func:`get_rng_state` returned."""
    _one(device)
    random.set_state(new_state)


def get_rng_state_all() -> list[torch.Tensor]:
    """Return a list with the :func:`get_rng_state` of each device."""
    return [get_rng_state()]


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    """Continue the random sequences from states that :func:`get_rng_state_all` returned."""
    for state in new_states:
        set_rng_state(state)


# Memory ------------------------------------------------------------------------------------------


def memory_allocated(device: Any = None) -> int:
    """Return the number of bytes that the device's storages hold.

    A storage that a pending call makes (see :class:`lazy`) counts once the call has run, or at once if
    ``config.device_memory_limit`` is set.
    """
    _one(device)
    return memory.allocated


def max_memory_allocated(device: Any = None) -> int:
    """Return the most bytes that storages held since the start or :func:`reset_peak_memory_stats`."""
    _one(device)
    return memory.peak


memory_reserved = memory_allocated
max_memory_reserved = max_memory_allocated


def reset_peak_memory_stats(device: Any = None) -> None:
    """Restart :func:`max_memory_allocated` from the bytes that are in use now."""
    _one(device)
    memory.peak = memory.allocated


def memory_stats(device: Any = None) -> dict[str, int]:
    """Return the memory counters under the names of ``torch.cuda.memory_stats``."""
    _one(device)
    return {
        "allocated_bytes.all.current": memory.allocated,
        "allocated_bytes.all.peak": memory.peak,
        "allocation.all.allocated": memory.allocations,
        "allocation.all.freed": memory.freed,
        "allocation.all.current": memory.allocations - memory.freed,
    }


def empty_cache() -> None:
    """Do nothing: the engine owns the memory of storages and frees it when nobody holds it."""


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Return the free bytes and the total bytes.

    The total is ``config.device_memory_limit`` if it is set, else what the plugin counts. Raises
    ``RuntimeError`` if there is neither, as on XLA's CPU.
    """
    _one(device)
    limit, used = config.device_memory_limit, memory.allocated
    if not limit:
        counted = engine.memory()
        if counted is None:
            raise RuntimeError(
                "the engine does not say how much memory the device has\n"
                "  next: set torchstone.config.device_memory_limit"
            )
        used, limit = counted
    return max(0, limit - used), limit


def reset_accumulated_memory_stats(device: Any = None) -> None:
    """Restart the allocation counts of :func:`memory_stats`."""
    _one(device)
    memory.allocations -= memory.freed
    memory.freed = 0


ACCELERATOR: dict[str, Callable[..., Any]] = {
    "isAllocatorInitialized": lambda: True,
    "emptyCache": empty_cache,
    "emptyHostCache": empty_cache,
    "getDeviceStats": memory_stats,
    "resetPeakStats": reset_peak_memory_stats,
    "resetAccumulatedStats": reset_accumulated_memory_stats,
    "getMemoryInfo": mem_get_info,
    "synchronizeDevice": synchronize,
    "setDeviceIndex": set_device,
    "getStream": current_stream,
    "getDeviceCapability": get_device_capability,
}
"""Functions of this module in place of C++ functions that ``torch.accelerator`` calls, by their names."""


# Fallbacks ------------------------------------------------------------------------------------------


def fallbacks() -> dict[str, int]:
    """Return how often each operator ran on the CPU because no program could be made for it."""
    return dict(counts)


def reset_fallbacks() -> None:
    """Reset the counts of :func:`fallbacks`."""
    counts.clear()


def get_amp_supported_dtype() -> list[torch.dtype]:
    """Return the dtypes that ``torch.autocast("pjrt")`` may use."""
    return [torch.bfloat16, torch.float16]
