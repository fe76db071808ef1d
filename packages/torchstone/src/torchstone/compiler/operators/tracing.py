"""Contexts in which a thread traces operators as their records say, instead of as PyTorch does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from ...lowering.registry import registry
from ...torch_internals.dispatch import kernels, python_kernels
from ...torch_internals.fake import rules
from ...torch_internals.growth import refusing_growth
from ...torch_internals.operators import OpOverload
from ...torch_internals.patches import Patch, patched, tracing


@contextmanager
def standing_in(*overloads: OpOverload) -> Iterator[None]:
    """Make this thread trace stand-ins for operators that PyTorch would unroll or could not trace.

    Without ``overloads``, this applies to all operators that have a stand-in.
    """
    table = registry.table("stand_in")
    with tracing(), patched(*(kernels(one, table[one]) for one in overloads or table)):
        yield


@contextmanager
def mended_operators() -> Iterator[None]:
    """Inside, this thread traces operators correctly that PyTorch traces wrongly or not at all.

    Operators with wrong expansions are not expanded and have their own derivatives. Some operators that
    write get expansions, and some operators get rules for fake tensors. Calls in place that would grow a
    tensor raise RuntimeError, as in eager PyTorch.
    """
    mended = registry.table("mended").items()
    with (
        tracing(),
        patched(
            *(
                _mend(overload, make, frozenset(python_kernels(overload).items()))
                for overload, make in mended
            ),
            *rules(registry.table("shapes")),
            *refusing_growth(),
        ),
    ):
        yield


@cache
def _mend(overload: OpOverload, make: Callable[[], Any], present: frozenset[Any]) -> Patch:
    """Return the same patch as long as the present kernels are the same, so that others can compare it."""
    del present
    return kernels(overload, make())


@contextmanager
def passing_value_checks() -> Iterator[None]:
    """Trace derivatives as if their checks of values passed, since a program cannot raise.

    Use this only to trace graphs. If a user's own code asks the same question, the answer is not known.
    """
    with tracing(), patched(*rules(dict.fromkeys(registry.table("answer"), _answer))):
        yield


def _answer(_: Any, operator: OpOverload, *args: Any, **kwargs: Any) -> bool | None:
    """Return the answer in the operator's record, as a rule for fake tensors."""
    return registry.record(operator).answer
