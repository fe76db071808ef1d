"""Injects faults in each of four places, and checks that ``torchstone bisect`` names the place.

A lowering is broken in the same way as by ``torchstone faults``. An engine computes one StableHLO operation
as another one, everywhere or only in programs with some other operation. Rounding errors are made to grow.
Models draw from sources that no seed repeats. Bisect must name each fault correctly: the place, the phase
and, if it has one, the operator. The models are in ``fault_models``.
"""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch

from torchstone.config import config, override
from torchstone.hlo import _mlir
from torchstone.lowering import load
from torchstone.parity.bisect import Kind, bisect
from torchstone.parity.faults.broken import in_place
from torchstone.parity.faults.catalogue import faults_of
from torchstone.parity.model import load_model
from torchstone.runtime import engines

_MODELS = Path(__file__).with_name("fault_models.py")


@dataclass(frozen=True)
class Made:
    """One fault: where it is, and what the finding must say.

    ``phase`` and ``operator`` are empty if they are not known. ``change`` describes the fault: the name of a
    lowering's fault, or the arguments of :class:`WrongEngine`.
    """

    kind: Kind
    model: str
    phase: str
    operator: str = ""
    change: tuple[str, ...] = ()
    optimizer: str | None = "SGD"
    fresh_process: bool = False

    @property
    def what(self) -> str:
        return " ".join([str(self.kind), self.phase, self.model, self.operator, *self.change]).rstrip()

    def injected(self) -> AbstractContextManager[Any]:
        if self.kind is Kind.LOWERING:
            return _broken_lowering(self.operator, self.change[0])
        if self.kind is Kind.ENGINE:
            return wrong_engine(*self.change)
        return nullcontext()


@contextmanager
def _broken_lowering(operator: str, fault: str) -> Iterator[None]:
    packet, _, overload = operator.removeprefix("aten.").rpartition(".")
    lowering = load().get(getattr(getattr(torch.ops.aten, packet), overload))
    assert lowering is not None, operator
    with in_place(lowering, next(one for one in faults_of(lowering) if one.name == fault)):
        yield


class WrongEngine:
    """The engine of the settings, except that it replaces one operation of a program by another one.

    With ``beside``, it does so only in programs that also have that operation. With ``most_results``, it does
    so only in programs that have at most that many results.
    """

    def __init__(
        self, right: Any, operation: str, taken_for: str, beside: str = "", *, most_results: int = 1 << 20
    ) -> None:
        self._right, self._operation, self._taken_for, self._beside = right, operation, taken_for, beside
        self._most_results = most_results

    def __getattr__(self, name: str) -> Any:
        return getattr(self._right, name)

    def compile(self, module: bytes | str, **options: Any) -> Any:
        text = module if isinstance(module, str) else _text(module)
        if f"{self._beside} " in text and text.count("jax.result_info") <= self._most_results:
            text = text.replace(f"{self._operation} ", f"{self._taken_for} ")
        return self._right.compile(text, **options)


def _text(portable: bytes) -> str:
    context = _mlir.new_context()
    with context:
        return str(_mlir.stablehlo.deserialize_portable_artifact(context, portable))


@contextmanager
def wrong_engine(*mistake: str, **where: int) -> Iterator[None]:
    """Let the engine of the settings make a mistake inside the block."""
    right = engines.get_engine()
    key = (config.engine, config.device, config.plugin)
    engines._engines[key] = WrongEngine(right, *mistake, **where)
    try:
        yield
    finally:
        engines._engines[key] = right


def _lowerings() -> Iterator[Made]:
    yield Made(Kind.LOWERING, "small", "backward", "aten.cos.default", ("wrong-sign",))
    for operator, fault, phase, optimizer in (
        ("aten.sin.default", "wrong-sign", "forward", "SGD"),
        ("aten.tanh_backward.default", "wrong-sign", "backward", "SGD"),
        ("aten.neg.default", "wrong-sign", "optimizer", "SGD"),
        ("aten.addmm.default", "off-by-one", "forward", "SGD"),
        ("aten._softmax_backward_data.default", "reversed-axis", "backward", "SGD"),
        ("aten.lerp.Tensor", "wrong-sign", "optimizer", "AdamW"),
        ("aten.native_layer_norm.default", "reversed-axis", "forward", "SGD"),
        ("aten.native_layer_norm_backward.default", "drops-last", "backward", "SGD"),
        ("aten.sqrt.default", "wrong-rounding", "optimizer", "AdamW"),
        ("aten.convolution.default", "drops-last", "forward", "SGD"),
        ("aten.convolution_backward.default", "off-by-one", "backward", "SGD"),
        ("aten.argmax.default", "next-integer", "forward", "SGD"),
        ("aten.gt.Scalar", "inverted", "forward", "SGD"),
        ("aten._softmax.default", "wrong-rounding", "forward", "SGD"),
        ("aten.embedding_dense_backward.default", "wrong-sign", "backward", "SGD"),
        ("aten.embedding.default", "reversed-axis", "forward", "SGD"),
    ):
        yield Made(Kind.LOWERING, "mixed", phase, operator, (fault,), optimizer)


