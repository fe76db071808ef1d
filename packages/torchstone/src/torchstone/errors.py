"""Every public exception of Torchstone.

Each message says what was requested, what was found, where (the operator and the
user's own source line, if known) and what to do next. The texts are part of the
interface: tests read them.

Nothing here imports torch, JAX or any other module of this package.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass


def described(value: object) -> str:
    """Return the type of ``value`` as messages name it: "a Tensor", "an int", "None"."""
    if value is None:
        return "None"
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeioAEIO' else 'a'} {name}"


class TorchstoneError(Exception):
    """Base class of every error that Torchstone raises on purpose.

    ``hint`` is the next step for the reader; it is appended to the message.
    """

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        self.message = message
        self.hint = hint
        super().__init__(message if hint is None else f"{message}\n  next: {hint}")


class ConfigError(TorchstoneError):
    """A setting has a value that is not allowed."""


class UnsupportedDtype(TorchstoneError):
    """A tensor has a dtype that has no counterpart in StableHLO or in the engine."""


class UnsupportedLayout(TorchstoneError):
    """A tensor is not a plain strided tensor (sparse, nested, mkldnn, …)."""


class UnsupportedShape(TorchstoneError):
    """An operator needs a static size where the program has a symbolic one."""


class InputMismatch(TorchstoneError):
    """A call's arguments differ from the program's signature."""


class ModelError(TorchstoneError):
    """The name of a model (``module:factory``) leads to no model: a typo, or the user's own code failed."""


class ScriptError(TorchstoneError):
    """The script or module to read cannot be found, read or parsed."""


class DownloadError(TorchstoneError):
    """A file could not be downloaded, or it is not the file that was expected."""


class MissingExtra(TorchstoneError):
    """A feature needs a package that is not installed; ``extra`` names the extra that installs it."""

    def __init__(self, message: str, *, extra: str) -> None:
        self.extra = extra
        super().__init__(message, hint=f"pip install 'torchstone[{extra}]'")


class MissingInternal(TorchstoneError):
    """This PyTorch lacks a private name that a feature needs."""

    def __init__(self, path: str, feature: str, version: str) -> None:
        self.path, self.feature = path, feature
        super().__init__(
            f"PyTorch {version} has no {path}, so this is off: {feature}",
            hint="use a tested version of PyTorch: `torchstone doctor` lists them",
        )


class CaptureError(TorchstoneError):
    """``torch.export`` could not turn the model into a graph."""


class ShardingError(TorchstoneError):
    """A mesh or a partition spec is wrong, or does not fit a tensor, a program or the devices."""


class TrainingError(TorchstoneError):
    """A training step given to ``compile_step``, or a call of the compiled step, is not valid."""


class NotFinite(TrainingError):
    """The loss of a training step, or a gradient, is infinite or NaN; the state was not changed."""


class DoubleBackward(TorchstoneError):
    """Gradients of a compiled function were requested with ``create_graph=True``."""


class ProfilingError(TorchstoneError):
    """A profile cannot be recorded now."""


class LoweringBug(TorchstoneError):
    """A lowering's result does not match PyTorch's own metadata.

    This is always a defect of Torchstone (or of a user's own lowering).
    """


class LoweringDefinitionError(TorchstoneError):
    """A lowering's definition contradicts the operator's schema (raised at import)."""


class VerificationError(TorchstoneError):
    """The MLIR verifier refused a module that Torchstone built."""


@dataclass(frozen=True)
class UnsupportedNode:
    """One operator that cannot be lowered.

    ``locations`` are user source lines (``file:line``), most frequent first.
    """

    overload: str
    count: int
    reason: str
    locations: tuple[str, ...] = ()
    todo: str = "register a lowering with torchstone.lowering.lowers, or rewrite the model without it"

    def describe(self) -> str:
        where = ", ".join(self.locations[:3]) or "source line unknown"
        more = f" and {len(self.locations) - 3} more" if len(self.locations) > 3 else ""
        return (
            f"  {self.overload} ({self.count}×) at {where}{more}\n"
            f"    why: {self.reason}\n    do:  {self.todo}"
        )


class UnsupportedOperators(TorchstoneError):
    """Every operator of one graph that cannot be lowered, all at once."""

    def __init__(self, nodes: Sequence[UnsupportedNode]) -> None:
        self.nodes = tuple(nodes)
        calls = sum(node.count for node in self.nodes)
        body = "\n".join(node.describe() for node in self.nodes)
        super().__init__(
            f"{len(self.nodes)} operator(s) in {calls} call(s) cannot be lowered to StableHLO:\n{body}",
            hint="`torchstone ops` prints every operator that can be lowered",
        )


class PassError(TorchstoneError):
    """A compiler pass broke its contract, or the passes do not fit together; the message names the pass."""


