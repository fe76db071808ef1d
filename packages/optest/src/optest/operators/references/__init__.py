"""Reference implementations by category, which compute in a wider type than the results they check.

They use NumPy (or SciPy if NumPy lacks a function) and the simplest correct formula.
``reference_impls`` has all of them under their public names. The drivers' own
implementations must not import from here.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any


def gathered() -> dict[str, Any]:
    """Return the references of all modules, by name."""
    modules = (importlib.import_module(f"{__name__}.{one.name}") for one in pkgutil.iter_modules(__path__))
    named = (item for module in modules for item in vars(module).items())
    return {name: value for name, value in named if name.endswith("_reference")}
