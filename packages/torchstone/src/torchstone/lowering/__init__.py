"""Lowerings: ATen operators expressed in :mod:`torchstone.hlo`, and nothing but math.

Each module of ``lowering.aten`` is one operator family and registers itself
when it is imported; :func:`load` imports them all.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from ..torch_internals import versions
from .factories import lowers_binary, lowers_compare, lowers_predicate, lowers_reduction, lowers_unary
from .registry import Lowering, Registry, Spec, decomposes, lowers, lowers_higher_order, registry

__all__ = [
    "Lowering",
    "Registry",
    "Spec",
    "decomposes",
    "families",
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
    """Names of the family modules, sorted."""
    from . import aten

    return sorted(module.name for module in pkgutil.iter_modules(aten.__path__))


@cache
def load() -> Registry:
    """Import every family and return the registry; warns if this PyTorch version is untested."""
    versions.warn_if_untested()
    for family in families():
        try:
            importlib.import_module(f"{__name__}.aten.{family}")
        except Exception as error:
            if versions.is_tested():
                raise
            # A change in an untested PyTorch disables only the operators that it affects.
            registry.unavailable[f"the rest of {family}"] = f"{type(error).__name__}: {error}"
    return registry
