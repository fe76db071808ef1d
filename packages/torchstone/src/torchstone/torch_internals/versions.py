"""The version of this PyTorch, and the versions that Torchstone is tested with."""

from __future__ import annotations

import warnings
from functools import cache

import torch

from ..errors import VersionWarning

TESTED = ("2.13.0", "2.14.1")
"""The versions that `make compat` has run; the packages declare the range from the first to the last."""


def version() -> str:
    """Return this PyTorch's version without the build's suffix (``+cpu``)."""
    return str(torch.__version__).partition("+")[0]


def is_tested() -> bool:
    """Whether this PyTorch is one of :data:`TESTED`."""
    return version() in TESTED


@cache
def warn_if_untested() -> None:
    """Warn, once per process, if this PyTorch is not one of :data:`TESTED`."""
    if not is_tested():
        warnings.warn(untested_text(), VersionWarning, stacklevel=3)


def untested_text() -> str:
    """Return the message for a PyTorch that is not one of :data:`TESTED`."""
    return (
        f"PyTorch {version()} is not among the tested versions ({', '.join(TESTED)});"
        " what has changed in it may be missing: `torchstone doctor` lists it"
    )
