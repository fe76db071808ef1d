"""Rewrites programs to a form that the reference interpreter takes, and runs them on it.

Not here: the child process (:mod:`._reference_worker`) and what the interpreter lacks (:mod:`.reference`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy

from . import _jaxlib

ir, stablehlo = _jaxlib.ir, _jaxlib.stablehlo

_STORAGE = {"bf16": "ui16", "i4": "i8", "ui4": "ui8"}


def storage_type(element: str) -> str:
    """Return the element type that carries ``element`` to and from the interpreter.

    The interpreter's Python binding reads only plain integers and floats. So bfloat16 and 8-bit
    floats are passed as their bits, 4-bit integers as bytes, and complex numbers as two tensors.
    """
    return "ui8" if element.startswith("f8") else _STORAGE.get(element, element)


def to_interpreter(module: Any) -> bytes:
    """Return a portable artifact of ``module`` whose ``@main`` takes and returns storage types.

    The module is consumed. CHLO operations become composites with a decomposition, which the interpreter
    inlines.
    """
    _copy_what_is_scattered_into(module)
    function = _jaxlib.main_function(module)
    inputs, outputs = list(function.type.inputs), list(function.type.results)
    function.attributes["sym_name"] = ir.StringAttr.get("wrapped")
    function.attributes["sym_visibility"] = ir.StringAttr.get("private")
    wrapper = ir.Module.parse(_wrapper_text(inputs, outputs))
    wrapper.body.operations[0].erase()
    for op in list(module.body.operations):
        wrapper.body.append(op)
    return _jaxlib.to_portable(wrapper, current=True)


def _copy_what_is_scattered_into(module: Any) -> None:
    """Give each scatter its own copies of the operands that it updates: the interpreter writes into them."""

    def visit(op: Any) -> Any:
        if op.name == "stablehlo.scatter":
            with ir.InsertionPoint(op), op.location:
                for position in range(len(op.operands) // 2):
                    value = op.operands[position]
                    op.operands[position] = stablehlo.ReshapeOp(value.type, value).result
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)


def _wrapper_text(inputs: Sequence[Any], outputs: Sequence[Any]) -> str:
    """Return a module with a ``@main`` that calls ``@wrapped``, and converts the arguments and results.

    ``@wrapped`` is only declared.
    """
    parameters: list[str] = []
    body: list[str] = []
    arguments: list[str] = []
    for position, type_ in enumerate(inputs):
        names, carriers, value = _carriers(f"in{position}", type_)
        parameters += [f"%{name}: {carrier}" for name, carrier in zip(names, carriers, strict=True)]
        arguments.append(f"%{value}")
        if len(names) == 2:
            body.append(f"%{value} = stablehlo.complex %{names[0]}, %{names[1]} : {type_}")
        elif names[0] != value:
            body.append(f"%{value} = {_cast(type_)} %{names[0]} : ({carriers[0]}) -> {type_}")
    signature = f"({', '.join(map(str, inputs))}) -> ({', '.join(map(str, outputs))})"
    count = f"%out:{len(outputs)} = " if outputs else ""
    body.append(f"{count}func.call @wrapped({', '.join(arguments)}) : {signature}")
    returned: list[str] = []
    returned_types: list[str] = []
    for position, type_ in enumerate(outputs):
        names, carriers, value = _carriers(f"result{position}", type_)
        source = f"%out#{position}"
        if len(names) == 2:
            for name, carrier, part in zip(names, carriers, ("real", "imag"), strict=True):
                body.append(f"%{name} = stablehlo.{part} {source} : ({type_}) -> {carrier}")
                returned.append(f"%{name}")
        elif names[0] != value:
            body.append(f"%{names[0]} = {_cast(type_)} {source} : ({type_}) -> {carriers[0]}")
            returned.append(f"%{names[0]}")
        else:
            returned.append(source)
        returned_types += carriers
    return_ = f"return {', '.join(returned)} : {', '.join(returned_types)}" if outputs else "return"
    lines = "\n".join([*body, return_])
    return (
        f"module {{ func.func private @wrapped{signature}\n"
        f"func.func @main({', '.join(parameters)}) -> ({', '.join(returned_types)}) {{\n{lines}\n}} }}"
    )


def _carriers(name: str, type_: Any) -> tuple[list[str], list[str], str]:
    """Return the names and types of the values that carry one tensor, and the name of the tensor itself."""
    dims = "".join(f"{size}x" for size in type_.shape)
    element = str(type_.element_type)
    if element.startswith("complex<"):
        part = f"tensor<{dims}{element[len('complex<') : -1]}>"
        return [f"{name}_real", f"{name}_imag"], [part, part], name
    carrier = storage_type(element)
    return [name if carrier == element else f"{name}_bits"], [f"tensor<{dims}{carrier}>"], name


def _cast(type_: Any) -> str:
    return "stablehlo.convert" if "i4" in str(type_.element_type) else "stablehlo.bitcast_convert"


def interpret(program: bytes, arrays: Sequence[Any]) -> list[numpy.ndarray[Any, Any]]:
    """Run a result of :func:`to_interpreter` on NumPy arrays. May abort the process: call it in a child."""
    context = _jaxlib.make_context()
    with context, ir.Location.unknown():
        module = _jaxlib.parse(program, context)
        types = _jaxlib.main_function(module).type.inputs
        arguments = [
            ir.DenseElementsAttr.get(array, type=type_) for array, type_ in zip(arrays, types, strict=True)
        ]
        return [numpy.array(result) for result in stablehlo.eval_module(module, arguments)]


def operation_names(module: Any) -> set[str]:
    """Return the names of all operations of a module, including nested ones.

    A name has a suffix (:func:`_marked`) if the interpreter cannot run this form of the operation.
    """
    found: set[str] = set()

    def visit(op: Any) -> Any:
        found.add(f"{op.name}{_marked(op)}")
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    return found


def _marked(op: Any) -> str:
    """Return a suffix that marks a form of the operation that the interpreter cannot run; else empty."""
    if op.name == "stablehlo.fft" and "64" not in str(op.operands[0].type.element_type):
        return " of 32-bit values"
    if op.name == "stablehlo.triangular_solve" and op.operands[0].type.rank > 2:
        return "" if op.attributes["unit_diagonal"].value else " of a batch"
    return ""
