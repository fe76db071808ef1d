"""PyTorch's dispatcher: keys, kernels, and what a thread leaves out of it."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode as TorchDispatchMode

from .operators import OpOverload
from .probing import Internal

DispatchKey = torch._C.DispatchKey

below_autograd = Internal("torch._C._AutoDispatchBelowAutograd", "calling kernels below autograd")
any_requires_grad = Internal("torch._C._any_requires_grad", "recurrent operators with derivatives")
exclude_keys = Internal("torch._C._ExcludeDispatchKeyGuard", "capturing CUDA graphs")
without_function_modes = Internal("torch._C.DisableTorchFunction", "redirection")
without_modes = Internal("torch.utils._python_dispatch._disable_current_modes", "constants in programs")
function_mode_count = Internal("torch._C._len_torch_function_stack", "redirection")
function_modes = Internal("torch.overrides._get_current_function_mode_stack", "redirection")

_has_kernel = Internal("torch._C._dispatch_has_kernel", "reading which operators have kernels")
_has_kernel_for = Internal(
    "torch._C._dispatch_has_kernel_for_dispatch_key", "reading which operators have kernels"
)


def has_kernel(overload: OpOverload) -> bool:
    """Whether PyTorch has compiled code for ``overload``."""
    return bool(_has_kernel(overload.name()))


def has_kernel_for(overload: OpOverload, key: Any) -> bool:
    """Whether PyTorch has compiled code for ``overload`` and that key, Python kernels aside."""
    return bool(_has_kernel_for(overload.name(), key))


def is_composite_implicit(overload: OpOverload) -> bool:
    """Whether PyTorch's own code expands ``overload`` wherever it differentiates."""
    return has_kernel_for(overload, DispatchKey.CompositeImplicitAutograd)


def versions_uncounted() -> Any:
    """A context in which writes into tensors do not count as changes for autograd."""
    return exclude_keys(torch._C.DispatchKeySet(DispatchKey.ADInplaceOrView))
