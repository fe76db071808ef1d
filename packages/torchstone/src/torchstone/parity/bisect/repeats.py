"""Check that the model repeats itself: eager runs from the same seed, compared operator by operator.

The second run is in this process, the third in a fresh one, where sets of strings have another order.
A difference between eager runs is the model's own nondeterminism; comparing such a model with a compiled
one would show nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ...compiler.graphs import to_numpy
from ...compiler.provenance import Origin, Provenance
from ...errors import TorchstoneError
from ...torch_internals import pytree
from ...torch_internals.operators import OpOverload
from ..model import Model, load_model
from ..subject import Subject

Tensor = torch.Tensor
Run = Callable[[Subject, Provenance], None]
"""A function that runs one training step of a subject and tells the provenance when a phase begins."""

_UNINITIALIZED = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "resize_")
_TIMEOUT_S = 300.0


@dataclass(frozen=True)
class Event:
    """One call of an operator: its numbers and other plain arguments, and a digest of each result."""

    operator: str
    arguments: str
    digests: tuple[str, ...]
    origin: Origin


@dataclass(frozen=True)
class Difference:
    """The first call in which a run differs from the first run; ``place`` is its index in the first run.

    ``values`` has one of the call's results in the first run and in the other, if both are known.
    """

    place: int
    what: str
    values: tuple[Tensor, Tensor] | None = None


class _Differs(Exception):
    """Raised where a run departs from the first one; has the call, the reason and the result that differs."""

    def __init__(self, place: int, what: str, result: int = 0, value: Tensor | None = None) -> None:
        self.place, self.what, self.result, self.value = place, what, result, value


class Recorder(Provenance):
    """A mode that records every call of an operator, and raises at the first one that is not as ``expected``.

    Without ``expected`` it keeps the results of the calls.
    """

    def __init__(self, model: Any, expected: Sequence[Event] | None = None) -> None:
        super().__init__(model)
        self.events: list[Event] = []
        self.kept: list[list[Tensor]] = []
        self._expected = expected

    def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        origin = self.now()
        result = operator(*args, **(kwargs or {}))
        if not isinstance(operator, OpOverload) or operator.namespace == "profiler":
            return result
        arguments = [_text(leaf) for leaf in pytree.tree_leaves((args, kwargs or {}))]
        results = [one.detach() for one in pytree.tree_leaves(result) if isinstance(one, Tensor)]
        known = operator.overloadpacket.__name__ not in _UNINITIALIZED
        digests = tuple(_digest(one) if known else "" for one in results)
        event = Event(str(operator), " ".join(arguments), digests, origin)
        if self._expected is not None:
            self._compare(event, results)
        else:
            self.kept.append([one.clone() for one in results])
        self.events.append(event)
        return result

    def _compare(self, event: Event, results: list[Tensor]) -> None:
        assert self._expected is not None
        place = len(self.events)
        if place >= len(self._expected):
            raise _Differs(place - 1, f"the second run goes on after it, with {event.operator}")
        other = self._expected[place]
        if event.operator != other.operator:
            raise _Differs(place, f"the second run calls {event.operator} in its place")
        if event.arguments != other.arguments:
            raise _Differs(
                place, f"the first run calls it with {other.arguments}, the second with {event.arguments}"
            )
        for which, (mine, theirs) in enumerate(zip(event.digests, other.digests, strict=True)):
            if mine != theirs:
                what = "the same call, from the same seed, has another result"
                raise _Differs(place, what, which, results[which].clone())

    def finish(self) -> None:
        """Raise if the expected run has more calls."""
        if self._expected is not None and len(self.events) < len(self._expected):
            raise _Differs(len(self.events), "the second run ends before it")


def recorded(run: Run, subject: Subject) -> Recorder:
    """Record the calls of one run."""
    with Recorder(subject.model) as recorder:
        run(subject, recorder)
    return recorder


def repeated(run: Run, subject: Subject, first: Recorder) -> Difference | None:
    """Run once more in this process, and return the first call that differs from the ``first`` run's."""
    found = _difference(run, subject, first.events)
    return None if found is None else _told(found, first, found.value)


def _difference(run: Run, subject: Subject, expected: Sequence[Event]) -> _Differs | None:
    try:
        with Recorder(subject.model, expected) as recorder:
            run(subject, recorder)
            recorder.finish()
    except _Differs as found:
        return found
    return None


def _told(found: _Differs, first: Recorder, value: Tensor | None, where: str = "") -> Difference:
    values = None if value is None else (first.kept[found.place][found.result], value)
    return Difference(found.place, found.what + where, values)


def _text(leaf: Any) -> str:
    """Return the text of a plain value, which can be compared between runs; of other values only the type."""
    plain = isinstance(leaf, (bool, int, float, complex, str, torch.dtype, torch.device, torch.layout))
    return repr(leaf) if plain or leaf is None else type(leaf).__name__


