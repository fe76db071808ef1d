"""Answer the calls of a suite by StableHLO artifacts, with many calls in one program.

Forward calls are exported, saved, loaded and run. Calls that must raise run with
``config.check_indices`` and ``check_values``, because programs without these checks accept any values.
Gradients come from ``torch.compile``, as users get them. Compiled functions cannot differentiate
twice or in forward mode; such calls are traced with autograd inside, made functional,
lowered to a portable module and run. Not here: optest's drivers (``conformance``), and
whether an answer is right (optest).
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule

from optest.backends import Answer
from optest.torch.opinfo.calls import (
    FORWARD,
    GRADIENT,
    Call,
    copied,
    differentiated,
    halved,
    merged,
    require_unwritten,
    together,
)

from ..artifact import load_artifact, save_artifact
from ..compiler.capture import capture, require_plain
from ..compiler.normalize import (
    decompositions,
)
from ..compiler.operators.tracing import mended_operators, passing_value_checks
from ..compiler.program import lower_program, normalize
from ..compiler.rules import replacing
from ..config import override
from ..errors import (
    CaptureError,
    FallbackRefused,
    IndexOutOfRange,
    InvalidValue,
    UnsupportedDtype,
    UnsupportedLayout,
    UnsupportedOperators,
)
from ..program import Program, draw_seed
from ..torch_internals import dynamo
from ..torch_internals.tracing import make_fx
from .compilation import plain_errors
from .operators import compiled_graph, to_tensor
from .sparse_calls import in_parts, is_taken_apart, with_dense_gradients

_TOGETHER = 48
"""The most calls in a program; more would cost more compile time than they save in captures."""
_LACKING = (UnsupportedOperators, FallbackRefused)
_DECLINED = (*_LACKING, NotImplementedError, UnsupportedDtype, UnsupportedLayout, CaptureError)

Parts = dict[str, float]
_Outcome = tuple[list[list[Any]], Answer]


def captured(calls: Sequence[Call]) -> ExportedProgram:
    """Capture forward calls as one exported program, ready to be lowered."""
    every, operands = together(calls)
    return normalize(capture(every, operands, dynamic_shapes=_sizes(calls)))


Capture = Callable[[Sequence[Call]], ExportedProgram]


def answer(
    calls: Sequence[Call], repeats: int = 1, engine: str | None = None, capture: Capture = captured
) -> list[Answer]:
    """Return one answer per call, from programs of up to 48 calls that run ``repeats`` times.

    A call that fails does not affect the other answers. ``capture`` is used in place of :func:`captured`.
    """
    answers: list[Answer] = []
    runs: dict[str, Callable[..., _Outcome]] = {FORWARD: partial(_exported, capture), GRADIENT: _compiled}
    plain = [in_parts(call) for call in calls]
    for start in range(0, len(calls), _TOGETHER):
        part = plain[start : start + _TOGETHER]
        run = runs.get(part[0].kind, _traced)
        lost: Parts = {}
        found = halved(part, partial(_metered, lost, partial(run, repeats, engine)), _failed)
        answers += _charged(found, lost)
    return [
        with_dense_gradients(call, found) if is_taken_apart(call) else found
        for call, found in zip(calls, answers, strict=True)
    ]


def _metered(lost: Parts, run: Callable[..., _Outcome], calls: Sequence[Call]) -> _Outcome:
    """Return ``run(calls, seconds)``; if that fails, add the time it took to ``lost``."""
    seconds: Parts = {}
    try:
        return run(calls, seconds)
    except Exception:
        for name, taken in seconds.items():
            lost[name] = lost.get(name, 0.0) + taken
        raise


def _charged(answers: list[Answer], lost: Parts) -> list[Answer]:
    """Add the time of failed attempts to the answers of calls that failed, or if none did, to all."""
    payers = [one for one in answers if one.outputs is None] or answers
    for one in payers:
        parts = {name: taken / len(payers) for name, taken in lost.items()}
        one.seconds = {name: one.seconds.get(name, 0.0) + taken for name, taken in parts.items()} | {
            name: taken for name, taken in one.seconds.items() if name not in parts
        }
    return answers


def _failed(error: BaseException) -> Answer:
    if isinstance(error, (IndexOutOfRange, InvalidValue)):  # calls that must raise run with the checks
        setting = "check_indices" if isinstance(error, IndexOutOfRange) else "check_values"
        return Answer(unsupported=f"raised with config.{setting} only, in other words: {error.message}")
    if isinstance(error, _DECLINED):
        return Answer(unsupported=_reason(error), error=error)
    return Answer(error=error)


def _reason(error: Exception) -> str:
    """Return the reason why something does not compile, in one line."""
    if isinstance(error, _LACKING):
        return "; ".join(f"{node.overload}: {node.reason}" for node in error.nodes)
    return str(error).strip().partition("\n")[0]


def _exported(
    capture: Capture, repeats: int, engine: str | None, calls: Sequence[Call], seconds: Parts
) -> _Outcome:
    """Return all outputs of every run of the loaded artifact; fill in ``seconds``."""
    runs = []
    must_raise = calls[0].results is None
    with torch.no_grad(), override(check_indices=must_raise, check_values=must_raise):
        with _timed(seconds, "capture"):
            exported = capture(calls)
        with _timed(seconds, "lowering"):
            source = lower_program(exported)
            artifact = source.artifact()
        with _timed(seconds, "artifact"), tempfile.TemporaryDirectory(prefix="torchstone-") as folder:
            artifact = load_artifact(save_artifact(Path(folder, "calls.stone"), artifact))
        program = Program(artifact, engine=engine)
        with _timed(seconds, "running"):
            for _ in range(repeats):
                given = [call.map(copied) for call in calls]
                runs.append(list(program(*(one for call in given for one in call.run.operands))))
        for call, original in zip(given, calls, strict=True):
            require_unwritten("the artifact", call, original)
    return runs, Answer(form=_form(artifact.module), seconds=seconds)


def _compiled(repeats: int, engine: str | None, calls: Sequence[Call], seconds: Parts) -> _Outcome:
    """Return gradients of every run of a function compiled by ``torch.compile``; fill in ``seconds``.

    A function that needs capture rules (for sparse tensors, or sizes that depend on values) is captured
    first.
    """
    whole = merged(calls)
    require_plain("a call's operand", whole.operands)
    with _timed(seconds, "compiling and running"):
        try:
            runs = _gradients(whole.function, calls, repeats, engine)
        except (FallbackRefused, dynamo.TorchDynamoException.get()) as error:
            if isinstance(error, dynamo.BackendCompilerFailed.get()):
                raise
            leaves = [  # some functions compute other things if an input requires gradients
                one.detach().requires_grad_(place in whole.wrt) for place, one in enumerate(whole.tensors)
            ]
            runs = _gradients(capture(whole.function, leaves).module(), calls, repeats, engine)
    return runs, Answer(seconds=seconds)


def _gradients(
    function: Callable[..., Any], calls: Sequence[Call], repeats: int, engine: str | None
) -> list[list[torch.Tensor]]:
    """Return the gradients of ``calls``, with ``function`` compiled as one graph without fallback."""
    dynamo.reset()
    options: dict[str, Any] = {"fallback": False} | ({} if engine is None else {"engine": engine})
    with plain_errors():
        made = torch.compile(function, backend="torchstone", fullgraph=True, dynamic=False, options=options)
        return differentiated(made, calls, repeats)


def _traced(repeats: int, engine: str | None, calls: Sequence[Call], seconds: Parts) -> _Outcome:
    """Return all outputs of every run of a graph that contains autograd's operators; fill in ``seconds``."""
    every, operands = together(calls)
    require_plain("a call's operand", operands)
    with _timed(seconds, "capture"):
        module = functional_graph(every, operands)
    with _timed(seconds, "lowering"):
        program = compiled_graph(module, operands, engine)
    with _timed(seconds, "running"):
        runs = [[to_tensor(one) for one in program(draw_seed())] for _ in range(repeats)]
    return runs, Answer(seconds=seconds)


