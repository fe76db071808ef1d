"""The compile backend: which ATen overloads of an API have a lowering or are decomposed by PyTorch.

Lowerings are not run here: the conformance run compares every overload in every dtype.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from ... import lowering
from ...compiler.normalize import decompositions
from ...lowering.registry import Registry
from ...torch_internals.dispatch import has_kernel, is_composite_implicit
from ...torch_internals.operators import OpOverload, schema_of
from ..answers import Answer, Provider, Status, Trial
from ..surface import SCOPE, Api

_PREFIXES = {
    "torch": ("",),
    "torch.Tensor": ("",),
    "torch.nn.functional": ("",),
    "torch.linalg": ("linalg_",),
    "torch.fft": ("fft_",),
    "torch.special": ("special_",),
}
"""Namespace → the prefix of its operators' names in ATen."""


@dataclass(frozen=True)
class CompilationProvider:
    """The compile backend: its registry of lowerings, and the overloads that are decomposed."""

    registry: Registry
    decomposed: frozenset[Any] = field(repr=False)

    scope = SCOPE
    watched = None

    @property
    def name(self) -> str:
        return "compile"

    @property
    def compared(self) -> str:
        return "which overloads of the operator have a lowering or are decomposed; nothing is run"

    def answers(self, apis: Iterable[Api]) -> Mapping[str, Answer]:
        return {api.name: found for api in apis if (found := self.answer(api)) is not None}

    def answer(self, api: Api) -> Answer | None:
        if api.namespace not in _PREFIXES or api.kind not in ("function", "method"):
            return None
        overloads = list(_overloads(api))
        if not overloads:
            return None
        missing = tuple(str(one).removeprefix("aten.") for one in overloads if not self._covers(one))
        narrow = tuple(text for one in overloads if (text := self._narrow(one)))
        if len(missing) == len(overloads):
            return Answer(Status.ABSENT, loud=True)
        if missing or narrow:
            return Answer(Status.PARTIAL, self._equivalent(overloads), missing=missing + narrow, loud=True)
        return Answer(Status.MATCH, self._equivalent(overloads))

    def trials(self, apis: Iterable[Api]) -> Mapping[str, Trial]:
        return {}

    def _covers(self, overload: OpOverload) -> bool:
        if overload in self.registry or overload in self.decomposed:
            return True
        return bool(is_composite_implicit(overload))

    def _narrow(self, overload: OpOverload) -> str:
        """Return the dtypes that a lowering declares as gaps, with its name; empty if there are none."""
        found = self.registry.get(overload)
        if found is None or not found.gaps:
            return ""
        dtypes = ", ".join(sorted(dtype.name for dtype in found.gaps))
        return f"{dtypes} in {found.name.removeprefix('aten.')}"

    def _equivalent(self, overloads: Iterable[OpOverload]) -> str:
        return ", ".join(found.name for one in overloads if (found := self.registry.get(one)))


def _overloads(api: Api) -> Iterator[OpOverload]:
    """Yield the functional overloads behind an API; an in-place API is traced as its functional form."""
    (prefix,) = _PREFIXES[api.namespace]
    packet = getattr(torch.ops.aten, prefix + api.leaf, None)
    if packet is None or not hasattr(packet, "overloads"):
        return
    if api.leaf.endswith("_") and not api.leaf.startswith("_"):
        functional = getattr(torch.ops.aten, prefix + api.leaf[:-1], None)
        packet = functional if functional is not None else packet
    for name in sorted(packet.overloads()):
        overload = getattr(packet, name)
        in_graphs = has_kernel(overload) and not _takes_names(overload)
        if in_graphs and not schema_of(overload).is_mutable:
            yield overload


def _takes_names(overload: OpOverload) -> bool:
    """Whether an overload is for named tensors or TorchScript's scalars, which no graph contains."""
    kinds = [str(one.type) for one in schema_of(overload).arguments]
    tensors = any("Tensor" in kind for kind in kinds)
    makes = any("Tensor" in str(one.type) for one in schema_of(overload).returns)
    return not (tensors or makes) or any(
        one.name in ("names", "dimname") for one in schema_of(overload).arguments
    )


def make(rest: str) -> Provider:
    """Return the provider with this process's registry; ``rest`` is ignored."""
    return CompilationProvider(lowering.load(), frozenset(decompositions()))