def _digest(tensor: Tensor) -> str:
    if tensor.layout is not torch.strided or tensor.is_quantized:
        return str(tensor.layout)
    array = to_numpy(tensor)
    return hashlib.blake2b(array.tobytes(), digest_size=12).hexdigest() + str(array.shape)


class FreshRun:
    """The same run in a fresh process with another order of sets; it starts immediately.

    ``name`` is the model's name as a user types it. The other process loads the model by it and replaces
    the model's parameters, buffers and inputs with those of this process.
    """

    def __init__(
        self, name: str, subject: Subject, first: Recorder, optimizer: str | None, seed: int
    ) -> None:
        self._first = first
        self._folder = tempfile.TemporaryDirectory(prefix="torchstone-")
        folder = Path(self._folder.name)
        torch.save([one.detach() for one in _tensors(subject)], folder / "tensors.pt")
        events = [(e.operator, e.arguments, e.digests) for e in first.events]
        (folder / "events.json").write_text(
            json.dumps({"model": name, "optimizer": optimizer, "seed": seed, "events": events})
        )
        known = [path or os.getcwd() for path in sys.path]
        # A hash seed that this process does not have.
        other = "1" if os.environ.get("PYTHONHASHSEED") == "0" else "0"
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(folder)],
            env={**os.environ, "PYTHONHASHSEED": other, "PYTHONPATH": os.pathsep.join(known)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def difference(self) -> Difference | str | None:
        """Wait, and return the first call that differs; None if none does, or why the process failed."""
        try:
            _, said = self._process.communicate(timeout=_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.close()
            return f"it took longer than {_TIMEOUT_S:g} s"
        answer = Path(self._folder.name, "answer.json")
        if self._process.returncode or not answer.exists():
            return (said.strip().splitlines() or ["it ended without an answer"])[-1]
        told = json.loads(answer.read_text())
        if told is None or isinstance(told, str):
            return told
        value = Path(self._folder.name, "value.pt")
        other = torch.load(value, weights_only=True) if value.exists() else None
        return _told(_Differs(*told), self._first, other, ", in a process with another order of sets")

    def close(self) -> None:
        """End the process, if it still runs, and remove the files that were written for it."""
        with suppress(ProcessLookupError):
            self._process.kill()
        self._process.wait()
        self._folder.cleanup()


def _tensors(subject: Subject) -> list[Tensor]:
    model = subject.model
    own = [*model.parameters(), *model.buffers()] if isinstance(model, torch.nn.Module) else []
    return [*own, *subject.inputs()]


def _put(subject: Subject, tensors: Sequence[Tensor]) -> bool:
    """Copy ``tensors`` into the tensors of ``subject``; return False if the shapes or dtypes do not match."""
    own = _tensors(subject)
    if [(one.shape, one.dtype) for one in own] != [(one.shape, one.dtype) for one in tensors]:
        return False
    with torch.no_grad():
        for one, value in zip(own, tensors, strict=True):
            one.copy_(value)
    return True


def module_results(name: str, path: str, seed: int) -> list[Tensor]:
    """Load the model, run it once, and return what its module at ``path`` returns."""
    torch.manual_seed(seed)
    model = load_model(name)
    subject = Subject(model.model, model.args, model.kwargs).copy(training=True)
    found: list[Tensor] = []

    def keep(_: Any, __: Any, result: Any) -> None:
        found.extend(one for one in pytree.tree_leaves(result) if isinstance(one, Tensor))

    torch.manual_seed(seed)
    if not isinstance(subject.model, torch.nn.Module):
        return subject()
    with subject.model.get_submodule(path).register_forward_hook(keep):
        subject()
    return found


def main(folder: Path) -> None:
    """Run the step as the first process did, and write down the first call that differs."""
    from .roads import eager_step

    asked = json.loads((folder / "events.json").read_text())
    model: Model = load_model(asked["model"])
    given = Subject(model.model, model.args, model.kwargs)
    torch.manual_seed(asked["seed"])
    subject = given.copy(training=True)
    answer: Any = "its factory makes another model in each process"
    if _put(subject, torch.load(folder / "tensors.pt", weights_only=True)):
        events = [
            Event(operator, text, tuple(each), Origin("forward")) for operator, text, each in asked["events"]
        ]
        torch.manual_seed(asked["seed"])
        found = _difference(eager_step(asked["optimizer"]), subject, events)
        answer = None if found is None else [found.place, found.what, found.result]
        if found is not None and found.value is not None:
            torch.save(found.value, folder / "value.pt")
    (folder / "answer.json").write_text(json.dumps(answer))


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]))
    except TorchstoneError as error:
        sys.exit(str(error))