def functional_graph(function: Callable[..., Any], operands: Sequence[torch.Tensor]) -> GraphModule:
    """Trace ``function`` and its differentiation under capture rules, then remove mutations and views.

    Autograd is traced first, because ``requires_grad_`` is not allowed under functionalization.
    """
    inputs = [one.detach() for one in operands]

    def on_copies(*given: torch.Tensor) -> Any:
        """Call ``function`` on copies, because it may write to its arguments (running statistics)."""
        return function(*(one.clone() for one in given))

    with passing_value_checks(), mended_operators():
        with replacing():
            differentiated = make_fx(on_copies, tracing_mode="fake", _allow_non_fake_inputs=True)(*inputs)
        _refuse_other_memory(differentiated, operands)
        traced = make_fx(
            torch.func.functionalize(differentiated, remove="mutations_and_views"),
            decomposition_table=decompositions(),
            tracing_mode="fake",
            _allow_non_fake_inputs=True,
        )(*inputs)
    _settle_copies(traced)
    traced.graph.eliminate_dead_code()
    return traced


_SAME_MEMORY = (torch.ops.aten.clone.default, torch.ops.aten.detach.default, torch.ops.aten.alias.default)


def _refuse_other_memory(module: GraphModule, operands: Sequence[torch.Tensor]) -> None:
    """Raise if ``as_strided`` addresses memory around an operand, which a copy of the operand lacks."""
    places = [node for node in module.graph.nodes if node.op == "placeholder"]
    for place, operand in zip(places, operands, strict=True):
        if operand.untyped_storage().nbytes() == operand.numel() * operand.element_size():
            continue
        moved = operand.clone().stride() != operand.stride()
        reached = [place]
        for node in reached:
            reached += [user for user in node.users if user.target in _SAME_MEMORY]
            for user in node.users:
                if user.target is torch.ops.aten.as_strided.default and (moved or len(user.args) > 3):
                    raise UnsupportedLayout(
                        "as_strided addresses the memory around its operand; a program has the operand alone",
                        hint="apply it to the whole tensor",
                    )


