"""Compiled programs, bound to an engine and callable. For how to make or load one see ``api``."""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import methodcaller
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy

from optest.names import listing, near_misses

from . import spans
from .archive import LOAD_HINT
from .arguments import check_aliasing, check_arguments, overwrite, stored_array, wants_torch
from .artifact import Artifact, save_artifact
from .config import config
from .errors import (
    ArtifactError,
    ConfigError,
    EngineError,
    InputMismatch,
    ShardingError,
    described,
    raise_failed_checks,
)
from .runtime import Buffer, Engine, Executable, get_engine, refine
from .runtime.buffers import BufferSpec, check_buffer
from .runtime.pjrt import PjrtEngine
from .runtime.ranks import RankPart
from .runtime.sharded import ShardedProgram
from .shapes import bind, evaluate, is_static, names_in
from .sharding import LocalPart
from .signature import CheckKind, InputSpec, OutputSpec, Signature
from .trees import flatten, leaf_paths, readable, unflatten

if TYPE_CHECKING:
    from .compiler import Program as CompiledSource

Placing = Executable | ShardedProgram | RankPart
"""A compiled module in any of its forms; each knows which arrays it takes and returns."""


class Program:
    """A compiled program: callable like the model it came from, and storable.

    Call it with torch tensors and get plain torch tensors, or with NumPy arrays
    and get NumPy arrays. A program computes values: its results share no memory
    with its inputs and have no gradient. A call that succeeds updates the buffers
    and inputs that the model mutates; a call that fails changes nothing. The program
    has its own copy of the model's weights, unless it was exported with
    ``share_weights``. Weights go to the device at the first call; one executable
    is kept per set of input shapes (bounded by ``config.specializations``). Calls
    from several threads are safe; if the model mutates buffers, the order of the
    calls is not defined.

    A program can be copied and pickled, with its present state. The copy is like
    a program from :func:`load`.
    """

    def __init__(
        self,
        artifact: Artifact,
        *,
        engine: str | None = None,
        device: str | None = None,
        source: CompiledSource | None = None,
    ) -> None:
        if not isinstance(artifact, Artifact):
            raise ArtifactError(
                f"{described(artifact)} is not an artifact",
                hint="torchstone.export makes programs of models, and torchstone.load of files",
            )
        self._artifact = artifact
        self._where = (engine, device)
        self._source = source
        self._executables: OrderedDict[tuple[tuple[int, ...], ...], Executable | ShardedProgram] = (
            OrderedDict()
        )
        self._lock = threading.Lock()
        self._state: dict[str, Any] = {}
        paths = leaf_paths(artifact.signature.input_tree, "inputs")
        self._specs = [spec for spec in artifact.signature.inputs if spec.kind == "input"]
        self._labels = {spec.name: readable(paths[i]) for i, spec in enumerate(self._specs)}
        self._mutated = {
            str(spec.target) for spec in artifact.signature.outputs if spec.kind == "input_mutation"
        }

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self._present(self._artifact), *self._where)

    def _present(self, artifact: Artifact) -> Artifact:
        """Return ``artifact`` with the weights as they are now; calls change only buffers."""
        mutated = {str(spec.target) for spec in self.signature.outputs if spec.kind == "buffer_mutation"}
        now = {name: buffer.to_numpy() for name, buffer in self._state.items() if name in mutated}
        return replace(artifact, weights={**artifact.weights, **now})

    @property
    def signature(self) -> Signature:
        """Inputs, outputs, mutations, symbols and seeds of the program."""
        return self._artifact.signature

    def mlir_text(self, *, debug_info: bool = False, functions: bool = False) -> str:
        """Return the StableHLO module as MLIR text; with the user's source lines if ``debug_info``.

        With ``functions``, ``main`` calls one function for each module of the model, named after it.
        """
        if self._source is not None and not functions:
            return self._source.mlir_text(debug_info=debug_info)
        from .hlo.portable import text_of

        return text_of(self._artifact.module, debug_info=debug_info, functions=functions)

    def save(self, path: str | Path, *, stablehlo_version: str | None = None) -> Path:
        """Write the artifact for consumers of ``stablehlo_version`` (default: unchanged) or later.

        Buffers are written with their present values. The file is written completely
        or not at all. Raises :class:`ConfigError` for an unknown version, and if a
        loaded program should be written for another version than its own.
        """
        artifact = self._artifact
        if stablehlo_version is not None:
            from .hlo.portable import resolve_version

            target = resolve_version(stablehlo_version)
            if self._source is not None:
                artifact = self._source.with_weights(artifact.weights, target)
            elif target != self.signature.stablehlo_version:
                raise ConfigError(
                    f"this program was loaded with StableHLO {self.signature.stablehlo_version}",
                    hint="export the model again to write another version",
                )
        return save_artifact(path, self._present(artifact))

    def state(self) -> dict[str, numpy.ndarray[Any, Any]]:
        """Return parameters and buffers by name, as they are now: read-only, and unchanged by later calls."""
        views = {name: array.view() for name, array in self._present(self._artifact).weights.items()}
        for view in views.values():
            view.flags.writeable = False
        return views

    def load_state(self, values: Mapping[str, Any]) -> None:
        """Replace the parameters and buffers that ``values`` names with its arrays or tensors.

        A program for a mesh splits them as it splits its own. Raises :class:`InputMismatch` for a name that
        the program does not have and for a different shape or dtype; nothing has changed then.
        """
        specs = {str(one.target): one for one in self.signature.inputs if one.target is not None}
        new = {}
        for name, value in values.items():
            if name not in specs:
                close = near_misses(name, specs)
                raise InputMismatch(
                    f"the program has no parameter or buffer {name!r}",
                    hint=f"did you mean {listing(close, last='or')}?" if close else "see program.state()",
                )
            new[name] = stored_array(name, specs[name], value)
        with self._lock:
            self._artifact = replace(self._artifact, weights={**self._artifact.weights, **new})
            if self._state:
                executable = next(reversed(self._executables.values()))
                places = {str(one.target): place for place, one in enumerate(self.signature.inputs)}
                placed = {name: self._import(executable, one, places[name]) for name, one in new.items()}
                self._state = {**self._state, **placed}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program on its engine and return what the model returns.

        Raises :class:`InputMismatch` if an argument does not fit the signature. A program exported with
        ``config.check_indices`` raises :class:`IndexOutOfRange`, and one exported with
        ``config.check_values`` raises :class:`InvalidValue`. :class:`InvalidValue` is also raised if a size
        that depends on values is out of its bounds.
        """
        given, shapes, symbols = self._bound(args, kwargs)
        executable = self._executable(shapes, symbols)
        results = executable(*self._arguments(given, executable))
        self._check(results)
        sizes = self._sizes(symbols, results)
        return unflatten(self.signature.output_tree, self._deliver(given, results, sizes), sizes)

    def _bound(
        self, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[list[Any], list[tuple[int, ...]], dict[str, int]]:
        """Return a call's tensors, their shapes and the values of the symbols; raise if one does not fit."""
        leaves = flatten(self.signature.input_tree, (args, kwargs))
        given = [leaves[i] for i in range(len(leaves))]
        check_arguments(self._specs, given, self._labels, self._mutated)
        shapes = [tuple(value.shape) for value in given]
        declared = [(self._labels[spec.name], spec.shape) for spec in self._specs]
        symbols = bind(
            declared, shapes, self.signature.symbols, self.signature.relations, self.signature.reasons
        )
        if symbols:  # Python numbers among the arguments may be sizes of tensors
            flatten(self.signature.input_tree, (args, kwargs), symbols=symbols)
        return given, shapes, symbols

    def _check(self, results: Sequence[Buffer]) -> None:
        """Raise if a check among the results has failed."""
        raise_failed_checks(
            (spec.kind, str(spec.target), bool(buffer.to_numpy()))
            for spec, buffer in zip(self.signature.outputs, results, strict=True)
            if spec.kind in get_args(CheckKind)
        )

    def _sizes(self, symbols: Mapping[str, int], results: Sequence[Buffer]) -> dict[str, int]:
        """Return ``symbols`` and, as this call computed them, the sizes that depend on values."""
        if not self.signature.bounds:
            return dict(symbols)
        made = zip(self.signature.outputs, results, strict=True)
        found = {str(spec.target): int(buffer.to_numpy()) for spec, buffer in made if spec.kind == "size"}
        return {**symbols, **found}

    def _deliver(
        self, given: Sequence[Any], results: Sequence[Buffer], sizes: Mapping[str, int]
    ) -> list[Any]:
        """Write mutations back; return the outputs as the caller's kind of array, without padding.

        Everything that can fail happens before the first write.
        """
        made = list(zip(self.signature.outputs, results, strict=True))
        convert = _to_torch(given) if wants_torch(given) else methodcaller("to_numpy")
        outputs = [
            self._without_padding(spec, convert(buffer), sizes)
            for spec, buffer in made
            if spec.kind == "output"
        ]
        by_name = dict(zip((spec.name for spec in self._specs), given, strict=True))
        for spec, buffer in made:
            if spec.kind == "input_mutation":
                overwrite(by_name[str(spec.target)], buffer)
        changed = {str(spec.target): buffer for spec, buffer in made if spec.kind == "buffer_mutation"}
        self._state = {**self._state, **changed}  # as a whole: other threads read it
        return outputs

    def _without_padding(self, spec: OutputSpec, array: Any, sizes: Mapping[str, int]) -> Any:
        """Return a contiguous copy without padding if the size depends on values, else ``array`` itself."""
        bounds = self.signature.bounds
        if not bounds or not any(names_in(dim) & bounds.keys() for dim in spec.shape if isinstance(dim, str)):
            return array
        real = array[tuple(slice(0, evaluate(dim, sizes)) for dim in spec.shape)]
        return real.copy() if isinstance(real, numpy.ndarray) else real.clone()

    def _arguments(self, given: Sequence[Any], executable: Placing) -> list[Any]:
        """Return the executable's arguments. A seed is drawn last, so that a wrong call does not draw one."""
        feed, state = iter(given), self._state
        arguments: list[Any] = []
        for position, spec in enumerate(self.signature.inputs):
            if spec.kind == "input":
                arguments.append(self._import(executable, next(feed), position))
            elif spec.kind != "seed":
                arguments.append(state[str(spec.target)])
        check_aliasing(self._specs, given, self._labels, self._mutated)
        return [*arguments, draw_seed()] if len(arguments) < len(self.signature.inputs) else arguments

    def _import(self, executable: Placing, array: Any, position: int) -> Buffer:
        """Return ``array`` as the buffer that the executable takes at ``position``."""
        if isinstance(executable, (ShardedProgram, RankPart)):
            return executable.place(array, position)
        if isinstance(array, LocalPart):
            label = executable.inputs[position].label(position)
            raise InputMismatch(
                f"{label} is a LocalPart, and the program runs on one device",
                hint="pass the whole tensor, or export the model with mesh= and shardings=",
            )
        buffer = get_engine(*self._where).import_array(array)
        check_buffer(buffer, executable.inputs[position], position)
        return buffer

    def _executable(
        self, shapes: Sequence[tuple[int, ...]], symbols: Mapping[str, int]
    ) -> Executable | ShardedProgram:
        key = tuple(shapes)
        with self._lock:
            if key in self._executables:
                self._executables.move_to_end(key)
                return self._executables[key]
            engine = get_engine(*self._where)
            module = self._static_module(symbols)
            if self._executables:
                spans.recompiled("exported program", lambda: self._new_shapes(shapes))
            executable = self._compile(engine, module, self._names())
            check_module(self.signature, executable, symbols)
            self._place_state(executable)
            self._executables[key] = executable
            while len(self._executables) > max(config.specializations, 1):
                self._executables.popitem(last=False)
            return executable

    def _names(self) -> list[str]:
        """Return the names that errors use for the arguments of the module."""
        return [self._labels.get(spec.name, spec.target or spec.name) for spec in self.signature.inputs]

    def _place_state(self, executable: Placing) -> None:
        """Move the weights to the engine's device, unless they are there already."""
        if not self._state:
            self._state = {
                str(spec.target): self._import(executable, self._artifact.weights[str(spec.target)], place)
                for place, spec in enumerate(self.signature.inputs)
                if spec.kind not in ("input", "seed")
            }

    def _static_module(self, symbols: Mapping[str, int]) -> bytes:
        """Return the module, refined for these sizes if it has symbols."""
        declared = [spec.shape for spec in self.signature.inputs]
        if is_static(declared):
            return self._artifact.module
        try:
            return refine(
                self._artifact.module, [[evaluate(d, symbols) for d in shape] for shape in declared]
            )
        except EngineError as error:
            small = [f"{name} = {size}" for name, size in symbols.items() if size < 2]
            if not small:
                raise
            raise InputMismatch(
                f"the program was traced for sizes of 2 or more and cannot take {', '.join(small)} "
                f"({error.message})",
                hint="export again for these sizes, or give the dynamic dimensions a minimum of 2",
            ) from error

    def _compile(self, engine: Engine, module: bytes, names: Sequence[str]) -> Executable | ShardedProgram:
        mesh, ranks = self.signature.mesh, self.signature.ranks
        if ranks is not None:
            raise ShardingError(
                f"the program calls collectives of {ranks} ranks, and a call of it has the arguments of one",
                hint="run the ranks together: torchstone.Ranks(program)([arguments of each rank])",
            )
        if mesh is None:
            return engine.compile(module, input_names=names)
        if not isinstance(engine, PjrtEngine):
            raise ShardingError(
                f"the program is for the mesh {mesh}, and the engine {engine.name!r} has one device",
                hint='load it with engine="pjrt"',
            )
        shardings = [spec.sharding or () for spec in self.signature.inputs]
        return engine.compile_for_mesh(module, mesh, shardings, input_names=names)

    def _new_shapes(self, shapes: Sequence[tuple[int, ...]]) -> str:
        labels = [self._labels[spec.name] for spec in self._specs]
        given = (f"{label}: {list(shape)}" for label, shape in zip(labels, shapes, strict=True))
        return f"the first call with these shapes: {', '.join(given)}"


