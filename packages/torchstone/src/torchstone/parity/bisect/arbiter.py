"""Decide the cause of a wrong value: the lowering, the engine, or only rounding.

Each operator is judged alone, on the operands that it was given: against eager PyTorch, and against float64
if eager's tolerance is missed. If its result is wrong, the operator runs again by itself, on the engine in
use and on every other one. If another engine is right about the same program, the engine in use is wrong.
If all are wrong, the program is wrong, that is, the lowering.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import numpy
import torch
from torch.fx import Node

from optest.core.comparator import compare
from optest.core.comparison import Comparison
from optest.core.tolerance import Tolerance

from ...compiler.graphs import to_numpy
from ...errors import TorchstoneError
from ...runtime import ENGINES
from ..operators import WIDER
from .values import Piece, Values, called_by, is_drawn, is_result, local_values, piece_of

Tensor = torch.Tensor
Array = numpy.ndarray[Any, Any]


class Kind(StrEnum):
    """The cause of a departure from eager PyTorch."""

    LOWERING = "lowering"
    ENGINE = "engine"
    ROUNDING = "rounding"
    NONDETERMINISM = "nondeterminism"
    UNDECIDED = "undecided"
    """Lowering or engine: no other engine can run the operator."""


@dataclass(frozen=True)
class Verdict:
    """The kind of a departure, the reason, and the piece of the program that shows it."""

    kind: Kind
    reason: str
    comparison: Comparison
    piece: Piece
    engines: Mapping[str, str]
    """The verdict on each engine that ran the piece, by name."""


PROBES = 16
LAMBDA = 8.0
"""Rounding errors of a sum of n terms almost never exceed 8·√n units of roundoff (see optest's roundoff)."""
_DEPTHS = (1, 1, 2, 4, 8, 16, 32, 64, 1 << 20, 0)
"""How many operators further back each attempt reaches, if the attempts with fewer operators were right."""


@dataclass(frozen=True)
class Judge:
    """The rule for whether values agree. ``tolerance`` None is PyTorch's default for the dtype."""

    tolerance: Tolerance | None = None

    def plain(self, found: Tensor, expected: Tensor) -> Comparison:
        """Compare by the tolerance alone, without float64."""
        return compare(to_numpy(found), to_numpy(_of_dtype(expected, found)), self.tolerance)

    def operator(
        self, found: Tensor, expected: Tensor | None, exact: Tensor | None, probes: Callable[[], list[Tensor]]
    ) -> Comparison | None:
        """Judge one operator's result by itself; None if eager cannot compute it.

        A result beyond the tolerance still passes if its error is at most twice eager's, or if roundings of
        the operands explain it. ``probes`` returns results for slightly changed operands to show that.
        """
        if expected is None:
            expected, exact = exact, None
        if expected is None:
            return None
        expected = _of_dtype(expected, found)
        result = self.plain(found, expected)
        if result.passed or not result.same_form:
            return result
        if not expected.dtype.is_floating_point and not expected.dtype.is_complex:
            return _unstable(result, found, [_of_dtype(one, found) for one in probes()])
        if exact is None or exact.shape != expected.shape or expected.dtype not in WIDER:
            return result
        truth = to_numpy(exact)
        result = compare(to_numpy(found), to_numpy(expected), self.tolerance, reference=truth)
        if not result.passed:
            bound = _explained(truth, [to_numpy(one) for one in probes()], expected.dtype)
            result = compare(
                to_numpy(found), to_numpy(expected), self.tolerance, reference=truth, bound=bound
            )
        return result


def _of_dtype(value: Tensor, like: Tensor) -> Tensor:
    """Return ``value`` in the dtype of ``like``, as some CPU kernels do not return the metadata's dtype."""
    return value if value.dtype == like.dtype else value.to(like.dtype)


def _explained(truth: Array, probes: Sequence[Array], dtype: torch.dtype) -> Array:
    """Return for each element the largest error that roundings of operands and result explain."""
    unit = torch.finfo(dtype).eps / 2
    with numpy.errstate(invalid="ignore"):
        moved = [numpy.where(numpy.isfinite(one), numpy.abs(one - truth), 0.0) for one in probes]
        bound = numpy.max([numpy.zeros(truth.shape), *moved], axis=0) * 2 + 4 * unit * numpy.abs(truth)
    return numpy.where(numpy.isfinite(truth), bound, 0.0)  # no rounding explains another infinity or NaN


def _unstable(result: Comparison, found: Tensor, probes: Sequence[Tensor]) -> Comparison:
    """Accept integers and bools that differ if some probe with rounded operands gives the same values."""
    equal = torch.zeros(found.shape, dtype=torch.bool)
    for probe in probes:
        if probe.shape != found.shape:
            return result
        equal |= probe == found
    return replace(result, passed_by="accuracy") if bool(equal.all()) else result


class Arbiter:
    """A judge of the nodes of one piece, whose values one engine has computed."""

    def __init__(self, piece: Piece, values: Values, engine: str, judge: Judge) -> None:
        self.piece, self.values, self.engine, self.judge = piece, values, engine, judge

    def wrong(self) -> Iterator[tuple[Node, Comparison]]:
        """Yield the nodes whose results are wrong for the operands they were given, in order."""
        for node in self.piece.nodes:
            if is_drawn(node):
                continue
            found = self.alone(node)
            if found is not None and not found.passed:
                yield node, found

    def alone(self, node: Node) -> Comparison | None:
        """Compare a node's value with what the operator computes in eager PyTorch from the same operands."""
        return self.judge.operator(
            self.values[node],
            local_values(node, self.values, wide=False),
            local_values(node, self.values, wide=True),
            lambda: list(self._probes(node)),
        )

    def _probes(self, node: Node) -> Iterator[Tensor]:
        caller, _ = called_by(node)
        operands = [self.values[one] for one in caller.all_input_nodes]
        for change in changes(caller, [one for one in operands if isinstance(one, Tensor)]):
            found = local_values(node, self.values, wide=True, change=change)
            if isinstance(found, Tensor):
                yield found

    def verdict(self, node: Node, comparison: Comparison) -> Verdict:
        """Decide between lowering and engine, for a node that is wrong."""
        piece, alone = self._smallest(node)
        others = [name for name in ENGINES if name != self.engine]
        last = None if piece is not self.piece else node
        said = {self.engine: "wrong", **{name: asked(piece, name, self.judge, last) for name in others}}
        together = "by itself" if alone else "together with operators before it"
        for name in others:
            if said[name] == "right":
                reason = f"{name} computes the operator {together} right, {self.engine} does not"
                return Verdict(Kind.ENGINE, reason, comparison, piece, said)
        if "wrong" in (said[name] for name in others):
            reason = f"every engine that can run the operator {together} computes it wrong"
            return Verdict(Kind.LOWERING, reason, comparison, piece, said)
        reason = f"no other engine can run the operator {together}: this is the lowering or the engine"
        return Verdict(Kind.UNDECIDED, reason, comparison, piece, said)

    def _smallest(self, node: Node) -> tuple[Piece, bool]:
        """Return the fewest operators with which ``node`` is wrong, else all; and whether it is alone."""
        for count, nodes in enumerate(self._growing(node)):
            piece = piece_of(nodes, self.piece.module, self.values, self.piece.seed)
            if asked(piece, self.engine, self.judge) == "wrong":
                return piece, count == 0
        return self.piece, False

    def _growing(self, node: Node) -> Iterator[list[Node]]:
        """Yield the operator alone, then with more and more of the operators that it depends on."""
        inside = _whole({called_by(node)[0]})
        order = {one: place for place, one in enumerate(self.piece.module.graph.nodes)}
        for depth in _DEPTHS:
            yield sorted(inside, key=order.__getitem__)
            before = inside
            for _ in range(depth):
                sources = {source for one in inside for source in one.all_input_nodes}
                grown = inside | _whole({source for source in sources if source.op == "call_function"})
                if grown == inside:
                    break
                inside = grown
            if inside == before:
                return

    def accumulating(self, node: Node) -> Piece:
        """Return ``node`` with just enough operators before it to depart from eager PyTorch."""
        piece = self.piece
        for nodes in self._growing(node):
            piece = piece_of(nodes, self.piece.module, self.values, self.piece.seed)
            if departs(piece, self.engine, self.judge):
                break
        return piece


def asked(piece: Piece, engine: str, judge: Judge, node: Node | None = None) -> str:
    """Return "right" or "wrong" for an engine's result of a piece's operator, or why it cannot run it.

    ``node`` is the operator; None is the last one.
    """
    try:
        values = piece.on_engine(engine)
    except TorchstoneError as error:
        return cannot_run(error)
    arbiter = Arbiter(piece, {**piece.given, **values}, engine, judge)
    for one in _results(piece) if node is None else [node]:
        found = None if is_drawn(one) else arbiter.alone(one)
        if found is not None and not found.passed:
            return "wrong"
    return "right"


def cannot_run(error: TorchstoneError) -> str:
    """Return the text for an engine that raises ``error``."""
    return f"cannot run it: {error.message.partition(chr(10))[0]}"


def departs(piece: Piece, engine: str, judge: Judge) -> bool:
    """Whether a result of the last operator is beyond the tolerance of eager's result for the same inputs."""
    values = piece.on_engine(engine)
    eager = piece.in_eager({node: values[node] for node in piece.nodes if is_drawn(node)})
    pairs = [(values[node], eager[node]) for node in _results(piece)]
    return any(isinstance(want, Tensor) and not judge.plain(found, want).passed for found, want in pairs)


def _results(piece: Piece) -> list[Node]:
    """Return the results of the last operator."""
    last, _ = called_by(piece.nodes[-1])
    return [node for node in piece.nodes if called_by(node)[0] is last]


def _whole(nodes: set[Node]) -> set[Node]:
    """Return the operators that ``nodes`` are results of, together with all results of these operators."""
    callers = {called_by(node)[0] for node in nodes}
    return callers | {
        user for one in callers for user in one.users if called_by(user) != (user, None) and is_result(user)
    }


def changes(caller: Node, operands: Sequence[Tensor]) -> Iterator[Callable[[Tensor], Tensor]]:
    """Yield functions that change every floating-point operand by about as much as rounding does."""
    dtypes = [one.dtype for one in operands if one.dtype.is_floating_point or one.dtype.is_complex]
    if not dtypes:
        return
    unit = max(torch.finfo(dtype).eps for dtype in dtypes) / 2
    terms = 1 if torch.Tag.pointwise in getattr(caller.target, "tags", ()) else _terms(operands)
    step = 2 * unit * min(terms, LAMBDA * math.sqrt(terms)) if terms > 1 else 2 * unit
    for seed in range(PROBES):
        generator = torch.Generator().manual_seed(seed)

        def change(tensor: Tensor, generator: torch.Generator = generator) -> Tensor:
            if not tensor.is_floating_point() and not tensor.is_complex():
                return tensor
            signs = torch.randint(0, 2, tensor.shape, generator=generator) * 2 - 1
            return tensor * (1 + step * signs)

        yield change


def _terms(operands: Sequence[Tensor]) -> int:
    """Return about how many products a reduction or contraction of ``operands`` adds up at most."""
    sizes = [
        max(*one.shape, one.numel() // max(one.shape[0], 1)) for one in operands if one.dim() and one.numel()
    ]
    return max(sizes, default=1)
