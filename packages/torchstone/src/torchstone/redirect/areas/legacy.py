"""Legacy tensor types (``torch.cuda.FloatTensor``), storages, and ``is_cuda`` of packed sequences."""

from __future__ import annotations

from typing import Any

import torch

from ...torch_internals import redirection
from ...torch_internals.devices import DEVICE_FROM_MODULE
from .. import places
from ..mirror import adapting
from ..mode import LEGACY_DTYPES, dispatched
from ..rows import Row
from ..scope import Scope, current_scope, told_of_cuda
from .classes import stand_in


def _tensor_type(name: str, dtype: torch.dtype) -> Row:
    """Return the row of ``torch.cuda.<name>``: it makes the target's tensors of one dtype, its instances."""
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
        """Return the device type of a legacy storage class; PyTorch takes it from the module's name."""
        found: str = original(module)
        return scope.target.type if found == "cuda" and not scope.tracks else found

    return implementation


def _storage_is_cuda(scope: Scope, self: Any) -> bool:
    storage = redirection.untyped(self)
    return scope.index_of_storage(storage) is not None and told_of_cuda(scope)


def _device_of_storage(original: Any) -> Any:
    def device(self: torch.UntypedStorage) -> torch.device:
        real: torch.device = original.__get__(self)
        scope = current_scope()
        index = scope.index_of_storage(self) if scope is not None and scope.tracks else None
        if scope is None or index is None:
            return real
        return places.cuda(index) if told_of_cuda(scope) else places.device_of(index)

    return property(device)


def _new_storage(original: Any) -> Any:
    def implementation(scope: Scope, cls: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("device") is None:
            return original(cls, *args, **kwargs)
        place = kwargs["device"] = places.parsed(scope.place(kwargs["device"]))
        made = original(cls, *args, **kwargs)
        if scope.tracks and (index := scope.index_of_device(place)) is not None:
            places.put_storage(made, index)
        return made

    return implementation


def _clone_storage(original: Any) -> Any:
    """Place a copy of a storage where the original is; ``deepcopy`` of a tensor uses this."""

    def implementation(scope: Scope, self: Any) -> Any:
        made = original(self)
        place = places.place_of_storage(self) if scope.tracks else None
        if place is not None:
            places.put_storage(made, place)
        return made

    return implementation


def _storage_to_host(original: Any) -> Any:
    def implementation(scope: Scope, self: Any) -> Any:
        if not scope.tracks or scope.index_of_storage(self) is None:
            return original(self)
        made = torch.UntypedStorage(self.size()).copy_(self)
        places.put_storage(made, places.HOST)
        return made

    return implementation


def _range(original: Any) -> Any:
    def implementation(scope: Scope, *args: Any, **kwargs: Any) -> Any:
        """``torch.range``, the one (deprecated) factory that PyTorch does not dispatch to modes."""
        return dispatched(scope, original, args, kwargs)

    return implementation


def _packed_is_cuda(scope: Scope, self: Any) -> bool:
    return scope.holds(self.data)


def _map_device(scope: Scope, arguments: dict[str, Any]) -> None:
    """Map the device of a typed storage; the untyped storage inside it is then made on that device."""
    arguments["device"] = scope.place(arguments["device"])


def _default_type(original: Any) -> Any:
    def implementation(scope: Scope, t: Any) -> None:
        """Set the default dtype and, for a CUDA type, the default device, which another type resets again."""
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


def _map_context(scope: Scope, arguments: dict[str, Any]) -> None:
    """``with torch.device("cuda")``: map the device, which PyTorch may pass to calls below the mode."""
    arguments["device"] = scope.place(arguments["device"])


def _around_default(original: Any) -> Any:
    def implementation(scope: Scope) -> torch.device:
        found: torch.device = original()
        index = scope.index_of_device(found) if scope.tracks else None
        return found if index is None or not told_of_cuda(scope) else places.cuda(index)

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
        around=adapting(_map_device),
    ),
    Row(
        "torch.UntypedStorage.device",
        "wraps",
        "the CUDA device that it was put on, for callers that are told of CUDA",
        replacement=_device_of_storage,
    ),
    Row(
        "torch.UntypedStorage.clone",
        "wraps",
        "stays on its device",
        around=_clone_storage,
    ),
    Row(
        "torch.UntypedStorage.cpu",
        "wraps",
        "copies what the script put on CUDA",
        around=_storage_to_host,
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
        redirection.DEVICE_CONTEXT_INIT,
        "wraps",
        "the device is mapped",
        around=adapting(_map_context),
    ),
    Row(
        "torch.get_default_device",
        "wraps",
        "the CUDA device that was set, for callers that are told of CUDA",
        around=_around_default,
    ),
    Row(
        "torch.set_default_tensor_type",
        "wraps",
        "a CUDA type sets the default dtype and device",
        around=_default_type,
    ),
)