class FallbackRefused(TorchstoneError):
    """Something would run in eager PyTorch, and the settings forbid it.

    ``nodes`` are the operators of a compiled graph.
    """

    def __init__(
        self, message: str, *, hint: str | None = None, nodes: Sequence[UnsupportedNode] = ()
    ) -> None:
        self.nodes = tuple(nodes)
        super().__init__(message, hint=hint)


class ArtifactError(TorchstoneError):
    """A file is not an artifact, or it is truncated, altered or of an unknown version."""


class ArtifactVersionError(ArtifactError):
    """An artifact was written in a format that this version cannot read."""


class CheckpointError(TorchstoneError):
    """A checkpoint cannot be written, found or read."""


class CheckpointDamaged(CheckpointError):
    """The data at a path is not a checkpoint, or not what was saved: truncated, changed or incomplete."""


class CheckpointVersionError(CheckpointError):
    """A checkpoint was written in a format that this version cannot read."""


class CheckpointMismatch(CheckpointError):
    """A checkpoint does not fit the object it is loaded into; nothing was changed."""


class CheckpointBusy(CheckpointError):
    """Another process is saving to the same path."""


class CheckpointUnstorable(CheckpointError):
    """A value would need pickle, or a tensor has no plain data; the message names its key."""


class EngineError(TorchstoneError):
    """An engine could not compile or run a program."""


class UnsupportedByEngine(EngineError):
    """An engine cannot run some operations of a program; ``operations`` maps each to the reason."""

    def __init__(self, engine: str, operations: Mapping[str, str]) -> None:
        self.engine, self.operations = engine, dict(operations)
        listed = "\n".join(f"  {name}: {reason}" for name, reason in operations.items())
        super().__init__(
            f"the {engine} engine cannot run {len(operations)} operation(s) of the program:\n{listed}",
            hint="use the pjrt engine for this program",
        )


class DeviceNotFound(EngineError):
    """The requested device or platform does not exist here."""


class PluginError(EngineError):
    """A PJRT plugin is missing, unreadable or not a PJRT plugin."""


class IndexOutOfRange(TorchstoneError, IndexError):
    """A program that checks its indices was called with one outside its range."""


class InvalidValue(TorchstoneError, RuntimeError):
    """A program was called with a value that eager PyTorch refuses, or that makes a size too large."""


def raise_failed_checks(checks: Iterable[tuple[str, str, bool]], by_setting: bool = True) -> None:
    """Raise if any of ``checks`` failed; each is ``(kind in the signature, text, whether it holds)``.

    Raises :class:`IndexOutOfRange` if an index check failed, else :class:`InvalidValue`. ``by_setting`` says
    whether the program has checks only because a setting requested them.
    """
    failed: dict[str, list[str]] = {}
    for kind, text, holds in checks:
        if not holds:
            failed.setdefault(kind, []).append(text)
    because = "; they are checked because config.{} was set" if by_setting else ""
    if "index_check" in failed:
        raise IndexOutOfRange(
            "index out of range in " + "; ".join(failed["index_check"]),
            hint="correct the indices" + because.format("check_indices"),
        )
    if "size_check" in failed:
        raise InvalidValue(
            "the program cannot take these values: " + "; ".join(failed["size_check"]),
            hint="correct the values, or export the model with other bounds, torch._check(…)",
        )
    if "value_check" in failed:
        raise InvalidValue(
            "eager PyTorch refuses values in " + "; ".join(failed["value_check"]),
            hint="correct the values" + because.format("check_values"),
        )


class GapsError(TorchstoneError):
    """A namespace, provider, table or gap given to ``torchstone gaps`` is missing or invalid."""


class SnapshotError(GapsError):
    """A file is not a snapshot of an API surface, or it has another format version."""


class BufferDeleted(EngineError):
    """A buffer was used after it had been donated to an execution."""


class RedirectError(TorchstoneError):
    """The requested redirection of CUDA code is not possible."""


class RedirectTargetError(RedirectError):
    """The device that CUDA code is to run on is unknown to PyTorch or absent here."""


class RedirectTargetAbsent(RedirectTargetError):
    """PyTorch knows the device that CUDA code is to run on, but this machine has none."""


class RedirectUnsupported(RedirectError, RuntimeError):
    """Redirected code used a part of CUDA that has no meaning on the target (policy ``strict``)."""


class CheckpointWarning(UserWarning):
    """The newest checkpoint is damaged, and an older one was loaded instead."""


class CacheWarning(UserWarning):
    """The compilation cache could not be read or written; the program continued without it."""


class FallbackWarning(UserWarning):
    """Operators of a compiled model run in eager PyTorch between compiled parts."""


class RedirectWarning(UserWarning):
    """Redirected code used a part of CUDA that has no meaning on the target (policy ``warn``)."""


class VersionWarning(UserWarning):
    """This PyTorch is not among the tested versions; features may be missing if it has changed."""