def _restored(artifact: Artifact, engine: str | None, device: str | None) -> Program:
    return Program(artifact, engine=engine, device=device)


def check_module(signature: Signature, executable: Placing, symbols: Mapping[str, int]) -> None:
    """Raise :class:`ArtifactError` if the module's arguments or results are not those of the signature."""
    size = functools.partial(signature.padded, symbols=symbols)
    _agree("argument", signature.inputs, executable.inputs, size)
    _agree("result", signature.outputs, executable.outputs, size)


def _agree(
    role: str,
    specs: Sequence[InputSpec | OutputSpec],
    found: Sequence[BufferSpec],
    size: Callable[[int | str], int],
) -> None:
    if len(specs) != len(found):
        raise ArtifactError(
            f"the module has {len(found)} {role}s, and its signature {len(specs)}", hint=LOAD_HINT
        )
    for spec, real in zip(specs, found, strict=True):
        declared = BufferSpec(tuple(map(size, spec.shape)), spec.dtype)
        if (declared.shape, declared.dtype) != (tuple(real.shape), real.dtype):
            raise ArtifactError(
                f"the {role} {spec.name!r} is {real} in the module, and {declared} in its signature",
                hint=LOAD_HINT,
            )


def _to_torch(given: Sequence[Any]) -> Callable[[Buffer], Any]:
    """Return a conversion to torch tensors; results stay on the engine's GPU if an argument is on one."""
    from .runtime.torch_bridge import to_torch

    on_gpu = any(getattr(getattr(one, "device", None), "type", "cpu") == "cuda" for one in given)
    return functools.partial(to_torch, on_device=on_gpu)


def draw_seed() -> Any:
    """Draw a uint64 ``[2]`` seed, from torch's default generator if torch is loaded, else from the system."""
    if sys.modules.get("torch") is not None:
        import torch

        bits = torch.randint(-(1 << 63), (1 << 63) - 1, (2,), dtype=torch.int64, device="cpu")
        return bits.view(torch.uint64)
    return numpy.frombuffer(os.urandom(16), dtype=numpy.uint64)
