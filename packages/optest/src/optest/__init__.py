"""Operator conformance for any backend, with or without PyTorch.

This package itself has only the version and :func:`bootstrap`, which loads plugins. Import what
you need from the subpackages, such as :mod:`optest.running.runner`. Nothing under
:mod:`optest` imports ``torchstone``, and only :mod:`optest.torch` imports PyTorch.
"""

from optest._version import __version__
from optest.plugins import bootstrap

__all__ = ["__version__", "bootstrap"]
