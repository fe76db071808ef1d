"""What happens when redirected code uses something that has no meaning on the target.

One of three policies, chosen for a whole scope: ``strict`` raises, ``warn`` warns once for each name,
``quiet`` says nothing. What is returned then is the caller's to decide; a figure is never made up.
"""

from __future__ import annotations

import warnings

from ..errors import RedirectError, RedirectUnsupported, RedirectWarning

POLICIES = ("strict", "warn", "quiet")


class Policy:
    """One scope's policy and what it has warned of already."""

    def __init__(self, name: str) -> None:
        if name not in POLICIES:
            raise RedirectError(f"policy={name!r} is unknown", hint=f"use one of {', '.join(POLICIES)}")
        self.name = name
        self._said: set[str] = set()

    def meaningless(self, name: str, why: str) -> None:
        """``name`` has no meaning here: raises :class:`RedirectUnsupported`, warns once, or neither."""
        if self.name == "strict":
            raise RedirectUnsupported(
                f"{name} has no meaning on the redirected device: {why}",
                hint='remove the call, or redirect with policy="warn" or "quiet"',
            )
        if self.name == "warn" and name not in self._said:
            self._said.add(name)
            warnings.warn(f"{name}: {why}", RedirectWarning, stacklevel=_outside())

    def note(self, name: str, why: str) -> None:
        """``name`` does what it says, but ``why`` is worth knowing: warns once unless the policy is quiet."""
        if self.name != "quiet" and name not in self._said:
            self._said.add(name)
            warnings.warn(f"{name}: {why}", RedirectWarning, stacklevel=_outside())


def _outside() -> int:
    """The stack level of the first frame that is neither ours nor PyTorch's, for :func:`warnings.warn`."""
    from .callers import user_depth

    return user_depth()
