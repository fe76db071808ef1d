"""Private names that only the redirection of CUDA code uses or replaces."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx
from torch.utils import _device

from .operators import all_schemas
from .probing import Internal, Replaceable

_FEATURE = "redirection"

CUDA_FUNCTIONS = "torch._C._cuda"
"""The prefix of the names of CUDA's functions in C."""
LAZY_INIT = "torch.cuda._lazy_init"
DEVICE_CONTEXT_INIT = "torch.utils._device.DeviceContext.__init__"
CHECKPOINT_CHECKS = "torch.utils.checkpoint._allowed_determinism_checks_to_fns"
TENSOR_VARIABLE = "torch._dynamo.variables.tensor.TensorVariable"
NEW_FAKE_TENSOR = "torch._subclasses.fake_tensor.FakeTensor.__new__"
CALL_COMPILER = "torch._dynamo.output_graph.OutputGraph.call_user_compiler"
STREAMS_OF_COMPILED_CODE = "torch._dynamo.variables.streams"
DEVICE_BLOCK = "torch._dynamo.variables.ctx_manager.CUDADeviceVariable"
BUILD_STREAM = "torch._dynamo.utils.build_stream"
BUILD_EVENT = "torch._dynamo.utils.build_event"
DEVICE_OF_MESH = "_get_device_from_mesh"
TAKE_DEVICE_OF_MESH = (
    "torch.distributed.fsdp._fully_shard._fully_shard",
    "torch.distributed._composable.replicate_with_fsdp",
)
"""The modules that import the function :data:`DEVICE_OF_MESH`, so that each has its own reference to it."""

ASKS_FOR_ITS_CALLER = ("torch.utils._device", "torch._utils", "torch._tensor", "torch._library.custom_ops")
"""Private modules that ask about devices on behalf of their callers."""

exchange_device = Replaceable("torch.cuda._exchange_device", _FEATURE)
maybe_exchange_device = Replaceable("torch.cuda._maybe_exchange_device", _FEATURE)
stream_of_device = Internal("torch._C._accelerator_getStream", _FEATURE)
set_stream = Internal("torch._C._accelerator_setStream", _FEATURE)
text_of_tensor = Internal("torch._tensor_str._str", _FEATURE)
packing = {
    name: Internal(f"torch._C._VariableFunctions._{name}", _FEATURE)
    for name in ("pack_padded_sequence", "pad_packed_sequence")
}
set_grad_enabled = Internal("torch._C._set_grad_enabled", _FEATURE)
parse_to = Internal("torch._C._nn._parse_to", _FEATURE)
without_subclasses = Internal("torch._C.DisableTorchFunctionSubclass", _FEATURE)
_object_by_index = Internal(
    "torch._dynamo.graph_bytecode_inputs.get_external_object_by_index", "streams in compiled code"
)
_eval_frame = Internal("torch._C._dynamo.eval_frame", "redirection in compiled code")
_functorch = Internal("torch._C._functorch", _FEATURE)
_meshes = Internal("torch.distributed.device_mesh._mesh_resources", _FEATURE)


def makes_tensors(function: Any) -> bool:
    """Whether ``function`` is one of PyTorch's factories, to which a default device applies."""
    return function in _device._device_constructors()


def default_of_modes() -> torch.device | None:
    """Return the device that ``torch.set_default_device`` gives to factories in this thread."""
    return _device.CURRENT_DEVICE


def drawing_operators() -> set[str]:
    """Return the names of ATen's operators that take a generator."""
    return {
        schema.name.removeprefix("aten::")
        for schema in all_schemas()
        if any(argument.name == "generator" for argument in schema.arguments)
    }


def unwrapped(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor inside all wrappers of ``torch.func``."""
    functorch = _functorch.get()
    while functorch.is_functorch_wrapped_tensor(tensor):
        tensor = functorch.get_unwrapped(tensor)
    return tensor


def type_of_mesh(mesh: Any) -> str:
    """Return the device type that a mesh was made with, read as PyTorch's own code reads it."""
    found: str = getattr(mesh, "_device_type", None) or mesh.device_type
    return found


def current_mesh() -> Any:
    """Return the mesh of the ``with`` block that this thread is in. Raises ``RuntimeError`` outside one."""
    return _meshes.get().get_current_mesh()


def untyped(storage: Any) -> torch.UntypedStorage:
    """Return the untyped storage of a storage of either kind."""
    found: torch.UntypedStorage = getattr(storage, "_untyped_storage", storage)
    return found


def not_compiled_alone(function: Any) -> None:
    """Keep Dynamo from compiling ``function`` when it is called outside a graph; inside one it is traced."""
    eval_frame = _eval_frame.get()
    skip = eval_frame._FrameExecStrategy(eval_frame._FrameAction.SKIP, eval_frame._FrameAction.DEFAULT)
    eval_frame.set_code_exec_strategy(function.__code__, skip)


def break_graph() -> None:
    """End the graph at this call, if Dynamo traces it."""
    torch._dynamo.graph_break()


def called_while_tracing(function: Any) -> Any:
    """Let Dynamo call a function without arguments wherever it meets it, and use the result as a constant."""
    function._dynamo_marked_constant = True  # torch.compiler.assume_constant_result does this plus an import
    return function


def records_an_event(node: fx.Node) -> bool:
    """Whether a node of Dynamo's graph records an event."""
    return str(node.target) == "streams.record_event"


def is_about_streams(node: fx.Node) -> bool:
    """Whether a node of Dynamo's graph works only on streams and events."""
    if node.op == "call_function":
        return str(node.target).startswith("streams.") or node.target is _object_by_index.get()
    return node.op == "call_method" and node.target == "query"


def runs_compiled_code(node: Any) -> bool:
    """Whether the autograd node of a custom function belongs to code that ``torch.compile`` compiled."""
    return str(node._forward_cls.__module__).startswith("torch._functorch._aot_autograd")


def note_places(node: Any, places: list[int | None]) -> None:
    """Store the places of a custom function's outputs on its autograd node."""
    node._torchstone_places = places


def places_noted(node: Any) -> list[int | None]:
    """Return what :func:`note_places` stored on the node."""
    found: list[int | None] = getattr(node, "_torchstone_places", [])
    return found
