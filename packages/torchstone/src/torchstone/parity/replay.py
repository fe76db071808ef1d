"""Call artifacts with flat lists of arrays: read from files or random, here or in a fresh process.

Everything here works without torch. The fresh process runs ``python -m torchstone.parity.replay
ARTIFACT INPUTS.npz OUTPUTS.npz …``.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy

from ..errors import EngineError, InputMismatch, TorchstoneError
from ..shapes import bind, evaluate
from ..signature import InputSpec, OutputSpec, Signature
from ..trees import flatten, leaf_paths, unflatten

if TYPE_CHECKING:
    from ..program import Program

Array = numpy.ndarray[Any, Any]

UNBOUNDED_SIZE = 2
"""The value of a symbolic dimension in random inputs, unless its range or the caller says otherwise."""


def input_specs(signature: Signature) -> list[InputSpec]:
    """Return the specs of the tensors that a caller passes, in order."""
    return [spec for spec in signature.inputs if spec.kind == "input"]


def output_specs(signature: Signature) -> dict[str, OutputSpec]:
    """Return the specs of a call's results by readable paths such as ``output.logits``, in order."""
    paths = leaf_paths(signature.output_tree, "output")
    specs = [spec for spec in signature.outputs if spec.kind == "output"]
    return {paths[index]: spec for index, spec in enumerate(specs)}


def random_inputs(signature: Signature, seed: int = 0, sizes: Mapping[str, int] | None = None) -> list[Array]:
    """Return random inputs that fit the signature; the same ``seed`` gives the same inputs.

    Floating-point and complex values are standard normal. Integers are 0 or 1,
    so that they are valid as indices. ``sizes`` sets symbolic dimensions. Raises
    :class:`InputMismatch` for a dimension that the program does not have.
    """
    symbols = {}
    for name, (low, high) in signature.symbols.items():
        if name in signature.bounds:
            continue
        symbols[name] = max(low, UNBOUNDED_SIZE if high is None else min(UNBOUNDED_SIZE, high))
    unknown = sorted(set(sizes or {}) - set(symbols))
    if unknown:
        known = ", ".join(symbols) or "none: its shapes are fixed"
        raise InputMismatch(
            f"there is no dimension {', '.join(unknown)}", hint=f"symbolic dimensions: {known}"
        )
    symbols.update(sizes or {})
    generator = numpy.random.default_rng(seed)
    shapes = [[evaluate(dim, symbols) for dim in spec.shape] for spec in input_specs(signature)]
    try:
        return [
            _random(generator, spec, shape)
            for spec, shape in zip(input_specs(signature), shapes, strict=True)
        ]
    except (MemoryError, ValueError) as error:  # ValueError: more bytes than there are addresses
        raise InputMismatch(f"inputs of these sizes cannot be made here: {error}") from error


def _random(generator: numpy.random.Generator, spec: InputSpec, shape: Sequence[int]) -> Array:
    if spec.dtype.is_complex:
        values = generator.standard_normal(shape) + 1j * generator.standard_normal(shape)
    elif spec.dtype.is_floating:
        values = generator.standard_normal(shape)
    else:
        values = generator.integers(0, 2, shape)
    return numpy.asarray(values).astype(spec.dtype.numpy)


def read_inputs(paths: Sequence[str | Path]) -> list[Array]:
    """Read the arrays of ``.npy`` and ``.npz`` files, in order; raises :class:`InputMismatch` for others."""
    arrays: list[Array] = []
    for path in paths:
        try:
            loaded = numpy.load(path, allow_pickle=False)
        except OSError as error:
            raise InputMismatch(f"cannot read the input file {path}: {error.strerror or error}") from error
        except (ValueError, EOFError) as error:
            raise InputMismatch(
                f"the input file {path} is no .npy or .npz file of numbers",
                hint="write it with numpy.save or numpy.savez",
            ) from error
        arrays += [loaded] if isinstance(loaded, numpy.ndarray) else [loaded[name] for name in loaded.files]
    return arrays


