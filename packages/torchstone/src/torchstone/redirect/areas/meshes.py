"""Device meshes, and the features built on them: ``DTensor``, tensor parallelism and ``fully_shard``.

To PyTorch's code, a mesh for CUDA has the target's device type. On ``cpu``, that device type is a
:class:`~..places.MeshType`, so that calls to which PyTorch passes it still find the CUDA device.
"""

from __future__ import annotations

import os
from typing import Any

import torch
import torch.distributed as dist

from ...torch_internals import redirection
from .. import places
from ..mirror import Implementation, adapting
from ..rows import Row
from ..scope import Scope

_CUDA = "cuda"


def _map_mesh(scope: Scope, arguments: dict[str, Any]) -> None:
    if arguments["device_type"] != _CUDA:
        return
    if not scope.tracks:
        arguments["device_type"] = scope.target.type
        return
    arguments["device_type"] = places.MeshType(scope.target.type)
    rank = os.environ.get("LOCAL_RANK")
    if rank is not None and not scope.has_used_devices():
        scope.select(scope.ordinal(int(rank)))  # as PyTorch does before CUDA is initialized


def _is_cuda(mesh: Any) -> bool:
    return type(redirection.type_of_mesh(mesh)) is places.MeshType


def _device_type(original: Any) -> Implementation:
    def implementation(scope: Scope, self: Any) -> str:
        return _CUDA if _is_cuda(self) else original(self)

    return implementation


def _mesh_device(original: Any) -> Implementation:
    """Return the device on which ``fully_shard`` keeps its parameters."""

    def implementation(scope: Scope, mesh: Any) -> torch.device:
        return scope.current() if _is_cuda(mesh) else original(mesh)

    return implementation


def _map_spread(name: str, *, keeps_leaves: bool = False) -> Any:
    """Move the tensor ``name`` to the mesh's device type, as ``DTensor``'s constructors do on CUDA."""

    def adapt(scope: Scope, arguments: dict[str, Any]) -> None:
        tensor = arguments[name]
        mesh = arguments["device_mesh"] or redirection.current_mesh()
        if not _is_cuda(mesh) or tensor.is_meta or scope.index_of(tensor) is not None:
            return
        moved = tensor.cuda()
        if keeps_leaves and tensor.is_leaf:
            moved = moved.detach().requires_grad_(tensor.requires_grad)
        arguments[name] = moved

    return adapting(adapt)


_TENSOR = "torch.distributed.tensor"
_STYLE = f"{_TENSOR}.parallel.style"
_TO_MESH = "tensors move to the mesh's device"

ROWS = (
    (
        *(
            Row(
                f"torch.distributed.device_mesh.{name}",
                "wraps",
                "the device type is mapped",
                around=adapting(_map_mesh),
            )
            for name in ("init_device_mesh", "DeviceMesh.__init__")
        ),
        Row(
            "torch.distributed.device_mesh.DeviceMesh.device_type",
            "wraps",
            "cuda, for callers that are told of CUDA",
            around=_device_type,
            by_caller=True,
        ),
        *(
            Row(
                f"{module}.distribute_tensor",
                "wraps",
                _TO_MESH,
                around=_map_spread("tensor", keeps_leaves=True),
                late=module,
            )
            for module in (_TENSOR, f"{_TENSOR}._api", _STYLE)
        ),
        Row(
            f"{_TENSOR}.DTensor.from_local",
            "wraps",
            _TO_MESH,
            around=_map_spread("local_tensor"),
            late=_TENSOR,
        ),
        *(
            Row(
                f"{module}.{redirection.DEVICE_OF_MESH}",
                "wraps",
                "parameters are kept on the CUDA device",
                around=_mesh_device,
                optional=True,
                late=module,
            )
            for module in redirection.TAKE_DEVICE_OF_MESH
        ),
    )
    if dist.is_available()
    else ()
)
