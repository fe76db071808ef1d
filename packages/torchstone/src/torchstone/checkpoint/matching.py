"""Checks whether a checkpoint fits its target, and reports all differences before anything is changed."""

from __future__ import annotations

import fnmatch
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ..errors import CheckpointMismatch
from ..torch_internals import dynamo
from ..torch_internals import tensors as internals


@dataclass
class Report:
    """The differences between a checkpoint and the model that it is loaded into, by name.

    ``missing`` entries are only in the model, and ``unexpected`` ones only in the checkpoint. Those in
    ``shape`` and ``dtype`` are in both, but differ in that respect. ``tied`` ones are a single tensor in the
    model and several unequal ones in the checkpoint. ``kind`` ones are a tensor on one side only.
    ``optimizer`` lists differences in optimizers. ``loaded`` lists the entries that fit.
    """

    missing: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    shape: dict[str, str] = field(default_factory=dict)
    dtype: dict[str, str] = field(default_factory=dict)
    tied: list[str] = field(default_factory=list)
    kind: list[str] = field(default_factory=list)
    optimizer: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)

    @property
    def fits(self) -> bool:
        """Whether there are no differences."""
        parts = (self.missing, self.unexpected, self.shape, self.dtype, self.tied, self.kind, self.optimizer)
        return not any(parts)

    def __str__(self) -> str:
        lines = [
            _line("not in the checkpoint", self.missing),
            _line("not in the model", self.unexpected),
            _line("another shape", [f"{name} {text}" for name, text in self.shape.items()]),
            _line("another dtype", [f"{name} {text}" for name, text in self.dtype.items()]),
            _line("tied in the model, unequal in the checkpoint", self.tied),
            _line("a tensor on one side only", self.kind),
            *(f"  {one}" for one in self.optimizer),
        ]
        return "\n".join(line for line in lines if line)


_MOST = 8


def _line(what: str, found: Sequence[str]) -> str:
    more = f" and {len(found) - _MOST} more" if len(found) > _MOST else ""
    return f"  {what} ({len(found)}): {', '.join(found[:_MOST])}{more}" if found else ""


def match_module(
    module: torch.nn.Module,
    saved: Mapping[str, Any],
    report: Report,
    *,
    prefix: str,
    select: Sequence[str] | None,
    cast: bool,
) -> dict[str, Any]:
    """Return the entries of ``saved`` that fit; list the others in ``report``, with ``prefix`` before names.

    With ``select``, names that match none of its patterns count neither as missing nor as unexpected.
    """

    def chosen(name: str) -> bool:
        return select is None or any(fnmatch.fnmatchcase(prefix + name, one) for one in select)

    own = {name: one for name, one in module.state_dict().items() if chosen(name)}
    for name, one in own.items():
        if isinstance(one, torch.Tensor) and one.is_meta:
            raise CheckpointMismatch(
                f"{prefix}{name} is on the meta device, where tensors have no values",
                hint='give the model memory first: model.to_empty(device="cpu")',
            )
    found = {name: one for name, one in saved.items() if chosen(name)}
    report.missing += [prefix + name for name in own if name not in found]
    report.unexpected += [prefix + name for name in found if name not in own]
    fitting = {}
    for name in (name for name in own if name in found):
        if _fits(own[name], found[name], prefix + name, report, cast=cast):
            fitting[name] = found[name]
    for names in _unequal_ties(own, fitting):
        report.tied.append(" = ".join(prefix + name for name in names))
        for name in names:
            del fitting[name]
    report.loaded += [prefix + name for name in fitting]
    return internals.with_module_versions(OrderedDict(fitting), internals.module_versions(saved) or {})