def call(program: Program, arrays: Sequence[Array]) -> dict[str, Array]:
    """Call ``program`` with the inputs ``arrays``, in order, and return its outputs by path.

    Raises :class:`InputMismatch` if their number, shapes or dtypes differ from the signature.
    """
    signature = program.signature
    specs = input_specs(signature)
    if len(arrays) != len(specs):
        expected = ", ".join(f"{spec.name}: {spec.dtype}{list(spec.shape)}" for spec in specs)
        raise InputMismatch(
            f"{len(arrays)} input arrays were given; the program takes {len(specs)}: {expected}"
        )
    given = [_declared(array, spec) for array, spec in zip(arrays, specs, strict=True)]
    declared = [(spec.name, spec.shape) for spec in specs]
    symbols = bind(declared, [array.shape for array in given], signature.symbols, signature.relations)
    args, kwargs = unflatten(signature.input_tree, given, symbols)
    leaves = flatten(signature.output_tree, program(*args, **kwargs), "output")
    # Called without inputs, a program returns torch tensors if torch is loaded.
    return {path: numpy.asarray(leaves[index]) for index, path in enumerate(output_specs(signature))}


def _declared(array: Array, spec: InputSpec | OutputSpec) -> Array:
    """Return ``array`` in the dtype of its spec; ``.npy`` files do not keep bfloat16 and float8."""
    wanted = spec.dtype.numpy
    if array.dtype.kind == "V" and array.dtype.names is None and array.dtype.itemsize == wanted.itemsize:
        return array.view(wanted)
    return array


def run_fresh(artifact: str | Path, arrays: Sequence[Array], *, timeout_s: float = 600.0) -> list[Array]:
    """Load ``artifact`` in a fresh process without torch, call it once, and return its outputs in order.

    Raises :class:`EngineError` with the last output of the process if it fails.
    """
    return run_all_fresh([(artifact, arrays)], timeout_s=timeout_s)[0]


def run_all_fresh(
    jobs: Sequence[tuple[str | Path, Sequence[Array]]], *, timeout_s: float = 600.0
) -> list[list[Array]]:
    """Do what :func:`run_fresh` does for several artifacts, one after the other in the same process."""
    what = str(jobs[0][0]) if len(jobs) == 1 else f"{len(jobs)} artifacts"
    with tempfile.TemporaryDirectory(prefix="torchstone-") as folder:
        command = [sys.executable, "-m", __name__]
        for place, (artifact, arrays) in enumerate(jobs):
            inputs = Path(folder, f"inputs{place}.npz")
            numpy.savez(inputs, *arrays)
            command += [os.fspath(artifact), str(inputs), str(Path(folder, f"outputs{place}.npz"))]
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=timeout_s,
                env=_environment(),
            )
        except subprocess.TimeoutExpired:
            raise EngineError(f"running {what} in a fresh process took longer than {timeout_s:g} s") from None
        if done.returncode:
            said = done.stderr.strip().splitlines()[-_LINES_OF_FAILURE:] or [f"exit code {done.returncode}"]
            raise EngineError("\n".join([f"running {what} in a fresh process failed:", *said]))
        return [_outputs(artifact, Path(folder, f"outputs{i}.npz")) for i, (artifact, _) in enumerate(jobs)]


def _outputs(artifact: str | Path, path: Path) -> list[Array]:
    from ..artifact import load_artifact

    specs = output_specs(load_artifact(artifact).signature).values()
    return [_declared(array, spec) for array, spec in zip(read_inputs([path]), specs, strict=True)]


_LINES_OF_FAILURE = 8


def _environment() -> dict[str, str]:
    """Return this process's environment, settings and import path, for the fresh process."""
    from ..config import describe

    settings = {variable: value for _, variable, value, _ in describe()}
    return {**os.environ, **settings, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}


def main(arguments: Sequence[str]) -> None:
    """Call each ``ARTIFACT`` with the arrays of ``INPUTS.npz`` and write ``OUTPUTS.npz``."""
    from ..api import load

    for place in range(0, len(arguments), 3):
        artifact, inputs, outputs = arguments[place : place + 3]
        numpy.savez(outputs, *call(load(artifact), read_inputs([inputs])).values())


class _NoTorch(MetaPathFinder):
    """An import hook that makes importing torch an error, to prove that nothing needs it."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name.partition(".")[0] == "torch":
            raise ImportError("this process runs artifacts without torch")


if __name__ == "__main__":
    sys.meta_path.insert(0, _NoTorch())
    try:
        main(sys.argv[1:])
    except TorchstoneError as error:
        sys.exit(str(error))
