"""Lowerings, which express ATen operators in :mod:`torchstone.hlo`; they contain only math.

Each module of ``lowering.aten`` is one operator family and registers itself
when it is imported; :func:`load` imports them all.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable
from functools import cache

from ..torch_internals import versions
from .factories import lowers_binary, lowers_compare, lowers_predicate, lowers_reduction, lowers_unary
from .record import Lowering, Record
from .registry import Registry, Spec, decomposes, lowers, lowers_higher_order, registry

__all__ = [
    "Lowering",
    "Record",
    "Registry",
    "Spec",
    "decomposes",
    "families",
    "import_parts",
    "load",
    "lowers",
    "lowers_binary",
    "lowers_compare",
    "lowers_higher_order",
    "lowers_predicate",
    "lowers_reduction",
    "lowers_unary",
    "registry",
]


def families() -> list[str]:
    """Return the sorted names of the family modules."""
    from . import aten

    return sorted(module.name for module in pkgutil.iter_modules(aten.__path__))


def import_parts(package: str, names: Iterable[str]) -> None:
    """Import modules that declare operators.

    A change in an untested PyTorch disables only the operators that it affects.
    """
    for name in names:
        try:
            importlib.import_module(f"{package}.{name}")
        except Exception as error:
            if versions.is_tested():
                raise
            registry.lost_families[f"the rest of {name}"] = f"{type(error).__name__}: {error}"


@cache
def load() -> Registry:
    """Import every family and return the registry; warn if this PyTorch version is untested."""
    versions.warn_if_untested()
    import_parts(f"{__name__}.aten", families())
    return registry
