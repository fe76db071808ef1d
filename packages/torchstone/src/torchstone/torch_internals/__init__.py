"""The only package of Torchstone that uses private names of PyTorch.

Each module holds the names of one subject. Classes that everything needs are imported directly. Every other
name is an :class:`~.probing.Internal`, which looks the name up at its first use. If this PyTorch lacks the
name, its error says what is missing and which feature needs it. Changes to PyTorch's own tables go through
:mod:`.patches`. The tested versions of PyTorch are listed in :mod:`.versions`.
"""

import importlib
import pkgutil

from .probing import Internal, known
from .versions import TESTED

__all__ = ["TESTED", "Internal", "missing_internals"]


def missing_internals() -> list[Internal]:
    """Return all private names that this PyTorch lacks."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return [internal for internal in known() if internal.find() is None]
