"""``torch.cuda``: whether there is a device, how many there are, which one is current, and its properties."""

from __future__ import annotations

import functools
from typing import Any

import torch

from ...torch_internals import devices, redirection
from ...torch_internals.redirection import LAZY_INIT
from ..mirror import Implementation
from ..rows import Row
from ..scope import ACTIVE, Scope, told_of_cuda
from .host import cpu_name, total_memory
from .memory import free_and_total

_TEXT_MODES = {"default": 0, "warn": 1, "error": 2}


def _is_available(scope: Scope) -> bool:
    return bool(scope.target.indices)


def _device_count(scope: Scope) -> int:
    return len(scope.target.indices)


def _current_device(scope: Scope) -> int:
    return scope.ordinal()


def _set_device(scope: Scope, device: Any) -> None:
    if not (isinstance(device, int) and device < 0):
        scope.select(scope.ordinal(device))


def exchange_device(scope: Scope, device: int) -> int:
    """Select CUDA device ``device`` and return the previous index; do nothing if it is negative."""
    if device is None or device < 0:
        return -1
    before = scope.ordinal()
    if device != before:
        scope.select(scope.ordinal(device))
    return before


def device_index(scope: Scope, device: Any, optional: bool = False, allow_cpu: bool = False) -> int:
    """Return the index of a device, an index, a device guard or None, like PyTorch's own helper."""
    if isinstance(device, torch.cuda.device):
        return int(device.idx)
    if isinstance(device, int) and device < 0:
        return device
    if device is None and not optional:
        raise ValueError(f"Expected a torch.device with a specified index or an integer, but got: {device}")
    if allow_cpu and str(device) == "cpu":
        return -1
    return scope.ordinal(device)


def _init_device_of(scope: Scope, self: torch.cuda.device_of, obj: Any) -> None:
    index = scope.index_of(obj)
    self.idx = -1 if index is None else index
    self.prev_idx = -1


def _synchronize(scope: Scope, device: Any) -> None:
    scope.ordinal(device)
    if scope.target.is_cpu:
        return
    synchronize = getattr(scope.target.module, "synchronize", None)
    if synchronize is not None:
        synchronize()


class TargetProperties:
    """The properties of the redirected device, under the names of CUDA's device properties.

    ``major`` and ``minor`` are 0: the device has no compute capability. Any other property is read from the
    target's own properties, if it has it.
    """

    def __init__(self, native: Any, name: str, total_memory: int | None, multi_processor_count: int) -> None:
        self._native = native
        self.name = name
        if total_memory is not None:
            self.total_memory = total_memory
        self.multi_processor_count = multi_processor_count
        self.major = self.minor = 0
        self.is_integrated = self.is_multi_gpu_board = 0

    def __getattr__(self, name: str) -> Any:
        if name != "_native" and hasattr(self._native, name):
            return getattr(self._native, name)
        raise AttributeError(f"the redirected device {self.__dict__.get('name')!r} has no property {name!r}")

    def __repr__(self) -> str:
        known = ", ".join(f"{name}={value!r}" for name, value in vars(self).items() if name != "_native")
        return f"TargetProperties({known})"


def _get_device_properties(scope: Scope, device: Any) -> TargetProperties:
    index = scope.ordinal(device)
    if scope.target.is_cpu:
        return TargetProperties(None, cpu_name(), total_memory(), torch.get_num_threads())
    query = getattr(scope.target.module, "get_device_properties", None)
    native = None if query is None else query(scope.place(index).index)
    memory = free_and_total(scope, index)
    name = getattr(scope.target.module, "get_device_name", lambda index: scope.target.type)
    return TargetProperties(
        native,
        getattr(native, "name", None) or name(scope.place(index).index),
        getattr(native, "total_memory", None) or (None if memory is None else memory[1]),
        getattr(native, "multi_processor_count", 1),
    )


def _get_device_name(scope: Scope, device: Any) -> str:
    return _get_device_properties(scope, device).name


def _get_device_capability(scope: Scope, device: Any) -> tuple[int, int]:
    scope.ordinal(device)
    scope.policy.meaningless(
        "torch.cuda.get_device_capability",
        f"{scope.target.type} has no compute capability; (0, 0) is returned",
    )
    return 0, 0


def _can_access_peer(scope: Scope, device: Any, peer_device: Any) -> bool:
    own, peer = scope.ordinal(device), scope.ordinal(peer_device)
    if scope.tracks:
        return own != peer
    scope.policy.meaningless(
        "torch.cuda.can_device_access_peer", "the target has no peer access; False is returned"
    )
    return False


def _is_bf16_supported(scope: Scope, including_emulation: bool) -> bool:
    if torch.compiler.is_dynamo_compiling():
        return _has_bfloat16_while_tracing()
    return _computes(scope.device, torch.bfloat16)


@redirection.called_while_tracing
def _has_bfloat16_while_tracing() -> bool:
    return _computes(ACTIVE[-1].device, torch.bfloat16)


