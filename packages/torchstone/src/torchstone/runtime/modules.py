"""Reads StableHLO modules given as bytes: the types of ``@main``, and shape refinement.

Nothing here builds operations (see :mod:`torchstone.hlo`) or runs a program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .. import dtypes
from ..errors import EngineError, InputMismatch
from . import _composites, _interpreter_programs, _jaxlib, _jaxlib_meshes
from .buffers import BufferSpec

VERSION = 3
"""Part of the compilation cache's keys: increase it whenever the result of :func:`read` changes."""


@dataclass(frozen=True)
class Module:
    """A module that is ready to compile: MLIR bytecode with a ``@main`` of static shapes."""

    bytecode: bytes
    inputs: tuple[BufferSpec, ...]
    outputs: tuple[BufferSpec, ...]


def as_bytes(module: bytes | str) -> bytes:
    return module.encode() if isinstance(module, str) else module


def read(
    module: bytes | str,
    *,
    donate: Iterable[int] = (),
    updates: Iterable[tuple[int, int]] = (),
    rewrite: Callable[[Any], None] | None = None,
    replicate: bool = False,
) -> Module:
    """Parse a portable artifact, MLIR bytecode or MLIR text.

    ``donate`` has the arguments that are donated. ``updates`` has pairs of an argument and the result that
    is written into its memory. ``rewrite`` changes the parsed module for one engine. ``replicate`` gives
    every device of a mesh a copy of each result that has no sharding. Raises :class:`EngineError`
    if the bytes are not a module, ``@main`` is missing, a dimension is dynamic, or ``donate`` or ``updates``
    do not fit ``@main``.
    """
    context = _jaxlib.make_context()
    with context:
        parsed = _parse(as_bytes(module), context)
        function = _jaxlib.main_function(parsed)
        inputs = _specs("argument", _jaxlib.tensor_types(function.type.inputs))
        outputs = _specs("result", _jaxlib.tensor_types(function.type.results))
        positions, pairs = sorted(set(donate)), dict(updates)
        if positions and (positions[0] < 0 or positions[-1] >= len(inputs)):
            raise EngineError(
                f"cannot donate arguments {positions} of a program with {len(inputs)} argument(s)"
            )
        _check_updates(pairs, inputs, outputs)
        _jaxlib.donate_arguments(function, positions, pairs)
        if len(parsed.body.operations) > 1:
            # XLA would inline them too, but lose which operator of the program each one came from.
            _composites.inline_composites(parsed)
        if replicate:
            _jaxlib_meshes.replicate_results(function)
        if rewrite is not None:
            rewrite(parsed)
        return Module(_jaxlib.to_bytecode(parsed), inputs, outputs)


def _check_updates(
    pairs: Mapping[int, int], inputs: Sequence[BufferSpec], outputs: Sequence[BufferSpec]
) -> None:
    for argument, result in pairs.items():
        known = 0 <= argument < len(inputs) and 0 <= result < len(outputs)
        if not known or inputs[argument] != outputs[result]:
            raise EngineError(
                f"cannot write result {result} into the memory of argument {argument}: "
                + (f"it is {outputs[result]}, the argument {inputs[argument]}" if known else "no such pair")
            )


def for_interpreter(module: Module) -> tuple[bytes, frozenset[str]]:
    """Return the program for the reference interpreter's child process, and the operations in it."""
    context = _jaxlib.make_context()
    with context:
        program = _interpreter_programs.to_interpreter(_jaxlib.parse(module.bytecode, context))
        names = _interpreter_programs.operation_names(_jaxlib.parse(program, context))
    return program, frozenset(names)


def portable(module: Module) -> bytes:
    """Return the module as a portable artifact that consumers from up to twelve weeks ago can read."""
    context = _jaxlib.make_context()
    with context:
        return _jaxlib.to_portable(_jaxlib.parse(module.bytecode, context))


def named(specs: Sequence[BufferSpec], names: Sequence[str] | None) -> tuple[BufferSpec, ...]:
    """Return ``specs`` with the names that errors use; ``names`` is one per spec, or None for no names."""
    if names is None:
        return tuple(specs)
    if len(names) != len(specs):
        raise EngineError(f"{len(names)} input name(s) for a program with {len(specs)} argument(s)")
    return tuple(replace(spec, name=name) for spec, name in zip(specs, names, strict=True))


def specs_to_json(specs: Iterable[BufferSpec]) -> list[Any]:
    return [[spec.dtype.name, list(spec.shape)] for spec in specs]


def specs_from_json(entries: Iterable[Any]) -> tuple[BufferSpec, ...]:
    return tuple(BufferSpec(tuple(shape), dtypes.by_name(name)) for name, shape in entries)


def refine(module: bytes | str, shapes: Sequence[Sequence[int]]) -> bytes:
    """Replace the dynamic dimensions of ``module`` for arguments of the given shapes.

    Returns MLIR bytecode without dynamic dimensions. Raises :class:`InputMismatch`
    if a shape contradicts a static dimension of ``@main``, and :class:`EngineError`
    if the shapes in the module do not all follow from those of the arguments.
    """
    context = _jaxlib.make_context()
    with context:
        parsed = _parse(as_bytes(module), context)
        function = _jaxlib.main_function(parsed)
        declared = _jaxlib.tensor_types(function.type.inputs)
        if len(declared) != len(shapes):
            raise InputMismatch(f"@main takes {len(declared)} argument(s), {len(shapes)} shape(s) were given")
        for position, ((dims, _), shape) in enumerate(zip(declared, shapes, strict=True)):
            if len(dims) != len(shape) or any(
                dim is not None and dim != size for dim, size in zip(dims, shape, strict=True)
            ):
                text = ", ".join("?" if dim is None else str(dim) for dim in dims)
                raise InputMismatch(
                    f"argument {position} must have shape [{text}], found [{', '.join(map(str, shape))}]"
                )
        _composites.composites_to_calls(parsed)
        _jaxlib.set_argument_shapes(function, shapes)
        try:
            return _jaxlib.refine_shapes(_jaxlib.to_bytecode(parsed))
        except _jaxlib.RUNTIME_ERRORS as error:
            raise EngineError(
                f"the module cannot be refined to static shapes: {_first_line(error)}",
                hint="every dynamic dimension must follow from the arguments' shapes",
            ) from error


def _parse(module: bytes, context: object) -> Any:
    try:
        return _jaxlib.parse(module, context)
    except Exception as error:  # jaxlib raises MLIRError, ValueError or its own runtime error
        raise EngineError(
            f"these {len(module)} bytes are not a StableHLO module: {_first_line(error)}",
            hint="pass a portable StableHLO artifact, MLIR bytecode or MLIR text",
        ) from error


def _specs(role: str, types: Iterable[tuple[tuple[int | None, ...], str]]) -> tuple[BufferSpec, ...]:
    specs = []
    for position, (shape, element) in enumerate(types):
        static = tuple(size for size in shape if size is not None)
        if len(static) != len(shape):
            text = "x".join("?" if size is None else str(size) for size in shape)
            raise EngineError(
                f"{role} {position} of @main has a dynamic shape: tensor<{text}x{element}>",
                hint="specialise the module with torchstone.runtime.refine(module, shapes) first",
            )
        specs.append(BufferSpec(static, dtypes.from_mlir(element)))
    return tuple(specs)


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
