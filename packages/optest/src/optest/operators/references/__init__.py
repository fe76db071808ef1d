"""Reference implementations by category, in a wider type than what they check.

They use NumPy (SciPy where NumPy has nothing) and aim at the plainest formula that
is right. ``reference_impls`` has them all under their public names; the drivers'
own implementations must not import from here.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any


def gathered() -> dict[str, Any]:
    """The references of all modules, by name."""
    modules = (importlib.import_module(f"{__name__}.{one.name}") for one in pkgutil.iter_modules(__path__))
    named = (item for module in modules for item in vars(module).items())
    return {name: value for name, value in named if name.endswith("_reference")}
