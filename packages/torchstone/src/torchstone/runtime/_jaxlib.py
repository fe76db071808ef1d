"""The parts of jaxlib's private API that Torchstone uses.

Those for meshes are in :mod:`._jaxlib_meshes`, those that run programs in :mod:`._jaxlib_runs`.

jaxlib's client API changes between releases. Each function here looks up what the
installed release has, and raises :class:`EngineError` naming what is missing. Public
modules (``jax.extend.mlir``, ``jax.interpreters.mlir``) are used where they suffice.

Values of jaxlib's own types have the type ``Any``. In :mod:`torchstone.runtime`, jax and
jaxlib are imported only here, in the two modules above, in :mod:`._decompositions` and in
:mod:`._stablehlo`. Nothing here changes JAX's configuration. The clients are Torchstone's
own, except those of installed plugins (:func:`installed_client`).
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import platform
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import chain
from typing import Any

import jax
import jax.export
import jax.extend.backend
import numpy
from jax.extend import mlir as _mlir
from jax.interpreters import mlir as _interpreter
from jax.sharding import SingleDeviceSharding
from jaxlib import _jax as _native
from jaxlib import xla_client
from jaxlib.mlir import ir, passmanager
from jaxlib.mlir.dialects import func as func
from jaxlib.mlir.dialects import stablehlo
from jaxlib.version import __version__ as _jaxlib_version

from ..errors import EngineError


def need(owner: Any, *names: str) -> Any:
    """Return the first attribute in ``names`` that ``owner`` has; raise :class:`EngineError` without any."""
    for name in names:
        found = getattr(owner, name, None)
        if found is not None:
            return found
    raise EngineError(
        f"jaxlib {_jaxlib_version} has no {' or '.join(names)} in {getattr(owner, '__name__', owner)!r}",
        hint="install a jax and jaxlib that Torchstone was tested with (constraints.txt)",
    )


_import: Callable[..., Any] = need(_native, "dlpack_managed_tensor_to_buffer")
export_dlpack: Callable[..., Any] = need(_native, "buffer_to_dlpack_managed_tensor")
"""``(array) → capsule``; the array's memory stays alive as long as the capsule's consumer."""

COMPILER_VARIABLES = ("XLA_FLAGS", "LIBTPU_INIT_ARGS")
"""Environment variables that change what XLA compiles."""

RUNTIME_ERRORS = (RuntimeError, ValueError)
"""The errors that jaxlib raises if a compilation or an execution fails (its own error is a RuntimeError)."""

Rows = Sequence[Sequence[Any]]
detached: Callable[[], AbstractContextManager[Any]] = getattr(_native, "TracebackScope", nullcontext)
"""A context in which new programs and arrays do not keep references to the code that made them.

jaxlib stores the frames that made each program and array. It does so in C++, where Python's garbage collector
does not look. Code that Dynamo generated owns the function that it calls. So without this context, a program
or an array that is made while such code runs would keep the code and the function alive forever.
"""
_device_list = need(_native, "DeviceList")
shaped_array = need(jax.core, "ShapedArray")


def machine(client: Any, device: Any) -> str:
    """Return what compiled code depends on besides versions: platform, device kind, the CPU's features."""
    parts = [client.platform, client.platform_version, device.device_kind]
    if client.platform == "cpu":
        parts += [platform.machine(), _cpu_features()]
    return "|".join(parts)


@functools.cache
def _cpu_features() -> str:
    """Return the CPU's instruction set extensions.

    They keep programs of different machines apart if these share a cache in a home directory.
    """
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as lines:
            return next((line for line in lines if line.startswith(("flags", "Features"))), "")
    except OSError:
        return platform.processor()


def versions() -> dict[str, str]:
    """Return the versions of the packages that compiled programs depend on."""
    return {"jax": jax.__version__, "jaxlib": _jaxlib_version}


# --- clients ---------------------------------------------------------------------------


def cpu_client(devices: int = 0) -> Any:
    """Make a new client of the embedded CPU platform that runs programs in the calling thread.

    ``devices`` is how many devices it has; 0 means as many as XLA_FLAGS says.

    Synchronous execution makes zero-copy inputs safe: an in-place write after the
    call cannot reach a program that is still reading. For small programs it is
    also faster than a switch to another thread.
    """
    given = {"num_devices": devices} if devices else {}
    return need(xla_client, "make_cpu_client")(asynchronous=False, **given)