def _settle_copies(module: GraphModule) -> None:
    """Remove each ``copy_``, and make later reads of its target read the copied value.

    They come from PyTorch's decomposition of batch norm, which updates running statistics below
    functionalization.
    """
    for node in list(module.graph.nodes):
        if node.target is not torch.ops.aten.copy_.default:
            continue
        target, source = node.args[:2]
        if target.meta["val"].shape == source.meta["val"].shape and (
            target.meta["val"].dtype == source.meta["val"].dtype
        ):
            node.replace_all_uses_with(source)
            target.replace_all_uses_with(source, delete_user_cb=lambda user, node=node: user > node)
            module.graph.erase_node(node)


def _sizes(calls: Sequence[Call]) -> list[dict[int, Any]] | None:
    """Return dynamic shapes for ``torch.export``: a first dimension is dynamic if the run's size differs."""
    if not any(call.resized for call in calls):
        return None
    pairs = [pair for call in calls for pair in zip(call.operands, call.run.operands, strict=True)]
    return [{0: torch.export.Dim.AUTO} if traced.shape != run.shape else {} for traced, run in pairs]


def _form(module: bytes) -> str:
    """Return ``composite`` if the module calls one, else ``native``: bytecode has operations by name."""
    return "composite" if b"composite" in module else "native"


@contextmanager
def _timed(seconds: Parts, name: str) -> Iterator[None]:
    started = time.perf_counter()
    try:
        yield
    finally:
        seconds[name] = seconds.get(name, 0.0) + time.perf_counter() - started
