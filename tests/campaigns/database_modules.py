"""The campaign ``modules``: every input of PyTorch's ``module_db``, compiled and exported, against eager.

Each module is tried in training and in evaluation mode, once through ``torch.compile`` and once through
export -> save -> load -> run. The campaign compares the results and the buffers after the call and, for
compiled modules, the gradients of parameters and inputs for random cotangents. If ``--count`` is more than
the number of inputs, they begin again.
"""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

import torchstone
from optest.torch.internals import database
from torchstone.errors import FallbackWarning
from torchstone.parity.alike import tensors
from torchstone.torch_internals import pytree


@dataclass(frozen=True)
class Case:
    """A module with one of its inputs; ``place`` counts the inputs of the module in this mode."""

    info: Any
    training: bool
    place: int
    dtype: torch.dtype = torch.float32

    @property
    def what(self) -> str:
        return f"{self.kind}, input {self.place}"

    @property
    def kind(self) -> str:
        return f"{self.info.name} in {'training' if self.training else 'evaluation'} mode"

    def build(self) -> tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any]]:
        """Return the module in its mode, and the arguments of its call."""
        sample = _samples(self.info, self.training, self.dtype)[self.place]
        torch.manual_seed(0)
        made, given = sample.constructor_input, sample.forward_input
        module = self.info.module_cls(*made.args, **made.kwargs).to(self.dtype).train(self.training)
        if any(torch.nn.parameter.is_lazy(one) for one in module.parameters()):
            with torch.no_grad():
                module(*given.args, **given.kwargs)  # gives lazy parameters their shapes
        return module, given.args, given.kwargs


@dataclass
class Run:
    """What a call returned, its gradients, and the buffers after it."""

    values: list[torch.Tensor]
    structure: Any
    gradients: list[torch.Tensor | None] = field(default_factory=list)
    buffers: list[torch.Tensor] = field(default_factory=list)


class Tries:
    def __init__(self, folder: Path) -> None:
        self.cases = list(cases())
        self._file = folder / "module.stone"

    def make(self, number: int) -> Case:
        return self.cases[number % len(self.cases)]

    def attempt(self, made: Case) -> tuple[str, str]:
        ended, defects = [], []
        for name, road in (("compiles", self._compiled), ("exports", self._exported)):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    warnings.simplefilter("error", FallbackWarning)
                    road(made)
            except Exception as error:  # noqa: BLE001  # whatever it is, the module did not pass
                defects.append(f"{name}: {type(error).__name__}: {str(error)[:2000]}")
            else:
                ended.append(name)
        return " and ".join(ended) or "fails", "\n".join(defects)

    def _compiled(self, case: Case) -> None:
        torch.compiler.reset()
        eager = run(case, lambda module: module, gradients=True)
        ours = run(case, lambda module: torch.compile(module, backend="torchstone"), gradients=True)
        compare(ours, eager, lambda: run(_wide(case), lambda module: module, gradients=True))

    def _exported(self, case: Case) -> None:
        module, args, kwargs = case.build()
        torchstone.export(module, args, kwargs).save(self._file)
        program = torchstone.load(self._file)
        eager = run(case, lambda module: module, gradients=False)
        ours = run(case, lambda _: program, gradients=False)
        names = [name for name, _ in module.named_buffers()]
        state = program.state()
        ours.buffers = [
            torch.as_tensor(state[name]) if name in state else own
            for name, own in zip(names, eager.buffers, strict=True)
        ]
        compare(ours, eager, lambda: run(_wide(case), lambda module: module, gradients=False))


def prepare(seed: int, folder: Path) -> Tries:
    del seed  # PyTorch gives the inputs
    torch.set_num_threads(1)
    logging.getLogger("torch").setLevel(logging.CRITICAL)  # it logs graph breaks
    return Tries(folder)


def cases() -> Iterator[Case]:
    """Yield each module in both modes with each of its inputs, except inputs that only construct it."""
    for info in database("module_db"):
        dtype = torch.float32 if torch.float32 in info.dtypes else info.dtypes[0]
        for training in (True, False):
            for place, sample in enumerate(_samples(info, training, dtype)):
                if sample.forward_input is not None:
                    yield Case(info, training, place, dtype)


def _samples(info: Any, training: bool, dtype: torch.dtype) -> list[Any]:
    torch.manual_seed(0)
    made = info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=True, training=training)
    return list(made)


def _wide(case: Case) -> Case:
    return Case(case.info, case.training, case.place, torch.float64)


def run(case: Case, make: Callable[[torch.nn.Module], Any], *, gradients: bool) -> Run:
    module, args, kwargs = case.build()
    call = make(module)
    torch.manual_seed(7)
    with contextlib.nullcontext() if gradients else torch.no_grad():
        output = call(*args, **kwargs)
    leaves, structure = pytree.tree_flatten(output)
    run = Run([leaf for leaf in leaves if isinstance(leaf, torch.Tensor)], structure)
    run.buffers = [one for _, one in module.named_buffers()]
    differentiable = [one for one in run.values if one.requires_grad]
    inputs = [one for one in (*module.parameters(), *tensors(args, kwargs)) if one.requires_grad]
    if gradients and differentiable and inputs:
        generator = torch.Generator().manual_seed(3)
        cotangents = [
            torch.randn(one.shape, generator=generator, dtype=torch.float64).to(one.dtype)
            for one in differentiable
        ]
        run.gradients = list(torch.autograd.grad(differentiable, inputs, cotangents, allow_unused=True))
    return run


def compare(ours: Run, eager: Run, in_float64: Callable[[], Run]) -> None:
    """Raise AssertionError if ``ours`` differs from eager's, and its error is more than twice eager's."""
    assert ours.structure == eager.structure, f"{ours.structure} instead of {eager.structure}"
    for part in ("values", "buffers", "gradients"):
        found, wanted = getattr(ours, part), getattr(eager, part)
        assert [one is None for one in found] == [one is None for one in wanted], f"{part} are missing"
        for place, (one, other) in enumerate(zip(found, wanted, strict=True)):
            if other is None:
                continue
            assert (one.dtype, one.shape) == (other.dtype, other.shape), f"{part} {place}: another form"
            try:
                torch.testing.assert_close(one, other, equal_nan=True)
            except AssertionError as error:
                if not _as_exact(one, other, getattr(in_float64(), part)[place]):
                    raise AssertionError(f"{part} {place}: {error}") from None


def _as_exact(ours: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor) -> bool:
    error, theirs = ((one.double() - exact).abs().max() for one in (ours, eager))
    return bool(error <= 2 * theirs)
