"""The room for PyTorch's private names: no other module of Torchstone uses one.

Each module here holds the names of one subject. Classes that everything needs are imported;
everything else is an :class:`~.probing.Internal`, which looks its name up when it is first used
and says which PyTorch lacks what, and which feature needs it. Changes to PyTorch's own tables go
through :mod:`.patches`. Which versions of PyTorch are tested stands in :mod:`.versions`.
"""

import importlib
import pkgutil

from .probing import Internal, known
from .versions import TESTED

__all__ = ["TESTED", "Internal", "missing_internals"]


def missing_internals() -> list[Internal]:
    """Every private name that this PyTorch lacks."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return [internal for internal in known() if internal.find() is None]
