"""``torch.pjrt``: the device's own functions, under the names that ``torch.cuda`` gives them."""

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
    """True: the engine's CPU is always there."""
    return True


def is_initialized() -> bool:
    """Whether an engine was started."""
    return engine.is_started()


def init() -> None:
    """Start the engine."""
    engine.engine()


def device_count() -> int:
    """1: PyTorch gives a device written in Python one index."""
    return 1


def current_device() -> int:
    """0."""
    return 0


def set_device(device: Any) -> None:
    """Does nothing for the one device; raises for another."""
    check_device(_as_device(device))


class device:
    """``with torch.pjrt.device(0)``: there is one device, so nothing changes; another is refused."""

    def __init__(self, device: Any) -> None:
        self.idx = 0
        if device is not None and device != -1:
            check_device(_as_device(device))

    def __enter__(self) -> None:
        """Nothing changes."""

    def __exit__(self, *_: Any) -> None:
        """Nothing has changed."""


def get_device_name(device: Any = None) -> str:
    """The PJRT device behind it: ``cpu:0``."""
    _one(device)
    return engine.place().name


def supported_dtypes() -> set[torch.dtype]:
    """Dtypes that tensors of the device may have."""
    return {one.torch for one in dtypes.COPYABLE}


def get_device_capability(device: Any = None) -> dict[str, Any]:
    """What ``torch.accelerator.get_device_capability`` says: the dtypes of tensors, ``supported_dtypes``."""
    _one(device)
    return {"supported_dtypes": supported_dtypes()}


def is_bf16_supported() -> bool:
    """True."""
    return True


def _one(device: Any) -> torch.device:
    """The device, where none or the one is given; raises for another."""
    found = storage.device() if device is None else _as_device(device)
    check_device(found)
    return found


def _as_device(device: Any) -> torch.device:
    return torch.device(DEVICE_TYPE, device) if isinstance(device, int) else torch.device(device)


def _is_in_bad_fork() -> bool:
    return forks.threads_lost


_initialized = True
"""What ``torch.utils.checkpoint`` looks at before it keeps the random state of a device."""


# Work ---------------------------------------------------------------------------------------


def synchronize(device: Any = None) -> None:
    """Wait for everything that was asked of the device; what is pending runs."""
    _one(device)
    if engine.is_started():
        run_all()
        engine.synchronize()


def current_stream(device: Any = None) -> Stream:
    """The one stream."""
    return Stream(_one(device))


default_stream = current_stream


def set_stream(stream: torch.Stream) -> None:
    """Does nothing: there is one stream."""


@contextmanager
def stream(stream: torch.Stream | None) -> Iterator[None]:
    """``with torch.pjrt.stream(s)``: there is one stream, so nothing changes."""
    yield


# Random numbers --------------------------------------------------------------------------------


def manual_seed(seed: int) -> None:
    """Start the sequence of ``seed``; ``torch.manual_seed`` calls it."""
    random.manual_seed(seed)


def manual_seed_all(seed: int) -> None:
    """The same as :func:`manual_seed`."""
    random.manual_seed(seed)


def seed() -> None:
    """Start a sequence that nobody knows."""
    random.manual_seed(torch.Generator().seed())


seed_all = seed


def initial_seed() -> int:
    """The seed of the sequence."""
    return random.initial_seed()


def get_rng_state(device: Any = DEVICE_TYPE) -> torch.Tensor:
    """Where the sequence is."""
    _one(device)
    return random.get_state()


def set_rng_state(new_state: torch.Tensor, device: Any = DEVICE_TYPE) -> None:
    """Go on from what :func:`get_rng_state` returned."""
    _one(device)
    random.set_state(new_state)


def get_rng_state_all() -> list[torch.Tensor]:
    """:func:`get_rng_state` of each device."""
    return [get_rng_state()]


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    """Go on from what :func:`get_rng_state_all` returned."""
    for state in new_states:
        set_rng_state(state)


# Memory ------------------------------------------------------------------------------------------


def memory_allocated(device: Any = None) -> int:
    """Bytes in storages."""
    _one(device)
    return memory.allocated


def max_memory_allocated(device: Any = None) -> int:
    """The most bytes that storages have held since the start or :func:`reset_peak_memory_stats`."""
    _one(device)
    return memory.peak


memory_reserved = memory_allocated
max_memory_reserved = max_memory_allocated


def reset_peak_memory_stats(device: Any = None) -> None:
    """Start :func:`max_memory_allocated` anew."""
    _one(device)
    memory.peak = memory.allocated


def memory_stats(device: Any = None) -> dict[str, int]:
    """The counters under the names of ``torch.cuda.memory_stats``."""
    _one(device)
    return {
        "allocated_bytes.all.current": memory.allocated,
        "allocated_bytes.all.peak": memory.peak,
        "allocation.all.allocated": memory.allocations,
        "allocation.all.freed": memory.freed,
        "allocation.all.current": memory.allocations - memory.freed,
    }


def empty_cache() -> None:
    """Does nothing: storages are the engine's, and it frees what nobody holds."""


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Bytes that are free, and bytes in all: of ``config.device_memory_limit``, else what the plugin counts.

    Raises ``RuntimeError`` where there is neither, as on XLA's CPU.
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
    """Count allocations of :func:`memory_stats` anew."""
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
"""What ``torch.accelerator`` asks of C++."""


# Fallbacks ------------------------------------------------------------------------------------------


def fallbacks() -> dict[str, int]:
    """How often each operator ran on the CPU, because no program could be made for it."""
    return dict(counts)


def reset_fallbacks() -> None:
    """Start :func:`fallbacks` anew."""
    counts.clear()


def get_amp_supported_dtype() -> list[torch.dtype]:
    """Dtypes of ``torch.autocast("pjrt")``."""
    return [torch.bfloat16, torch.float16]
