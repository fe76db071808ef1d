"""Building, verifying and serializing one StableHLO module."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from .. import dtypes
from ..dtypes import DType
from ..errors import LoweringBug, VerificationError
from ..sharding import Mesh, Spec
from ._mlir import func, ir, new_context, stablehlo
from .dimensions import Dim
from .portable import serialize
from .sharding import attribute, declare_mesh
from .value import Value, bind_symbols, scope, tensor_type


@dataclass(frozen=True)
class Argument:
    """One argument of ``main``: its shape, dtype and name, and its sharding over the module's mesh.

    ``next_value`` is the position of the result that becomes the argument's next value.
    """

    shape: tuple[Dim, ...]
    dtype: DType
    name: str
    sharding: Spec | None = None
    next_value: int | None = None


class Module:
    """A StableHLO module under construction; its ``main`` is built by :meth:`build`.

    With a ``mesh``, it is a program for the devices of that mesh. ``ranks`` is the number of ranks that run
    it together, or None for a program without collectives. With ``full_precision``, products of float32 are
    computed in float32; otherwise, a device may use a faster format, such as TensorFloat-32.
    """

    def __init__(self, name: str, mesh: Mesh | None = None, *, full_precision: bool = True) -> None:
        self.mesh = mesh
        self.full_precision = full_precision
        self.ranks: int | None = None
        self.context = new_context()
        self._private: dict[Any, tuple[Any, list[tuple[Sequence[Dim], DType]]]] = {}
        self._names: dict[str, int] = {}
        self._programs: dict[Any, Any] = {}
        self.made: dict[Any, Any] = {}
        """Types and constants of the module's context; :mod:`.value` makes each of them once."""
        with self.context, ir.Location.unknown():
            self.op = ir.Module.create()
            self.op.operation.attributes["sym_name"] = ir.StringAttr.get(_identifier(name))
            if mesh is not None:
                with ir.InsertionPoint(self.op.body):
                    declare_mesh(mesh)

    def build(
        self,
        arguments: Sequence[Argument],
        body: Callable[[list[Value]], Sequence[Value]],
        result_names: Sequence[str] | None = None,
        result_shardings: Sequence[Spec | None] | None = None,
    ) -> None:
        """Create ``main`` by running ``body`` on its arguments, and verify the module.

        The compiler chooses the sharding of a result that has none here. Raises
        :class:`VerificationError` with MLIR's own diagnostics.
        """
        outer = scope.module
        scope.module = self
        try:
            with self.context, ir.Location.unknown():
                function, results = self._function("main", arguments, body, public=True)
                names = [f"output{i}" for i in range(len(results))] if result_names is None else result_names
                if len(names) != len(results):  # MLIR would crash on it later
                    raise LoweringBug(f"{len(names)} names for {len(results)} results of main")
                function.arg_attrs = ir.ArrayAttr.get([_argument_attributes(a) for a in arguments])
                placed = [None] * len(names) if result_shardings is None else result_shardings
                function.attributes["res_attrs"] = ir.ArrayAttr.get(
                    [
                        ir.DictAttr.get({"jax.result_info": ir.StringAttr.get(n), **_sharding(s)})
                        for n, s in zip(names, placed, strict=True)
                    ]
                )
                self.verify()
        finally:
            scope.module = outer

    def private_function(
        self,
        name: str,
        key: Any,
        arguments: Sequence[Value],
        body: Callable[..., Value | Sequence[Value]],
    ) -> tuple[Any, list[tuple[Sequence[Dim], DType]]]:
        """Return the private function for ``key`` (built once), and the shapes and dtypes of its results."""
        if key not in self._private:
            specs = [Argument(v.shape, v.dtype, "") for v in arguments]

            def listed(values: list[Value]) -> Sequence[Value]:
                made = body(*values)
                return [made] if isinstance(made, Value) else list(made)

            with ir.Location.name(name):
                self._private[key] = self._function(f"{_identifier(name)}.impl", specs, listed, public=False)
        return self._private[key]

    def call_program(self, key: Any, program: bytes, operands: Sequence[Value]) -> list[Value]:
        """Call another program, which is included once per ``key`` as a private function.

        ``program`` is a portable artifact with static shapes.
        """
        if key not in self._programs:
            self._programs[key] = self._included(program)
        results = func.CallOp(self._programs[key], [value.ir for value in operands]).results
        types = [ir.RankedTensorType(result.type) for result in results]
        return [
            Value(result, type_.shape, dtypes.from_mlir(str(type_.element_type)))
            for result, type_ in zip(results, types, strict=True)
        ]

    def _included(self, program: bytes) -> Any:
        """Copy the functions of ``program`` as private ones with unique names; return the copied ``main``."""
        other = stablehlo.deserialize_portable_artifact(self.context, program)
        number = len(self._programs)
        copies = {}
        for function in other.body.operations:
            symbol = ir.StringAttr(function.attributes["sym_name"]).value
            copies[symbol] = function.operation.clone(ir.InsertionPoint(self.op.body))
            copies[symbol].attributes["sym_name"] = ir.StringAttr.get(f"program_{number}.{symbol}")
            copies[symbol].attributes["sym_visibility"] = ir.StringAttr.get("private")

        def renamed(op: Any) -> Any:
            for name in ("callee", "decomposition"):
                if name in op.attributes:
                    symbol = ir.FlatSymbolRefAttr(op.attributes[name]).value
                    op.attributes[name] = ir.FlatSymbolRefAttr.get(f"program_{number}.{symbol}")
            return ir.WalkResult.ADVANCE

        for copy in copies.values():
            copy.walk(renamed)
        return copies["main"].opview

    def _function(
        self,
        name: str,
        arguments: Sequence[Argument],
        body: Callable[[list[Value]], Sequence[Value]],
        *,
        public: bool,
    ) -> tuple[Any, list[tuple[Sequence[Dim], DType]]]:
        types = [tensor_type(a.shape, a.dtype) for a in arguments]
        count = self._names.get(name, 0)
        self._names[name] = count + 1
        symbol = name if not count else f"{name}_{count}"
        with ir.InsertionPoint(self.op.body):
            function = func.FuncOp(
                symbol, ir.FunctionType.get(types, []), visibility="public" if public else "private"
            )
        block = function.add_entry_block()
        with ir.InsertionPoint(block):
            values = [Value(v, a.shape, a.dtype) for v, a in zip(block.arguments, arguments, strict=True)]
            with bind_symbols(values):
                outputs = list(body(values))
            func.ReturnOp([value.ir for value in outputs])
        function.attributes["function_type"] = ir.TypeAttr.get(
            ir.FunctionType.get(types, [value.ir.type for value in outputs])
        )
        return function, [(value.shape, value.dtype) for value in outputs]

    def arguments_read(self) -> set[int]:
        """Return the positions of those arguments of ``main`` that a result depends on."""
        with self.context:
            main = next(op for op in self.op.body.operations if op.name.value == "main")
            block = main.regions[0].blocks[0]
            seen: set[Any] = set()
            left = list(block.operations)[-1:]
            while left:
                new = {value for value in _operands(left.pop()) if value not in seen}
                seen |= new
                left += [value.owner for value in new if not isinstance(value.owner, ir.Block)]
            return {i for i, argument in enumerate(block.arguments) if argument in seen}

    def verify(self) -> None:
        """Raise :class:`VerificationError` if MLIR's verifier rejects the module."""
        try:
            self.op.operation.verify()
        except ir.MLIRError as error:
            raise VerificationError(f"the StableHLO module is invalid: {error}") from error

    def text(self, *, debug_info: bool = False) -> str:
        """The module as MLIR text, with source locations if ``debug_info``."""
        with self.context:
            return str(self.op.operation.get_asm(enable_debug_info=debug_info, large_elements_limit=64))

    def serialize(self, target: str) -> bytes:
        """Portable StableHLO bytecode for consumers of version ``target`` or later."""
        with self.context:
            return serialize(self.op, target, sharded=self.mesh is not None)


