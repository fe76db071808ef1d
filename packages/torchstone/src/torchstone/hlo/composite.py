"""Composites: named operators with a decomposition that runs anywhere.

A composite is a ``stablehlo.composite`` whose decomposition is a private
function of the module. A vendor compiler may match it by name, version and
attributes; everyone else inlines it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import compress
from typing import Any

from . import cancellation
from ._mlir import ir, stablehlo
from .control import results
from .dimensions import dim_key
from .value import Value, resolvable, scope

Attribute = bool | int | float | complex | str | None | Sequence[Any]


def composite(
    name: str,
    inputs: Sequence[Value],
    decomposition: Callable[..., Value | Sequence[Value]],
    attributes: Mapping[str, Attribute] | None = None,
    version: int = 1,
) -> list[Value]:
    """Wrap ``decomposition(*inputs)`` as one composite operation.

    ``attributes`` are the operator's parameters (``None`` entries are left out). The
    decomposition uses only its arguments. If a symbolic dimension cannot be computed
    from their shapes, the decomposition is inlined instead.
    """
    given = {key: value for key, value in (attributes or {}).items() if value is not None}
    module = scope.module
    multiplied = tuple(cancellation.is_product(value.ir) for value in inputs)
    shapes = tuple((tuple(map(dim_key, value.shape)), value.dtype) for value in inputs)
    key = (name, version, repr(given), shapes, multiplied)
    symbolic = [dim for value in inputs for dim in value.shape if not isinstance(dim, int)]
    if not all(resolvable(dim, inputs) for dim in symbolic):
        return _listed(decomposition(*inputs))

    def body(*values: Value) -> Value | Sequence[Value]:
        with cancellation.products(compress((value.ir for value in values), multiplied)):
            return decomposition(*values)

    function, specs = module.private_function(name, key, inputs, body)
    operation = stablehlo.CompositeOp(
        list(function.type.results),
        [value.ir for value in inputs],
        name,
        function.name.value,
        composite_attributes=ir.DictAttr.get({key: attribute(value) for key, value in given.items()}),
        version=version,
    )
    return results(operation, specs)


def _listed(result: Value | Sequence[Value]) -> list[Value]:
    return [result] if isinstance(result, Value) else list(result)


def attribute(value: Attribute) -> Any:
    """Convert a Python value to an MLIR attribute: i64, f64, bool, string or array; complex as two f64."""
    if isinstance(value, bool):
        return ir.BoolAttr.get(value)
    if isinstance(value, int):
        return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)
    if isinstance(value, float):
        return ir.FloatAttr.get(ir.F64Type.get(), value)
    if isinstance(value, str):
        return ir.StringAttr.get(value)
    if isinstance(value, complex):
        value = [value.real, value.imag]
    return ir.ArrayAttr.get([attribute(item) for item in value or ()])
