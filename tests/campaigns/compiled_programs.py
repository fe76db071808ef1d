"""Random programs under ``torch.compile(backend="torchstone")`` with automatic dynamic shapes, against eager.

Each program is called four times. The campaign compares the results and their containers, dtypes, strides,
shared memory, what a write through each tensor changes, the inputs after the call, gradients for random
cotangents, and whether the call raises. If results differ, the program is made as small as possible, and the
text of the defect ends with it as a script.

These differences are no defects of the backend:

- Eager PyTorch has them too if its inputs and the results of its elementwise operators are a rounding error
  off.
- The error against the same program in float64 is at most twice eager's.
- Eager has no kernel for the dtype.
- The values depend on an operator at a documented limit.
- The same difference occurs with ``backend="aot_eager"``, which compiles nothing.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import re
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch._functorch.config
from documented_limits import NOT_RESIZABLE, ZERO_DIVISOR, Limits
from program_maker import Program, load, make
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._python_dispatch import TorchDispatchMode

from torchstone.config import override
from torchstone.errors import EngineError, FallbackWarning, LoweringBug
from torchstone.parity.alike import assert_written_alike, form, sharing, tensors
from torchstone.torch_internals import pytree
from torchstone.torch_internals.fake import FakeTensorMode

_SHRINKING_S = 30.0
_NARROW = re.compile(r"torch\.(float16|bfloat16|float32)\b")
_NARROW_CALL = re.compile(r"\b(half|bfloat16|float)\(\)")
_TRIALS = 12
"""How often eager PyTorch runs with values that are a rounding error off."""
_EXACT = frozenset(
    {
        "abs", "ceil", "clamp", "clamp_max", "clamp_min", "copysign", "fill", "floor", "fmax", "fmin",
        "frac", "hardtanh", "heaviside", "leaky_relu", "masked_fill", "maximum", "minimum", "nan_to_num",
        "neg", "positive", "relu", "round", "sgn", "sign", "threshold", "trunc", "where",
    }
)  # fmt: skip
"""Elementwise operators that do not round real numbers."""
_TOLERANCES = {
    torch.float16: (1e-3, 1e-5), torch.bfloat16: (1.6e-2, 1e-5), torch.float32: (1.3e-6, 1e-5),
    torch.float64: (1e-7, 1e-7), torch.complex64: (1.3e-6, 1e-5), torch.complex128: (1e-7, 1e-7),
}  # fmt: skip
"""The relative and absolute tolerances of ``torch.testing.assert_close``."""
_INTERNAL = (LoweringBug, EngineError, AssertionError, AttributeError, KeyError, NameError, UnboundLocalError)
"""Errors that no program may raise, unless eager PyTorch raises them too."""


@dataclass(frozen=True)
class Difference:
    """How compiled code differs from eager PyTorch in one call. Shrinking the program keeps the ``kind``."""

    kind: str
    call: int
    text: str


@dataclass
class Run:
    """What one call did."""

    given: list[torch.Tensor] = field(default_factory=list)
    output: Any = None
    gradients: list[torch.Tensor] | None = None
    error: Exception | None = None

    @property
    def all(self) -> list[torch.Tensor]:
        return [*self.given, *tensors(self.output)]

    @property
    def values(self) -> list[torch.Tensor]:
        return [*self.all, *(self.gradients or ())]


@dataclass(frozen=True)
class Made:
    program: Program

    @property
    def what(self) -> str:
        return self.program.definition


def prepare(seed: int, folder: Path) -> Tries:
    del folder
    logging.getLogger("torch").setLevel(logging.CRITICAL)  # it logs what eager refuses as well
    return Tries(seed)


@dataclass
class Tries:
    """Makes and tries the programs of one seed, one after the other in one process."""

    seed: int

    def make(self, number: int) -> Made:
        return Made(make(self.seed, number))

    def attempt(self, made: Made) -> tuple[str, str]:
        found, notes = compared(made.program)
        if found is None:
            return " ".join(sorted(notes)) or "agrees", ""
        theirs, _ = compared(made.program, "aot_eager")
        if theirs is not None and (theirs.kind, theirs.call) == (found.kind, found.call):
            return f"as aot_eager: {found.kind}", ""
        smallest, found = shrunk(made.program, found, compared)
        return found.kind, f"call {found.call}: {found.text}\n{smallest.script()}"


def compared(program: Program, backend: str = "torchstone") -> tuple[Difference | None, set[str]]:
    """Return the first difference, if any, and notes about the calls."""
    names = load(program)
    torch._dynamo.reset()
    try:
        with override(tuning=not program.drawn):  # two calls must draw in the same way
            return _first_difference(program, names, backend)
    finally:
        # Dynamo keeps the globals alive, and their values keep every executable alive: drop the values.
        # The names stay, because Dynamo deletes them itself later.
        names.update(dict.fromkeys(names))


def _first_difference(
    program: Program, names: dict[str, Any], backend: str
) -> tuple[Difference | None, set[str]]:
    notes = set[str]()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        compiled = torch.compile(names["program"], backend=backend)
        for place, call in enumerate(program.calls):
            give = giver(call, names)
            eager, ours = (_run(program, one, give) for one in (names["program"], compiled))
            try:
                notes |= _compare(program, eager, ours, lambda give=give: _run(program, compiled, give), call)
            except Differs as error:
                return Difference(error.kind, place, str(error)), notes
    if any(issubclass(one.category, FallbackWarning) for one in caught):
        notes.add("fallback")
    return None, notes


class Differs(Exception):  # it never leaves a campaign
    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


def giver(call: tuple[str, ...], names: dict[str, Any]) -> Callable[[], tuple[Any, ...]]:
    return lambda: eval(f"({', '.join(call)},)", names)


def _run(program: Program, function: Callable[..., Any], give: Callable[[], tuple[Any, ...]]) -> Run:
    given = give()
    run = Run(tensors(given))
    leaves = [one for one in run.given if program.gradients and one.is_floating_point()]
    for leaf in leaves:
        leaf.requires_grad_()
    torch.manual_seed(7)
    context = getattr(torch, program.context)() if program.context else contextlib.nullcontext()
    try:
        with context:
            run.output = function(*given)
    except Exception as error:  # noqa: BLE001  # compared
        run.error = error
        return run
    outputs = [one for one in dict.fromkeys(tensors(run.output)) if one.requires_grad]
    if not outputs or not leaves:
        return run
    cotangents = [
        torch.randn(one.shape, generator=torch.Generator().manual_seed(i)) for i, one in enumerate(outputs)
    ]
    cotangents = [one.to(output.dtype) for one, output in zip(cotangents, outputs, strict=True)]
    try:
        found = torch.autograd.grad(outputs, leaves, cotangents, allow_unused=True)
    except Exception as error:  # noqa: BLE001  # compared
        run.error = error
        return run
    run.gradients = [torch.zeros_like(x) if g is None else g for x, g in zip(leaves, found, strict=True)]
    return run


def _compare(
    program: Program, eager: Run, ours: Run, again: Callable[[], Run], call: tuple[str, ...]
) -> set[str]:
    """Compare one call and return notes. Raise :class:`Differs` if compiled code differs from eager."""
    if eager.error is not None or ours.error is not None:
        return _compare_errors(eager, ours)
    compare_structure(eager.output, ours.output)
    found, wanted = ([_form(one) for one in run.all] for run in (ours, eager))
    if found != wanted:
        promised = promised_forms(program, call)
        known = promised if len(promised) == len(wanted) else wanted
        triples = zip(found, wanted, known, strict=True)
        wrong = [f"{one} instead of {other}" for one, other, meta in triples if one not in (other, meta)]
        if wrong:
            raise Differs("form", "; ".join(wrong))
    if sharing(ours.all) != sharing(eager.all):
        raise Differs("aliasing", f"{sharing(ours.all)} instead of {sharing(eager.all)}")
    if program.drawn:
        _compare_draws(again().values, ours.values)
        return {"drawn"}
    notes = compare_values(ours.all, eager.all, program, call, "values")
    if eager.gradients is not None and ours.gradients is not None:
        notes |= compare_values(ours.gradients, eager.gradients, program, call, "gradients", len(eager.all))
    if not notes:
        try:
            assert_written_alike(ours.all, eager.all)
        except AssertionError as error:
            raise Differs("written", str(error)) from None
    return notes


def _compare_draws(again: list[torch.Tensor], first: list[torch.Tensor]) -> None:
    for place, (one, other) in enumerate(zip(again, first, strict=True)):
        try:
            torch.testing.assert_close(one, other, equal_nan=True)
        except AssertionError as error:
            raise Differs("repeated draws", f"{place}: {error}") from None


def _form(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Return the tensor's form, without what may differ.

    That is the strides of dimensions of size 1, and the strides and the offset of an empty tensor.
    """
    dtype, shape, strides, offset, *rest = form(tensor)
    if not tensor.numel():
        return (dtype, shape, *rest)
    kept = [stride for size, stride in zip(shape, strides, strict=True) if size > 1]
    return (dtype, shape, kept, offset, *rest)