@functools.cache
def _computes(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether the device adds two numbers of ``dtype`` (tried once)."""
    try:
        one = torch.ones(1, dtype=dtype, device=device)
        return bool((one + one).item() == 2)
    except (RuntimeError, TypeError):
        return False


def _set_sync_debug_mode(scope: Scope, debug_mode: int | str) -> None:
    if isinstance(debug_mode, str):
        if debug_mode not in _TEXT_MODES:
            raise RuntimeError("invalid value of debug_mode, expected one of `default`, `warn`, `error`")
        debug_mode = _TEXT_MODES[debug_mode]
    if debug_mode:
        scope.policy.meaningless(
            "torch.cuda.set_sync_debug_mode", "synchronizations are not watched on the target"
        )
    scope.settings["sync_debug_mode"] = debug_mode


def _get_sync_debug_mode(scope: Scope) -> int:
    return int(scope.settings.get("sync_debug_mode", 0))


def _init(scope: Scope) -> None:
    scope.target  # noqa: B018  (reads CUDA_VISIBLE_DEVICES, as CUDA's initialization does)


def _check_error(scope: Scope, res: int) -> None:
    if res != 0:
        raise RuntimeError(f"CUDA error {res} reported on the redirected device")


_BY_CALLER: dict[str, tuple[str, str, Implementation]] = {
    "torch.cuda.is_available": (
        "modified",
        "true unless CUDA_VISIBLE_DEVICES hides the device",
        _is_available,
    ),
    "torch.cuda.device_count": ("modified", "the target's devices", _device_count),
    "torch.cuda.is_initialized": ("constant", "the target needs no initialization: true", lambda scope: True),
    "torch.cuda.get_device_properties": ("modified", "the target's own properties", _get_device_properties),
    "torch.cuda.get_device_name": ("modified", "the target's own name", _get_device_name),
    "torch.cuda.get_device_capability": ("modified", "(0, 0), by policy", _get_device_capability),
    "torch.cuda.is_bf16_supported": (
        "modified",
        "whether the target computes in bfloat16",
        _is_bf16_supported,
    ),
    "torch.cuda.is_tf32_supported": ("constant", "no target has TF32: false", lambda scope: False),
    "torch.cuda.get_arch_list": ("constant", "no CUDA architecture: empty", lambda scope: []),
    "torch.cuda.get_gencode_flags": ("constant", "no CUDA architecture: empty", lambda scope: ""),
    "torch.cuda.can_device_access_peer": (
        "modified",
        "true between devices of one memory, else false",
        _can_access_peer,
    ),
}
_OF_NVIDIA = ("torch.cuda.is_tf32_supported", "torch.cuda.get_arch_list", "torch.cuda.get_gencode_flags")
_FOR_ALL: dict[str, tuple[str, str, Implementation]] = {
    "torch.cuda.current_device": ("wraps", "the target's current device", _current_device),
    "torch.cuda.set_device": ("wraps", "selects the target's device", _set_device),
    "torch.cuda.synchronize": ("wraps", "waits for the target", _synchronize),
    "torch.cuda.init": ("noop", "the target needs no initialization", _init),
    LAZY_INIT: ("noop", "the target needs no initialization", _init),
    "torch.cuda.ipc_collect": ("noop", "the target has no CUDA IPC memory", lambda scope: None),
    "torch.cuda.check_error": ("modified", "any code but 0 is an error", _check_error),
    "torch.cuda.set_sync_debug_mode": (
        "noop",
        "the mode is kept; nothing is watched, by policy",
        _set_sync_debug_mode,
    ),
    "torch.cuda.get_sync_debug_mode": ("wraps", "the mode that was set", _get_sync_debug_mode),
    devices.EXCHANGE_DEVICE: ("wraps", "selects the target's device", exchange_device),
    devices.MAYBE_EXCHANGE_DEVICE: ("wraps", "selects the target's device", exchange_device),
    devices.GET_DEVICE_INDEX: ("wraps", "the target's devices count as CUDA's", device_index),
    "torch.cuda.device_of.__init__": ("wraps", "guards the target's device", _init_device_of),
}


def _around_current_of_cpu(original: Any) -> Implementation:
    def implementation(scope: Scope) -> str:
        """Return the stand-in device to PyTorch's own code, which asks the module of the device type."""
        told = not scope.tracks or told_of_cuda(scope)
        return str(original() if told else scope.place("cuda"))

    return implementation


ROWS = (
    Row(
        "torch.cpu.current_device",
        "wraps",
        "for PyTorch's own code the device that stands for the current one",
        around=_around_current_of_cpu,
    ),
    *(Row(name, *rest, by_caller=True, differs=name in _OF_NVIDIA) for name, rest in _BY_CALLER.items()),
    *(Row(name, *rest) for name, rest in _FOR_ALL.items()),
    Row("torch.cuda.device", "wraps", "unchanged over the redirected selection of devices"),
    Row("torch.cuda.device_of", "wraps", "its constructor guards the target's device"),
    Row("torch.cuda.has_half", "deliberate", "a build-time constant of PyTorch, true everywhere"),
    Row(
        "torch.cuda.has_magma",
        "deliberate",
        "a build-time constant: linear algebra does not come from MAGMA here",
    ),
    Row("torch.cuda.CudaError", "deliberate", "an exception type; code that catches it runs unchanged"),
    Row(
        "torch.cuda.DeferredCudaCallError",
        "deliberate",
        "an exception type; code that catches it runs unchanged",
    ),
    Row("torch.cuda.cudaStatus", "deliberate", "two error codes of CUDA's runtime, plain numbers"),
)
