"""Shardy's annotations: the mesh of a module, and how its arguments and results lie on it."""

from __future__ import annotations

from typing import Any

from ..sharding import Mesh, Spec
from ._mlir import sdy
from .value import scope

_MESH = "mesh"
"""The name of a module's mesh."""


def declare_mesh(mesh: Mesh) -> None:
    """Add the ``sdy.mesh`` to the module that is being built."""
    axes = [sdy.MeshAxisAttr.get(name, size) for name, size in mesh.axes.items()]
    sdy.MeshOp(_MESH, sdy.MeshAttr.get(axes))


def attribute(spec: Spec) -> Any:
    """Return the ``#sdy.sharding`` that splits a tensor's dimensions as ``spec`` says, and no further."""
    return sdy.TensorShardingAttr.get(
        _MESH,
        [sdy.DimensionShardingAttr.get([sdy.AxisRefAttr.get(a) for a in axes], True) for axes in spec],
    )


def mesh() -> Mesh | None:
    """The mesh of the module that is being built."""
    found: Mesh | None = scope.module.mesh
    return found
