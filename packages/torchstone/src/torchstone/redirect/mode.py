"""The `TorchFunctionMode` that maps the devices in the calls that PyTorch dispatches to the target.

The mode sees factories, ``new_*``, ``*_like``, ``torch.device(...)`` and the methods of tensors. It does so
in eager code and, since Dynamo traces the mode (:mod:`.traced`), inside ``torch.compile(fullgraph=True)``. On
the ``cpu`` target it also keeps track of the device that each tensor is on (:mod:`.placing`), and answers
accordingly. :mod:`.areas` handles the calls that PyTorch does not dispatch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from ..torch_internals import redirection
from ..torch_internals.tensors import same_storage_layout
from . import places
from .placing import cuda_name, put_all, run, transfer
from .scope import Scope, is_innermost, told_of_cuda
from .traced import traced

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
        if not scope.active or not is_innermost(scope):
            return func(*args, **(kwargs or {}))
        if torch.compiler.is_dynamo_compiling():
            return traced(scope, func, args, kwargs or {})
        if func in _ASKS_ONLY:
            return func(*args, **kwargs) if kwargs else func(*args)
        if kwargs is None:
            kwargs = {}
        elif kwargs.get("pin_memory") and not scope.target.can_pin:
            kwargs["pin_memory"] = False
        own = _DISPATCHED.get(func)
        if own is not None:
            if scope.log is not None:
                scope.record(own.name, own.note)
            return own.handler(scope, func, args, kwargs)
        return dispatched(scope, func, args, kwargs)


def dispatched(scope: Scope, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call ``func`` with its device mapped; on ``cpu``, place the results by that device or by the inputs."""
    asked = kwargs.get("device")
    if asked is not None:
        asked = kwargs["device"] = scope.place(asked)
    if not scope.tracks:
        return func(*args, **kwargs)
    if asked is None:
        default = redirection.default_of_modes()
        if default is not None and redirection.makes_tensors(func):
            return run(func, args, kwargs, places.place_of_device(default))
        return run(func, args, kwargs)
    place = places.place_of_device(places.parsed(asked))
    if place is None:
        return func(*args, **kwargs)
    kwargs["device"] = _CPU
    return run(func, args, kwargs, place)


