"""The redirection: the treatment of each API in its patches, and trials of calls inside a scope."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ...redirect import Patch, patches, redirected
from ..answers import Answer, Provider, Status, Trial
from ..compare import takes_device
from ..contracts import contract_trials
from ..surface import SCOPE, Api, resolve
from ..trials import run_trials

_STATUS = {
    "wraps": Status.WRAPS,
    "modified": Status.MODIFIED,
    "constant": Status.STUB,
    "noop": Status.STUB,
    "raises": Status.STUB,
    "deliberate": Status.DELIBERATE,
    "absent": Status.ABSENT,
}
_CUDA = "torch.cuda"


@dataclass(frozen=True)
class RedirectionProvider:
    """The redirection to ``target``; ``table`` is the result of :func:`torchstone.redirect.patches`."""

    table: tuple[Patch, ...]
    target: str = "cpu"

    scope = SCOPE
    watched = "cuda"

    @property
    def name(self) -> str:
        return f"redirect:{self.target}"

    @property
    def compared(self) -> str:
        return (
            f"inside a scope with target {self.target}: a call that says CUDA, beside the same call that "
            "says CPU outside; for torch.cuda, whose own side needs a GPU, the documented type of the result"
        )

    @cached_property
    def _by_name(self) -> Mapping[str, Patch]:
        return {patch.name: patch for patch in self.table}

    def answers(self, apis: Iterable[Api]) -> Mapping[str, Answer]:
        return {api.name: self.answer(api) for api in apis}

    def answer(self, api: Api) -> Answer:
        for name in _names(api):
            if (patch := self._by_name.get(name)) is not None:
                return _of_patch(patch)
        if (owner := self._by_name.get(api.namespace)) is not None and isinstance(owner.original, type):
            return _of_member(owner, api)
        if api.namespace == _CUDA or api.namespace.startswith(_CUDA + "."):
            return Answer(Status.ABSENT)
        return Answer(Status.MATCH)

    def trials(self, apis: Iterable[Api]) -> Mapping[str, Trial]:
        chosen = list(apis)
        cuda = [api for api in chosen if api.name.startswith(_CUDA + ".")]
        rest = [api for api in chosen if not api.name.startswith(_CUDA + ".")]
        found: dict[str, Trial] = {}
        for by_device in (True, False):
            found |= run_trials(
                [api for api in rest if takes_device(api) is by_device],
                _look_up,
                _look_up,
                "cuda",
                inside=self._scope,
                place=_shown(self.target),
                exact=self.target == "cpu",
                takes_device=by_device,
            )
        return found | dict(contract_trials(cuda, self._scope))

    def _scope(self) -> AbstractContextManager[Any]:
        return redirected(target=self.target, policy="quiet", trust={"torchstone.gaps": True})


def _look_up(api: Api) -> Any:
    found = resolve(api.name)
    return found.__func__ if isinstance(found, staticmethod | classmethod) else found


def _names(api: Api) -> tuple[str, ...]:
    """Return the names of an API in the table: its public name, its home, or a constructor of a class."""
    names = (api.name, api.home)
    made = (f"{name}.{maker}" for name in names for maker in ("__init__", "__new__"))
    return (*names, *made) if api.kind == "class" else names


def _of_patch(patch: Patch) -> Answer:
    status = _STATUS[patch.treatment]
    loud = patch.treatment == "raises"
    return Answer(status, patch.note, patch.note, patch.original, patch.replacement, loud=loud)


def _of_member(owner: Patch, api: Api) -> Answer:
    """Return the answer for a member of a class that is replaced as a whole."""
    if not hasattr(owner.replacement, api.leaf):
        return Answer(Status.ABSENT, loud=True)
    original, replacement = (getattr(one, api.leaf, None) for one in (owner.original, owner.replacement))
    if replacement is original:
        return Answer(Status.MATCH)
    return Answer(Status.WRAPS, owner.note, original=original, replacement=replacement)


def make(rest: str) -> Provider:
    """Return the provider; ``rest`` is the target, or ``cpu`` if it is empty."""
    return RedirectionProvider(patches(), rest or "cpu")


def _shown(target: str) -> str:
    """Return the type of a CUDA tensor's device in redirected code: ``cuda`` if the target is ``cpu``."""
    kind = target.partition(":")[0]
    return "cuda" if kind == "cpu" else kind