def promised_forms(program: Program, call: tuple[str, ...]) -> list[tuple[Any, ...]]:
    """Return the forms that PyTorch's own metadata promise. Some kernels return other strides and dtypes."""
    names = load(program)
    given = giver(call, names)()
    found: list[tuple[Any, ...]] = []
    # Some sizes depend on values. Try with real tensors first, which fails if their dtypes are not the
    # promised ones.
    for real in (True, False):
        with (
            torch._functorch.config.patch(fake_tensor_propagate_real_tensors=real),
            FakeTensorMode(allow_non_fake_inputs=True, shape_env=ShapeEnv()) as mode,
        ):
            fakes = pytree.tree_map_only(torch.Tensor, partial(mode.from_tensor, static_shapes=True), given)
            run = _run(program, names["program"], lambda fakes=fakes: fakes)
            found = [_form(one) for one in run.all]
        if run.error is None:
            break
    return found


def _compare_errors(eager: Run, ours: Run) -> set[str]:
    if ours.error is None and isinstance(eager.error, NotImplementedError):
        return {"without a kernel"}
    if ours.error is None and ZERO_DIVISOR in str(eager.error):
        return {"limit: a zero divisor"}
    if ours.error is None:
        raise Differs("does not raise", f"eager: {shown(eager.error)}")
    if eager.error is None:
        if NOT_RESIZABLE in str(ours.error):
            return {"limit: a result cannot grow"}
        raise Differs(f"raises {type(ours.error).__name__}", shown(ours.error))
    causes = list(_causes(ours.error))
    for cause in causes:
        if isinstance(cause, _INTERNAL) and not isinstance(cause, type(eager.error)):
            raise Differs("internal error", f"eager: {shown(eager.error)}; compiled: {shown(cause)}")
    return {"refused"}


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def shown(error: BaseException | None) -> str:
    return f"{type(error).__name__}: {str(error)[:600]}"


