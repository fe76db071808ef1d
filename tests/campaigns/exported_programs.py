"""Random programs through export -> save -> load -> run, against eager PyTorch.

The campaign compares the results and their containers, dtypes and shapes, and the inputs and buffers after
the call, in three calls with different sizes and values. If a program's signature refuses a call, the program
is exported again for it. If results differ, the program is made as small as possible, and the text of the
defect ends with it as a script.

Three kinds of differences are no defects of the export: those that :mod:`compiled_programs` allows, those
that ``torch.export`` alone shows in the same way, and clear refusals.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from compiled_programs import (
    Difference,
    Differs,
    Run,
    compare_structure,
    compare_values,
    giver,
    promised_forms,
    shown,
    shrunk,
)
from export_maker import MODEL, ExportedProgram, make_exported
from program_maker import load

import torchstone
from torchstone.config import override
from torchstone.errors import EngineError, InputMismatch, LoweringBug, TorchstoneError, VerificationError
from torchstone.parity.alike import tensors

_INTERNAL = (LoweringBug, EngineError, VerificationError)


@dataclass(frozen=True)
class Made:
    program: ExportedProgram

    @property
    def what(self) -> str:
        one = self.program
        how = f"sizes {one.sizes}, buffers {one.buffers}, checked {one.checked}, weights {one.weights}"
        return f"# {how}\n{one.definition}"


def prepare(seed: int, folder: Path) -> Tries:
    logging.getLogger("torch").setLevel(logging.CRITICAL)
    torch.set_num_threads(1)  # a forked child has none of this process's threads
    return Tries(seed, folder / "program.stone")


@dataclass
class Tries:
    seed: int
    file: Path

    def make(self, number: int) -> Made:
        return Made(make_exported(self.seed, number))

    def attempt(self, made: Made) -> tuple[str, str]:
        def ours(program: Any) -> tuple[Difference | None, set[str]]:
            return compared(program, self._ours)

        found, notes = ours(made.program)
        if found is None:
            return " ".join(sorted(notes)) or "agrees", ""
        theirs, _ = compared(made.program, _theirs)
        if theirs is not None and (theirs.kind, theirs.call) == (found.kind, found.call):
            return f"as torch.export: {found.kind}", ""
        smallest, found = shrunk(made.program, found, ours)
        return found.kind, f"call {found.call}: {found.text}\n{smallest.script()}"

    def _ours(self, model: Any, given: tuple[Any, ...], shapes: Any, weights: Any) -> Callable[..., Any]:
        made = torchstone.export(model, given, dynamic_shapes=shapes, weights=weights)
        made.save(self.file)
        return torchstone.load(self.file)


def _theirs(model: Any, given: tuple[Any, ...], shapes: Any, weights: Any) -> Callable[..., Any]:
    del weights
    return torch.export.export(model, given, dynamic_shapes=shapes, strict=False).module()


Exporter = Callable[[Any, tuple[Any, ...], Any, Any], Callable[..., Any]]


def compared(program: ExportedProgram, export: Exporter) -> tuple[Difference | None, set[str]]:
    """Return the first call that differs, if any, and notes about the calls."""
    notes = set[str]()
    with warnings.catch_warnings(), override(check_indices=program.checked, check_values=program.checked):
        warnings.simplefilter("ignore")
        calls = _Calls(program, export)
        for place in range(len(program.calls)):
            try:
                notes |= calls.compare(place)
            except Differs as error:
                return Difference(error.kind, place, str(error)), notes
            if any("refused" in note for note in notes):
                break
    return None, notes


class _Calls:
    """The calls of a program in order, made on the module itself and on its export."""

    def __init__(self, program: ExportedProgram, export: Exporter) -> None:
        self.program, self.export = program, export
        names = load(program)
        exec(MODEL, names)
        places = [place for place, name in enumerate(program.parameters) if name in program.buffers]
        self.give = [giver(call, names) for call in program.calls]
        self.model, self.eager = (names["Model"](names["program"], self.give[0](), places) for _ in range(2))
        self.exported: Callable[..., Any] | None = None

    def compare(self, place: int) -> set[str]:
        """Compare the call at ``place`` and return notes. Raise :class:`Differs` if the results differ."""
        program, call = self.program, self.program.calls[place]
        eager = self._run(self.eager, place)
        ours, notes = self._run_exported(place)
        if ours.error is not None:
            clear = isinstance(ours.error, TorchstoneError) and not isinstance(ours.error, _INTERNAL)
            if not clear and type(ours.error) is not type(eager.error):
                told = f"eager: {shown(eager.error)}; exported: {shown(ours.error)}"
                raise Differs(f"raises {type(ours.error).__name__}", told)
            return notes | {f"refused: {type(ours.error).__name__}"}
        if eager.error is not None:
            if program.checked and not _is_of_memory(eager.error):
                raise Differs("does not raise", shown(eager.error))
            return notes | {"eager refused"}
        compare_structure(eager.output, ours.output)
        ours.given += self._buffers()
        eager.given += [buffer.clone() for buffer in self.eager.buffers()]
        _compare_forms(program, eager, ours, call)
        if program.drawn:
            return notes | {"drawn"}
        replay = partial(_replayed, program.calls[:place]) if program.buffers else None
        return notes | compare_values(ours.all, eager.all, program, call, "values", runner=replay)

    def _run(self, function: Callable[..., Any], place: int) -> Run:
        given = self.model.rest(self.give[place]())
        run = Run(tensors(given))
        torch.manual_seed(7)
        try:
            with torch.no_grad():
                run.output = function(*given)
        except Exception as error:  # noqa: BLE001  # compared
            run.error = error
        return run

    def _run_exported(self, place: int) -> tuple[Run, set[str]]:
        """Make a call on the exported program.

        If its signature refuses the call and it has no buffers that live on, export it again for the call.
        """
        if self.exported is not None:
            run = self._run(self.exported, place)
            if not isinstance(run.error, InputMismatch) or self.program.buffers:
                return run, set()
        given = self.model.rest(self.give[place]())
        shapes = self.model.shapes([one() for one in self.give], self.program.sizes)
        try:
            self.exported = self.export(
                self.model, given, shapes if not place else None, self.program.weights
            )
        except Exception as error:  # noqa: BLE001  # compared
            return Run(error=error), set()
        return self._run(self.exported, place), {"exported again"} if place else set()

    def _buffers(self) -> list[torch.Tensor]:
        if not isinstance(self.exported, torchstone.Program):
            return list(self.exported.buffers())
        kept = self.exported.state()
        weights = [(kept[name], one) if name in kept else one for name, one in self.model.named_buffers()]
        return [_tensor(*one) if isinstance(one, tuple) else one for one in weights]


def _replayed(
    earlier: tuple[tuple[str, ...], ...],
    program: ExportedProgram,
    names: dict[str, Any],
    call: tuple[str, ...],
) -> Run:
    """Make a call after ``earlier`` calls of the same module. Order its values as :class:`_Calls` does."""
    names = {**names}
    exec(MODEL, names)
    places = [place for place, name in enumerate(program.parameters) if name in program.buffers]
    give = giver((earlier or (call,))[0], names)
    model = names["Model"](names["program"], give(), places)
    run = Run()
    for one in (*earlier, call):
        given = model.rest(giver(one, names)())
        run = Run(tensors(given))
        torch.manual_seed(7)
        with torch.no_grad():
            run.output = model(*given)
    run.given += list(model.buffers())
    return run


def _is_of_memory(error: Exception) -> bool:
    """Whether eager fails because of where values lie in memory, or has no kernel.

    A program has only values, so it need not fail.
    """
    return isinstance(error, NotImplementedError) or "memory location" in str(error)


def _tensor(array: Any, like: torch.Tensor) -> torch.Tensor:
    """Return the values of an array as a tensor. The array may have a dtype that NumPy does not know."""
    flat = torch.from_numpy(array.reshape(-1).view("uint8").copy())
    return flat.view(like.dtype).reshape(array.shape) if array.size else torch.empty_like(like)


def _compare_forms(program: ExportedProgram, eager: Run, ours: Run, call: tuple[str, ...]) -> None:
    found, wanted = ([(one.dtype, one.shape) for one in run.all] for run in (ours, eager))
    if found == wanted:
        return
    promised = [one[:2] for one in promised_forms(program, call)]
    known = promised if len(promised) == len(wanted) and not program.buffers else wanted
    triples = zip(found, wanted, known, strict=True)
    wrong = [f"{one} instead of {other}" for one, other, meta in triples if one not in (other, meta)]
    if wrong:
        raise Differs("form", "; ".join(wrong))
