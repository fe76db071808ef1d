"""What happens when redirected code uses something that has no meaning on the target.

There are three policies, chosen for a whole scope: ``strict`` raises, ``warn`` warns once for each name, and
``quiet`` says nothing. The caller decides what to return in that case, but must never invent a figure.
"""

from __future__ import annotations

import warnings

from ..errors import RedirectError, RedirectUnsupported, RedirectWarning

POLICIES = ("strict", "warn", "quiet")


class Policy:
    """The policy of one scope, and the names that it has already warned about."""

    def __init__(self, name: str) -> None:
        if name not in POLICIES:
            raise RedirectError(f"policy={name!r} is unknown", hint=f"use one of {', '.join(POLICIES)}")
        self.name = name
        self._said: set[str] = set()

    def meaningless(self, name: str, why: str) -> None:
        """Raise :class:`RedirectUnsupported`, warn once or do nothing: ``name`` has no meaning here."""
        if self.name == "strict":
            raise RedirectUnsupported(
                f"{name} has no meaning on the redirected device: {why}",
                hint='remove the call, or redirect with policy="warn" or "quiet"',
            )
        if self.name == "warn" and name not in self._said:
            self._said.add(name)
            warnings.warn(f"{name}: {why}", RedirectWarning, stacklevel=_outside())

    def note(self, name: str, why: str) -> None:
        """Warn once, unless the policy is quiet: ``name`` works, but ``why`` is worth knowing."""
        if self.name != "quiet" and name not in self._said:
            self._said.add(name)
            warnings.warn(f"{name}: {why}", RedirectWarning, stacklevel=_outside())


def _outside() -> int:
    """Return the stack level of the first frame outside Torchstone and PyTorch, for warnings."""
    from .callers import user_depth

    return user_depth()