def compare_structure(eager: Any, ours: Any) -> None:
    (theirs, wanted), (mine, found) = pytree.tree_flatten(eager), pytree.tree_flatten(ours)
    if wanted != found:
        raise Differs("structure", f"{found} instead of {wanted}")
    for one, other in zip(mine, theirs, strict=True):
        if type(one) is not type(other) or (not isinstance(one, torch.Tensor) and repr(one) != repr(other)):
            raise Differs("structure", f"{one!r} instead of {other!r}")


def compare_values(
    ours: list[torch.Tensor],
    eager: list[torch.Tensor],
    program: Program,
    call: tuple[str, ...],
    kind: str,
    first: int = 0,
    runner: Runner | None = None,
) -> set[str]:
    """Compare each pair of values, and return notes on why differences beyond the tolerance are allowed.

    Two rules allow differences that come from rounding, and a documented limit allows others. Raise
    :class:`Differs` for any other difference. ``first`` is the place of the first pair among the values of a
    run, and ``runner`` runs the call.
    """
    runner = runner or _called
    wrong = {}
    for place, (one, other) in enumerate(zip(ours, eager, strict=True)):
        try:
            torch.testing.assert_close(one, other, equal_nan=True)
        except AssertionError as error:
            wrong[place] = str(error)
    if not wrong:
        return set()
    exact = _in_float64(program, call, runner).values[first:]
    wrong = {
        place: text
        for place, text in wrong.items()
        if place >= len(exact) or not _as_exact(ours[place], eager[place], exact[place])
    }
    if not wrong:
        return {"as exact as eager"}
    with torch.no_grad():
        spread = {place: _wide(eager[place])[None] for place in wrong}
        for values in _off_by_rounding(program, call, runner):
            for place in wrong:
                other = values[first + place] if first + place < len(values) else None
                if other is None or other.shape != eager[place].shape:
                    return {"ill-conditioned"}  # even the shape depends on rounding
                spread[place] = torch.cat([spread[place], _wide(other)[None]])
        unexplained = [
            place for place in wrong if not _explained(_wide(ours[place]), spread[place], eager[place].dtype)
        ]
    if not unexplained:
        return {"ill-conditioned"}
    with Limits() as limits:
        values = runner(program, load(program), call).values[first:]
    for place in unexplained:
        if place >= len(values) or not limits.reach(values[place]):
            raise Differs(kind, f"{place}: {wrong[place]}\n{ours[place]}\ninstead of\n{eager[place]}")
    return {f"limit: {one}" for one in limits.found}


