"""The parts of jaxlib's and JAX's private API that Torchstone uses for meshes and for several processes.

All other uses of the private API are in :mod:`._jaxlib` and :mod:`._jaxlib_runs`.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxlib import xla_client
from jaxlib.mlir import ir

from ._jaxlib import dict_items, need


def all_devices(client: Any) -> list[Any]:
    """Return the devices of all processes that share the client, or of this process if it is the only one."""
    return list(client.devices())


def is_local(device: Any) -> bool:
    """Whether the device belongs to this process."""
    return bool(device.process_index == device.client.process_index())


def processes() -> tuple[int, int]:
    """Return how many processes ``jax.distributed.initialize`` has joined, and the index of this one."""
    if not jax.distributed.is_initialized():
        return 1, 0
    state = need(importlib.import_module("jax._src.distributed"), "global_state")
    return int(state.num_processes), int(state.process_id)


def replicate_results(function: Any) -> None:
    """Give each result that has no sharding a copy on every device of the module's mesh."""
    attributes = []
    types = function.type.results
    entries = (
        map(dict_items, function.attributes["res_attrs"])
        if "res_attrs" in function.attributes
        else [{} for _ in types]
    )
    for own, type_ in zip(entries, types, strict=True):
        if "sdy.sharding" not in own:
            whole = ", ".join(["{}"] * ir.RankedTensorType(type_).rank)
            own["sdy.sharding"] = ir.Attribute.parse(f"#sdy.sharding<@mesh, [{whole}]>")
        attributes.append(ir.DictAttr.get(own))
    function.attributes["res_attrs"] = ir.ArrayAttr.get(attributes)


def result_parts(
    executable: Any, shapes: Sequence[Sequence[int]], count: int
) -> list[list[tuple[slice, ...]]]:
    """Return, for each result, the part that each of the ``count`` devices has, in the mesh's order."""
    if count == 1:  # then XLA does not partition anything, and returns no shardings
        return [[tuple(slice(0, size) for size in shape)] for shape in shapes]
    found = need(executable, "get_output_shardings")()
    of = need(need(xla_client, "HloSharding"), "from_proto")
    return [_parts(of(one), shape, count) for one, shape in zip(found, shapes, strict=True)]


def _parts(sharding: Any, shape: Sequence[int], count: int) -> list[tuple[slice, ...]]:
    """Return the part of each device; if a dimension does not split evenly, its last parts are smaller."""
    whole = tuple(slice(0, size) for size in shape)
    if not sharding.is_tiled():
        return [whole] * count
    tiles = list(sharding.tile_assignment_dimensions())[: len(shape)]
    sizes = [-(-size // parts) for size, parts in zip(shape, tiles, strict=True)]
    copies = count // math.prod(tiles)
    parts = [whole] * count
    for place, device in enumerate(sharding.tile_assignment_devices()):
        at = numpy.unravel_index(place // copies, tiles) if tiles else ()
        parts[device] = tuple(
            slice(min(int(i) * size, end), min((int(i) + 1) * size, end))
            for i, size, end in zip(at, sizes, shape, strict=True)
        )
    return parts


def join_parts(
    parts: Sequence[Any],
    shape: Sequence[int],
    axes: Mapping[str, int],
    spec: Sequence[Sequence[str]],
    devices: Sequence[Any],
) -> Any:
    """Return an array over a mesh, made of ``parts`` that lie on the mesh's devices already."""
    grid = numpy.empty(len(devices), dtype=object)
    grid[:] = devices
    mesh = Mesh(grid.reshape(tuple(axes.values())), tuple(axes))
    sharding = NamedSharding(mesh, PartitionSpec(*(tuple(one) or None for one in spec)))
    return jax.make_array_from_single_device_arrays(tuple(shape), sharding, list(parts))
