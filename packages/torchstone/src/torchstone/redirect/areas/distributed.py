"""Process groups and data-parallel wrappers: ``nccl`` becomes the target's backend, ``gloo`` by default.

``get_backend()`` is not redirected, so it returns the backend that really runs.
"""

from __future__ import annotations

from typing import Any

import torch.distributed as dist

from ..mirror import adapting
from ..rows import Row
from ..scope import Scope


def _backend(scope: Scope, asked: Any) -> Any:
    """Return a backend string with ``nccl`` replaced, either alone or in the form ``cpu:gloo,cuda:nccl``."""
    if not isinstance(asked, str):
        return asked
    own = dist.Backend.default_device_backend_map.get(scope.target.type) or _staged(scope.target.type)
    parts = {}
    for part in asked.lower().split(","):
        device, _, name = part.rpartition(":")
        parts[scope.target.type if device == "cuda" else device] = own if name == "nccl" else name
    if len(set(parts.values())) == 1:
        made = next(iter(parts.values()))
    else:
        made = ",".join(f"{device}:{name}" for device, name in parts.items())
    if made != asked.lower():
        scope.record(f"backend {asked!r}", f"is {made}")
    return made


def _staged(device_type: str) -> str:
    """Return the backend for a device that has none; imported late, as it subclasses a c10d class."""
    from ..staging import register

    return register(device_type)


def _map_group(scope: Scope, arguments: dict[str, Any]) -> None:
    arguments["backend"] = _backend(scope, arguments["backend"])
    if arguments["device_id"] is not None:
        arguments["device_id"] = None if scope.tracks else scope.place(arguments["device_id"])


def _map_barrier(scope: Scope, arguments: dict[str, Any]) -> None:
    """Drop ``device_ids``, which only NCCL accepts."""
    arguments["device_ids"] = None


def _map_parallel(scope: Scope, arguments: dict[str, Any]) -> None:
    """Map the device indices for an accelerator; on ``cpu``, PyTorch's code sees CUDA's indices."""
    if scope.tracks:
        return
    if arguments["device_ids"] is not None:
        arguments["device_ids"] = [scope.place(one).index for one in arguments["device_ids"]]
    if arguments["output_device"] is not None:
        arguments["output_device"] = scope.place(arguments["output_device"]).index


def _nccl_version(scope: Scope) -> tuple[int, int, int]:
    scope.policy.meaningless("torch.cuda.nccl.version", "NCCL is not there; (0, 0, 0) is returned")
    return 0, 0, 0


def _row(name: str, note: str, adapt: Any) -> Row:
    return Row(name, "wraps", note, around=adapting(adapt))


ROWS = (
    *(
        (
            Row(
                "torch.distributed.is_nccl_available",
                "modified",
                "true for callers that are told of CUDA: nccl can be asked for, and another backend runs",
                lambda scope: True,
                by_caller=True,
            ),
            _row("torch.distributed.init_process_group", "nccl becomes the target's backend", _map_group),
            _row("torch.distributed.new_group", "nccl becomes the target's backend", _map_group),
            _row("torch.distributed.barrier", "device_ids are NCCL's only", _map_barrier),
            _row(
                "torch.nn.parallel.DistributedDataParallel.__init__", "the devices are mapped", _map_parallel
            ),
        )
        if dist.is_available()
        else ()
    ),
    Row("torch.cuda.nccl.version", "modified", "(0, 0, 0), by policy", _nccl_version),
    Row(
        "torch.cuda.nccl",
        "deliberate",
        "NCCL's own calls need NVIDIA's library; torch.distributed is redirected",
    ),
)