def _fits(own: Any, found: Any, name: str, report: Report, *, cast: bool) -> bool:
    if not isinstance(own, torch.Tensor) or not isinstance(found, torch.Tensor):
        if isinstance(own, torch.Tensor) is not isinstance(found, torch.Tensor):
            report.kind.append(name)
            return False
        return True
    if torch.nn.parameter.is_lazy(own):
        return True
    if own.shape != found.shape:
        report.shape[name] = f"{list(found.shape)} in the checkpoint, {list(own.shape)} in the model"
        return False
    if own.dtype != found.dtype and not cast:
        report.dtype[name] = f"{_word(found.dtype)} in the checkpoint, {_word(own.dtype)} in the model"
        return False
    return True


def _word(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _unequal_ties(own: Mapping[str, Any], fitting: Mapping[str, Any]) -> Iterator[list[str]]:
    """Yield groups of names that share a tensor in the model and have unequal ones in the checkpoint."""
    together: dict[Any, list[str]] = {}
    for name in fitting:
        one = own[name]
        if isinstance(one, torch.Tensor) and not torch.nn.parameter.is_lazy(one) and one.numel():
            key = (one.device, one.data_ptr(), one.shape, one.stride(), one.dtype)
            together.setdefault(key, []).append(name)
    for names in together.values():
        first = fitting[names[0]]
        if any(fitting[name] is not first and not _same(fitting[name], first) for name in names[1:]):
            yield names


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors of one shape have the same bits."""
    if one.dtype != other.dtype:
        return False
    raw = [tensor.contiguous().reshape(-1).view(torch.uint8) for tensor in (one, other)]
    return torch.equal(*raw)


_LIKE_PARAMETERS = frozenset(
    {
        "acc_delta",
        "ax",
        "exp_avg",
        "exp_avg_sq",
        "exp_inf",
        "grad_avg",
        "max_exp_avg_sq",
        "momentum_buffer",
        "prev",
        "square_avg",
        "step_size",
        "sum",
    }
)
"""Entries in the state of PyTorch's optimizers that have the shape of their parameter."""


def match_optimizer(
    optimizer: torch.optim.Optimizer,
    state: Any,
    shapes: Sequence[Sequence[Sequence[int]]] | None,
    name: str,
    report: Report,
) -> None:
    """Compare groups and shapes of parameters with those at the save.

    ``shapes`` are the shapes at the save. If they are None, they are taken from ``state`` as far as it shows
    them: the numbers of parameters, and the shapes of those that have momentum or the like.
    """
    own = [[list(one.shape) for one in group["params"]] for group in optimizer.param_groups]
    saved = _shapes_in(state, name) if shapes is None else shapes
    if [len(group) for group in own] != [len(group) for group in saved]:
        report.optimizer.append(
            f"{name} has groups of {[len(group) for group in saved]} parameters in the checkpoint, "
            f"of {[len(group) for group in own]} here"
        )
        return
    for g, (group, others) in enumerate(zip(own, saved, strict=True)):
        for i, (here, there) in enumerate(zip(group, others, strict=True)):
            if there is not None and here != list(there):
                report.optimizer.append(
                    f"parameter {i} of group {g} of {name} has the shape {list(there)} in the checkpoint, "
                    f"{here} here"
                )


def _shapes_in(state: Any, name: str) -> Sequence[Sequence[Sequence[int] | None]]:
    """Return the shapes of parameters that an optimizer's state shows, None for those that it does not.

    Raises :class:`CheckpointMismatch` if it is not the state of an optimizer.
    """
    try:
        groups = [list(group["params"]) for group in state["param_groups"]]
        entries = {key: dict(one) for key, one in state["state"].items()}
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointMismatch(
            f"{name} in the checkpoint is not the state of an optimizer, with state and param_groups",
            hint="save what optimizer.state_dict() returns",
        ) from error
    return [[_shape_in(entries.get(key, {})) for key in group] for group in groups]


def _shape_in(entry: Mapping[str, Any]) -> Sequence[int] | None:
    for name, one in entry.items():
        if name in _LIKE_PARAMETERS and isinstance(one, torch.Tensor) and one.dim():
            return list(one.shape)
    return None


def is_module(target: Any) -> bool:
    """Whether ``target`` is a module or a compiled module."""
    return isinstance(dynamo.uncompiled(target), torch.nn.Module)