def _engine_mistakes() -> Iterator[Made]:
    sine = ("stablehlo.sine", "stablehlo.cosine")
    yield Made(Kind.ENGINE, "small", "forward", "aten.sin.default", sine)
    negate = ("stablehlo.negate", "stablehlo.abs")
    yield Made(Kind.ENGINE, "linear", "optimizer", "aten.neg.default", negate)
    for operator, phase, optimizer, change in (
        ("aten.cos.default", "backward", "SGD", ("stablehlo.cosine", "stablehlo.sine")),
        ("aten.sqrt.default", "optimizer", "AdamW", ("stablehlo.sqrt", "stablehlo.cbrt")),
        ("aten.relu.default", "forward", "SGD", ("stablehlo.maximum", "stablehlo.minimum")),
        ("aten.sin.default", "forward", "SGD", ("stablehlo.sine", "stablehlo.tanh")),
        (
            "aten.tanh.default",
            "forward",
            "SGD",
            ("stablehlo.exponential", "stablehlo.exponential_minus_one"),
        ),
        (
            "aten.sin.default",
            "forward",
            "SGD",
            ("stablehlo.sine", "stablehlo.cosine", "stablehlo.dot_general"),
        ),
        ("aten.native_layer_norm.default", "forward", "SGD", ("stablehlo.rsqrt", "stablehlo.sqrt")),
        ("aten.native_layer_norm.default", "forward", "SGD", ("stablehlo.subtract", "stablehlo.add")),
        ("aten.sqrt.default", "optimizer", "AdamW", ("stablehlo.sqrt", "stablehlo.cbrt", "stablehlo.power")),
        ("aten.pow.Tensor_Tensor", "optimizer", "AdamW", ("stablehlo.power", "stablehlo.maximum")),
    ):
        yield Made(Kind.ENGINE, "mixed", phase, operator, change, optimizer)
    logistic = ("stablehlo.logistic", "stablehlo.tanh")
    yield Made(Kind.ENGINE, "mixed_with_dropout", "forward", "aten.sigmoid.default", logistic)


def _roundings() -> Iterator[Made]:
    for model in (
        "oscillation",
        "long_chain",
        "sharp_softmax",
        "rounded",
        "remainders",
        "large_sum",
        "large_products",
        "growth",
        "differences",
        "reciprocals",
    ):
        yield Made(Kind.ROUNDING, model, "", optimizer=None)
    yield Made(Kind.ROUNDING, "bias_before_norm", "optimizer", optimizer="AdamW")


def _nondeterminisms() -> Iterator[Made]:
    for model in (
        "python_random",
        "numpy_random",
        "clock",
        "entropy",
        "unseeded_generator",
        "unique_name",
        "counter",
        "another_branch",
    ):
        yield Made(Kind.NONDETERMINISM, model, "forward")
    yield Made(Kind.NONDETERMINISM, "random_gradient", "backward")
    for model in ("order_of_a_set", "hash_of_text"):
        yield Made(Kind.NONDETERMINISM, model, "forward", fresh_process=True)


def prepare(seed: int, folder: Path) -> Tries:
    del folder
    logging.getLogger("torch").setLevel(logging.CRITICAL)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)  # a forked child has none of this process's threads
    return Tries(seed)


class Tries:
    """Injects and tries one fault for each number, from the four places in turn. Then they begin again."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        rows = zip_longest(_lowerings(), _engine_mistakes(), _roundings(), _nondeterminisms())
        self.faults = [one for row in rows for one in row if one is not None]

    def make(self, number: int) -> Made:
        return self.faults[number % len(self.faults)]

    def attempt(self, made: Made) -> tuple[str, str]:
        with override(cache=False), contextlib.ExitStack() as inside:
            model = load_model(f"{_MODELS}:{made.model}")
            inside.enter_context(made.injected())
            found = bisect(
                model, optimizer=made.optimizer, seed=self._seed, fresh_process=made.fresh_process
            ).finding
        if found is None:
            return "nothing", "nothing departs"
        wanted = (str(made.kind), made.phase or found.phase, made.operator or found.operator)
        named = (str(found.kind), found.phase, found.operator)
        return named[0], "" if named == wanted else f"named {named}: {found.reason} {dict(found.engines)}"
