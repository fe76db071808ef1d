"""Private attributes of tensors, storages and modules, and private functions on tensors."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from .probing import Internal

__all__ = [
    "DETECT_CAUSAL_MASK",
    "assert_async",
    "check",
    "detect_causal_mask",
    "foreach_copy",
    "from_dlpack",
    "has_tangent",
    "is_traceable_wrapper_subclass",
    "is_transformed",
    "is_zero_tensor",
    "make_per_channel_quantized",
    "make_per_tensor_quantized",
    "members",
    "memory_identity",
    "module_versions",
    "neg_view",
    "overlaps",
    "pack_padded_sequence",
    "pad_packed_sequence",
    "same_storage_layout",
    "saved_tensors_hooked",
    "sparse_sum",
    "storage_identity",
    "submodules",
    "to_dlpack",
    "under_vmap",
    "version_of",
    "with_module_versions",
]

# The C functions: the Python wrappers around them cost as much as an import.
to_dlpack = Internal("torch._C._to_dlpack", "handing tensors to an engine")
from_dlpack = Internal("torch._C._from_dlpack", "taking tensors from an engine")

assert_async = Internal("torch._assert_async", "checks of values")
check = Internal("torch._check", "recurrent operators")
neg_view = Internal("torch._neg_view", "views with a lazy sign")
foreach_copy = Internal("torch._foreach_copy_", "writing into inputs of compiled code")
same_storage_layout = Internal("torch._has_compatible_shallow_copy_type", "redirection")
make_per_tensor_quantized = Internal("torch._make_per_tensor_quantized_tensor", "quantized operators")
make_per_channel_quantized = Internal("torch._make_per_channel_quantized_tensor", "quantized operators")
pack_padded_sequence = Internal("torch._pack_padded_sequence", "packed sequences")
pad_packed_sequence = Internal("torch._pad_packed_sequence", "packed sequences")
_forward_ad = Internal("torch.autograd.forward_ad", "forward-mode differentiation")
_saved_tensors_hooks = Internal(
    "torch._C._autograd._top_saved_tensors_default_hooks", "measuring compiled functions"
)
_enter_vmap = Internal("torch._C._vmapmode_increment_nesting", "gradients of a batch")
_leave_vmap = Internal("torch._C._vmapmode_decrement_nesting", "gradients of a batch")
is_transformed = Internal("torch._C._functorch.is_functorch_wrapped_tensor", "exports with torch.func")
sparse_sum = Internal("torch._sparse_sum", "sums of sparse tensors")
detect_causal_mask = Internal("torch.nn.modules.transformer._detect_is_causal_mask", "masks of transformers")
DETECT_CAUSAL_MASK = (torch.nn.modules.transformer, "_detect_is_causal_mask")
"""The module in which transformers look the function up, and its name there."""


def is_zero_tensor(tensor: torch.Tensor) -> bool:
    """Whether ``tensor`` is one of autograd's zeros, which have no memory."""
    return tensor._is_zerotensor()


def has_tangent(tensors: Iterable[Any]) -> bool:
    """Whether one of ``tensors`` carries a tangent of forward-mode differentiation."""
    forward_ad = _forward_ad.get()
    if forward_ad._current_level < 0:
        return False
    found = (one for one in tensors if isinstance(one, torch.Tensor))
    return any(forward_ad.unpack_dual(tensor).tangent is not None for tensor in found)


def saved_tensors_hooked() -> bool:
    """Whether this thread has hooks on the tensors that autograd saves, from a user or from checkpointing."""
    return _saved_tensors_hooks(False) is not None


def under_vmap() -> bool:
    """Whether autograd's own ``vmap`` is active in this thread.

    Entering and leaving it is the fastest way to get its nesting depth: the function that returns the depth
    parses the name of a dispatch key.
    """
    depth = _enter_vmap()
    _leave_vmap()
    return bool(depth > 1)


def version_of(tensor: torch.Tensor) -> int:
    """Return how often ``tensor``'s memory was written."""
    return tensor._version


def overlaps(tensor: torch.Tensor) -> bool:
    """Whether two elements of ``tensor`` may share memory."""
    return bool(torch._debug_has_internal_overlap(tensor))


def storage_identity(storage: torch.UntypedStorage) -> int:
    """Return a number that identifies the memory of a storage."""
    return storage._cdata


def memory_identity(tensor: torch.Tensor) -> int | None:
    """Return a number that identifies the memory of ``tensor``; None if it has none of its own.

    That holds for sparse tensors, and for tensors inside ``torch.func`` transforms.
    """
    try:
        return storage_identity(tensor.untyped_storage())
    except NotImplementedError:
        return None


def members(module: torch.nn.Module) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the dicts in which ``module`` keeps its parameters and its buffers."""
    return module._parameters, module._buffers


def is_saved(module: torch.nn.Module, buffer: str) -> bool:
    """Whether ``module.state_dict()`` includes a buffer of the module, that is, whether it is persistent."""
    return buffer not in module._non_persistent_buffers_set


def may_refuse_state(module: torch.nn.Module) -> bool:
    """Whether ``module.load_state_dict`` runs code of users: hooks, extra state, or overrides."""

    def is_foreign(one: torch.nn.Module) -> bool:
        methods = (type(one)._load_from_state_dict, type(one).set_extra_state, type(one).load_state_dict)
        overridden = any(not method.__module__.startswith("torch.") for method in methods)
        return overridden or bool(one._load_state_dict_pre_hooks or one._load_state_dict_post_hooks)

    return any(map(is_foreign, module.modules()))


def mark_as_parameter(tensor: torch.Tensor) -> None:
    """Let ``isinstance(tensor, torch.nn.Parameter)`` hold for a plain tensor."""
    tensor._is_param = True


def leaves_of_gradients(tensor: torch.Tensor) -> list[torch.Tensor]:
    """Return the leaf tensors into which a backward pass from ``tensor`` would accumulate gradients."""
    found, seen = [], set()
    pending = [tensor.grad_fn]
    while pending:
        node = pending.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        leaf = getattr(node, "variable", None)
        if leaf is not None:
            found.append(leaf)
        pending += [following for following, _ in node.next_functions]
    return found


def set_members(module: torch.nn.Module, parameters: dict[str, Any], buffers: dict[str, Any]) -> None:
    """Let ``module`` keep its parameters and its buffers in these dicts."""
    module.__dict__.update(_parameters=parameters, _buffers=buffers)
    if isinstance(module, torch.nn.RNNBase):  # it also keeps its weights in a list
        module._init_flat_weights()


def submodules(module: torch.nn.Module) -> dict[str, Any]:
    """Return the dict in which ``module`` keeps its submodules."""
    return module._modules


def set_submodules(module: torch.nn.Module, parts: dict[str, Any]) -> None:
    """Let ``module`` keep its submodules in this dict."""
    module.__dict__.update(_modules=parts)


def module_versions(state: Any) -> Mapping[str, Any] | None:
    """Return the module versions that a state dict carries beside its entries, or None if it has none."""
    return getattr(state, "_metadata", None)


def with_module_versions(state: Any, versions: Mapping[str, Any]) -> Any:
    """Attach module versions to ``state``, so that a module loads it as written by these versions."""
    state._metadata = OrderedDict(versions)
    return state


def check_batch_norm_input(module: Any, tensor: torch.Tensor) -> None:
    """Raise PyTorch's error if the batch norm does not accept tensors of ``tensor``'s rank."""
    module._check_input_dim(tensor)
