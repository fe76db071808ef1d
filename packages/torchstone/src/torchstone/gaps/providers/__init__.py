"""The providers, which are compared with PyTorch's surface.

They are the redirection, the compile backend, a device, a module, and a package that patches PyTorch. A
provider is chosen by a word, as on the command line; its module is imported only then.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable

from ...errors import GapsError
from ..answers import Provider

_FACTORIES = {
    "redirect": "redirection",
    "compile": "compilation",
    "device": "device",
    "module": "module",
    "patched": "patched",
}
"""First word → the module in this package that has ``make(rest)``."""

DESCRIPTIONS = {
    "redirect[:DEVICE]": "CUDA code redirected to DEVICE (default: cpu)",
    "compile": "the compile backend's registry of lowerings",
    "device:NAME": "a device of PyTorch's, beside its CPU",
    "module:OURS=TORCH[,…]": "the user's modules, each beside a namespace of PyTorch's",
    "patched:PACKAGE": "a package that changes PyTorch when it is imported",
}


def make_provider(text: str) -> Provider:
    """Return the provider that ``text`` names. Raises :class:`GapsError` if it does not exist here."""
    word, _, rest = text.partition(":")
    if word not in _FACTORIES:
        raise GapsError(f"there is no provider {text}", hint=f"write one of {', '.join(DESCRIPTIONS)}")
    module = importlib.import_module(f".{_FACTORIES[word]}", __name__)
    make: Callable[[str], Provider] = module.make
    return make(rest)