Runner = Callable[[Program, dict[str, Any], tuple[str, ...]], Run]
"""Runs one call of a program, given the names that the program defines."""


def _called(program: Program, names: dict[str, Any], call: tuple[str, ...]) -> Run:
    return _run(program, names["program"], giver(call, names))


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    plain = tensor.detach().resolve_conj().resolve_neg()
    return torch.view_as_real(plain.to(torch.complex128)) if plain.is_complex() else plain.double()


def _explained(found: torch.Tensor, spread: torch.Tensor, dtype: torch.dtype) -> bool:
    """Whether each element is near the values that eager computed from inputs a rounding error off."""
    low, high = spread.nan_to_num().amin(0), spread.nan_to_num().amax(0)
    close = torch.finfo(dtype).eps ** 0.5 / 8 if dtype.is_floating_point or dtype.is_complex else 0.0
    room = 4 * (high - low) + close * high.abs().maximum(low.abs())
    inside = (found >= low - room) & (found <= high + room)
    same = ((found == spread) | (found.isnan() & spread.isnan())).any(0)
    return bool((inside & ((high > low) | (high == found)) | same).all())


def _as_exact(ours: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor) -> bool:
    """Whether the error of ``ours`` is at most twice that of ``eager``, and its special values are right.

    A special value is right if eager has it too, or if ``exact`` has it in eager's dtype, where large numbers
    are infinite. The error does not count for elements that are within tolerance of eager's, nor where
    eager's value is not finite.
    """
    if exact.shape != eager.shape or not (eager.is_floating_point() or eager.is_complex()):
        return False
    found, other, truth, held = map(_wide, (ours, eager, exact, exact.to(eager.dtype)))
    regular = held.isfinite() & found.isfinite()
    right = (found == held) | (found == other) | (found.isnan() & (held.isnan() | other.isnan()))
    if not (regular | right).all():
        return False
    comparable = regular & other.isfinite()
    far = comparable & ~torch.isclose(found, other, *_TOLERANCES[eager.dtype])
    if not far.any():
        return True
    return bool((found - truth)[far].abs().amax() <= 2 * (other - truth)[comparable].abs().amax())


def _in_float64(program: Program, call: tuple[str, ...], runner: Runner) -> Run:
    """Run the program with the same inputs in float64. Narrower dtypes in its text become float64."""
    wide = [_NARROW_CALL.sub("double()", _NARROW.sub("torch.float64", one)) for one in program.statements]
    names = load(replace(program, statements=tuple(wide)))
    rounded = names["made"]

    def widened(*arguments: Any) -> torch.Tensor:
        values = rounded(*arguments)
        return values.double() if values.is_floating_point() else values

    names["made"] = widened
    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)  # for constants in the program: ``torch.eye(2)``
    try:
        return runner(program, names, call)
    finally:
        torch.set_default_dtype(usual)


