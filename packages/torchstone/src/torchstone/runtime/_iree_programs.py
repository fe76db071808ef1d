"""Rewrites programs for IREE: operations that it lacks are decomposed, and dtypes that it lacks refused.

Not here: compiling and running (:mod:`.iree`), and the decompositions (:mod:`._decompositions`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

from .. import dtypes
from ..errors import UnsupportedDtype
from . import _composites, _decompositions, _jaxlib, workarounds

ir, stablehlo = _jaxlib.ir, _jaxlib.stablehlo

UNSUPPORTED_DTYPES = dtypes.FLOAT8 | dtypes.SUB_BYTE
"""Dtypes that IREE's CPU target or its Python runtime lacks."""


def prepare(module: bytes) -> bytes:
    """Return MLIR bytecode as a portable artifact without operations that IREE lacks.

    Raises :class:`UnsupportedDtype` for dtypes that IREE lacks.
    """
    context = _jaxlib.make_context()
    with context, ir.Location.unknown():
        parsed = _jaxlib.parse(module, context)
        _composites.composites_to_calls(parsed)
        _refuse_dtypes(parsed)
        for number, (op, decomposition) in enumerate(_lacking(parsed)):
            _replace(parsed, op, decomposition, f"decomposed_{number}")
        workarounds.for_iree(parsed)
        return _jaxlib.to_portable(parsed)


def _lacking(module: Any) -> list[tuple[Any, Callable[..., Any]]]:
    """Return the operations that must be replaced, each with a function that computes the same."""
    found = _jaxlib.operations(module, *_DECOMPOSITIONS)
    chosen = [(op, _DECOMPOSITIONS[op.operation.name](op)) for op in found]
    return [(op, decomposition) for op, decomposition in chosen if decomposition is not None]


def _cholesky(op: Any) -> Callable[..., Any]:
    lower = "lower" in op.attributes and op.attributes["lower"].value
    return partial(_decompositions.cholesky, lower=lower)


def _triangular_solve(op: Any) -> Callable[..., Any]:
    flags = {name: op.attributes[name].value for name in ("left_side", "lower", "unit_diagonal")}
    transposed = stablehlo.TransposeAttr(op.attributes["transpose_a"]).value
    return partial(_decompositions.triangular_solve, transpose_a=transposed, **flags)


def _fft(op: Any) -> Callable[..., Any] | None:
    """Return None if IREE can run the transform: one axis, a power of two in length, in float32."""
    lengths = list(ir.DenseI64ArrayAttr(op.attributes["fft_length"]))
    size = lengths[-1]
    if len(lengths) == 1 and size > 1 and size & (size - 1) == 0 and "f64" not in str(op.operands[0].type):
        return None
    kind = stablehlo.FftTypeAttr(op.attributes["fft_type"]).value
    return partial(_decompositions.fft, kind=kind, lengths=lengths)


_DECOMPOSITIONS: dict[str, Callable[[Any], Callable[..., Any] | None]] = {
    "stablehlo.cholesky": _cholesky,
    "stablehlo.fft": _fft,
    "stablehlo.triangular_solve": _triangular_solve,
}


def _replace(module: Any, op: Any, decomposition: Callable[..., Any], prefix: str) -> None:
    """Replace ``op`` by a call of ``decomposition``, which becomes functions of the module.

    The names of these functions begin with ``prefix``, which must differ for each call.
    """
    types = _jaxlib.tensor_types(operand.type for operand in op.operands)
    operands = [([size or 0 for size in shape], dtypes.from_mlir(text).numpy) for shape, text in types]
    text = re.sub(r"@(?=\w)", f"@{prefix}_", _decompositions.lowered(decomposition, operands))
    made = ir.Module.parse(text)
    for function in made.body.operations:
        function.attributes["sym_visibility"] = ir.StringAttr.get("private")
        function.operation.clone(ir.InsertionPoint.at_block_begin(module.body))
    with ir.InsertionPoint(op), op.location:
        results = [result.type for result in op.results]
        callee = {"callee": ir.FlatSymbolRefAttr.get(f"{prefix}_main")}
        call = ir.Operation.create("func.call", results, list(op.operands), attributes=callee)
    for old, new in zip(op.results, call.results, strict=True):
        old.replace_all_uses_with(new)
    op.operation.erase()


def _refuse_dtypes(module: Any) -> None:
    """Raise :class:`UnsupportedDtype` if an operation takes or returns a dtype that IREE lacks."""
    lacking = {dtype.mlir: dtype for dtype in UNSUPPORTED_DTYPES}
    found: set[str] = set()

    def visit(op: Any) -> Any:
        for value in (*op.operands, *op.results):
            if isinstance(value.type, ir.RankedTensorType):
                found.add(str(value.type.element_type))
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    named = sorted(lacking[text].name for text in found & lacking.keys())
    if named:
        raise UnsupportedDtype(
            f"the iree engine has no {', '.join(named)}", hint="use the pjrt engine for this program"
        )
