"""Objects named by dotted paths: generators and references of plans, flags and descriptors."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache
from typing import Any

from .errors import UnknownName, UsageError, told


@cache
def load_object(path: str, what: str = "object") -> Any:
    """Return the object ``module:name`` or ``module.name``; ``what`` says in messages what it should be.

    Raises :class:`UsageError` if the path is malformed or the module does not import,
    and :class:`UnknownName`, with near misses, if it has no such name.
    """
    module_name, colon, name = path.partition(":") if ":" in path else path.rpartition(".")
    if not (module_name and colon and name):
        raise UsageError(
            f"{path!r} does not name a {what}: a dotted path has a module and a name",
            "write it like my_package.my_module:name",
        )
    try:
        found = importlib.import_module(module_name)
    except BaseException as error:  # a user's module may raise anything, even SystemExit
        if isinstance(error, KeyboardInterrupt):
            raise
        raise UsageError(
            f"the {what} {path!r} cannot be loaded: importing {module_name} raised {told(error)}",
            "is its folder on PYTHONPATH?" if isinstance(error, ModuleNotFoundError) else None,
        ) from error
    for part in name.split("."):
        names = [one for one in vars(found) if not one.startswith("_")] if hasattr(found, "__dict__") else []
        if not hasattr(found, part):
            raise UnknownName(f"{what} in {module_name}", part, names)
        found = getattr(found, part)
    return found


def load_reference(path: str) -> Callable[..., Any]:
    """Return the reference function ``path``; raises :class:`UsageError` if it is not callable."""
    found = load_object(path, "reference")
    if not callable(found):
        raise UsageError(f"the reference {path!r} is a {type(found).__name__}; it must be a function")
    return found
