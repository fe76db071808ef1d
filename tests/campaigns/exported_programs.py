"""Random programs through export -> save -> load -> run, against eager PyTorch.

Compared are results and their containers, dtypes, shapes, and what became of inputs and buffers, in three
calls of other sizes and values. A call that the program refuses by its signature is exported anew. A program
that differs is made as small as can be; the defect ends with it as a script.

What is not held against an export: what :mod:`compiled_programs` forgives, what ``torch.export`` alone does
in the same way, and clear refusals.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from compiled_programs import (
    Difference,
    Run,
    _compare_structure,
    _compare_values,
    _Differs,
    _giver,
    _promised,
    _shown,
    shrunk,
)
from export_maker import MODEL, ExportedProgram, make_exported
from program_maker import load

import torchstone
from torchstone.errors import EngineError, InputMismatch, LoweringBug, TorchstoneError, VerificationError
from torchstone.parity.alike import tensors

_INTERNAL = (LoweringBug, EngineError, VerificationError)


@dataclass(frozen=True)
class Made:
    program: ExportedProgram

    @property
    def what(self) -> str:
        one = self.program
        how = {"symbols": one.symbols, "buffers": one.buffers, "checked": one.checked, "weights": one.weights}
        return f"{how}\n{one.definition}"


def prepare(seed: int, folder: Path) -> Tries:
    logging.getLogger("torch").setLevel(logging.CRITICAL)
    torch.set_num_threads(1)  # a child that is forked has none of this process's threads
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

    def _ours(self, model: Any, given: tuple[Any, ...], program: ExportedProgram) -> Callable[..., Any]:
        shapes = model.shapes(given, program.symbols)
        rest = model.rest(given)
        made = torchstone.export(model, rest, dynamic_shapes=shapes, weights=program.weights)
        made.save(self.file)
        return torchstone.load(self.file)


def _theirs(model: Any, given: tuple[Any, ...], program: ExportedProgram) -> Callable[..., Any]:
    shapes = model.shapes(given, program.symbols)
    return torch.export.export(model, model.rest(given), dynamic_shapes=shapes, strict=False).module()


Exporter = Callable[[Any, tuple[Any, ...], ExportedProgram], Callable[..., Any]]


def compared(program: ExportedProgram, export: Exporter) -> tuple[Difference | None, set[str]]:
    """The first difference of a call, and what else is worth a note."""
    names, notes = load(program), set[str]()
    exec(MODEL, names)
    places = [place for place, name in enumerate(program.parameters) if name in program.buffers]
    settings = torchstone.config
    before = settings.check_indices, settings.check_values
    settings.check_indices = settings.check_values = program.checked
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model, state = (
                names["Model"](names["program"], _giver(program.calls[0], names)(), places) for _ in range(2)
            )
            function = None
            for place, call in enumerate(program.calls):
                give = _giver(call, names)
                try:
                    found, function = _one_call(program, model, state, give, function, export, place, call)
                except _Differs as error:
                    return Difference(error.kind, place, str(error)), notes
                notes |= found
                if any("refused" in note for note in notes):
                    break
    finally:
        settings.check_indices, settings.check_values = before
    return None, notes


def _one_call(
    program: ExportedProgram,
    model: Any,
    state: Any,
    give: Any,
    function: Any,
    export: Exporter,
    place: int,
    call: Any,
) -> tuple[set[str], Any]:
    eager, ours, notes = Run(), Run(), set()
    given = state.rest(give())
    eager.given = tensors(given)
    torch.manual_seed(7)
    try:
        with torch.no_grad():
            eager.output = state(*given)
    except Exception as error:  # noqa: BLE001  # compared
        eager.error = error
    for attempt in range(2):
        try:
            if function is None:
                function = export(model, give(), program)
                notes |= {"exported again"} if place else set()
            ours, given = Run(), state.rest(give())
            ours.given = tensors(given)
            torch.manual_seed(7)
            with torch.no_grad():
                ours.output = function(*given)
            ours.error = None
            break
        except Exception as error:  # noqa: BLE001  # compared
            ours.error = error
            if isinstance(error, InputMismatch) and not attempt and place and not program.buffers:
                function = None
                continue
            break
    if ours.error is not None:
        clear = isinstance(ours.error, TorchstoneError) and not isinstance(ours.error, _INTERNAL)
        if not clear and type(ours.error) is not type(eager.error):
            raise _Differs(
                f"raises {type(ours.error).__name__}", f"eager: {eager.error}; {_shown(ours.error)}"
            )
        return {f"refused: {type(ours.error).__name__}"}, function
    if eager.error is not None:
        if program.checked:
            raise _Differs("does not raise", _shown(eager.error))
        return {"eager refused"}, function
    _compare_structure(eager.output, ours.output)
    if hasattr(function, "state"):
        kept = function.state()
        ours.given += [torch.as_tensor(kept[n]) if n in kept else b for n, b in state.named_buffers()]
    else:
        ours.given += [b for _, b in function.named_buffers()]
    eager.given = [*eager.given, *(b for _, b in state.named_buffers())]
    _compare_forms(program, eager, ours, call)
    if program.drawn:
        return notes | {"drawn"}, function
    judged = None if program.buffers and place else program  # later calls begin with another state
    return notes | _compare_values(ours.all, eager.all, judged, call, "values"), function


def _compare_forms(program: ExportedProgram, eager: Run, ours: Run, call: tuple[str, ...]) -> None:
    found, wanted = ([(one.dtype, one.shape) for one in run.all] for run in (ours, eager))
    if found == wanted:
        return
    promised = [one[:2] for one in _promised(program, call)]
    known = promised if len(promised) == len(wanted) and not program.buffers else wanted
    triples = zip(found, wanted, known, strict=True)
    wrong = [f"{one} instead of {other}" for one, other, meta in triples if one not in (other, meta)]
    if wrong:
        raise _Differs("form", "; ".join(wrong))
