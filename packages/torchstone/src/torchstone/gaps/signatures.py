"""Signatures as data, and the differences between two of them. :mod:`.readers` reads them from PyTorch."""

from __future__ import annotations

import enum
import inspect
import re
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

KINDS: Mapping[inspect._ParameterKind, str] = {
    inspect.Parameter.POSITIONAL_ONLY: "positional-only",
    inspect.Parameter.POSITIONAL_OR_KEYWORD: "positional or keyword",
    inspect.Parameter.VAR_POSITIONAL: "variadic positional",
    inspect.Parameter.KEYWORD_ONLY: "keyword-only",
    inspect.Parameter.VAR_KEYWORD: "variadic keyword",
}
"""The names of the kinds of parameters, the same as in griffe."""

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter; ``default`` and ``annotation`` are source text, or None if missing."""

    name: str
    kind: str
    default: str | None = None
    annotation: str | None = None

    @property
    def variadic(self) -> bool:
        return self.kind.startswith("variadic")

    def __str__(self) -> str:
        stars = {"variadic positional": "*", "variadic keyword": "**"}.get(self.kind, "")
        typed = f": {self.annotation}" if self.annotation else ""
        given = "" if self.default is None or self.variadic else f" = {self.default}"
        return f"{stars}{self.name}{typed}{given}"


@dataclass(frozen=True, slots=True)
class Signature:
    """The parameters of one way to call something, and its return annotation as text."""

    parameters: tuple[Parameter, ...]
    returns: str | None = None

    @property
    def opaque(self) -> bool:
        """Whether the signature says nothing: ``(*args, **kwargs)``, with or without ``self``."""
        said = [one for one in self.parameters if one.name != "self"]
        return bool(said) and all(one.variadic for one in said)

    def __str__(self) -> str:
        arrow = f" -> {self.returns}" if self.returns else ""
        return f"({', '.join(written(self.parameters))}){arrow}"


def written(parameters: Iterable[Parameter]) -> Iterator[str]:
    """Yield the parameters as in source, with the markers ``/`` and ``*`` between their kinds."""
    parameters, starred = list(parameters), False
    for index, one in enumerate(parameters):
        if one.kind == "keyword-only" and not starred:
            starred = True
            yield "*"
        starred = starred or one.kind == "variadic positional"
        yield str(one)
        following = parameters[index + 1].kind if index + 1 < len(parameters) else ""
        if one.kind == "positional-only" and following != "positional-only":
            yield "/"


def from_inspect(signature: inspect.Signature) -> Signature:
    """Convert the result of :func:`inspect.signature` to data."""
    return Signature(
        tuple(
            Parameter(
                one.name,
                KINDS[one.kind],
                None if one.default is one.empty else value_text(one.default),
                None if one.annotation is one.empty else annotation_text(one.annotation),
            )
            for one in signature.parameters.values()
        ),
        None
        if signature.return_annotation is signature.empty
        else annotation_text(signature.return_annotation),
    )


def value_text(value: object) -> str:
    """Return a default as text that is the same in every process: no addresses, no paths, sorted sets."""
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, type | types.FunctionType | types.BuiltinFunctionType):
        return f"{value.__module__}.{value.__qualname__}"
    if isinstance(value, types.ModuleType):
        return value.__name__
    if isinstance(value, set | frozenset):
        inside = ", ".join(sorted(map(value_text, value)))
        return f"{type(value).__name__}({{{inside}}})"
    return _ADDRESS.sub("", repr(value))


def annotation_text(annotation: Any) -> str:
    """Return an annotation as written in source; a string is returned unchanged."""
    if isinstance(annotation, str):
        return annotation
    return _ADDRESS.sub("", inspect.formatannotation(annotation))


# Differences ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Change:
    """One difference; ``breaking`` if a call that worked may now fail or mean something else."""

    text: str
    breaking: bool


def changes(old: Signature, new: Signature, *, annotations: bool = True) -> tuple[Change, ...]:
    """Return how ``new`` differs from ``old`` in names, order, kinds, defaults and maybe annotations."""
    before = {one.name: one for one in old.parameters}
    after = {one.name: one for one in new.parameters}
    renamed = dict(_renamed(old, new))
    found = [
        Change(
            f"`{was}` renamed to `{now}`", not (before[was].variadic or before[was].kind == "positional-only")
        )
        for was, now in renamed.items()
    ]
    found += [
        Change(f"`{name}` removed", True) for name in before if name not in after and name not in renamed
    ]
    found += [
        Change(f"`{one}` added ({one.kind})", _is_in_the_way(one, old, new))
        for name, one in after.items()
        if name not in before and name not in renamed.values()
    ]
    for name, one in before.items():
        if (other := after.get(renamed.get(name, name))) is not None:
            found += _of_parameter(one, other, annotations)
    found += _order(old, new)
    if annotations and old.returns != new.returns:
        was, now = (one.returns or "what is not said" for one in (old, new))
        found.append(Change(f"returned {was}, now {now}", False))
    return tuple(found)


def _renamed(old: Signature, new: Signature) -> Iterator[tuple[str, str]]:
    """Yield the old and new name of each parameter that was renamed but kept position, kind and default."""
    before, after = ({one.name for one in side.parameters} for side in (old, new))
    for was, now in zip(old.parameters, new.parameters, strict=False):
        same = (was.kind, was.default) == (now.kind, now.default)
        if same and was.name not in after and now.name not in before:
            yield was.name, now.name


def _is_in_the_way(added: Parameter, old: Signature, new: Signature) -> bool:
    """Whether calls of ``old`` fail without ``added``, or pass it a value meant for a later parameter."""
    if added.variadic:
        return False
    kept = {one.name for one in old.parameters if one.kind.startswith("positional")}
    later = new.parameters[new.parameters.index(added) + 1 :]
    shifts = any(one.name in kept and one.kind.startswith("positional") for one in later)
    return added.default is None or (shifts and added.kind.startswith("positional"))


def _of_parameter(old: Parameter, new: Parameter, annotations: bool) -> Iterator[Change]:
    name = new.name
    if old.kind != new.kind:
        yield Change(f"`{name}` was {old.kind}, now {new.kind}", new.kind != "positional or keyword")
    if old.default != new.default:
        was, now = (
            "required" if text is None else f"{text} by default" for text in (old.default, new.default)
        )
        yield Change(f"`{name}` was {was}, now {now}", old.default is not None)
    if annotations and old.annotation != new.annotation:
        was, now = (one.annotation or "nothing" for one in (old, new))
        yield Change(f"`{name}` was annotated with {was}, now with {now}", False)


def _order(old: Signature, new: Signature) -> list[Change]:
    """Return a change if the positional parameters that both signatures have are in a different order."""
    orders = []
    for side in (old, new):
        orders.append([one.name for one in side.parameters if one.kind.startswith("positional")])
    common = set(orders[0]) & set(orders[1])
    was, now = ([name for name in order if name in common] for order in orders)
    if was == now:
        return []
    return [Change(f"order was {', '.join(was)}, now {', '.join(now)}", True)]


def overload_changes(old: Sequence[Signature], new: Sequence[Signature]) -> tuple[Change, ...]:
    """Return how two lists of overloads differ; those in both lists do not count, whatever their order."""
    gone = [one for one in old if one not in new]
    come = [one for one in new if one not in old]
    if len(gone) == len(come):
        pairs = zip(gone, come, strict=True)
        return tuple(change for was, now in pairs for change in changes(was, now))
    return (
        *(Change(f"overload `{one}` removed", True) for one in gone),
        *(Change(f"overload `{one}` added", False) for one in come),
    )


# Binding -------------------------------------------------------------------------------


def unbindable(theirs: Signature, ours: inspect.Signature) -> tuple[str, ...]:
    """Return the calls that ``theirs`` allows and ``ours`` refuses.

    Each parameter is tried once by position and once by keyword, together with the required ones only.
    """
    found = []
    for described, args, kwargs in _calls(theirs.parameters):
        try:
            ours.bind(*args, **kwargs)
        except TypeError as error:
            found.append(f"{described}: {error}")
    return tuple(found)


def _calls(parameters: Iterable[Parameter]) -> Iterator[tuple[str, tuple[object, ...], dict[str, object]]]:
    """Yield (description, args, kwargs) for every parameter, once by position and once by keyword."""
    plain = [one for one in parameters if not one.variadic]
    by_position = [one for one in plain if one.kind.startswith("positional")]
    required = [one for one in plain if one.default is None]
    nameless = [one for one in by_position if one.kind == "positional-only"]
    for place, one in enumerate(by_position):
        # A required positional-only parameter must always be given by position.
        count = max([place + 1, *(at + 1 for at, other in enumerate(nameless) if other in required)])
        given = by_position[:count]
        kwargs: dict[str, object] = {other.name: None for other in required if other not in given}
        yield f"`{one.name}` by position", (None,) * count, kwargs
    for one in plain:
        if one not in nameless:
            given = [other for other in nameless if other in required]
            names = [other.name for other in required if other not in given]
            yield f"`{one.name}` by keyword", (None,) * len(given), dict.fromkeys([*names, one.name])
