"""Operators that stay whole: one composite around a kernel that computes in float32 or wider.

A composite's name, attributes and operand order are part of the artifact's
contract (docs: composites). Every Python value that a kernel closes over must
be among the attributes, because equal composites share one decomposition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from .. import hlo
from ..dtypes import DType
from ..hlo import Value
from ..torch_internals.pytree import tree_leaves
from .promotion import opmath, promote_dtypes
from .registry import Spec

Kernel = Callable[..., Value | Sequence[Value | None]]
Expand = Callable[..., list[Value]]
"""PyTorch's expansion of a call (``lowering.registry``)."""
Specs = Sequence[Spec | None]
"""The specs of several results; None for a result that PyTorch does not return."""


def compute_dtype(values: Sequence[Value]) -> DType:
    """Return the dtype to compute in for operands of mixed dtypes; integers and bools do not count."""
    return promote_dtypes(*(opmath(value.dtype) for value in values if _is_inexact(value)))


def _is_inexact(value: Value) -> bool:
    return value.dtype.is_floating or value.dtype.is_complex


def composed(
    name: str,
    inputs: Sequence[Value | None],
    kernel: Kernel,
    out: Spec | Specs,
    attributes: Mapping[str, hlo.Attribute] | None = None,
) -> list[Value | None]:
    """Make ``kernel(*inputs)`` the composite ``torchstone.<name>``, and return its results.

    Floating-point and complex inputs reach the kernel in one dtype, float32 or
    wider; other inputs are unchanged. A missing input is None in the kernel, and the
    attribute ``operands`` then says which inputs are present. Results take the dtypes
    and shapes of ``out``, and the attribute ``dtypes`` names them. A result that
    ``out`` does not have is None, and its dtype is ``"none"``. If an attribute is
    symbolic, the kernel is inlined.
    """
    specs = [out] if isinstance(out, Spec) else list(out)
    present = [value is not None for value in inputs]
    given = [value for value in inputs if value is not None]
    wide = compute_dtype(given) if any(map(_is_inexact, given)) else None

    def decomposition(*values: Value) -> list[Value]:
        feed = iter(hlo.convert(value, wide) if wide and _is_inexact(value) else value for value in values)
        made = kernel(*(next(feed) if there else None for there in present))
        results = [made] if isinstance(made, Value) else made
        return [
            hlo.reshape(hlo.convert(result, spec.dtype), spec.shape)
            for result, spec in zip(results, specs, strict=True)
            if spec is not None and result is not None
        ]

    marks: dict[str, hlo.Attribute] = {
        "operands": _presence(inputs),
        "dtypes": [spec.dtype.name if spec else "none" for spec in specs],
    }
    if _are_symbolic(attributes or {}):
        made = iter(decomposition(*given))
    else:
        made = iter(
            hlo.composite(f"torchstone.{name}", given, decomposition, {**(attributes or {}), **marks})
        )
    return [next(made) if spec else None for spec in specs]


def composed_whole(
    name: str,
    inputs: Sequence[Value],
    kernel: Callable[..., Value],
    out: Spec,
    attributes: Mapping[str, Any],
) -> Value:
    """Make ``kernel(*inputs)`` the composite ``torchstone.<name>``; operands keep their dtypes.

    This is for operators that move or compare elements. If an attribute is symbolic, the kernel is inlined.
    """
    if _are_symbolic(attributes):
        return kernel(*inputs)
    marks = {"dtypes": [out.dtype.name]}
    return hlo.composite(f"torchstone.{name}", inputs, kernel, {**attributes, **marks})[0]


def expanded(
    name: str,
    inputs: Sequence[Value | None],
    expand: Expand,
    out: Spec | Sequence[Spec],
    attributes: Mapping[str, Any],
) -> list[Value]:
    """Make a composite-implicit call ``torchstone.<name>``; its decomposition is PyTorch's own expansion.

    ``inputs`` are all tensor parameters of its schema, in order; operands keep their
    dtypes. If an attribute is symbolic, the expansion is inlined.
    """
    specs = [out] if isinstance(out, Spec) else list(out)
    given = [value for value in inputs if value is not None]
    if _are_symbolic(attributes):
        return expand(*given)
    marks = {"operands": _presence(inputs), "dtypes": [spec.dtype.name for spec in specs]}
    return hlo.composite(f"torchstone.{name}", given, expand, {**attributes, **marks})


def _are_symbolic(attributes: Mapping[str, Any]) -> bool:
    """Whether an attribute is symbolic: attributes of a module must be constants."""
    return any(isinstance(item, (torch.SymInt, torch.SymFloat)) for item in tree_leaves(dict(attributes)))


def _presence(inputs: Sequence[Value | None]) -> list[bool] | None:
    """Return which operands are present, or None if all of them are."""
    present = [value is not None for value in inputs]
    return None if all(present) else present