def load_plugin(name: str, path: str) -> None:
    """Load and initialize the PJRT C-API library ``path`` as platform plugin ``name``."""
    if not need(xla_client, "pjrt_plugin_loaded")(name):
        need(xla_client, "load_pjrt_plugin_dynamically")(name, path)
    if not need(xla_client, "pjrt_plugin_initialized")(name):
        need(xla_client, "initialize_pjrt_plugin")(name)


def plugin_client(name: str, options: Mapping[str, Any]) -> Any:
    """Make a new client of a plugin that :func:`load_plugin` loaded."""
    return need(xla_client, "make_c_api_client")(name, dict(options))


def installed_client(platform: str) -> Any:
    """Return JAX's own client of an installed plugin's platform; raise RuntimeError if there is none."""
    return jax.extend.backend.get_backend(platform)


def installed_clients() -> dict[str, Any]:
    """Return JAX's own clients by platform."""
    return dict(jax.extend.backend.backends())


def local_devices(client: Any) -> list[Any]:
    return list(client.local_devices())


# --- programs --------------------------------------------------------------------------


def make_context() -> Any:
    """Make an MLIR context with the dialects that StableHLO programs use."""
    return _interpreter.make_ir_context()


def parse(module: bytes, context: Any) -> Any:
    """Parse a portable artifact, MLIR bytecode or MLIR text to an ``ir.Module``."""
    return _mlir.deserialize_portable_artifact(module, context)


def to_bytecode(module: Any) -> bytes:
    return _interpreter.module_to_bytecode(module)


def to_portable(module: Any, *, current: bool = False) -> bytes:
    """Serialize a module to a portable artifact that consumers from up to twelve weeks ago can read.

    Operations of CHLO become composites. ``current``: use the version of this jaxlib instead.
    """
    requirement = stablehlo.StablehloCompatibilityRequirement
    wanted = requirement.NONE if current else requirement.WEEK_12
    version = stablehlo.get_version_from_compatibility_requirement(wanted)
    return bytes(_mlir.serialize_portable_artifact(module, str(version)))


def run_passes(module: Any, passes: str) -> None:
    """Run the MLIR passes that ``passes`` describes over a module; StableHLO's passes are available."""
    stablehlo.register_stablehlo_passes()
    passmanager.PassManager.parse(f"builtin.module({passes})").run(module.operation)


def main_function(module: Any) -> Any:
    """Return the ``func.func @main`` of a module; raise :class:`EngineError` if there is none."""
    for op in module.body.operations:
        if "sym_name" in op.attributes and ir.StringAttr(op.attributes["sym_name"]).value == "main":
            return op
    raise EngineError("the module has no function @main", hint="name the program's entry point main")


def tensor_types(types: Iterable[Any]) -> list[tuple[tuple[int | None, ...], str]]:
    """Return ``(shape, element type text)`` for each ranked tensor type; None marks a dynamic dimension."""
    result: list[tuple[tuple[int | None, ...], str]] = []
    for type_ in types:
        if not isinstance(type_, ir.RankedTensorType):
            raise EngineError(
                f"@main has an argument or result of type {type_}, which is not a ranked tensor"
            )
        shape = tuple(
            None if type_.is_dynamic_dim(axis) else type_.get_dim_size(axis) for axis in range(type_.rank)
        )
        result.append((shape, str(type_.element_type)))
    return result


def donate_arguments(function: Any, indices: Iterable[int], updates: Mapping[int, int]) -> None:
    """Mark the arguments at ``indices`` as donated, and let results be written into arguments' memory.

    ``updates`` maps each argument whose memory is reused to the result that is written there. Such marks that
    the module has already are removed: its state may still be needed after a call that fails.
    """
    int32 = ir.IntegerType.get_signless(32)
    marks = {index: {"jax.buffer_donor": ir.BoolAttr.get(True)} for index in indices}
    marks |= {index: {"tf.aliasing_output": ir.IntegerAttr.get(int32, to)} for index, to in updates.items()}
    attributes = []
    for place, entry in enumerate(function.arg_attrs):
        own = dict_items(entry)
        for name in ("jax.buffer_donor", "tf.aliasing_output"):
            own.pop(name, None)
        attributes.append(ir.DictAttr.get(own | marks.get(place, {})))
    function.arg_attrs = ir.ArrayAttr.get(attributes)


