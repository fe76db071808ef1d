"""The rows of the patch tables (:mod:`.areas`), and the patches they become on the installed PyTorch.

A :class:`Row` is written by hand and says how one public name is treated; :mod:`.patching` resolves it to
a :class:`Patch` and puts it in place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .mirror import Implementation

TREATMENTS = ("wraps", "modified", "constant", "noop", "raises", "deliberate", "absent")


@dataclass(frozen=True)
class Row:
    """How the public name ``name`` is treated.

    At most one of these is set, and none for a name that is not replaced: ``implementation`` is called with
    the scope and the arguments; ``around`` makes such an implementation from the original; ``replacement``
    makes the new object itself (a class, a constant).

    ``by_caller``: callers that are not told of CUDA get the original (:mod:`.callers`).
    ``optional``: the name is missing in some supported versions of PyTorch.
    ``otherwise``: what to use as the original of a name that only builds of PyTorch with CUDA have.
    ``differs``: the name behaves differently than on CUDA. This also holds if the note says ``by policy``.
    ``late``: a module that ``import torch`` does not load; the name is treated once that module is loaded.
    """

    name: str
    treatment: str
    note: str
    implementation: Implementation | None = None
    around: Callable[[Any], Implementation] | None = None
    replacement: Callable[[Any], Any] | None = None
    by_caller: bool = False
    optional: bool = False
    otherwise: Callable[..., Any] | None = None
    late: str = ""
    differs: bool = False


@dataclass(frozen=True)
class Place:
    """An attribute of a module or class; ``raw`` is its value outside every scope."""

    owner: Any = field(repr=False)
    attribute: str
    raw: Any = field(repr=False)
    own: bool
    """Whether the owner itself defines the attribute (a method may be inherited)."""


@dataclass(frozen=True)
class Patch:
    """A row resolved on the installed PyTorch: the original, its replacement (or itself), and the places."""

    name: str
    treatment: str
    note: str
    original: Any = field(repr=False)
    replacement: Any = field(repr=False)
    places: tuple[Place, ...] = field(repr=False, default=())
    installed: Any = field(repr=False, default=None)
    """What is put in the places: the replacement in its descriptor (``staticmethod``, ``property``, …)."""
    differs: bool = False
    """Whether the name behaves differently than on CUDA; the note says how."""
