"""The program of a child process of :mod:`.processes`: it reads and calls APIs, and sends a report for each.

Before the package can change PyTorch, everything that is needed to make arguments and to read results is
imported, and all arguments are made.
"""

from __future__ import annotations

import importlib
import inspect
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch

from .answers import Answer, Status
from .arguments import Arguments
from .compare import signature_differences, takes_device
from .contracts import contract_arguments, contract_function, contract_trial
from .outcomes import modes_kept, run
from .processes import Failure, Ready, Report, Task, connection_of
from .surface import Api, first_line
from .trials import accepted, callable_safely, counterpart, function_of, quiet, trial_arguments

_CUDA = "torch.cuda."
_CUDA_TENSORS: tuple[Callable[[], torch.Tensor], ...] = (
    lambda: torch.empty(1, device="cuda"),
    lambda: torch.ones(1, device="cuda"),
    lambda: torch.tensor([1.0], device="cuda"),
    lambda: torch.zeros(1).to("cuda"),
    lambda: torch.zeros(1).cuda(),
)
"""Ways to get a tensor on CUDA; one of them may be broken."""
_device = torch.Tensor.device.__get__


def look_up(name: str) -> Any:
    """Return the object that user code gets for ``name``. Raises AttributeError or ImportError."""
    value: Any = torch
    path = "torch"
    for part in name.split(".")[1:]:
        path = f"{path}.{part}"
        if isinstance(value, type):
            value = inspect.getattr_static(value, part)
        elif not hasattr(value, part):
            value = importlib.import_module(path)
        else:
            value = getattr(value, part)
    return value.__func__ if isinstance(value, staticmethod | classmethod) else value


def reference_side(task: Task) -> Iterator[Ready | Report]:
    """Call PyTorch itself: report the first arguments that each API accepts, and the outcome."""
    yield Ready()
    for api in task.apis:
        found = None
        if callable_safely(api):
            function = function_of(api, look_up(counterpart(api).name))
            found = None if function is None else accepted(api, function, takes_device(api))
        yield Report() if found is None else Report(attempt=found[0], outcome=replace(found[2], kind=None))


class PatchedSide:
    """Calls PyTorch after importing the package of ``task``; iterating runs the task."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._before = {api.name: look_up(api.name) for api in task.apis}
        self._arguments = {api.name: list(self._made(api)) for api in task.apis}
        self._contracts = {api.name: contract_arguments(api) for api in task.apis if _is_cuda(api)}
        self._place = ""

    def _made(self, api: Api) -> Iterator[Arguments]:
        wanted = self._task.attempts.get(api.name)
        for attempt, arguments in enumerate(trial_arguments(api, takes_device(api))):
            if wanted is None or attempt > wanted:
                return
            if attempt == wanted:
                yield arguments

    def __iter__(self) -> Iterator[Ready | Failure | Report]:
        try:
            importlib.import_module(self._task.package)
        except (Exception, SystemExit) as error:  # noqa: BLE001 -- importing a package may run anything
            yield Failure(first_line(error))
            return
        self._place = _cuda_place()
        yield Ready(self._place)
        for api in self._task.apis:
            yield self._report(api)

    def _report(self, api: Api) -> Report:
        try:
            after = look_up(api.name)
        except (AttributeError, ImportError):
            return Report(Answer(Status.ABSENT, loud=True))
        same = after is self._before[api.name]
        if _is_cuda(api):
            return self._cuda_report(api, after, same)
        answer = self._answer(api, after, same)
        function = function_of(api, after)
        if not self._arguments[api.name] or function is None:
            return Report(answer)
        (arguments,) = self._arguments[api.name]
        outcome = run(function, arguments, "cuda" if self._place else "cpu", self._place or "cpu")
        return Report(answer, outcome=replace(outcome, kind=None))

    def _cuda_report(self, api: Api, after: Any, same: bool) -> Report:
        """Report on a ``torch.cuda`` API; if it was left unchanged and does not work, it is absent."""
        arguments = self._contracts[api.name]
        trial = None
        if arguments is not None:
            trial = contract_trial(api, contract_function(api, look_up), arguments, self._place or "cpu")
        if not same:
            return Report(self._answer(api, after, same), contract=trial)
        if trial is None and api.kind in ("value", "module", "property"):
            return Report()
        if trial is not None and not trial.differences:
            return Report(Answer(Status.MATCH), contract=trial)
        return Report(Answer(Status.ABSENT) if self._place else None)

    def _answer(self, api: Api, after: Any, same: bool) -> Answer:
        if same:
            return Answer(Status.MATCH)
        before = self._before[api.name]
        found = signature_differences(api.signatures, before, after)
        if isinstance(before, type) and not isinstance(after, type):
            found = (*found, "it is a class there and none here: isinstance does not work with it")
        return Answer(Status.WRAPS, _called(after), signature=found)


def _is_cuda(api: Api) -> bool:
    return api.name.startswith(_CUDA)


def _cuda_place() -> str:
    """Return the device type on which most ways to make a CUDA tensor put it; empty if most of them fail."""
    places = Counter[str]()
    for make in _CUDA_TENSORS:
        try:
            with modes_kept():
                places[_device(make()).type] += 1
        except (Exception, SystemExit):  # noqa: BLE001 -- that it fails is the answer
            places[""] += 1
    return places.most_common(1)[0][0]


def _called(value: Any) -> str:
    """Return the dotted name of an object that replaces one of PyTorch's, where it was defined."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    return f"{module}.{name}" if module and name else type(value).__name__


def main(descriptor: str) -> None:
    """Run the task that arrives on the connection with this file descriptor."""
    connection = connection_of(descriptor)
    task: Task = connection.recv()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated names warn when they are accessed
        side = PatchedSide(task) if task.package else reference_side(task)
        with quiet():
            for message in side:
                connection.send(message)


if __name__ == "__main__":
    main(sys.argv[1])