def _operands(operation: Any) -> list[Any]:
    """Return the operands of an operation and of all operations in its regions."""
    found = list(operation.operands)
    for region in operation.regions:
        for block in region.blocks:
            for inner in block.operations:
                found += _operands(inner)
    return found


def call_program(key: Any, program: bytes, operands: Sequence[Value]) -> list[Value]:
    """Run :meth:`Module.call_program` of the module under construction."""
    module: Module = scope.module
    return module.call_program(key, program, operands)


@contextmanager
def location(name: str, file: str | None = None, line: int = 0) -> Iterator[None]:
    """Give operations built inside the block ``name`` and the user's source line."""
    if file is None:
        with ir.Location.name(name):
            yield
    else:
        with ir.Location.name(name, childLoc=ir.Location.file(file, line, 0)):
            yield


def _argument_attributes(argument: Argument) -> Any:
    entries = _sharding(argument.sharding)
    if argument.name:
        entries["torchstone.name"] = ir.StringAttr.get(argument.name)
    if argument.next_value is not None:
        int32 = ir.IntegerType.get_signless(32)
        entries["tf.aliasing_output"] = ir.IntegerAttr.get(int32, argument.next_value)
    return ir.DictAttr.get(entries)


def _sharding(spec: Spec | None) -> dict[str, Any]:
    return {} if spec is None else {"sdy.sharding": attribute(spec)}


def _identifier(text: str) -> str:
    return re.sub(r"[^\w.]", "_", text) or "module"
