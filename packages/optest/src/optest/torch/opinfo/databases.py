"""The databases of ``torch.testing`` as entries with a name, dtypes and phases.

Not here: what the samples of an entry become (``phases``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from ...core.origin import Declared
from ...errors import UnknownName
from ..internals import database, leave_seeds_alone, schemas_of
from .groups import PHASES, SUITES

_SAMPLED = (
    "forward", "noncontiguous", "determinism", "dynamic_batch", "automatic_dynamic", "memory", "transfer",
    "perf", "stress",
)  # fmt: skip
"""Phases that every entry of an operator database has in each of its dtypes."""


@dataclass(frozen=True)
class Entry:
    """One entry: ``info`` is PyTorch's own record of it, ``family`` is its kind of operator.

    ``dtypes`` are the names of the dtypes that PyTorch's CPU kernels support.
    """

    suite: str
    name: str
    info: Any
    dtypes: tuple[str, ...]
    family: str

    def has(self, phase: str, dtype: str) -> bool:
        """Whether the entry has the phase in this dtype according to PyTorch's record."""
        if self.suite in ("module", "optim"):
            return phase in ("forward", "determinism") or (phase == "backward" and self.suite == "module")
        if phase in _SAMPLED:
            return True
        rule = _RULES[phase]
        return bool(rule(self.info, getattr(torch, dtype)))

    def declared(self) -> Declared:
        """Return the dtypes, gradients and phases that the entry has according to PyTorch's record."""
        phases = [phase for phase in PHASES if any(self.has(phase, dtype) for dtype in self.dtypes)]
        gradients = [dtype for dtype in self.dtypes if self.has("backward", dtype)]
        entries = sum(bool(one.dtypes) for one in entries_of(self.suite).values())
        return Declared(dtypes=self.dtypes, gradients=tuple(gradients), phases=tuple(phases), entries=entries)


def _differentiable(info: Any, dtype: torch.dtype) -> bool:
    differentiable = dtype.is_floating_point or dtype.is_complex
    return info.supports_autograd and differentiable and dtype in info.supported_backward_dtypes("cpu")


def _looks(info: Any, dtype: torch.dtype) -> bool:
    """Whether PyTorch's own schemas say that a result is a view of an operand's memory."""
    return any(
        argument.alias_info is not None and not argument.alias_info.is_write
        for schema in schemas_of(getattr(info, "aten_name", info.name))
        for argument in schema.arguments
    )


_RULES = {
    "backward": _differentiable,
    "second_order": lambda info, dtype: _differentiable(info, dtype) and info.supports_gradgrad,
    "forward_mode": lambda info, dtype: _differentiable(info, dtype) and info.supports_forward_ad,
    "out": lambda info, dtype: info.supports_out,
    "inplace": lambda info, dtype: info.get_inplace() is not None,
    "errors": lambda info, dtype: info.error_inputs_func is not None and dtype is torch.float32,
    "views": _looks,
    "reference": lambda info, dtype: info.reference_inputs_func is not None,
    "special": lambda info, dtype: dtype.is_floating_point or dtype.is_complex,
    "promotion": lambda info, dtype: info.promotes_int_to_float or type(info).__name__ == "BinaryUfuncInfo",
}


@cache
def entries_of(suite: str) -> Mapping[str, Entry]:
    """Return the entries of a suite by name, in the database's order; raises :class:`UnknownName`."""
    if suite not in SUITES:
        raise UnknownName("suite", suite, SUITES)
    return {entry.name: entry for entry in _LOADERS[suite]()}


def _operators(suite: str, database: list[Any]) -> list[Entry]:
    return [
        Entry(suite, name, info, _names(info.supported_dtypes("cpu")), _family(info))
        for name, info in _distinct([(info.full_name, info) for info in database])
    ]


def _op_db() -> list[Entry]:
    leave_seeds_alone()
    return _operators("opinfo", database("op_db"))


def _python_ref_db() -> list[Entry]:
    return _operators("python_ref", database("python_ref_db"))


def _hop_db() -> list[Entry]:
    return _operators("hop", database("hop_db"))


def _module_db() -> list[Entry]:
    return [
        Entry("module", name, info, _names(info.dtypes), "module")
        for name, info in _distinct([(info.formatted_name, info) for info in database("module_db")])
    ]


def _optim_db() -> list[Entry]:
    return [
        Entry("optim", info.optim_cls.__name__, info, ("float32", "float64"), "optimizer")
        for info in database("optim_db")
    ]


_LOADERS = {
    "opinfo": _op_db,
    "python_ref": _python_ref_db,
    "module": _module_db,
    "optim": _optim_db,
    "hop": _hop_db,
}


def _distinct(pairs: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """Give each entry its own name: entries that share one are numbered, as in ``map``, ``map.2``."""
    seen: dict[str, int] = {}
    found = []
    for name, info in pairs:
        seen[name] = seen.get(name, 0) + 1
        found.append((name if seen[name] == 1 else f"{name}.{seen[name]}", info))
    return found


def _names(dtypes: Any) -> tuple[str, ...]:
    return tuple(sorted(str(dtype).removeprefix("torch.") for dtype in dtypes))


_FAMILIES = {
    "UnaryUfuncInfo": "elementwise",
    "BinaryUfuncInfo": "elementwise",
    "ReductionOpInfo": "reduction",
    "SpectralFuncInfo": "fft",
    "ShapeFuncInfo": "view",
    "ForeachFuncInfo": "foreach",
}


def _family(info: Any) -> str:
    """Return the kind of an operator, found from the class of its record or the namespace in its name."""
    by_class = _FAMILIES.get(type(info).__name__)
    if by_class is not None:
        return by_class
    head = info.name.removeprefix("_refs.").rpartition(".")[0]
    return head.removeprefix("torch.") or "general"
