"""Stand-ins for classes that cannot be changed in place: classes written in C, and their subclasses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..mirror import Implementation, mirror
from ..scope import current_scope


def stand_in(
    original: Any,
    make: Implementation,
    holds: Callable[[Any], bool] | None = None,
    derived: tuple[type, ...] = (),
) -> Any:
    """Return a class with ``original``'s name whose constructor returns what ``make(scope, ...)`` returns.

    ``isinstance`` and ``issubclass`` give the same answers as for ``original``; if ``holds`` is given, it
    decides ``isinstance`` instead. ``derived`` are classes that are subclasses of ``original`` in a build of
    PyTorch with CUDA. If ``original`` can be subclassed, the stand-in is a subclass of it, so that subclasses
    of the stand-in are real subclasses. Outside every scope, the constructor is that of ``original``.
    """

    class StandInType(type(original) if isinstance(original, type) and _open(original) else type):  # type: ignore[misc]
        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            scope = current_scope()
            if cls is not made:
                return super().__call__(*args, **kwargs)
            return original(*args, **kwargs) if scope is None else make(scope, *args, **kwargs)

        def __instancecheck__(cls, instance: Any) -> bool:
            if cls is not made:
                return super().__instancecheck__(instance)
            return isinstance(instance, (original, *derived)) if holds is None else holds(instance)

        def __subclasscheck__(cls, subclass: Any) -> bool:
            return super().__subclasscheck__(subclass) or (
                cls is made and issubclass(subclass, (original, *derived))
            )

        def __eq__(cls, other: Any) -> bool:
            return other is cls or (cls is made and other is original)

        def __hash__(cls) -> int:
            return hash(original) if cls is made else super().__hash__()

    bases = (original,) if _open(original) else ()
    space = {
        "__module__": original.__module__,
        "__qualname__": original.__qualname__,
        "__doc__": original.__doc__,
    }
    made = StandInType(original.__name__, bases, space)
    return made


def shadow_where_needed(original: Any, methods: Mapping[str, Implementation]) -> Any:
    """Return ``original`` itself if its methods can be replaced in place, else its shadow.

    A build of PyTorch without CUDA has an empty Python class in place of the base class in C. A build with
    CUDA has the real base class, which cannot make an instance without an NVIDIA GPU.
    """
    maker = vars(original.__mro__[1]).get("__new__")
    return original if isinstance(maker, staticmethod) else shadow(original, methods)


def shadow(original: Any, methods: Mapping[str, Implementation]) -> Any:
    """Return a plain class with ``original``'s Python attributes and ``methods`` replaced, no base in C.

    Its instances have ``original`` as their ``__class__``, so ``isinstance`` is true for either class.
    """

    class ShadowType(type):
        def __instancecheck__(cls, instance: Any) -> bool:
            return isinstance(instance, original) if cls is made else super().__instancecheck__(instance)

    left_out = ("__dict__", "__weakref__", "__init__")
    space = {name: value for name, value in vars(original).items() if name not in left_out}
    for name, implementation in methods.items():
        raw = space.get(name, getattr(original, name))
        if isinstance(raw, property):
            space[name] = property(mirror(raw.fget, implementation))
        else:
            space[name] = mirror(getattr(raw, "__func__", raw), implementation)
    space["__class__"] = property(lambda self: original)
    made = ShadowType(original.__name__, (), space)
    return made


def _open(original: Any) -> bool:
    """Whether a class can be subclassed (some classes written in C cannot)."""
    try:
        type(original)("probe", (original,), {})
    except TypeError:
        return False
    return True
