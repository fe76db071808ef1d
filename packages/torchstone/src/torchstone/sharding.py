"""Meshes of devices, and how a tensor is split over one. This module checks specs and touches no arrays.

A *partition spec* says for each dimension of a tensor over which axes of a mesh it is split:
``("data", None)`` splits the first dimension over the axis ``data`` and leaves the second whole.
Along an axis that no dimension names, every device has a copy. Needs neither torch nor JAX.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from optest.names import listing, near_misses

from .errors import ShardingError, described

Spec = tuple[tuple[str, ...], ...]
"""For each dimension of a tensor, the mesh axes that split it, the slowest varying axis first."""

Part = tuple[slice, ...]
"""The part of an array that a device has: one slice for each dimension."""

LARGEST = 1 << 20
"""The largest number of devices in a mesh: more than any machine has, and few enough to enumerate."""


@dataclass(frozen=True)
class Mesh:
    """Devices in a grid with named axes: ``Mesh({"data": 2, "model": 4})`` has eight.

    ``axes`` maps each axis to its size. Devices are numbered in row-major order: the last axis varies
    fastest. Raises :class:`~torchstone.errors.ShardingError` for a name that is not an identifier
    and a size below 1.
    """

    axes: Mapping[str, int]

    def __post_init__(self) -> None:
        if not isinstance(self.axes, Mapping):
            raise ShardingError(
                f"the axes of the mesh are {described(self.axes)}, which is not a mapping",
                hint='map each axis to its size: Mesh({"data": 2})',
            )
        axes = dict(self.axes)
        if not axes:
            raise ShardingError("the mesh has no axes", hint='give at least one: Mesh({"data": 2})')
        for name, size in axes.items():
            if not isinstance(name, str) or not name.isidentifier():
                raise ShardingError(f"{name!r} is not a name of a mesh axis", hint='use a word, as in "data"')
            if type(size) is not int or size < 1:
                raise ShardingError(
                    f"the mesh axis {name!r} has the size {size!r}", hint="give a whole number of at least 1"
                )
        object.__setattr__(self, "axes", axes)
        if self.size > LARGEST:
            raise ShardingError(f"a mesh of {self.size} devices is too large")

    def __hash__(self) -> int:
        return hash(tuple(self.axes.items()))

    def __str__(self) -> str:
        return "×".join(f"{name}={size}" for name, size in self.axes.items())

    @property
    def size(self) -> int:
        """The number of devices in the mesh."""
        return math.prod(self.axes.values())

    def parts(self, axes: Sequence[str]) -> int:
        """Return the number of parts into which these axes split a dimension."""
        return math.prod(self.axes[axis] for axis in axes)

    def spec(self, given: Any, rank: int, what: str) -> Spec:
        """Return ``given`` as a spec for a tensor of ``rank`` dimensions, which errors call ``what``.

        ``given`` takes three forms: one axis, which splits the first dimension; a sequence that has an axis,
        several axes or None for each of the first dimensions; or placements of
        ``torch.distributed.tensor``, one for each axis of the mesh. Raises
        :class:`~torchstone.errors.ShardingError` for anything else.
        """
        entries = [given] if isinstance(given, str) else given
        if not isinstance(entries, Sequence):
            raise ShardingError(f"the sharding {given!r} of {what} is not a partition spec", hint=_FORM)
        if entries and any(hasattr(entry, "is_shard") for entry in entries):
            return self._of_placements(entries, rank, what)
        spec = [self._of_dimension(entry, given, what) for entry in entries]
        if len(spec) > rank:
            raise ShardingError(
                f"the sharding {given!r} of {what} has {len(spec)} entries, and {what} {rank} dimension(s)",
                hint="give at most one entry for each dimension; those without one are not split",
            )
        used = [axis for axes in spec for axis in axes]
        twice = sorted({axis for axis in used if used.count(axis) > 1})
        if twice:
            raise ShardingError(
                f"the sharding {given!r} of {what} has the mesh axis {twice[0]!r} twice",
                hint="split one dimension over it",
            )
        return (*spec, *(() for _ in range(rank - len(spec))))

    def _of_dimension(self, entry: Any, given: Any, what: str) -> tuple[str, ...]:
        axes = () if entry is None else (entry,) if isinstance(entry, str) else entry
        if not isinstance(axes, (tuple, list)) or not all(isinstance(axis, str) for axis in axes):
            raise ShardingError(
                f"{entry!r} in the sharding {given!r} of {what} is not a mesh axis", hint=_FORM
            )
        for axis in axes:
            if axis not in self.axes:
                raise ShardingError(
                    f"the sharding {given!r} of {what} names the axis {axis!r}, and the mesh has "
                    f"{', '.join(self.axes)}",
                    hint="use an axis of the mesh, or None for a dimension that is not split",
                )
        return tuple(axes)

    def _of_placements(self, placements: Sequence[Any], rank: int, what: str) -> Spec:
        """Convert DTensor placements, which give for each mesh axis the dimension that it splits, if any."""
        if len(placements) != len(self.axes):
            raise ShardingError(
                f"{what} has {len(placements)} placement(s), and the mesh {len(self.axes)} axes",
                hint="give one placement for each axis of the mesh",
            )
        spec: list[tuple[str, ...]] = [() for _ in range(rank)]
        for axis, placement in zip(self.axes, placements, strict=True):
            if placement.is_replicate():
                continue
            dim = placement.dim + rank if placement.is_shard() and placement.dim < 0 else None
            dim = placement.dim if dim is None and placement.is_shard() else dim
            if dim is None or not 0 <= dim < rank:
                raise ShardingError(
                    f"{what} with {rank} dimension(s) cannot have the placement {placement!r}",
                    hint="use Shard(dim) and Replicate()",
                )
            spec[dim] = (*spec[dim], axis)
        return tuple(spec)

    def check_shape(self, spec: Spec, shape: Sequence[int | str], what: str) -> None:
        """Raise ShardingError if a dimension of fixed size cannot be split evenly."""
        for place, (axes, size) in enumerate(zip(spec, shape, strict=True)):
            if isinstance(size, int) and size % self.parts(axes):
                over = f"mesh ax{'e' if len(axes) > 1 else 'i'}s {listing(map(repr, axes))}"
                raise ShardingError(
                    f"dimension {place} of {what} has the size {size}, which does not split into "
                    f"{self.parts(axes)} equal parts over the {over}",
                    hint="pad it, choose another dimension, or another mesh",
                )

    def local_shape(self, spec: Spec, shape: Sequence[int]) -> tuple[int, ...]:
        """Return the shape of one device's part of a tensor."""
        return tuple(size // self.parts(axes) for axes, size in zip(spec, shape, strict=True))

    def slices(self, spec: Spec, shape: Sequence[int]) -> Iterator[Part]:
        """Yield the part of a tensor that each device holds, in the order of the devices."""
        local = self.local_shape(spec, shape)
        for place in itertools.product(*map(range, self.axes.values())):
            at = dict(zip(self.axes, place, strict=True))
            starts = []
            for axes, size in zip(spec, local, strict=True):
                part = 0
                for axis in axes:
                    part = part * self.axes[axis] + at[axis]
                starts.append(part * size)
            yield tuple(slice(start, start + size) for start, size in zip(starts, local, strict=True))


class LocalPart:
    """This process's part of an argument that is split over several processes.

    ``array`` is a tensor or an array with as many dimensions as the argument: the block that the parts of
    this process's devices form together. ``shape`` is the shape of the whole argument. If the first axis
    of the mesh goes over the processes and splits the rows, process 0 has the first rows. Raises
    :class:`~torchstone.errors.ShardingError` if ``array`` cannot be a part of that shape.
    """

    __slots__ = ("array", "shape")

    def __init__(self, array: Any, shape: Sequence[int]) -> None:
        own, whole = tuple(getattr(array, "shape", ())), tuple(shape)
        if not hasattr(array, "dtype"):
            raise ShardingError(
                f"{described(array)} is not an array", hint="give a torch tensor or a NumPy array"
            )
        if len(own) != len(whole) or any(part > size for part, size in zip(own, whole, strict=True)):
            raise ShardingError(
                f"an array of the shape {list(own)} is not a part of one of the shape {list(whole)}",
                hint="shape= is the shape of the whole argument, of all processes together",
            )
        self.array, self.shape = array, whole

    @property
    def dtype(self) -> Any:
        """The dtype of the array: a ``torch.dtype`` or a NumPy dtype."""
        return self.array.dtype


def block(parts: Sequence[Part]) -> Part | None:
    """Return the part of an array that ``parts`` form together; None if that is not one block."""
    whole = tuple(
        slice(min(one.start for one in along), max(one.stop for one in along))
        for along in zip(*parts, strict=True)
    )
    distinct = [one for place, one in enumerate(parts) if one not in parts[:place]]
    return whole if sum(map(_elements, distinct)) == _elements(whole) else None


def _elements(part: Part) -> int:
    return math.prod(one.stop - one.start for one in part)


@dataclass(frozen=True)
class Placement:
    """How the arguments and results of a program are split over a mesh, by name.

    For results without a spec, the compiler decides.
    """

    mesh: Mesh
    arguments: Mapping[str, Spec]
    results: Mapping[str, Spec]


_FORM = 'write one entry for each dimension: an axis, several axes or None, as in ("data", None)'


def assign(
    mesh: Mesh, shardings: Mapping[str, Any], tensors: Sequence[tuple[str, Sequence[int | str]]]
) -> list[Spec]:
    """Return a spec for each of ``tensors`` (name and shape); a tensor that no key matches is not split.

    Keys of ``shardings`` are names, or patterns with ``*`` and ``?``. A name takes precedence over a
    pattern, and an earlier pattern over a later one. Raises :class:`~torchstone.errors.ShardingError` for a
    key that matches nothing, a wrong spec, and a dimension that cannot be split evenly.
    """
    names = [name for name, _ in tensors]
    for key in shardings:
        if not any(fnmatchcase(name, key) for name in names):
            close = near_misses(key, names)
            raise ShardingError(
                f"shardings= names {key!r}, and there is no such parameter, buffer or input",
                hint=f"did you mean {listing(close, last='or')}?" if close else f"there are {listing(names)}",
            )
    found = []
    for name, shape in tensors:
        found.append(mesh.spec(entry_for(name, shardings, ()), len(shape), repr(name)))
        mesh.check_shape(found[-1], shape, repr(name))
    return found


def entry_for(name: str, shardings: Mapping[str, Any], default: Any = None) -> Any:
    """Return the entry of ``shardings`` for ``name``: that of the name itself, else of the first pattern."""
    if name in shardings:
        return shardings[name]
    return next((given for key, given in shardings.items() if fnmatchcase(name, key)), default)