def _device(scope: Scope, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``torch.device(...)``: a CUDA device for the script if tensors are tracked, else its stand-in."""
    if args and type(args[0]) is places.MeshType:
        args = ("cuda", *args[1:])
    kind = args[0] if args else kwargs.get("type")
    index = args[1] if len(args) > 1 else kwargs.get("index")
    made = func("cuda", kind) if type(kind) is int and index is None else func(*args, **kwargs)
    if scope.log is not None:
        scope.place(made)
    return made if scope.tracks and told_of_cuda(scope) else scope.place(made)


def _device_of(scope: Scope, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``x.device``: a CUDA device for the redirected code, and its stand-in for PyTorch's code."""
    real = func(args[0])
    index = scope.index_of(args[0]) if scope.tracks and real.type == "cpu" else None
    if index is None:
        return real
    return places.cuda(index) if told_of_cuda(scope) else scope.target.device(index)


def _to(scope: Scope, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``x.to(device or other, ...)``; copies if the redirected code sees two different devices."""
    tensor, rest = args[0], list(args[1:])
    where = rest.pop(0) if rest else kwargs.get("device", kwargs.get("other"))
    if not isinstance(where, torch.Tensor | torch.device | str | int) or isinstance(where, bool):
        return dispatched(scope, func, args, kwargs)
    kwargs = {name: value for name, value in kwargs.items() if name not in ("device", "other")}
    if not scope.tracks:
        return func(tensor, scope.place(where), *rest, **kwargs)
    if isinstance(where, torch.Tensor):
        place, kwargs["dtype"] = places.place_of(where), where.dtype
        names = ["non_blocking", "copy"]
    else:
        place = places.place_of_device(places.parsed(scope.place(where)))
        names = ["dtype", "non_blocking", "copy"]
    if place is None:
        return func(tensor, scope.place(where), *rest, **kwargs)
    return transfer(tensor, place, **(dict(zip(names, rest, strict=False)) | kwargs))


def _pack(scope: Scope, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Packing and padding: the lengths must be on the CPU, and the lengths in the result are, too."""
    index = scope.index_of(args[1])
    if index is not None:
        kind = args[1].type().rpartition(".")[2].removesuffix("Tensor")
        raise RuntimeError(
            "'lengths' argument should be a 1D CPU int64 tensor, "
            f"but got {args[1].dim()}D {cuda_name(index)} {kind} tensor"
        )
    data, lengths = func(*args, **kwargs)
    place = places.place_of(args[0]) if scope.tracks else None
    if place is not None:
        places.put(data, place)
        places.put(lengths, places.HOST)
    return data, lengths


def _ctc(scope: Scope, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``ctc_loss``: the lengths may be on any device, because CUDA's code fetches them itself."""
    place = places.place_of(args[0]) if args and scope.tracks else None

    def there(value: Any) -> Any:
        return value if place is None or not isinstance(value, torch.Tensor) else transfer(value, place)

    args = (*args[:2], *map(there, args[2:4]), *args[4:])
    kwargs |= {name: there(kwargs[name]) for name in ("input_lengths", "target_lengths") if name in kwargs}
    return dispatched(scope, func, args, kwargs)


def _parsed_for_module(scope: Scope, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Parse the arguments of ``Module.to`` in C; the device is mapped later, when the tensors are moved."""
    given = {name: places.cuda(one) if type(one) is int else one for name, one in kwargs.items()}
    return func(*(places.cuda(one) if type(one) is int else one for one in args), **given)


def _type_as(scope: Scope, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return _to(scope, torch.Tensor.to, (args[0], args[1] if len(args) > 1 else kwargs["other"]), {})


def _moves(name: str) -> Handler:
    """``x.cuda(device, ...)`` and ``x.cpu(...)``."""
    cuda_names = ["device", "non_blocking", "memory_format"]
    cpu_names = ["memory_format"]
    names = cuda_names if name == "cuda" else cpu_names

    def handler(scope: Scope, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        given = dict(zip(names, args[1:], strict=False)) | kwargs
        asked = given.pop("device", None)
        place = scope.place(name if asked is None else asked)
        if not scope.tracks:
            return args[0].to(place, **given)
        found = places.place_of_device(places.parsed(place))
        if found is None or (name == "cuda" and found == places.HOST):
            raise RuntimeError(f"Invalid device, must be cuda device, but got {asked}")
        return transfer(args[0], found, **given)

    return handler


def _as_tensor(scope: Scope, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``torch.as_tensor(data, device=...)``, which shares memory only with data already on that device."""
    asked = kwargs.pop("device", None)
    made = dispatched(scope, func, args, kwargs)
    if asked is None:
        return made
    if not scope.tracks:
        return made.to(scope.place(asked))
    place = places.place_of_device(places.parsed(scope.place(asked)))
    return made.to(asked) if place is None else transfer(made, place)


def _is_cuda(scope: Scope, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if told_of_cuda(scope):
        return scope.holds(args[0])
    return func(*args, **kwargs)


def _is_cpu(scope: Scope, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return func(args[0]) and not (told_of_cuda(scope) and scope.holds(args[0]))


def _get_device(scope: Scope, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    tensor = args[0] if args else kwargs["input"]
    index = scope.index_of(tensor)
    return func(tensor) if index is None else index


def _type(scope: Scope, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``x.type(torch.cuda.HalfTensor)``, by class or by name: moves the tensor and casts it."""
    given = dict(zip(("dtype", "non_blocking"), args[1:], strict=False)) | kwargs
    asked = given.get("dtype")
    dtype = _legacy_dtype(asked)
    if dtype is not None:
        return _to(scope, torch.Tensor.to, (args[0], "cuda", dtype), {})
    if asked is None and told_of_cuda(scope) and scope.holds(args[0]):
        return f"torch.cuda.{func(args[0]).rpartition('.')[2]}"
    return dispatched(scope, func, args, kwargs)


def _legacy_dtype(asked: Any) -> torch.dtype | None:
    """Return the dtype of a ``torch.cuda.*Tensor`` type, given as a class or a name; else None."""
    name = (
        asked
        if isinstance(asked, str)
        else f"{getattr(asked, '__module__', '')}.{getattr(asked, '__name__', '')}"
    )
    if not name.startswith("torch.cuda."):
        return None
    return LEGACY_DTYPES.get(name.removeprefix("torch.cuda."))


def _set_data(scope: Scope, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``x.data = x.data.cuda()``: swap the two tensors where PyTorch cannot assign the target's tensor."""
    tensor, data = args
    is_plain = tensor.is_leaf and tensor.grad is None
    if not is_plain or same_storage_layout(tensor, data):
        return func(tensor, data)
    made = data.detach().requires_grad_(tensor.requires_grad)
    if isinstance(tensor, torch.nn.Parameter):
        made = torch.nn.Parameter(made, tensor.requires_grad)
    torch.utils.swap_tensors(tensor, made)
    return None


def _grad(scope: Scope, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``x.grad``: autograd makes gradients below the mode, so each is placed where its tensor is."""
    found = func(args[0])
    if found is not None and scope.tracks:
        place = places.place_of(args[0])
        if place is not None:
            places.put(found, place)
    return found


def _grads(scope: Scope, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``torch.autograd.grad(outputs, inputs)``: each gradient is placed where its input is."""
    results = func(*args, **kwargs)
    inputs = args[1] if len(args) > 1 else kwargs["inputs"]
    if scope.tracks:
        for one, gradient in zip(
            [inputs] if isinstance(inputs, torch.Tensor) else inputs, results, strict=True
        ):
            place = places.place_of(one)
            if place is not None:
                put_all(gradient, place)
    return results


def _register_hook(scope: Scope, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``x.register_hook(hook)``: the gradient that the hook gets is placed where the tensor is."""
    tensor, hook = args
    place = places.place_of(tensor) if scope.tracks else None
    if place is None:
        return func(tensor, hook)

    def placed(gradient: torch.Tensor) -> Any:
        put_all(gradient, place)
        return hook(gradient)

    return func(tensor, placed)


def _untracked(scope: Scope, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a function that takes tensors on any devices and makes no tensors."""
    return func(*args, **kwargs)


def _to_numpy(scope: Scope, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``x.numpy()``: refused for CUDA tensors, unless the caller knows that the memory is the CPU's."""
    index = scope.index_of(args[0]) if scope.tracks else None
    forced = kwargs.get("force", False)
    if index is not None and not forced and told_of_cuda(scope):
        raise TypeError(
            f"can't convert {cuda_name(index)} device type tensor to numpy. "
            "Use Tensor.cpu() to copy the tensor to host memory first."
        )
    made = func(*args, **kwargs)
    return made.copy() if index is not None and forced else made


def _repr(scope: Scope, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The text of a tensor: it names the CUDA device, because the mode is active while PyTorch writes it."""
    with RedirectMode(scope):
        return redirection.text_of_tensor.get()(args[0], **kwargs)


def _pin_memory(scope: Scope, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if scope.target.can_pin:
        return func(args[0])
    if told_of_cuda(scope) and scope.holds(args[0]):
        name = args[0].type().rpartition(".")[2]
        raise RuntimeError(f"cannot pin 'torch.cuda.{name}' only dense CPU tensors can be pinned")
    scope.record("torch.Tensor.pin_memory", f"{scope.target.type} has no pinned memory: a copy")
    return run(torch.clone, (args[0],), {})


def _is_pinned(scope: Scope, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return func(args[0]) if scope.target.can_pin else False


_CPU = torch.device("cpu")

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
    """A function with a handler of its own in the mode: its public name, the function, handler and note."""

    name: str
    function: Any
    handler: Handler
    note: str


def _getter(name: str) -> Any:
    """Return the function that PyTorch dispatches when an attribute of a tensor is read."""
    return getattr(torch.Tensor, name).__get__


TABLE: tuple[Dispatched, ...] = (
    Dispatched("torch.device", torch.device, _device, "CUDA devices, which calls map to the target"),
    Dispatched("torch.Tensor.to", torch.Tensor.to, _to, "the device is mapped; between two devices a copy"),
    Dispatched("torch.Tensor.type_as", torch.Tensor.type_as, _type_as, "moves to the other's device"),
    Dispatched("torch.Tensor.cuda", torch.Tensor.cuda, _moves("cuda"), "moves to the target"),
    Dispatched("torch.Tensor.cpu", torch.Tensor.cpu, _moves("cpu"), "copies what the script put on CUDA"),
    Dispatched("torch.as_tensor", torch.as_tensor, _as_tensor, "the device is mapped; a copy onto CUDA"),
    *(
        Dispatched(f"torch.{name}", function, _ctc, "lengths may be on any device")
        for name, function in (("ctc_loss", torch.ctc_loss), ("nn.functional.ctc_loss", F.ctc_loss))
    ),
    *(
        Dispatched(
            f"torch.nn.utils.rnn.{name}", one.get(), _pack, "lengths are the CPU's; others are refused"
        )
        for name, one in redirection.packing.items()
    ),
    Dispatched("torch.asarray", torch.asarray, _as_tensor, "the device is mapped; a copy onto CUDA"),
    Dispatched(
        "torch.Tensor.device",
        _getter("device"),
        _device_of,
        "the CUDA device that the tensor was put on, for callers that are told of CUDA",
    ),
    Dispatched(
        "torch.Tensor.is_cuda",
        _getter("is_cuda"),
        _is_cuda,
        "whether the tensor was put on CUDA, for callers that are told of CUDA",
    ),
    Dispatched("torch.Tensor.is_cpu", _getter("is_cpu"), _is_cpu, "the opposite of is_cuda"),
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
    Dispatched("torch.Tensor.grad", _getter("grad"), _grad, "is where its tensor is"),
    Dispatched("torch.autograd.grad", torch.autograd.grad, _grads, "gradients are where their inputs are"),
    Dispatched(
        "torch.Tensor.register_hook", torch.Tensor.register_hook, _register_hook, "gradients have a device"
    ),
    Dispatched("torch.Tensor.__repr__", torch.Tensor.__repr__, _repr, "names the CUDA device"),
    Dispatched("torch.Tensor.numpy", torch.Tensor.numpy, _to_numpy, "refused on CUDA, as CUDA refuses it"),
    Dispatched(
        "torch.Tensor.__array__", torch.Tensor.__array__, _to_numpy, "refused on CUDA, as CUDA refuses it"
    ),
    Dispatched("torch.Tensor.pin_memory", torch.Tensor.pin_memory, _pin_memory, "where the target can pin"),
    Dispatched(
        "torch.Tensor.is_pinned", torch.Tensor.is_pinned, _is_pinned, "never where nothing can be pinned"
    ),
)

_UNTRACKED: tuple[Any, ...] = (
    torch.Tensor.backward,
    torch.autograd.backward,
    torch.Tensor.grad.__set__,  # type: ignore[union-attr]
)
_DISPATCHED = {one.function: one for one in TABLE} | {
    function: Dispatched("", function, _untracked, "takes tensors of any devices") for function in _UNTRACKED
}
_PARSE_TO = redirection.parse_to.get()
_DISPATCHED[_PARSE_TO] = Dispatched(
    "torch.nn.Module.to", _PARSE_TO, _parsed_for_module, "the device is mapped"
)

_ASKS_ONLY = frozenset(
    {
        *(_getter(name) for name in ("shape", "dtype", "requires_grad", "is_leaf", "layout", "ndim")),
        *(_getter(name) for name in ("grad_fn", "is_sparse", "is_quantized", "is_meta", "is_nested")),
        _getter("_version"),
        *(getattr(torch.Tensor, name) for name in ("size", "dim", "stride", "numel", "data_ptr", "item")),
        *(getattr(torch.Tensor, name) for name in ("__len__", "__bool__", "tolist", "is_contiguous")),
        *(torch.is_tensor, torch.is_floating_point, torch.numel, redirection.set_grad_enabled.get()),
        *(torch.Tensor.is_floating_point, torch.Tensor.is_complex, torch.Tensor.untyped_storage),
    }
)
"""Functions that take a tensor but return no new one, so nothing in them is redirected."""
