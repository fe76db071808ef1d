"""Contexts in which a thread traces operators as their records say, and not as PyTorch does by itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ...lowering.registry import registry
from ...torch_internals.dispatch import kernels
from ...torch_internals.fake import rules
from ...torch_internals.operators import OpOverload
from ...torch_internals.patches import patched, tracing


@contextmanager
def standing_in() -> Iterator[None]:
    """Make this thread trace stand-ins for operators that PyTorch would unroll or could not trace."""
    stand_ins = registry.table("stand_in").items()
    with tracing(), patched(*(kernels(overload, found) for overload, found in stand_ins)):
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
            *(kernels(overload, found) for overload, make in mended if (found := make())),
            *rules(registry.table("shapes")),
        ),
    ):
        yield


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
