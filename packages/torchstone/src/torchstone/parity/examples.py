"""Compare one example with eager PyTorch: its artifact, and its gradients through ``torch.compile``.

Quicker and narrower than :mod:`.verify`: no fresh process, one comparison for each tensor.
"""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch

from optest.core.comparator import compare
from optest.core.comparison import Comparison

from ..api import export, load
from ..compiler import bounds
from ..compiler.capture import capture
from ..compiler.graphs import to_numpy
from ..torch_internals.pytree import tree_leaves
from .alike import tensors
from .compilation import plain_errors, watched
from .replay import run_all_fresh
from .subject import Subject, differentiate
from .zoo import Example, ZooModel

Tensors = list[torch.Tensor]


def check_forward(example: Example, *, engine: str | None = None) -> list[Comparison]:
    """Save and load the artifact, and compare its results with eager's, for every set of arguments.

    Raises :class:`AssertionError` if the program has a custom call.
    """
    with tempfile.TemporaryDirectory(prefix="torchstone-") as folder:
        return check_artifact(example, save(example, Path(folder, "model.stone")), engine=engine)


def check_artifact(example: Example, path: Path, *, engine: str | None = None) -> list[Comparison]:
    """Do what :func:`check_forward` does, with an artifact that :func:`save` wrote."""
    program = load(path, engine=engine)
    assert "custom_call" not in program.mlir_text(), "the program has a custom call"
    found = []
    for args in (example.args, *example.others):
        expected = _eager(example, args)
        # Both calls may write to their arguments and weights: each gets its own.
        actual = tensors(program(*copy.deepcopy(args)))
        found += _compared(actual, expected, partial(_eager, example, args, widen=True), example)
    return found


def save(example: Example, path: Path) -> Path:
    """Write the artifact of a model of the zoo."""
    twin = copy.deepcopy(example.model)
    with torch.no_grad(), nullcontext() if example.bounds is None else bounds(**example.bounds):
        program = export(twin, copy.deepcopy(example.args), dynamic_shapes=example.dynamic_shapes)
    return program.save(path)


def check_fresh(
    models: Sequence[ZooModel], inspect: Callable[[ZooModel, Path], None] = lambda model, path: None
) -> dict[str, list[Comparison]]:
    """Run all artifacts in one fresh process without torch, and compare their results with eager's, by name.

    ``inspect`` is called with each model and the path of its artifact before any of them runs.
    """
    examples = [model.make() for model in models]
    with tempfile.TemporaryDirectory(prefix="torchstone-") as folder:
        jobs = []
        for i, (model, example) in enumerate(zip(models, examples, strict=True)):
            path = save(example, Path(folder, f"{i}.stone"))
            inspect(model, path)
            jobs.append((path, [to_numpy(tensor) for tensor in tensors(example.args)]))
        results = run_all_fresh(jobs)
    found = {}
    for model, example, arrays in zip(models, examples, results, strict=True):
        actual = [torch.from_numpy(array.copy()) for array in arrays]
        expected = _eager(example, example.args)
        found[model.name] = _compared(
            actual, expected, partial(_eager, example, example.args, widen=True), example
        )
    return found


def check_backward(example: Example) -> list[Comparison]:
    """Compare the gradients of all parameters, or of the inputs if there are no parameters, with eager's.

    Raises :class:`AssertionError` if the compiled model leaves an operator to eager
    PyTorch that the example does not name.
    """
    with watched() as compilation, plain_errors():
        found = _gradients(example, _compiled)
    fallbacks = set(compilation.fallbacks) - set(example.in_eager)
    assert not fallbacks, f"left to eager PyTorch: {sorted(fallbacks)}"
    assert not compilation.breaks, f"graph breaks: {dict(compilation.breaks)}"
    assert compilation.native, "nothing was compiled"
    expected = eager_gradients(example)
    assert found.keys() == expected.keys(), f"gradients of {found.keys() ^ expected.keys()} on one side only"
    truth = lambda: list(_gradients(example, lambda function, _: function, widen=True).values())  # noqa: E731
    return _compared(list(found.values()), list(expected.values()), truth, example)


def _compiled(function: Callable[..., Any], example: Example) -> Callable[..., Any]:
    options: dict[str, Any] = {"fallback": bool(example.in_eager)}
    if not example.ruled:
        return torch.compile(function, backend="torchstone", options=options)
    with bounds(**(example.bounds or {})):
        captured = capture(function, example.args).module()
    return torch.compile(captured, backend="torchstone", options=options)


def eager_gradients(example: Example) -> dict[str, torch.Tensor]:
    """Return eager's gradients; raises :class:`RuntimeError` if eager differentiates nothing."""
    return _gradients(example, lambda function, _: function)


def _gradients(
    example: Example,
    prepare: Callable[[Callable[..., Any], Example], Callable[..., Any]],
    *,
    widen: bool = False,
) -> dict[str, torch.Tensor]:
    """Return dense gradients by the names of their tensors."""
    own = Subject(example.model, example.args, {})
    subject = own.doubled() if widen else own.copy(training=False)
    if isinstance(subject.model, torch.nn.Module) and not _drops(subject.model):
        subject.model.train()
    leaves = _leaves(subject, example.held)
    function = prepare(subject.model, example)
    with _quiet():
        outputs = tensors(function(*subject.args))
    found = differentiate(outputs, leaves)
    return {name: each.to_dense() for name, each in found.items() if each is not None}


def _leaves(subject: Subject, held: Sequence[int]) -> dict[str, torch.Tensor]:
    leaves = subject.leaves()
    for position in held:
        leaf = leaves.pop(f"input {position}", None)
        if leaf is not None:
            leaf.requires_grad_(False)
    return leaves


def _drops(model: torch.nn.Module) -> bool:
    """Whether the model would apply random dropout in training mode."""
    return any(getattr(part, "dropout", 0) for part in model.modules()) or any(
        isinstance(part, torch.nn.Dropout) and part.p for part in model.modules()
    )


def _eager(example: Example, args: tuple[Any, ...], *, widen: bool = False) -> Tensors:
    subject = Subject(example.reference or example.model, args, {})
    subject = subject.doubled() if widen else Subject(*copy.deepcopy((subject.model, subject.args, {})))
    with torch.no_grad(), _quiet():
        results = subject.model(*subject.args)
    leaves = tree_leaves(results)
    return [torch.as_tensor(leaf) for leaf in leaves if leaf is not None]


@contextmanager
def _quiet() -> Iterator[None]:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _compared(
    actual: Tensors, expected: Tensors, truth: Callable[[], Tensors], example: Example
) -> list[Comparison]:
    """Compare each pair; if it misses the tolerance, eager in float64 decides."""
    results = []
    for place, (have, want) in enumerate(zip(actual, expected, strict=True)):
        if example.bounds is not None:  # everything beyond the true size is padding
            have = have[tuple(slice(size) for size in want.shape)]
        result = compare(to_numpy(have), to_numpy(want))
        if not result.passed and result.same_form and (want.is_floating_point() or want.is_complex()):
            with suppress(RuntimeError):  # PyTorch quantizes only float32
                result = compare(to_numpy(have), to_numpy(want), reference=to_numpy(truth()[place]))
        results.append(result)
    return results
