"""The calls that PyTorch dispatches: one `TorchFunctionMode` that maps their devices to the target.

It sees factories, ``new_*``, ``*_like``, ``torch.device(...)`` and the methods of tensors, in eager code and,
since Dynamo traces it, inside ``torch.compile(fullgraph=True)``. Python code that PyTorch does not dispatch
is in :mod:`.areas`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ..torch_internals.tensors import same_storage_layout
from .scope import Scope, told_of_cuda

Handler = Callable[[Scope, Any, tuple[Any, ...], dict[str, Any]], Any]


class RedirectMode(TorchFunctionMode):
    """Maps CUDA devices in dispatched calls to the scope's target."""

    def __init__(self, scope: Scope) -> None:
        super().__init__()
        self.redirect_scope = scope

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        scope = self.redirect_scope
        if not scope.active:
            return func(*args, **(kwargs or {}))
        if kwargs:
            device = kwargs.get("device")
            if device is not None:
                kwargs["device"] = scope.place(device)
            if kwargs.get("pin_memory") and not scope.target.can_pin:
                kwargs["pin_memory"] = False
        own = _DISPATCHED.get(func)
        if own is not None:
            if scope.log is not None:
                scope.record(own.name, own.note)
            return own.handler(scope, func, args, kwargs or {})
        return func(*args, **kwargs) if kwargs else func(*args)


def _device(scope: Scope, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    kind = args[0] if args else kwargs.get("type")
    index = args[1] if len(args) > 1 else kwargs.get("index")
    asked = kind if index is None else f"{kind}:{index}"
    if type(asked) is int or (type(asked) is str and asked.partition(":")[0] == "cuda"):
        return scope.place(asked)
    return scope.place(func(*args, **kwargs))


def _to(scope: Scope, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if len(args) > 1:
        place = scope.place(args[1])
        if place is not args[1]:
            args = (args[0], place, *args[2:])
    return func(*args, **kwargs)


def _cuda(scope: Scope, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    names = ("device", "non_blocking", "memory_format")
    given = dict(zip(names, args[1:], strict=False)) | kwargs
    asked = given.pop("device", None)
    return args[0].to(scope.place("cuda" if asked is None else asked), **given)


def _is_cuda(scope: Scope, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if told_of_cuda(scope):
        return scope.holds(args[0])
    return func(*args, **kwargs)


def _get_device(scope: Scope, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    tensor = args[0] if args else kwargs["input"]
    return scope.ordinal(tensor.device) if scope.holds(tensor) else func(tensor)


def _type(scope: Scope, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``x.type(torch.cuda.HalfTensor)``, by class or by name: a move and a cast."""
    given = dict(zip(("dtype", "non_blocking"), args[1:], strict=False)) | kwargs
    dtype = _legacy_dtype(given.get("dtype"))
    if dtype is None:
        return func(*args, **kwargs)
    return args[0].to(scope.place("cuda"), dtype, non_blocking=given.get("non_blocking", False))


def _legacy_dtype(asked: Any) -> torch.dtype | None:
    """The dtype of a ``torch.cuda.*Tensor`` type or of its name; None for anything else."""
    name = (
        asked
        if isinstance(asked, str)
        else f"{getattr(asked, '__module__', '')}.{getattr(asked, '__name__', '')}"
    )
    if not name.startswith("torch.cuda."):
        return None
    return LEGACY_DTYPES.get(name.removeprefix("torch.cuda."))


def _set_data(scope: Scope, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``x.data = x.data.cuda()`` where PyTorch will not assign the target's tensors: the two are swapped."""
    tensor, data = args
    is_plain = tensor.is_leaf and tensor.grad is None
    if not is_plain or same_storage_layout(tensor, data):
        return func(tensor, data)
    made = data.detach().requires_grad_(tensor.requires_grad)
    if isinstance(tensor, torch.nn.Parameter):
        made = torch.nn.Parameter(made, tensor.requires_grad)
    torch.utils.swap_tensors(tensor, made)
    return None


def _pin_memory(scope: Scope, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if scope.target.can_pin:
        return func(args[0])
    scope.record("torch.Tensor.pin_memory", f"{scope.target.type} has no pinned memory: the tensor itself")
    return args[0]


def _is_pinned(scope: Scope, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return func(args[0]) if scope.target.can_pin else False


LEGACY_DTYPES: dict[str, torch.dtype] = {
    "BFloat16Tensor": torch.bfloat16,
    "BoolTensor": torch.bool,
    "ByteTensor": torch.uint8,
    "CharTensor": torch.int8,
    "DoubleTensor": torch.float64,
    "FloatTensor": torch.float32,
    "HalfTensor": torch.float16,
    "IntTensor": torch.int32,
    "LongTensor": torch.int64,
    "ShortTensor": torch.int16,
}


@dataclass(frozen=True)
class Dispatched:
    """One function that the mode treats by itself: its public name, the function and what becomes of it."""

    name: str
    function: Any
    handler: Handler
    note: str


TABLE: tuple[Dispatched, ...] = (
    Dispatched("torch.device", torch.device, _device, "cuda devices are made as the target's"),
    Dispatched("torch.Tensor.to", torch.Tensor.to, _to, "the device is mapped"),
    Dispatched("torch.Tensor.cuda", torch.Tensor.cuda, _cuda, "moves to the target"),
    Dispatched(
        "torch.Tensor.is_cuda",
        torch.Tensor.is_cuda.__get__,  # type: ignore[attr-defined]
        _is_cuda,
        "whether the tensor lies on the target, for callers that are told of CUDA",
    ),
    Dispatched(
        "torch.Tensor.get_device", torch.Tensor.get_device, _get_device, "the index that CUDA would have"
    ),
    Dispatched("torch.get_device", torch.get_device, _get_device, "the index that CUDA would have"),
    Dispatched("torch.Tensor.type", torch.Tensor.type, _type, "legacy CUDA types move and cast"),
    Dispatched(
        "torch.Tensor.data.__set__",
        torch.Tensor.data.__set__,  # type: ignore[attr-defined]
        _set_data,
        "a tensor of the target takes the tensor's place",
    ),
    Dispatched("torch.Tensor.pin_memory", torch.Tensor.pin_memory, _pin_memory, "where the target can pin"),
    Dispatched(
        "torch.Tensor.is_pinned", torch.Tensor.is_pinned, _is_pinned, "never where nothing can be pinned"
    ),
)

_DISPATCHED = {one.function: one for one in TABLE}
