"""Compare a whole model through Torchstone with eager PyTorch: artifact, compiled forward, gradients.

Three stages are compared with eager by optest's comparator: the forward pass of
the exported artifact in a fresh process; the forward pass through
``torch.compile`` without fallback; the gradient of every parameter (and every
buffer after that training step). If a value misses float32's default tolerance, and always
under autocast, the model in float64 and eager runs with other roundings decide (:mod:`.judge`).
``torch.compile`` does not apply capture rules, so it gets the captured graph of a model that needs one.

The forward stages run in evaluation mode. Gradients are taken in training mode,
or in evaluation mode if the model is random in training mode (dropout).
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import torch

from ..api import export
from ..compiler.graphs import to_numpy
from ..compiler.rules import replacements
from ..errors import FallbackRefused, ModelError, TorchstoneError, UnsupportedOperators
from ..runtime import get_engine
from ..torch_internals.dynamo import TorchDynamoException
from .compilation import plain_errors, watched
from .judge import Judge
from .model import Model
from .replay import output_specs, run_fresh
from .steps import UPDATE, Values, Watch, compiled_values, step_values
from .stepwise import StepByStep
from .subject import Subject
from .verification import STAGES, TRAINING_STAGES, DType, Stage, Verification
from .work import OneSided, Work, gradients_of, in_eager_pytorch, values_named


def verify(
    model: Model,
    *,
    dtype: DType = "float32",
    rtol: float | None = None,
    atol: float | None = None,
    gradients: bool = True,
    steps: int = 0,
    optimizer: str = "sgd",
    progress: Callable[[str], None] = lambda stage: None,
) -> Verification:
    """Run ``model`` through every stage and compare with eager PyTorch.

    With ``dtype`` float32 the model runs unchanged; float64 converts it and its
    inputs; bfloat16 and float16 run it under autocast. With ``rtol`` or ``atol``
    (the other one keeps its default) elements must be within that tolerance of
    eager's result, whatever float64 says. After ``steps`` training steps, if any, losses,
    parameters, buffers and the state of the ``optimizer`` (sgd, adamw) are compared. ``progress``
    is called with each stage as it begins. Resets Dynamo; does not change the model. Raises
    :class:`~torchstone.errors.DeviceNotFound` and other errors of the engine
    before anything is compiled. Errors within a stage are in the result.
    """
    get_engine()
    stages = (STAGES if gradients else STAGES[:-1]) + (TRAINING_STAGES if steps else ())
    result = Verification(model.name, dtype, stages, in_eager=model.in_eager)
    work = Work(model, dtype, Judge(dtype, rtol, atol), result, steps, optimizer)
    try:
        work.eager_results  # noqa: B018 - they are kept
    except ModelError as error:
        result.errors.update(dict.fromkeys(stages, str(error)))
        return result
    with watched() as result.compilation:
        for stage in stages:
            if stage not in result.stages:
                continue  # an earlier stage found that it has nothing to compare
            progress(_DOING[stage])
            try:
                with plain_errors():
                    _RUN[stage](work)
            except (TorchstoneError, TorchDynamoException.get()) as error:
                result.errors[stage] = str(error)
                if isinstance(error, (UnsupportedOperators, FallbackRefused)):
                    result.refused(error.nodes)
    result.refused(node for record in result.compilation.records for node in record.fallbacks)
    return result


# --- stages ----------------------------------------------------------------------------


def _check_artifact(work: Work) -> None:
    expected, truth = work.eager_results
    subject = work.subject.copy(training=False)
    inputs = [to_numpy(tensor).copy() for tensor in subject.inputs()]
    with torch.no_grad(), work.autocast(), work.bounds(), replacements() as work.replaced:
        program = export(subject.model, subject.args, subject.kwargs)
    with tempfile.TemporaryDirectory(prefix="torchstone-") as folder:
        found = run_fresh(program.save(Path(folder, "model.stone")), inputs)
    work.record_results("artifact", list(output_specs(program.signature)), found, expected, truth)


def _check_compiled(work: Work) -> None:
    expected, truth = work.eager_results
    with torch.no_grad(), work.autocast():
        found = work.through_compile(work.subject.copy(training=False))()
    names = [f"output {position}" for position in range(len(found))]
    work.record_results("compiled", names, [to_numpy(tensor) for tensor in found], expected, truth)


def _check_gradients(work: Work) -> None:
    if work.model.reference is not None:
        work.without("PyTorch has the model on accelerators only", "gradients", *TRAINING_STAGES)
        return
    training = work.training
    names = list(work.subject.copy(training=training).leaves())
    if not names:
        work.without("no parameters, no floating-point inputs", "gradients", *TRAINING_STAGES)
        return
    with in_eager_pytorch("differentiate"):
        expected = work.differentiated(names)
    truth: dict[str, torch.Tensor | None] = {}
    if work.exact is not None:
        with work.float64_or_note():
            truth = gradients_of(work.exact.copy(training=training), nullcontext(), names)
    found = gradients_of(work.subject.copy(training=training), work.autocast(), names, work.through_compile)

    def eager(subject: Subject) -> dict[str, torch.Tensor | None]:
        return gradients_of(subject, work.autocast(), names)

    others = work.others(lambda subject: subject.copy(training=training), eager)
    for name, want in expected.items():
        got = found[name]
        if want is not None and got is not None:
            named = others.each(partial(values_named, name))
            check = work.check("gradients", name, to_numpy(got), want, truth.get(name), named)
            work.result.checks.append(check)
        elif want is not got:
            where = "eager PyTorch" if got is None else "the compiled model"
            raise OneSided(f"{name} has a gradient only in {where}")
    if not any(check.stage == "gradients" for check in work.result.checks):
        work.without(
            "no result depends on a parameter or input differentiably", "gradients", *TRAINING_STAGES
        )


Training = Callable[..., Values]
"""Trains a subject; with a :data:`~.steps.Watch` as a second argument, it shows every step to it."""


def _check_training(work: Work) -> None:
    def run(subject: Subject, *watch: Watch) -> Values:
        return compiled_values(
            subject, work.optimizer, work.steps, work.autocast(), work.through_compile, *watch
        )

    _compare_steps(work, "training", run)


def _check_step(work: Work) -> None:
    def run(subject: Subject, *watch: Watch) -> Values:
        return step_values(subject, work.optimizer, work.steps, work.autocast(), *watch)

    _compare_steps(work, "step", run)


def _compare_steps(work: Work, stage: Stage, run: Training) -> None:
    model = work.subject.model
    if not isinstance(model, torch.nn.Module) or not any(p.requires_grad for p in model.parameters()):
        work.without("no parameters", *TRAINING_STAGES)
        return
    if stage == "step" and work.model.in_eager:
        work.without("whole steps leave nothing to eager PyTorch", "step")
        return
    expected, truth = work.eager_steps
    found = run(work.subject.copy(training=work.training))
    if one_sided := sorted(expected.keys() ^ found.keys()):
        where = "eager PyTorch" if one_sided[0] in expected else "the compiled model"
        raise OneSided(f"{one_sided[0]} exists only in {where}")
    checks = []
    for name, want in expected.items():
        if work.judge.is_fixed and name.startswith(UPDATE):
            continue  # mostly the rounding of the parameter, for which a tolerance of values does not fit
        others = work.other_steps.each(partial(values_named, name))
        checks.append(work.check(stage, name, to_numpy(found[name]), want, truth.get(name), others))
    wrong = [check for check in checks if not check.comparison.passed]
    if wrong and truth and work.steps > 1 and not work.judge.is_fixed:
        single = StepByStep(work, stage)
        run(work.subject.copy(training=work.training), single)
        work.note(f"{stage}: {len(wrong)} differ after {work.steps} steps; {single.reason(found)}")
        if single.explains(found):
            checks = [check for check in checks if check.comparison.passed] + single.checks
        elif single.failed is not None:
            checks += single.checks
    work.result.checks += checks


_RUN: dict[Stage, Callable[[Work], None]] = {
    "artifact": _check_artifact,
    "compiled": _check_compiled,
    "gradients": _check_gradients,
    "training": _check_training,
    "step": _check_step,
}
_DOING: dict[Stage, str] = {
    "artifact": "exporting, and running the artifact in a fresh process",
    "compiled": "running the compiled forward pass",
    "gradients": "running the compiled forward and backward pass",
    "training": "training through torch.compile",
    "step": "training by whole steps",
}
