"""Programs with collectives, which all ranks run together."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy

from .config import config
from .errors import InputMismatch, ShardingError
from .program import Program, check_module
from .runtime import Buffer, get_engine
from .runtime.pjrt import PjrtEngine
from .runtime.ranks import RankedProgram
from .trees import unflatten

__all__ = ["Ranks"]


class Ranks:
    """Programs with collectives that several ranks run together, each on its own device and tensors.

    ``programs`` come from :func:`~torchstone.export` of a model that calls PyTorch's functional
    collectives. Give one program for each rank that this process runs, in order, or a single program if
    all ranks have the same weights. A process runs the ranks whose devices it has; :attr:`local` says which.
    The given programs do not change: the buffers that a model mutates are kept here, separately per rank.

    Raises :class:`~torchstone.errors.ShardingError` for a program without collectives, if the number of
    programs is not the number of ranks here, for programs that differ in more than the values of weights,
    for an engine other than ``pjrt``, and if there are fewer devices than ranks.
    """

    def __init__(
        self, programs: Program | Sequence[Program], *, engine: str | None = None, device: str | None = None
    ) -> None:
        given: list[Any] = list(programs) if isinstance(programs, (list, tuple)) else [programs]
        if not given or not all(isinstance(one, Program) for one in given):
            raise ShardingError(
                "Ranks takes programs of torchstone.export: one, or a list with one for each rank"
            )
        count = given[0].signature.ranks
        if count is None:
            raise ShardingError(
                "the program calls no collectives of several ranks", hint="call the program itself"
            )
        self.count: int = count
        """The number of ranks in all processes together."""
        found = get_engine(engine, device)
        if not isinstance(found, PjrtEngine):
            raise ShardingError(
                f"the program is for {count} ranks, and the engine {found.name!r} runs one",
                hint='use engine="pjrt"',
            )
        self._engine = found
        self.local: tuple[int, ...] = tuple(found.rank_devices(count).local)
        """The ranks that this process runs, in order; all of them if there is only one process."""
        if isinstance(programs, Program):
            given *= len(self.local)
        if len(given) != len(self.local):
            raise ShardingError(
                f"{len(given)} programs were given, and this process runs {len(self.local)} ranks of {count}",
                hint="give one for each rank, or one program for all",
            )
        self._ranks = [_Rank(one, rank) for one, rank in zip(given, self.local, strict=True)]
        for one in self._ranks[1:]:
            self._ranks[0].require_same(one)
        self._executables: OrderedDict[tuple[tuple[int, ...], ...], RankedProgram] = OrderedDict()
        self._lock = threading.Lock()

    def __call__(
        self, args: Sequence[Sequence[Any]], kwargs: Sequence[Mapping[str, Any]] | None = None
    ) -> list[Any]:
        """Run all ranks on their arguments and return the result of each.

        ``args`` has a tuple of positional arguments for each rank in :attr:`local`, ``kwargs`` a mapping of
        keyword arguments. The arrays must have the same shapes on all ranks; their types are those that a
        :class:`~torchstone.Program` takes. A call that raises changes no input and no buffer.

        Raises :class:`~torchstone.errors.InputMismatch` naming the rank and the argument, and the errors of
        :class:`~torchstone.Program` for indices and values that are checked.
        """
        named: list[Mapping[str, Any]] = [{}] * len(self._ranks) if kwargs is None else list(kwargs)
        for what, given in (("args", args), ("kwargs", named)):
            if len(given) != len(self._ranks):
                raise InputMismatch(
                    f"{what} has {len(given)} entries, and there are {len(self._ranks)} ranks",
                    hint="give a tuple of arguments for each rank: ranks([(x0,), (x1,)])",
                )
        calls = zip(self._ranks, args, named, strict=True)
        bound = [one.bound(positional, by_name) for one, positional, by_name in calls]
        _, shapes, symbols = bound[0]
        for one, (_, other, _) in zip(self._ranks, bound, strict=True):
            if other != shapes:
                raise InputMismatch(
                    f"rank {one.rank} has arguments of the shapes {_texts(other)}, and rank "
                    f"{self._ranks[0].rank} {_texts(shapes)}",
                    hint="ranks run one program: give all of them the same shapes",
                )
        with self._lock:
            executable = self._executable(shapes, symbols)
            arguments = {
                one.rank: one.arguments(given, executable)
                for one, (given, *_) in zip(self._ranks, bound, strict=True)
            }
        results = executable(arguments)
        for one in self._ranks:
            one.check(results[one.rank])
        return [
            one.delivered(given, results[one.rank], symbols)
            for one, (given, *_) in zip(self._ranks, bound, strict=True)
        ]

    def state(self, rank: int) -> dict[str, numpy.ndarray[Any, Any]]:
        """Return the parameters and buffers of ``rank`` by name, as they are now: read-only.

        Raises :class:`~torchstone.errors.ShardingError` for a rank that this process does not run.
        """
        if rank not in self.local:
            raise ShardingError(f"rank {rank!r} is not among those of this process: {list(self.local)}")
        return self._ranks[self.local.index(rank)].state()

    def _executable(self, shapes: Sequence[tuple[int, ...]], symbols: Mapping[str, int]) -> RankedProgram:
        key = tuple(shapes)
        if key in self._executables:
            self._executables.move_to_end(key)
        else:
            self._executables[key] = self._ranks[0].compiled(self._engine, symbols)
            while len(self._executables) > max(config.specializations, 1):
                self._executables.popitem(last=False)
        return self._executables[key]


class _Rank(Program):
    """One rank's program, with the state of its buffers."""

    def __init__(self, program: Program, rank: int) -> None:
        super().__init__(program._present(program._artifact))
        self.rank = rank

    def require_same(self, other: _Rank) -> None:
        """Raise ShardingError if the other rank's program differs in more than the values of weights."""
        mine, theirs = (replace(one.signature, producer={}) for one in (self, other))
        what = "arguments or results" if mine != theirs else "operations"
        if mine != theirs or self._artifact.module != other._artifact.module:
            raise ShardingError(
                f"the programs of ranks {self.rank} and {other.rank} differ in their {what}, and ranks run "
                "one program",
                hint='export each rank\'s model in the same way, with weights="arguments"; a model that '
                "computes with the number of its rank has another program on each rank",
            )

    @contextmanager
    def _naming_the_rank(self) -> Iterator[None]:
        try:
            yield
        except InputMismatch as error:
            raise InputMismatch(f"rank {self.rank}: {error.message}", hint=error.hint) from error

    def bound(
        self, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[list[Any], list[tuple[int, ...]], dict[str, int]]:
        """Return a call's tensors, their shapes and the values of the symbols; errors name the rank."""
        with self._naming_the_rank():
            return self._bound(tuple(args), dict(kwargs))

    def compiled(self, engine: PjrtEngine, symbols: Mapping[str, int]) -> RankedProgram:
        """Compile the program of all ranks for these sizes."""
        assert self.signature.ranks is not None
        made = engine.compile_for_ranks(
            self._static_module(symbols), self.signature.ranks, input_names=self._names()
        )
        check_module(self.signature, made.part(self.rank), symbols)
        return made

    def arguments(self, given: Sequence[Any], executable: RankedProgram) -> list[Any]:
        """Return all arguments of the module, on this rank's device."""
        part = executable.part(self.rank)
        self._place_state(part)
        with self._naming_the_rank():
            return self._arguments(given, part)

    def check(self, results: Sequence[Buffer]) -> None:
        """Raise if a check among the results has failed."""
        self._check(results)

    def delivered(self, given: Sequence[Any], results: Sequence[Buffer], symbols: Mapping[str, int]) -> Any:
        """Write mutations back; return what the model returns."""
        sizes = self._sizes(symbols, results)
        return unflatten(self.signature.output_tree, self._deliver(given, results, sizes), sizes)


def _texts(shapes: Sequence[Sequence[int]]) -> str:
    return ", ".join(str(list(shape)) for shape in shapes)