def updated_arguments(function: Any) -> list[tuple[Any, int]]:
    """Return the arguments whose memory a result is written into, each with the position of the result."""
    marks = [dict_items(entry).get("tf.aliasing_output") for entry in function.arg_attrs]
    pairs = zip(function.entry_block.arguments, marks, strict=True)
    return [(argument, ir.IntegerAttr(mark).value) for argument, mark in pairs if mark is not None]


def set_argument_shapes(function: Any, shapes: Iterable[Sequence[int]]) -> None:
    """Give the arguments of ``function`` static shapes; its body keeps its types until refinement."""
    entry = function.entry_block
    with ir.InsertionPoint.at_block_begin(entry), ir.Location.unknown():
        for argument, shape in zip(entry.arguments, shapes, strict=True):
            declared = ir.RankedTensorType(argument.type)
            if declared.has_static_shape:
                continue
            argument.set_type(ir.RankedTensorType.get(list(shape), declared.element_type))
            # Convert back to the dynamic type, because some users accept only that.
            converted = stablehlo.ConvertOp(declared, argument)
            argument.replace_all_uses_except(converted.result, converted.operation)
    types = [argument.type for argument in entry.arguments]
    signature = ir.FunctionType.get(types, function.type.results)
    function.attributes["function_type"] = ir.TypeAttr.get(signature)


def operations(module: Any, *names: str) -> list[Any]:
    """Return the operations of a module that have one of these names, in order, including nested ones."""
    found: list[Any] = []

    def visit(op: Any) -> Any:
        if op.name in names:
            found.append(op.opview)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    return found


def integers(values: Sequence[int], shape: Sequence[int]) -> Any:
    """Return a constant int64 attribute of ``shape``."""
    return ir.DenseIntElementsAttr.get(numpy.asarray(values, dtype=numpy.int64).reshape(shape))


def refine_shapes(module: bytes) -> bytes:
    """Propagate static argument shapes through MLIR bytecode; raise if a dynamic shape remains."""
    return bytes(_mlir.refine_polymorphic_shapes(module, enable_shape_assertions=True))


def dict_items(attribute: Any) -> dict[str, Any]:
    return {entry.name: entry.attr for entry in ir.DictAttr(attribute)}


def compile_program(client: Any, module: bytes, devices: Rows, xla: Mapping[str, Any]) -> Any:
    """Compile MLIR bytecode for ``devices``, one row for each rank; XLA's own exceptions propagate."""
    compiler = need(client, "compile_and_load", "compile")
    with detached():
        return compiler(module, _device_list(tuple(chain(*devices))), _compile_options(xla, devices))


def unknown_option(error: Exception) -> str | None:
    """Return the name of the XLA option that ``error`` reports as unknown; None for other errors."""
    found = re.search(r"No such compile option: '(\w+)'", str(error))
    return found.group(1) if found else None


def serialize_executable(client: Any, executable: Any) -> bytes:
    """Return an opaque image of ``executable``; raise if the platform cannot make one."""
    return bytes(need(client, "serialize_executable")(executable))


def deserialize_executable(client: Any, image: bytes, devices: Rows, xla: Mapping[str, Any]) -> Any:
    """Load an image that :func:`serialize_executable` made. Unsafe for bytes of unknown origin."""
    reader = need(client, "deserialize_executable")
    with detached():
        return reader(image, _device_list(tuple(chain(*devices))), _compile_options(xla, devices))


def _compile_options(xla: Mapping[str, Any], devices: Rows) -> Any:
    options = need(xla_client, "CompileOptions")()
    options.env_option_overrides = list(xla.items())
    numbers = numpy.array([[device.id for device in row] for row in devices])
    if numbers.size > 1:
        assignment = need(xla_client, "DeviceAssignment").create(numbers)
        build = options.executable_build_options
        for part in (options, build):
            part.num_replicas, part.num_partitions = numbers.shape
            part.device_assignment = assignment
    if numbers.shape[1] > 1:
        build.use_spmd_partitioning = build.use_shardy_partitioner = True
        build.allow_spmd_sharding_propagation_to_output = [True]
    return options


