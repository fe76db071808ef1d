"""A row of the patch tables (:mod:`.areas`), and what it becomes on the installed PyTorch.

A :class:`Row` is written by hand and says what becomes of one public name; :mod:`.patching` resolves it to
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
    """What becomes of the public name ``name``.

    Exactly one of these, or none for a name that is not replaced: ``implementation`` is called with the
    scope and the arguments; ``around`` makes such an implementation from the original; ``replacement``
    makes the new object itself (a class, a constant). ``by_caller``: callers that are not told of CUDA get
    the original (:mod:`.callers`). ``optional``: a name that other supported versions of PyTorch lack.
    ``otherwise``: the original of a name that only builds of PyTorch with CUDA have.
    ``differs``: what it does or answers is not CUDA's; so it is where the note says ``by policy``.
    ``late``: the module, which ``import torch`` does not load, after whose loading the name is treated.
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
    """An attribute of a module or class; ``raw`` is what lies there outside every scope."""

    owner: Any = field(repr=False)
    attribute: str
    raw: Any = field(repr=False)
    own: bool
    """Whether the owner itself has it (a method may be inherited)."""


@dataclass(frozen=True)
class Patch:
    """A row on the installed PyTorch: the original, what replaces it (itself if nothing) and where."""

    name: str
    treatment: str
    note: str
    original: Any = field(repr=False)
    replacement: Any = field(repr=False)
    places: tuple[Place, ...] = field(repr=False, default=())
    installed: Any = field(repr=False, default=None)
    """What is put in the places: the replacement in its descriptor (``staticmethod``, ``property``, …)."""
    differs: bool = False
    """Whether what it does or answers is not CUDA's; the note says what it is."""
