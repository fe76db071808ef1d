"""Every built-in reference under its public name: ``optest.operators.reference_impls:gemm_reference``.

Each takes ``(inputs, attributes)``, a tuple of arrays and every attribute by name,
and returns a tuple of arrays in a wider type. ``references`` contains the code.
"""

from __future__ import annotations

from .references import gathered

globals().update(gathered())