def cost(executable: Any) -> dict[str, float]:
    """Return XLA's estimate of one run (``flops``, ``bytes accessed``), which counts a loop's body once."""
    try:
        return dict(executable.cost_analysis())
    except (AttributeError, *RUNTIME_ERRORS):
        return {}


def jax_function(
    portable: bytes,
    inputs: Sequence[tuple[Sequence[int], Any]],
    outputs: Sequence[tuple[Sequence[int], Any]],
) -> Callable[..., list[numpy.ndarray[Any, Any]]]:
    """Return a function of NumPy arrays from a portable artifact; JAX itself compiles and runs it on its CPU.

    ``inputs`` and ``outputs`` are pairs of shape and dtype.
    """

    def alike(*_: Any) -> list[Any]:
        return [jax.numpy.zeros(shape, dtype) for shape, dtype in outputs]

    with jax.enable_x64(True):
        structs = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in inputs]
        exported = jax.export.export(jax.jit(alike, keep_unused=True), platforms=("cpu",))(*structs)
    call = jax.jit(dataclasses.replace(exported, mlir_module_serialized=portable).call)

    def run(*arrays: numpy.ndarray[Any, Any]) -> list[numpy.ndarray[Any, Any]]:
        with jax.enable_x64(True), jax.default_device(jax.devices("cpu")[0]):
            return [numpy.asarray(result) for result in call(*arrays)]

    return run


# --- profiles --------------------------------------------------------------------------


def optimized_module(executable: Any) -> tuple[str, str]:
    """Return the name and the text of the optimized HLO that XLA made from a program."""
    module = need(executable, "hlo_modules")()[0]
    return module.name, module.to_string()


def memory_sizes(executable: Any) -> dict[str, int]:
    """Return the bytes of a program's arguments, outputs, outputs in arguments' memory and intermediates."""
    try:
        found = executable.get_compiled_memory_stats()
    except (AttributeError, *RUNTIME_ERRORS):
        return {}
    parts = {"arguments": "argument", "outputs": "output", "shared": "alias", "intermediate": "temp"}
    return {part: int(getattr(found, f"{name}_size_in_bytes", 0)) for part, name in parts.items()}


def device_memory(device: Any) -> tuple[int, int] | None:
    """Return the bytes in use and the bytes in total; None if the plugin does not count them."""
    found = device.memory_stats() or {}
    used, limit = found.get("bytes_in_use"), found.get("bytes_limit")
    return None if used is None or not limit else (int(used), int(limit))


def optional(part: str, name: str) -> Any:
    """Return ``name`` from a module that not every jaxlib has; raise :class:`EngineError` without it."""
    try:
        return need(importlib.import_module(f"jaxlib.{part}"), name)
    except ImportError as error:
        raise EngineError(f"jaxlib {_jaxlib_version} has no {part}, which brings {name}") from error


# --- arrays ----------------------------------------------------------------------------


def import_dlpack(capsule: Any, device: Any, stream: Any, copy: bool | None = None) -> Any:
    """Import the tensor of a DLPack capsule as an array on ``device``, in the same memory if possible."""
    with detached():
        return _import(capsule, device, stream, copy)


def put(array: numpy.ndarray[Any, Any], device: Any) -> Any:
    """Copy a contiguous NumPy array to ``device``'s memory."""
    aval = shaped_array(array.shape, array.dtype)
    transfer = need(_native, "batched_device_put")
    # Without enable_x64, which applies to this thread only, jaxlib narrows 64-bit arrays to 32 bits.
    with detached(), jax.enable_x64(True):
        placed = transfer(aval, SingleDeviceSharding(device), [array], [device])
        placed.block_until_ready()
    return placed


def to_numpy(array: Any) -> numpy.ndarray[Any, Any]:
    """Return the array's values on the host: a read-only view if the memory is the host's."""
    values, _ = need(array, "_single_device_array_to_np_array_did_copy")()
    return values


def pointer(array: Any) -> int:
    """Return the address of the array's first element in its device's memory."""
    return int(array.unsafe_buffer_pointer())
