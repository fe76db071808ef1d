"""Torchstone: PyTorch on any accelerator that has a PJRT plugin, through StableHLO.

>>> program = torchstone.export(model, (x,))            # doctest: +SKIP
>>> program.save("model.stone")                          # doctest: +SKIP
>>> torchstone.load("model.stone")(x)                    # doctest: +SKIP
>>> fast = torch.compile(model, backend="torchstone")    # doctest: +SKIP

Importing this module is cheap: torch, JAX and MLIR load at first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from . import errors
from ._version import __version__

if TYPE_CHECKING:
    from . import checkpoint, config, profiling, redirect
    from .api import explain, export, load
    from .compiler import bounds, capture_rule, graph_pass
    from .generation import export_generation, load_generation
    from .lowering import lowers
    from .profiling import profile
    from .program import Program
    from .ranks import Ranks
    from .redirect import redirected
    from .sharding import LocalPart, Mesh
    from .steps import export_step
    from .training import compile_step

__all__ = [
    "LocalPart",
    "Mesh",
    "Program",
    "Ranks",
    "__version__",
    "bounds",
    "capture_rule",
    "checkpoint",
    "compile_step",
    "config",
    "errors",
    "explain",
    "export",
    "export_generation",
    "export_step",
    "graph_pass",
    "load",
    "load_generation",
    "lowers",
    "profile",
    "profiling",
    "redirect",
    "redirected",
]

_LAZY = {
    "LocalPart": "sharding",
    "Mesh": "sharding",
    "Program": "program",
    "Ranks": "ranks",
    "bounds": "compiler",
    "capture_rule": "compiler",
    "compile_step": "training",
    "explain": "api",
    "export": "api",
    "export_generation": "generation",
    "export_step": "steps",
    "graph_pass": "compiler",
    "load": "api",
    "load_generation": "generation",
    "lowers": "lowering",
    "profile": "profiling",
    "redirected": "redirect",
}
# Imported at first use, so that `import torchstone` works where a TORCHSTONE_ variable is invalid.
_LAZY_MODULES = frozenset({"checkpoint", "config", "profiling", "redirect"})


def __getattr__(name: str) -> Any:
    if name in _LAZY_MODULES:
        return importlib.import_module(f".{name}", __name__)
    if name in _LAZY:
        return getattr(importlib.import_module(f".{_LAZY[name]}", __name__), name)
    raise AttributeError(f"module 'torchstone' has no attribute {name!r}")
