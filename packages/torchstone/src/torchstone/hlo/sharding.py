"""Shardy's annotations: the mesh of a module, how its arguments and results lie on it, and constraints."""

from __future__ import annotations

from typing import Any

from ..sharding import Mesh, Spec
from ._mlir import sdy
from .value import Value, scope

_MESH = "mesh"
"""The name of a module's mesh."""


def declare_mesh(mesh: Mesh) -> None:
    """The ``sdy.mesh`` of the module that is being built."""
    axes = [sdy.MeshAxisAttr.get(name, size) for name, size in mesh.axes.items()]
    sdy.MeshOp(_MESH, sdy.MeshAttr.get(axes))


def attribute(spec: Spec) -> Any:
    """The ``#sdy.sharding`` of a tensor whose dimensions are split as ``spec`` says, and no further."""
    return sdy.TensorShardingAttr.get(
        _MESH,
        [sdy.DimensionShardingAttr.get([sdy.AxisRefAttr.get(a) for a in axes], True) for axes in spec],
    )


def constrain(value: Value, spec: Spec) -> Value:
    """``value``, which lies on the module's mesh as ``spec`` says from here on."""
    made = sdy.ShardingConstraintOp(value.ir, attribute(spec), results=[value.ir.type])
    return Value(made.result, value.shape, value.dtype)


def mesh() -> Mesh | None:
    """The mesh of the module that is being built."""
    found: Mesh | None = scope.module.mesh
    return found
