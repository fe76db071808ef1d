"""PyTorch's dispatcher: keys, kernels, and contexts in which a thread skips some keys or modes.

Beside its compiled kernels, an overload has kernels written in Python, which run when PyTorch traces.
:func:`kernels` adds Python kernels for the thread that traces; other threads keep the kernels they had.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode as TorchDispatchMode

from .operators import OpOverload
from .patches import Patch, for_tracing_thread, tracing
from .probing import Internal

DispatchKey = torch._C.DispatchKey

below_autograd = Internal("torch._C._AutoDispatchBelowAutograd", "calling kernels below autograd")
set_grad_mode = Internal("torch._C._set_grad_enabled", "running training steps in eager PyTorch")
any_requires_grad = Internal("torch._C._any_requires_grad", "recurrent operators with derivatives")
exclude_keys = Internal("torch._C._ExcludeDispatchKeyGuard", "capturing CUDA graphs")
without_function_modes = Internal("torch._C.DisableTorchFunction", "redirection")
with_function_modes = Internal("torch._C._EnableTorchFunction", "redirection")
enable_python_dispatcher = Internal(
    "torch._dispatch.python.enable_python_dispatcher", "tracing training steps"
)
without_modes = Internal("torch.utils._python_dispatch._disable_current_modes", "constants in programs")
function_mode_count = Internal("torch._C._len_torch_function_stack", "redirection")
function_modes = Internal("torch.overrides._get_current_function_mode_stack", "redirection")
_push_function_mode = Internal("torch.overrides._push_mode", "redirection")
_pop_function_mode = Internal("torch.overrides._pop_mode", "redirection")

_has_kernel = Internal("torch._C._dispatch_has_kernel", "reading which operators have kernels")
_has_kernel_for = Internal(
    "torch._C._dispatch_has_kernel_for_dispatch_key", "reading which operators have kernels"
)


def leave_function_mode(mode: Any) -> None:
    """Remove ``mode`` from this thread's stack; modes that other code entered after it stay there."""
    above = []
    while function_mode_count() and (top := _pop_function_mode()) is not mode:
        above.append(top)
    for other in reversed(above):
        _push_function_mode(other)


_computed_kernel = Internal("torch._C._dispatch_get_computed_kernel_for_dispatch_key", "kernels for CUDA")
_has_computed_kernel = Internal(
    "torch._C._dispatch_has_computed_kernel_for_dispatch_key", "reading which operators have kernels"
)
key_of_device = Internal("torch._C._dispatch_key_for_device", "kernels for CUDA")


def kernel_under(name: str, key: str) -> Callable[..., Any] | None:
    """Return what the dispatcher runs for an operator under a key, or None if it runs nothing.

    The function takes the dispatch keys as its first argument.
    """
    if not _has_computed_kernel(name, key):
        return None
    found: Callable[..., Any] = _computed_kernel(name, DispatchKey.__members__[key]).call_boxed
    return found


def has_kernel(overload: OpOverload) -> bool:
    """Whether PyTorch has compiled code for ``overload``."""
    return bool(_has_kernel(overload.name()))


def has_kernel_for(overload: OpOverload, key: Any) -> bool:
    """Whether PyTorch has compiled code for ``overload`` and the key; Python kernels do not count."""
    return has_own_kernel(overload.name(), key)


def has_own_kernel(name: str, key: Any) -> bool:
    """Whether a kernel is registered for the operator and exactly this key, in C++ or through a library."""
    return bool(_has_kernel_for(name, key))


def is_dispatched(overload: OpOverload) -> bool:
    """Whether the dispatcher knows ``overload``: False for TorchScript's own, which no graph contains."""
    try:
        has_kernel_for(overload, DispatchKey.CPU)
    except RuntimeError:
        return False
    return True


def is_composite_implicit(overload: OpOverload) -> bool:
    """Whether PyTorch differentiates ``overload`` by expanding it into other operators."""
    return has_kernel_for(overload, DispatchKey.CompositeImplicitAutograd)


def versions_uncounted() -> Any:
    """A context in which writes into tensors do not count as changes for autograd."""
    return exclude_keys(torch._C.DispatchKeySet(DispatchKey.ADInplaceOrView))


def python_kernels(overload: OpOverload) -> dict[Any, Callable[..., Any]]:
    """Return PyTorch's own table of the Python kernels of ``overload``, by dispatch key."""
    return overload.py_kernels


def call_compiled(overload: OpOverload, key: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Call the compiled kernel for ``key``, or the composite one; NotImplemented if there is neither."""
    for found in (key, DispatchKey.CompositeImplicitAutograd):
        if has_kernel_for(overload, found):
            return overload._op_dk(found, *args, **kwargs)
    return NotImplemented


def kernels(overload: OpOverload, functions: Mapping[Any, Callable[..., Any]]) -> Patch:
    """Return a patch that gives ``overload`` these Python kernels, by key, in the thread that traces."""
    return Patch(python_kernels(overload), _placed(overload, functions), overload._dispatch_cache.clear)


def kernel_table(
    overload: OpOverload, functions: Mapping[Any, Callable[..., Any]]
) -> dict[Any, Callable[..., Any]]:
    """Return the table of Python kernels that ``overload`` would have with the patch of :func:`kernels`."""
    return {**python_kernels(overload), **_placed(overload, functions)}


def _placed(
    overload: OpOverload, functions: Mapping[Any, Callable[..., Any]]
) -> dict[Any, Callable[..., Any]]:
    before = python_kernels(overload)
    composite = before.get(DispatchKey.CompositeImplicitAutograd)
    return {
        key: for_tracing_thread(
            function, before.get(key) or composite or partial(call_compiled, overload, key)
        )
        for key, function in functions.items()
    }


@contextmanager
def exchanged_tables(tables: Mapping[OpOverload, Mapping[Any, Callable[..., Any]]]) -> Iterator[None]:
    """Give each overload a copy of another table of Python kernels inside the block.

    Does what patches of single kernels do, and as they do it: what other code changes in the
    meantime stays. For hundreds of overloads it is much faster.
    """
    with tracing():
        exchanged: list[tuple[OpOverload, dict[Any, Any], dict[Any, Any]]] = []
        try:
            for overload, table in tables.items():
                ours = dict(table)
                exchanged.append((overload, overload.py_kernels, ours))
                overload.py_kernels = ours
                overload._dispatch_cache.clear()
            yield
        finally:
            for overload, theirs, ours in reversed(exchanged):
                if ours != tables[overload]:
                    _carry_over(theirs, ours, tables[overload])
                if overload.py_kernels is ours:
                    overload.py_kernels = theirs
                overload._dispatch_cache.clear()


def _carry_over(theirs: dict[Any, Any], ours: Mapping[Any, Any], placed: Mapping[Any, Any]) -> None:
    """Change ``theirs`` as other code has changed ``ours`` since it was made of ``placed``."""
    for key in placed.keys() - ours.keys():
        theirs.pop(key, None)
    theirs.update({key: one for key, one in ours.items() if placed.get(key) is not one})