def _off_by_rounding(program: Program, call: tuple[str, ...], runner: Runner) -> Iterator[list[torch.Tensor]]:
    names = load(program)
    exact = names["made"]
    chance = torch.Generator().manual_seed(0)

    def inexact(*arguments: Any) -> torch.Tensor:
        values = exact(*arguments)
        if values.is_floating_point():
            whole = values.as_strided((values.untyped_storage().nbytes() // values.itemsize,), (1,), 0)
            signs = torch.randint(-2, 3, whole.shape, generator=chance)
            whole.copy_(whole * (1 + torch.finfo(values.dtype).eps * signs))
        return values

    names["made"] = inexact
    for _ in range(_TRIALS):
        with _Rounding(chance):
            values = runner(program, names, call).values
        yield values


_NORMALIZING = ("norm", "softmax")
"""Parts of names of normalizations. They round too, although each result depends on many elements."""


class _Rounding(TorchDispatchMode):
    """A mode that changes the results of operators that round by at most one rounding error.

    These are elementwise operators, conversions to narrower dtypes, and normalizations.
    """

    def __init__(self, chance: torch.Generator) -> None:
        super().__init__()
        self.chance = chance

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__.removesuffix("_")
        rounds = name not in _EXACT or any(x.is_complex() for x in tensors(args))
        narrowed = name == "_to_copy" and made.is_floating_point() and made.itemsize < args[0].itemsize
        if narrowed or (torch.Tag.pointwise in func.tags and rounds and isinstance(made, torch.Tensor)):
            self._spoil(made)
        elif any(part in name for part in _NORMALIZING):
            for one in tensors(made):
                self._spoil(one)
        return made

    def _spoil(self, values: torch.Tensor) -> None:
        if values.is_floating_point() and values.numel() and not any(s == 0 for s in values.stride()):
            signs = torch.randint(-1, 2, values.shape, generator=self.chance).to(values.dtype)
            values.mul_(1 + torch.finfo(values.dtype).eps * signs)


def shrunk(
    program: Program, found: Difference, compare: Callable[[Program], tuple[Difference | None, set[str]]]
) -> tuple[Program, Difference]:
    """Return a smaller program in which ``compare`` finds the same kind of difference.

    Shrinking stops after ``_SHRINKING_S`` seconds.
    """
    until = time.monotonic() + _SHRINKING_S
    changed = True
    while changed:
        changed = False
        for smaller in _smaller(program):
            if time.monotonic() > until:
                return program, found
            try:
                other, _ = compare(smaller)
            except Exception:  # noqa: BLE001  # it uses what was removed
                continue
            if other is not None and other.kind == found.kind:
                program, found, changed = smaller, other, True
                break
    return program, found


def _smaller(program: Program) -> Iterator[Program]:
    """Yield smaller programs: with fewer calls, statements, results or parameters, or without gradients."""
    for kept in range(len(program.calls)):
        if len(program.calls) > 1:
            yield replace(program, calls=(*program.calls[:kept], *program.calls[kept + 1 :]))
    for place in reversed(range(len(program.statements))):
        yield replace(program, statements=(*program.statements[:place], *program.statements[place + 1 :]))
    names = [line.partition(" = ")[0] for line in program.statements if " = " in line]
    names = [name for name in (*names, *program.parameters) if name.isidentifier()]
    for name in names:
        if len(program.result) > len(name):
            yield replace(program, result=name)
    for one, other in itertools.combinations(names, 2):
        if len(program.result) > len(f"({one}, {other})"):
            yield replace(program, result=f"({one}, {other})")
    for place, name in enumerate(program.parameters):
        if len(program.parameters) > 1 and not any("*(" in call[0] for call in program.calls):
            calls = tuple((*call[:place], *call[place + 1 :]) for call in program.calls)
            rest = tuple(one for one in program.parameters if one != name)
            yield replace(program, parameters=rest, calls=calls)
    if program.gradients:
        yield replace(program, gradients=False)
    if program.context:
        yield replace(program, context="")
