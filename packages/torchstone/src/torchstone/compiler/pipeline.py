"""Named passes with contracts, and the pipeline that runs them: from a captured graph to StableHLO.

This module defines no passes. The shared ones are in :mod:`.passes`, those of an export in
:mod:`.program`, and those of ``torch.compile`` in ``backend``; :mod:`.user_passes` makes a user's own.
See docs/passes.md.
"""

from __future__ import annotations

import inspect
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import torch
from torch.fx import GraphModule

from .. import hlo, spans
from ..errors import PassError
from ..sharding import Placement
from .checks import Check
from .support import Survey

PROPERTIES: Mapping[str, str] = {
    "metadata": "every call has PyTorch's own shape and dtype of its result",
    "independent-inputs": "no input that is written shares memory with another input",
    "valid-arguments": "eager PyTorch takes the arguments of every call",
    "functional": "no call writes into a tensor",
    "signature": "inputs, outputs and what is mutated are described, and stay as they are from here on",
    "bounded": "sizes that depend on values are as large as they may become, where that is known",
    "surveyed": "what lowers is known, what does not and why, and whether a seed is needed",
    "lowerable": "every call has a lowering",
    "placement": "it is known how each argument and result is split over the mesh, if there is one",
    "layouts": "inputs and outputs lie in the order in which the engine takes and returns them",
    "checks": "the questions that the settings ask are answered by results of the graph",
    "stablehlo": "the graph is a verified StableHLO module",
}
"""The properties that a pass may need and guarantee. User-defined passes may name others, too."""


@dataclass
class Unit:
    """One graph on its way to StableHLO, and what passes have found out about it.

    - ``name`` is the name of the module, and ``results`` the names of its results.
    - ``labels`` maps placeholders to the names of their arguments, if these differ.
    - ``baked`` maps the placeholders that become constants to their tensors.
    - ``placement`` says how arguments and results lie on a mesh, if there is one.
    - ``next_values`` maps placeholders to the position of the result that is their next value.
    """

    module: GraphModule
    name: str = "main"
    labels: Mapping[str, str] = field(default_factory=dict)
    baked: Mapping[str, torch.Tensor] = field(default_factory=dict)
    results: list[str] | None = None
    placement: Placement | None = None
    next_values: Mapping[str, int] = field(default_factory=dict)
    check_indices: bool = False
    check_values: bool = False
    survey: Survey = field(default_factory=lambda: Survey(Counter(), [], [], False))
    checks: list[Check] = field(default_factory=list)
    arguments: list[hlo.Argument] = field(default_factory=list)
    stablehlo: hlo.Module | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    """How long each pass took."""

    def built(self) -> hlo.Module:
        """Return the StableHLO module, after a whole pipeline has run."""
        assert self.stablehlo is not None, "the pipeline has no pass that lowers"
        return self.stablehlo


spans.follow_torch()

Worked = TypeVar("Worked", bound=Unit, contravariant=True)


@dataclass(frozen=True)
class Pass(Generic[Worked]):
    """A step of a pipeline. ``run`` changes the unit in place; its docstring documents the pass.

    ``needs`` are the properties that must hold before the pass, ``guarantees`` those that hold after it.
    """

    name: str
    run: Callable[[Worked], None]
    needs: frozenset[str] = frozenset()
    guarantees: frozenset[str] = frozenset()

    @property
    def doc(self) -> str:
        """The first paragraph of the docstring of ``run``, as one line."""
        return " ".join((inspect.getdoc(self.run) or "").partition("\n\n")[0].split())


def compiler_pass(
    name: str, *, needs: Iterable[str] = (), guarantees: Iterable[str] = ()
) -> Callable[[Callable[[Worked], None]], Pass[Worked]]:
    """Decorate a function of a unit as a :class:`Pass`."""
    return lambda run: Pass(name, run, frozenset(needs), frozenset(guarantees))


Observer = Callable[[Pass[Worked], Worked], None]
"""A function that is called after each pass, with the pass and the unit."""


class Pipeline(Generic[Worked]):
    """A sequence of passes. ``given`` are the properties that a unit has before the first pass.

    Raises :class:`PassError` if two passes have the same name, or if a pass needs a property that no
    pass before it guarantees.
    """

    def __init__(self, passes: Sequence[Pass[Worked]], *, given: Iterable[str] = ()) -> None:
        self.passes = tuple(passes)
        self.given = frozenset(given)
        held = set(given)
        for place, one in enumerate(self.passes):
            if not isinstance(one, Pass):
                raise PassError(
                    f"{one!r} is not a pass", hint='make a function one with @torchstone.graph_pass("a-name")'
                )
            if any(one.name == other.name for other in self.passes[:place]):
                raise PassError(
                    f"two passes of the pipeline are called {one.name!r}", hint="give each its own name"
                )
            lacking = sorted(one.needs - held)
            if lacking:
                raise PassError(
                    f"the pass {one.name!r} needs {_listed(lacking)}, which no pass before it guarantees",
                    hint=self._advice(lacking, held, place),
                )
            held |= one.guarantees
        self.guarantees = frozenset(held)

    def _advice(self, lacking: Sequence[str], held: Iterable[str], place: int) -> str:
        later = [one.name for one in self.passes[place + 1 :] if one.guarantees & set(lacking)]
        if later:
            return f"put it behind {_listed(later)}"
        return f"add a pass that does; these properties hold there: {', '.join(sorted(held)) or 'none'}"

    def run(self, unit: Worked, observe: Observer[Worked] | None = None) -> None:
        """Run all passes on ``unit``, and record how long each takes."""
        for one in self.passes:
            started = time.perf_counter()
            with spans.span("compile", f"pass: {one.name}"):
                one.run(unit)
            unit.seconds[one.name] = unit.seconds.get(one.name, 0.0) + time.perf_counter() - started
            if observe is not None:
                observe(one, unit)


def _listed(names: Sequence[str]) -> str:
    return " and ".join(repr(name) for name in names)
