"""Legacy tensor types (``torch.cuda.FloatTensor``), storages, and what asks ``is_cuda`` of other objects."""

from __future__ import annotations

from typing import Any

import torch

from ...torch_internals.devices import DEVICE_FROM_MODULE
from ..mirror import adapted
from ..mode import LEGACY_DTYPES
from ..rows import Row
from ..scope import Scope, current_scope, told_of_cuda
from .classes import stand_in


def _tensor_type(name: str, dtype: torch.dtype) -> Row:
    """``torch.cuda.<name>``: makes the target's tensors of one dtype, which are its instances."""
    host_type = getattr(torch, name)

    def make(scope: Scope, *args: Any, **kwargs: Any) -> torch.Tensor:
        if len(args) == 1 and isinstance(args[0], torch.Tensor):
            return args[0].to(scope.device, dtype)
        made: torch.Tensor = host_type(*args).to(scope.device)
        return made

    def holds(instance: Any) -> bool:
        scope = current_scope()
        if scope is None or not isinstance(instance, torch.Tensor):
            return False
        return instance.dtype is dtype and scope.holds(instance)

    def replace(original: Any) -> Any:
        made = stand_in(original, make, holds)
        made.dtype, made.is_cuda, made.is_sparse, made.layout = dtype, True, False, torch.strided
        return made

    return Row(f"torch.cuda.{name}", "wraps", f"makes {dtype} tensors of the target", replacement=replace)


def _device_of_module(original: Any) -> Any:
    def implementation(scope: Scope, module: str) -> str:
        """The device of a legacy storage class, which PyTorch reads off the name of its module."""
        found: str = original(module)
        return scope.target.type if found == "cuda" else found

    return implementation


def _storage_is_cuda(scope: Scope, self: Any) -> bool:
    return bool(self.device.type == scope.target.type) and told_of_cuda(scope)


def _new_storage(original: Any) -> Any:
    def implementation(scope: Scope, cls: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("device") is not None:
            kwargs["device"] = scope.place(kwargs["device"])
        return original(cls, *args, **kwargs)

    return implementation


def _range(original: Any) -> Any:
    def implementation(scope: Scope, *args: Any, **kwargs: Any) -> Any:
        """The one deprecated factory that PyTorch does not dispatch to modes."""
        if kwargs.get("device") is not None:
            kwargs["device"] = scope.place(kwargs["device"])
        return original(*args, **kwargs)

    return implementation


def _packed_is_cuda(scope: Scope, self: Any) -> bool:
    return scope.holds(self.data)


def _map_device(scope: Scope, arguments: dict[str, Any]) -> None:
    arguments["device"] = scope.place(arguments["device"])


def _default_type(original: Any) -> Any:
    def implementation(scope: Scope, t: Any) -> None:
        """The default device is the one that a CUDA type brought, until another type takes it away."""
        name = t if isinstance(t, str) else f"{t.__module__}.{t.__name__}"
        dtype = (
            LEGACY_DTYPES.get(name.removeprefix("torch.cuda.")) if name.startswith("torch.cuda.") else None
        )
        if dtype is not None:
            torch.set_default_dtype(dtype)
            torch.set_default_device(scope.device)
        else:
            original(t)
            if scope.settings.get("default_type"):
                torch.set_default_device(None)
        scope.settings["default_type"] = dtype

    return implementation


_STORAGES = (
    *(
        "BFloat16Storage",
        "BoolStorage",
        "ByteStorage",
        "CharStorage",
        "ComplexDoubleStorage",
        "ComplexFloatStorage",
    ),
    *("DoubleStorage", "FloatStorage", "HalfStorage", "IntStorage", "LongStorage", "ShortStorage"),
)
_IS_CUDA = "whether it lies on the target, for callers that are told of CUDA"

ROWS = (
    *(_tensor_type(name, dtype) for name, dtype in LEGACY_DTYPES.items()),
    *(
        Row(f"torch.cuda.{name}", "wraps", "PyTorch's class, which makes storages of the target")
        for name in _STORAGES
    ),
    Row(
        DEVICE_FROM_MODULE,
        "wraps",
        "legacy CUDA storages lie on the target",
        around=_device_of_module,
    ),
    Row("torch.UntypedStorage.__new__", "wraps", "the device is mapped", around=_new_storage),
    Row(
        "torch.storage.TypedStorage.__init__",
        "wraps",
        "the device is mapped",
        around=lambda original: adapted(original, _map_device),
    ),
    Row("torch.range", "wraps", "the device is mapped", around=_range),
    Row("torch.storage.TypedStorage.is_cuda", "wraps", _IS_CUDA, _storage_is_cuda),
    Row("torch.storage.UntypedStorage.is_cuda", "wraps", _IS_CUDA, _storage_is_cuda),
    Row(
        "torch.nn.utils.rnn.PackedSequence.is_cuda",
        "wraps",
        "whether its data lies on the target",
        _packed_is_cuda,
    ),
    Row(
        "torch.set_default_tensor_type",
        "wraps",
        "a CUDA type sets the default dtype and device",
        around=_default_type,
    ),
)
