"""Contexts in which a thread traces operators as their records say, and not as PyTorch does by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from ...lowering.registry import registry
from ...torch_internals.dispatch import kernels, python_kernels
from ...torch_internals.fake import rules
from ...torch_internals.operators import OpOverload
from ...torch_internals.patches import Patch, patched, tracing


@contextmanager
def standing_in(*overloads: OpOverload) -> Iterator[None]:
    """Make this thread trace stand-ins for operators that PyTorch would unroll or could not trace.

    Without ``overloads``, for all that have one.
    """
    table = registry.table("stand_in")
    with tracing(), patched(*(kernels(one, table[one]) for one in overloads or table)):
        yield


@contextmanager
def mended_operators() -> Iterator[None]:
    """Inside, this thread traces as they are meant the operators that PyTorch traces wrongly or not at all.

    Those with wrong expansions stay whole and have their own derivatives; some that write have
    expansions; some have rules for fake tensors.
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
        ),
    ):
        yield


@cache
def _mend(overload: OpOverload, make: Callable[[], Any], present: frozenset[Any]) -> Patch:
    """The same change as long as the kernels that are present are the same, so that others can tell."""
    del present
    return kernels(overload, make())


@contextmanager
def passing_value_checks() -> Iterator[None]:
    """Trace derivatives as if their checks of values passed: a program cannot raise.

    For graphs alone: to the same question in a user's code there is no answer.
    """
    with tracing(), patched(*rules(dict.fromkeys(registry.table("answer"), _answer))):
        yield


def _answer(_: Any, operator: OpOverload, *args: Any, **kwargs: Any) -> bool | None:
    """A rule for fake tensors."""
    return registry.record(operator).answer
