"""A user's module that offers PyTorch's names: ``module:mypkg.linalg=torch.linalg``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ...errors import GapsError
from ..answers import Answer, Provider, Status, Trial
from ..surface import Api, first_line, resolve
from ..trials import run_trials


@dataclass(frozen=True)
class ModuleProvider:
    """Modules of the user; ``pairs`` maps a namespace of PyTorch to the module or class that replaces it."""

    pairs: Mapping[str, Any]

    watched = None

    @property
    def scope(self) -> tuple[str, ...]:
        return tuple(self.pairs)

    @property
    def name(self) -> str:
        return "module:" + ",".join(f"{_called(ours)}={theirs}" for theirs, ours in self.pairs.items())

    @property
    def compared(self) -> str:
        return "each side is called with the same arguments on the CPU: PyTorch's own API and the module's"

    def answers(self, apis: Iterable[Api]) -> Mapping[str, Answer]:
        return {api.name: found for api in apis if (found := self.answer(api)) is not None}

    def answer(self, api: Api) -> Answer | None:
        if api.namespace not in self.pairs:
            return None
        owner = self.pairs[api.namespace]
        if not hasattr(owner, api.leaf):
            return Answer(Status.ABSENT, loud=True)
        found = getattr(owner, api.leaf)
        original = resolve(api.name)
        status = Status.MATCH if found is original else Status.WRAPS
        return Answer(status, f"{_called(owner)}.{api.leaf}", original=original, replacement=found)

    def trials(self, apis: Iterable[Api]) -> Mapping[str, Trial]:
        return run_trials(apis, lambda api: resolve(api.name), self._own, "cpu", exact=False)

    def _own(self, api: Api) -> Callable[..., Any] | None:
        return getattr(self.pairs[api.namespace], api.leaf, None)


def _called(value: Any) -> str:
    if isinstance(value, type):
        return f"{value.__module__}.{value.__qualname__}"
    return str(getattr(value, "__name__", value))


def make(rest: str) -> Provider:
    """Make the provider of ``ours=theirs[,…]``. Raises :class:`GapsError` if an import fails."""
    pairs: dict[str, Any] = {}
    for pair in filter(None, rest.split(",")):
        ours, sign, theirs = pair.partition("=")
        if not sign or not ours or not theirs:
            raise GapsError(
                f"{pair!r} relates no module to PyTorch's", hint="write module:mypkg.linalg=torch.linalg"
            )
        try:
            pairs[theirs] = resolve(ours)
        except (Exception, SystemExit) as error:  # importing a module may run anything
            hint = "install it, correct its name, or put its folder on PYTHONPATH"
            if not isinstance(error, ImportError):
                hint = "make `import` of it work first"
            raise GapsError(f"{ours} cannot be imported: {first_line(error)}", hint=hint) from error
    if not pairs:
        raise GapsError("the provider module needs modules", hint="write module:mypkg.linalg=torch.linalg")
    return ModuleProvider(pairs)
