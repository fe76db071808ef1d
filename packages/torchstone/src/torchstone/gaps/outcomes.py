"""Running one side of a trial, recording the outcome, and describing how two outcomes differ."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from optest.core.comparator import compare as compare_arrays
from optest.core.comparison import Mode

from .arguments import Arguments, placed
from .signatures import value_text

_SCALARS = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.layout, torch.Size)

_generator = torch.default_generator
_MODES: Mapping[str, tuple[Callable[[], Any], Callable[[Any], object]]] = {
    "default dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "grad mode": (torch.is_grad_enabled, torch.set_grad_enabled),
    "deterministic mode": (torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms),
    "threads": (torch.get_num_threads, torch.set_num_threads),
}
"""Process-wide settings → the functions that read and set each, kept before a package can change them."""

# The functions that read a tensor are kept, too: a package that breaks one must not break every comparison.
_detach, _to_dense, _cpu, _numpy = (
    getattr(torch.Tensor, name) for name in ("detach", "to_dense", "cpu", "numpy")
)
_resolve_conj, _resolve_neg = torch.Tensor.resolve_conj, torch.Tensor.resolve_neg
_dtype, _device, _shape = (getattr(torch.Tensor, name).__get__ for name in ("dtype", "device", "shape"))


@dataclass(frozen=True)
class Leaf:
    """One value inside a result: a tensor with its values, or else a type, with text if it is simple."""

    kind: str
    text: str = ""
    dtype: str = ""
    device: str = ""
    shape: tuple[int, ...] = ()
    values: Any = None


@dataclass(frozen=True)
class Outcome:
    """The outcome of a call: the leaves of its result by path, its exception, and its side effects."""

    leaves: Mapping[str, Leaf]
    kind: type | None = None
    """The type of the result; None if there is no result."""
    exception: str = ""
    message: str = ""
    warned: frozenset[str] = frozenset()
    changed: frozenset[str] = frozenset()


def run(function: Callable[..., Any], arguments: Arguments, device: Any, place: Any = None) -> Outcome:
    """Call ``function`` with copies of ``arguments`` on ``device``, always from the same random state.

    ``place`` is where the tensors are put, if that is not the ``device`` that the call names. Process-wide
    settings that the call changes are restored.
    """
    where = device if place is None else place
    args, kwargs = placed(arguments.args, device, where), placed(dict(arguments.kwargs), device, where)
    _generator.manual_seed(0)
    before = _state()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = function(*args, **kwargs)
        except (Exception, SystemExit) as error:  # noqa: BLE001 -- which one is what is asked
            return failed(type(error).__name__, str(error).partition("\n")[0][:160])
        finally:
            after = _state()
            _put_back(before)
        leaves = dict(_leaves("result", result))
    # The effect of an in-place call is in its arguments.
    objects = [one for one in (*args, *kwargs.values()) if isinstance(one, torch.Tensor | torch.nn.Module)]
    leaves |= dict(_leaves("argument", objects))
    warned = frozenset(one.category.__name__ for one in caught)
    changed = frozenset(name for name in before if before[name] != after[name])
    return Outcome(leaves, type(result), warned=warned, changed=changed)


def failed(exception: str, message: str) -> Outcome:
    """Return the outcome of a call that ended with an exception."""
    return Outcome({}, exception=exception, message=message)


@contextmanager
def modes_kept() -> Iterator[None]:
    """Restore the process-wide settings after the block."""
    before = _state()
    try:
        yield
    finally:
        _put_back(before)


def _put_back(before: Mapping[str, Any]) -> None:
    for name, (read, put) in _MODES.items():
        if read() != before[name]:
            put(before[name])


def _state() -> dict[str, Any]:
    """Return the state that a call may change besides its arguments."""
    modes = {name: read() for name, (read, _) in _MODES.items()}
    return {"random state": bytes(_numpy(_generator.get_state()).tobytes()), **modes}


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Leaf]]:
    if isinstance(value, torch.nn.Module):
        value = {**dict(value.named_parameters()), **dict(value.named_buffers())}
    if isinstance(value, torch.Tensor) and value.is_nested:
        yield path, Leaf("nested Tensor", dtype=str(value.dtype), device=value.device.type)
        yield from _leaves(path, value.unbind())
    elif isinstance(value, torch.Tensor) and is_lazy(value):
        yield path, Leaf(type(value).__name__, dtype=str(value.dtype), device=value.device.type)
    elif isinstance(value, torch.Tensor):
        yield path, _tensor(value)
    elif isinstance(value, Mapping):
        for name, one in value.items():
            yield from _leaves(f"{path}.{name}", one)
    elif isinstance(value, list | tuple) and not isinstance(value, torch.Size):
        for index, one in enumerate(value):
            yield from _leaves(f"{path}[{index}]", one)
    elif isinstance(value, _SCALARS):
        yield path, Leaf(type(value).__name__, value_text(value))
    else:
        yield path, Leaf(type(value).__name__, device=_device_of(value))


def _device_of(value: Any) -> str:
    """Return the device type of a generator, stream or storage; empty for anything else."""
    try:
        device = value.device
    except Exception:  # noqa: BLE001 -- an attribute may do anything; here it tells nothing then
        return ""
    return device.type if isinstance(device, torch.device) else ""


def _tensor(value: torch.Tensor) -> Leaf:
    try:
        shape = tuple(_shape(value))
    except RuntimeError:
        shape = ()  # a nested tensor has none
    try:
        plain = _detach(value)
        if plain.layout is not torch.strided:
            plain = _to_dense(plain)
        values = _numpy(_resolve_neg(_resolve_conj(_cpu(plain)))).copy()
    except (NotImplementedError, RuntimeError, TypeError):
        values = None  # a layout or dtype that cannot be read: the rest is compared
    return Leaf("Tensor", "", str(_dtype(value)), _device(value).type, shape, values)


def differences(reference: Outcome, own: Outcome, device: str, mode: Mode | None) -> Iterator[str]:
    """Yield how ``own`` differs; ``device`` corresponds to the CPU on the reference side.

    Values are compared in the comparator's ``mode``, or not at all if it is None (for uninitialized memory).
    """
    if own.exception != reference.exception:
        was = f"raises {reference.exception}" if reference.exception else "works"
        now = f"raises {own.exception}: {own.message}" if own.exception else "works"
        yield f"{was} there, {now} here"
        return
    if own.leaves.keys() != reference.leaves.keys():
        yield "its result has another structure"
        return
    for path, wanted in reference.leaves.items():
        yield from _leaf_differences(path, wanted, own.leaves[path], device, mode)
    if reference.warned != own.warned:
        yield f"warns with {_listed(reference.warned)} there, {_listed(own.warned)} here"
    if reference.changed != own.changed:
        yield f"changes the {_listed(reference.changed)} there, {_listed(own.changed)} here"


def _listed(names: frozenset[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"


def _leaf_differences(path: str, wanted: Leaf, found: Leaf, device: str, mode: Mode | None) -> Iterator[str]:
    place = device if wanted.device == "cpu" else wanted.device
    for word, was, now in (
        ("type", wanted.kind, found.kind),
        ("value", wanted.text.replace("cpu", device), found.text),
        ("dtype", wanted.dtype, found.dtype),
        ("device", place, found.device),
        ("shape", wanted.shape, found.shape),
    ):
        if was != now:
            yield f"{path}: {word} {was} there, {now} here"
            return
    if mode is not None and wanted.values is not None and found.values is not None:
        verdict = compare_arrays(found.values, wanted.values, mode=mode)
        if not verdict.passed:
            yield f"{path}: other values"
