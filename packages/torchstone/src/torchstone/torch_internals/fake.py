"""Fake tensors, which have shape, dtype and strides but no values, and rules for operators on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses import FakeTensor, FakeTensorMode

from .patches import Patch, for_tracing_thread, functions
from .probing import Internal

__all__ = [
    "LOGGER",
    "DataDependentOutputException",
    "DynamicOutputShapeException",
    "FakeTensor",
    "FakeTensorMode",
    "PartialRule",
    "UnsupportedOperatorException",
    "VaryingRows",
    "detect_fake_mode",
    "fake_rules",
    "forgetting_sizes",
    "placed_rule",
    "placed_rules",
    "rules",
]

LOGGER = "torch._subclasses.fake_tensor"

detect_fake_mode = Internal("torch._guards.detect_fake_mode", "subgraphs of control flow")
DataDependentOutputException = Internal(
    "torch._subclasses.fake_tensor.DataDependentOutputException", "tracing derivatives that look at values"
)
DynamicOutputShapeException = Internal(
    "torch._subclasses.fake_tensor.DynamicOutputShapeException", "results whose shapes depend on values"
)
UnsupportedOperatorException = Internal(
    "torch._subclasses.fake_tensor.UnsupportedOperatorException", "operators without a metadata function"
)
_SYMBOLS = "buckets of training steps"
_ShapeEnv = Internal("torch.fx.experimental.symbolic_shapes.ShapeEnv", _SYMBOLS)
_forgetting = Internal(
    "torch.fx.experimental.symbolic_shapes.ShapeEnv.ignore_fresh_unbacked_symbols",
    "trying the Python code of custom operators",
)
_SymbolicContext = Internal("torch.fx.experimental.symbolic_shapes.StatelessSymbolicContext", _SYMBOLS)
_DimDynamic = Internal("torch.fx.experimental.symbolic_shapes.DimDynamic", _SYMBOLS)
_rules = Internal("torch._subclasses.fake_impls.op_implementations_dict", "rules for fake tensors")
_BypassDispatchCache = Internal(
    "torch._subclasses.fake_tensor._BypassDispatchCache", "rules for fake tensors"
)


@dataclass(frozen=True)
class PartialRule:
    """A rule for those calls of an operator for which ``concerns(*args, **kwargs)`` is true.

    PyTorch handles the other calls. A partial rule applies before PyTorch's own decompositions; other rules
    apply after them.
    """

    concerns: Callable[..., bool]
    rule: Callable[..., Any]


def forgetting_sizes(mode: FakeTensorMode) -> AbstractContextManager[None]:
    """Let PyTorch forget new sizes and numbers that depend on values, so that no graph must contain them."""
    sizes: Any = mode.shape_env
    found: AbstractContextManager[None] = nullcontext() if sizes is None else _forgetting(sizes)
    return found


class VaryingRows:
    """A maker of fake tensors with constant shapes, or with one symbol (of at least 2) as first dimension.

    All tensors with a symbolic first dimension share the symbol. Computations with them must run in
    :attr:`mode`.
    """

    def __init__(self) -> None:
        self._env = _ShapeEnv()
        self.mode = FakeTensorMode(shape_env=self._env, allow_non_fake_inputs=True)
        self._symbol: Any = None

    def constant(self, tensor: torch.Tensor) -> torch.Tensor:
        return self.mode.from_tensor(tensor, static_shapes=True)

    def varying(self, tensor: torch.Tensor) -> torch.Tensor:
        kinds = _DimDynamic.get()
        context = _SymbolicContext(dynamic_sizes=[kinds.DUCK, *[kinds.STATIC] * (tensor.dim() - 1)])
        fake: Any = self.mode.from_tensor(tensor, symbolic_context=context)
        self._symbol = fake.shape[0].node.expr
        return fake

    def depends(self, value: Any) -> bool:
        """Whether a number depends on the symbol, or on values that are not known."""
        symbolic = isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool))
        return symbolic and bool(value.node.expr.free_symbols)

    def multiple(self, size: Any) -> int:
        """Return n if ``size`` is n times the symbol; 0 if it is a constant, and -1 for anything else."""
        if not self.depends(size):
            return 0
        times = size.node.expr / self._symbol
        return int(times) if times.is_Integer else -1

    def allows(self, count: int) -> bool:
        """Whether code that branched on the size would have taken the same branches for ``count``."""
        seen = {guard.expr for guard in self._env.guards}
        return all(bool(one.subs(self._symbol, count)) for one in seen if one.free_symbols)


def fake_rules() -> dict[Any, Callable[..., Any]]:
    """Return PyTorch's own table of the rules, by overload."""
    found: dict[Any, Callable[..., Any]] = _rules.get()
    return found


def placed_rules(added: Mapping[Any, Callable[..., Any]]) -> Patch:
    """Return a patch that adds rules ``(mode, overload, *args)``, by overload, in the thread that traces."""
    return Patch(fake_rules(), {one: placed_rule(one, rule) for one, rule in added.items()})


def placed_rule(overload: Any, rule: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``rule`` as :func:`placed_rules` puts it into the table."""
    return for_tracing_thread(rule, fake_rules().get(overload, _no_rule))


def _no_rule(*_: Any, **__: Any) -> Any:
    return NotImplemented


def rules(added: Mapping[Any, Callable[..., Any]]) -> list[Patch]:
    """Return patches as :func:`placed_rules` does, for rules whose results differ from PyTorch's own.

    PyTorch caches results for the whole process, and other threads must not get those of these rules. So
    calls with such a rule bypass the cache.
    """
    check, dispatch = FakeTensorMode._validate_cache_key, FakeTensorMode._dispatch_impl
    partial: dict[Any, PartialRule] = {}
    whole: dict[Any, Callable[..., Any]] = {}
    for one, rule in added.items():
        if isinstance(rule, PartialRule):
            partial[one] = rule
        else:
            whole[one] = rule

    def ours(overload: Any, args: Any, kwargs: Any) -> bool:
        return overload in partial and partial[overload].concerns(*args, **kwargs)

    def refuse_ours(self: Any, overload: Any, args: Any, kwargs: Any) -> None:
        if overload in whole or ours(overload, args, kwargs):
            raise _BypassDispatchCache.get()("it has a rule for this trace")
        check(self, overload, args, kwargs)

    def dispatch_ours(self: Any, overload: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if ours(overload, args, kwargs):
            return partial[overload].rule(self, overload, *args, **kwargs)
        return dispatch(self, overload, types, args, kwargs)

    own = functions(FakeTensorMode, _validate_cache_key=refuse_ours, _dispatch_impl=dispatch_ours)
    return [placed_rules(whole), own]
