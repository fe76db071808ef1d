"""Stand-ins for iterators while a step is traced: its program would not advance them again."""

from __future__ import annotations

from functools import partial
from types import MethodWrapperType
from typing import Any

from ..errors import described
from ..torch_internals.patches import is_tracing
from .refusals import Refused

_ITERATORS = frozenset({"builtins", "itertools", "torch.utils.data.dataloader"})
"""The modules of the classes of iterators that code of a step may not advance."""


class StandIns:
    """The stand-ins of one trace, each made once."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[Any, Any]] = {}
        """Values and their stand-ins, by the identity of the value."""
        self._real: dict[int, Any] = {}
        """The values, by the identity of the stand-in."""

    def of(self, value: Any, name: str) -> Any:
        """Return what stands for ``value``: itself, unless it is an iterator or has one in it.

        This looks into tuples, partial functions and ``iterator.__next__``. ``name`` is for errors.
        """
        if id(value) not in self._made:
            made = self._new(value, name)
            if made is value:
                return value
            self._made[id(value)] = value, made
            self._real[id(made)] = value
        return self._made[id(value)][1]

    def real(self, value: Any) -> Any:
        """Return what ``value`` stands for, or ``value`` if it is not a stand-in."""
        return self._real.get(id(value), value)

    def _new(self, value: Any, name: str) -> Any:
        if _is_iterator(value):
            return _Iterator(value, name)
        if isinstance(value, MethodWrapperType) and value.__name__ == "__next__":
            return value if (own := self.of(value.__self__, name)) is value.__self__ else own.__next__
        if type(value) is tuple:
            parts = tuple(self.of(one, f"{name}[{place}]") for place, one in enumerate(value))
            return value if all(map(_same, parts, value)) else parts
        if type(value) is partial:
            before = (value.func, *value.args, *value.keywords.values())
            now = [self.of(one, name) for one in before]
            if all(map(_same, now, before)):
                return value
            count = 1 + len(value.args)
            return partial(now[0], *now[1:count], **dict(zip(value.keywords, now[count:], strict=True)))
        return value


def _same(one: Any, other: Any) -> bool:
    return one is other


def _is_iterator(value: Any) -> bool:
    """Whether ``value`` is a generator or an iterator of Python's or of a data loader, not of a file."""
    kind = type(value)
    return hasattr(kind, "__next__") and kind.__module__ in _ITERATORS


class _Iterator:
    """Stands for an iterator while a step is traced: other threads may advance it, the step may not."""

    def __init__(self, real: Any, name: str) -> None:
        self.real, self._name = real, name

    def __iter__(self) -> _Iterator:
        return self

    def __next__(self) -> Any:
        self._advance()
        return next(self.real)

    def __getattr__(self, name: str) -> Any:
        if name in ("send", "throw", "close"):
            self._advance()
        return getattr(self.real, name)

    def _advance(self) -> None:
        if is_tracing():
            raise Refused(
                f"code of the step advances {self._name}, {described(self.real)}, and its program would not "
                "advance it again",
                "call next() before the step, and pass what it returns in the batch",
            )
