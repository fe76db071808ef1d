"""Which ranks take part in a collective: all groups, derived from the group of the rank that exports.

All ranks run one program, so it must name the groups of all ranks. A process knows only the groups that it is
in. The other groups follow from the row-major order in which device meshes number their ranks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from ..errors import ShardingError
from ..hlo import Groups
from ..torch_internals.distributed import ranks_of_group

_together: ContextVar[bool] = ContextVar("torchstone_ranks_together", default=False)


@contextmanager
def ranks_together() -> Iterator[None]:
    """Allow collectives of several ranks inside the block, which makes a program for all of these ranks."""
    token = _together.set(True)
    try:
        yield
    finally:
        _together.reset(token)


def run_alone(_: Any = None) -> str | None:
    """Return why a collective or a wait cannot be lowered outside :func:`ranks_together`; None inside.

    Outside, a program is for one rank only.
    """
    if _together.get():
        return None
    return "ranks run it together: export the model and run it with torchstone.Ranks, or leave it to PyTorch"


def groups_of(group: Any) -> Groups:
    """Return the groups of all ranks for a collective over ``group``, a process group or its name.

    Raises :class:`~torchstone.errors.ShardingError` with the reason if they cannot be determined.
    """
    alone = run_alone(group)
    if alone is not None:
        raise ShardingError(alone)
    name = repr(group if isinstance(group, str) else group.group_name)
    found = ranks_of_group(group)
    if found is None:
        raise ShardingError(
            f"this process has no process group {name}: export the model where the group was made"
        )
    ranks, world = found
    made = tiling(ranks, world)
    if made is None:
        raise ShardingError(
            f"group {name} has the ranks {list(ranks)} of {world}, and is not a group along one axis of a "
            "device mesh, whose ranks are evenly spaced and which fills all ranks when it is shifted"
        )
    return made


def tiling(ranks: Sequence[int], world: int) -> Groups | None:
    """Return all groups along that axis of a row-major mesh of ``world`` ranks to which ``ranks`` belongs.

    Return None if no such mesh has the group ``ranks``.

    >>> tiling([1, 3], 4)
    [[0, 2], [1, 3]]
    """
    count = len(ranks)
    stride = ranks[1] - ranks[0] if count > 1 else 1
    block = stride * count
    if stride < 1 or list(ranks) != list(range(ranks[0], ranks[0] + block, stride)):
        return None
    if world % block or ranks[0] % block >= stride:
        return None
    return [
        [start + offset + place * stride for place in range(count)]
        for start in range(0, world, block)
        for offset in range(stride)
    ]
