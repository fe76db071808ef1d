"""Operator conformance for any backend, with or without PyTorch.

Only the version lives here; import what you need from the subpackages, such as
:mod:`optest.core.comparator`. Nothing under :mod:`optest` imports ``torchstone``,
and only ``optest.torch`` may import PyTorch.
"""

from optest._version import __version__

__all__ = ["__version__"]
