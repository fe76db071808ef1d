"""Kernels that a script registers for ``"CUDA"``: they run if a tensor is on CUDA.

On the ``cpu`` target every tensor has the CPU's dispatch key. A kernel for CUDA is therefore also registered
for the CPU, inside a function that chooses the kernel by the places of the tensors. On another target the
kernel is registered for the target's own key.
"""

from __future__ import annotations

import functools
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import torch

from ...torch_internals import dispatch, pytree
from .. import places
from ..joining import inside_mode
from ..rows import Row
from ..scope import Scope, current_scope, told_of_cuda

Kernel = Callable[..., Any]
_RUNS_CALLS = ("CPU", "CUDA", "CompositeExplicitAutograd")
"""Dispatch keys whose kernels compute; their calls to PyTorch are redirected like any other."""

_choices: dict[str, _Choice] = {}


class _Choice:
    """The CPU and CUDA kernels of one operator; a call, with its dispatch keys first, runs one of them."""

    def __init__(self, name: str, host: Kernel | None, cuda: Kernel) -> None:
        self.name, self.host, self.cuda = name, host, cuda

    def __call__(self, keys: Any, *args: Any, **kwargs: Any) -> Any:
        leaves = pytree.tree_leaves((args, kwargs))
        found = [places.place_of(one) for one in leaves if isinstance(one, torch.Tensor)]
        on_cuda = any(place is not None and place != places.HOST for place in found)
        unknown = not on_cuda and places.HOST not in found and self.host is None
        if on_cuda or unknown:
            return self.cuda(keys, *args, **kwargs)
        if self.host is None:
            raise NotImplementedError(
                f"Could not run '{self.name}' with arguments from the 'CPU' backend: "
                "its only kernel is registered for CUDA"
            )
        return self.host(keys, *args, **kwargs)


def _around_impl(original: Any) -> Any:
    def implementation(
        scope: Scope,
        self: torch.library.Library,
        op_name: Any,
        fn: Any,
        dispatch_key: str,
        *,
        with_keyset: bool,
        allow_override: bool,
    ) -> None:
        key = dispatch_key or self.dispatch_key
        if not callable(fn) or fn is torch.library.fallthrough_kernel or not told_of_cuda(scope):
            original(self, op_name, fn, key, with_keyset=with_keyset, allow_override=allow_override)
            return
        if key in _RUNS_CALLS:
            fn = _redirected(fn)
        name = _qualified(self, op_name)
        if key == "CPU" and name in _choices:
            _choices[name].host = _with_keys(fn, with_keyset)
            return
        original(self, op_name, fn, key, with_keyset=with_keyset, allow_override=allow_override)
        twin = key.replace("CUDA", dispatch.key_of_device(scope.target.type))
        if twin == key:
            return
        if key == "CUDA" and scope.tracks:
            _choices[name] = _Choice(name, dispatch.kernel_under(name, "CPU"), _with_keys(fn, with_keyset))
            weakref.finalize(self, _choices.pop, name, None)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # it replaces the CPU kernel on purpose, and calls it
                original(self, op_name, _choices[name], twin, with_keyset=True)
        elif not dispatch.has_own_kernel(name, twin):
            original(self, op_name, fn, twin, with_keyset=with_keyset)

    return implementation


def _qualified(library: torch.library.Library, op_name: Any) -> str:
    name = op_name if isinstance(op_name, str) else op_name._schema.name
    return name if "::" in name else f"{library.ns}::{name}"


def _with_keys(kernel: Kernel, with_keyset: bool) -> Kernel:
    return kernel if with_keyset else lambda keys, *args, **kwargs: kernel(*args, **kwargs)


def _redirected(kernel: Kernel) -> Kernel:
    """Enter the scope's mode in a kernel, because the dispatcher calls kernels outside the modes."""

    @functools.wraps(kernel)
    def redirected(*args: Any, **kwargs: Any) -> Any:
        with inside_mode(current_scope()):
            return kernel(*args, **kwargs)

    return redirected


ROWS = (
    Row(
        "torch.library.Library.impl",
        "wraps",
        "kernels for CUDA run where tensors are on CUDA",
        around=_around_impl,
    ),
)
