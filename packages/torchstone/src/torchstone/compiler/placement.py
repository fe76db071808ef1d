"""Places the arguments and results of an exported program on a mesh, from the user's shardings by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..errors import ShardingError, described
from ..sharding import Mesh, Placement, Spec, assign
from ..signature import InputSpec, OutputSpec, Signature


def check_mesh(mesh: Mesh | None, shardings: Mapping[str, Any] | None) -> None:
    """Raise :class:`ShardingError` if an argument has a wrong type, or if there are shardings but no mesh."""
    if mesh is not None and not isinstance(mesh, Mesh):
        raise ShardingError(
            f"mesh= is {described(mesh)}, which is not a mesh", hint='use torchstone.Mesh({"data": 2})'
        )
    if shardings is not None and not isinstance(shardings, Mapping):
        raise ShardingError(
            f"shardings= is {described(shardings)}, which is not a mapping",
            hint='map names to partition specs: {"weight": ("model", None)}',
        )
    if shardings and mesh is None:
        raise ShardingError("shardings= needs a mesh", hint='pass mesh=torchstone.Mesh({"data": 2})')


def for_ranks(signature: Signature, ranks: int | None, mesh: Mesh | None) -> Signature:
    """Return ``signature`` with the number of ranks of a module; None if the module calls no collectives.

    Raises :class:`ShardingError` if there are both collectives and a mesh.
    """
    if ranks is not None and mesh is not None:
        raise ShardingError(
            f"the model calls collectives, so each rank runs it on its own tensors, and mesh= ({mesh}) "
            "would split it again",
            hint="leave mesh= out, or the collectives",
        )
    return replace(signature, ranks=ranks)


def placement(
    mesh: Mesh, shardings: Mapping[str, Any], inputs: Sequence[InputSpec], outputs: Sequence[OutputSpec]
) -> Placement:
    """Return the placement of a program. A mutated buffer or input keeps the sharding that it came with."""
    specs = assign(mesh, shardings, [(spec.target or spec.name, spec.shape) for spec in inputs])
    arguments = {one.name: spec for one, spec in zip(inputs, specs, strict=True)}
    sources = {one.target if one.kind != "input" else one.name: arguments[one.name] for one in inputs}
    mutated = [one for one in outputs if one.kind in ("buffer_mutation", "input_mutation")]
    results = {one.name: sources[one.target] for one in mutated}
    return Placement(mesh, {**arguments, "seed": ((),)}, results)


def placed(signature: Signature, where: Placement) -> Signature:
    """Return ``signature`` with the mesh, and with the sharding of each argument."""
    inputs = tuple(replace(one, sharding=_of(where, one)) for one in signature.inputs)
    return replace(signature, inputs=inputs, mesh=where.mesh)


def _of(where: Placement, spec: InputSpec) -> Spec:
    return where.arguments["seed" if spec.kind == "seed" else spec.name]
