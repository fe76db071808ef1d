"""PyTorch's hooks for a device that is written in Python (dispatch key PrivateUse1).

A tensor of such a device is a plain ``torch.Tensor`` on a storage without memory. Sizes, strides, offset,
views and version counters are PyTorch's own. The device stores the contents as an attribute of the storage.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
from torch.multiprocessing import reductions

from .dispatch import DispatchKey, exclude_keys, has_kernel_for
from .operators import OpOverload, all_schemas, overload_name, schema_of
from .probing import Internal

_DEVICE = "the pjrt device"
setup = Internal("torch.utils.backend_registration._setup_privateuseone_for_python_backend", _DEVICE)
backend_name = Internal("torch._C._get_privateuse1_backend_name", _DEVICE)
_differentiates_in_threads = Internal("torch._C._is_multithreading_enabled", _DEVICE).get()
_differentiate_in_threads = Internal("torch._C._set_multithreading_enabled", _DEVICE).get()
_eval_frame = Internal("torch._C._dynamo.eval_frame", _DEVICE)
_inductor = Internal("torch._TorchCompileInductorWrapper", _DEVICE)
_tensor_str = Internal("torch._tensor_str", _DEVICE)

KEY = "PrivateUse1"
AUTOCAST_KEY = "AutocastPrivateUse1"
_AUTOCAST = torch._C.DispatchKeySet(DispatchKey.AutocastCPU).add(torch._C._dispatch_key_parse(AUTOCAST_KEY))
_CPU = torch._C.DispatchKeySet(DispatchKey.CPU)


def run_backward_here() -> None:
    """Make backward passes that this thread starts run in it, and not in one thread per device.

    PyTorch starts its threads in the first backward pass of the process, and refuses gradients of a device
    that is registered later. A device that runs work in order needs no threads.
    """
    if _differentiates_in_threads():
        _differentiate_in_threads(False)


def redispatched(overload: OpOverload) -> Callable[..., Any]:
    """Return the CPU kernel of an operator that moves no data, such as a view, for tensors of any device."""
    redispatch = overload.redispatch

    def call(*args: Any, **kwargs: Any) -> Any:
        return redispatch(_CPU, *args, **kwargs)

    return call


class Registrations:
    """The registered kernels of a device; they stay registered for the rest of the process."""

    def __init__(self) -> None:
        self._aten: Any = torch.library.Library("aten", "IMPL")
        self._anything = torch.library.Library("_", "IMPL")

    def add(self, name: str, kernel: Callable[..., Any], key: str = KEY) -> None:
        """Register a kernel of ATen's operator ``name``, given without the namespace: ``add.Tensor``."""
        _not_compiled(kernel)
        self._aten.m.impl(name, key, kernel)

    def add_for_the_rest(self, kernel: Callable[..., Any], key: str = KEY) -> None:
        """Register ``kernel(overload, *args, **kwargs)`` for all operators that have no kernel."""
        _not_compiled(kernel)
        self._anything.fallback(kernel, key)


def _not_compiled(function: Any) -> None:
    """Keep Dynamo out of a function that replaces C++ code, and of all that it calls.

    PyTorch may call the function in compiled code.
    """
    code = getattr(function, "__code__", None)  # a method has the code of its function
    if code is not None:
        frames = _eval_frame.get()
        frames.set_code_exec_strategy(
            code, frames._FrameExecStrategy(frames._FrameAction.SKIP, frames._FrameAction.SKIP)
        )


def answer_for_accelerator(answers: Mapping[str, Callable[..., Any]]) -> None:
    """Let ``torch.accelerator`` call Python functions in place of an allocator, which only C++ can have.

    The keys of ``answers`` are the names of the C functions without their prefix. PyTorch's own functions
    fail an assertion, or end the process. The change lasts for the rest of the process.
    """
    for name, answer in answers.items():
        _not_compiled(answer)
        setattr(torch._C, f"_accelerator_{name}", answer)


class _Chooser(type):
    """The metaclass of a replaced PyTorch class, whose calls make an instance for the requested device.

    See :func:`made_by`.
    """

    plain: type
    ours: type
    chooses: Callable[..., bool]

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if "plain" not in vars(cls):  # a subclass that a user wrote
            return super().__call__(*args, **kwargs)
        return (cls.ours if cls.chooses(*args, **kwargs) else cls.plain)(*args, **kwargs)

    def __instancecheck__(cls, instance: Any) -> bool:
        return issubclass(type(instance), cls)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return (
            issubclass(subclass, cls.plain) if "plain" in vars(cls) else super().__subclasscheck__(subclass)
        )


def made_by(device_type: str, ours: type, default: str | None = None) -> None:
    """Let a class of PyTorch make instances of ``ours``, its subclass, for devices of ``device_type``.

    For example, ``torch.Generator(device)`` then makes the device's generator; PyTorch itself can be told
    this only in C++. ``default`` is the device of a call that names none. For other devices, and for a stream
    that is given by its number, the call makes PyTorch's own class. Instances of both classes are instances
    of the name (``torch.Generator``). The change lasts for the rest of the process.
    """
    (plain,) = ours.__bases__

    def chooses(device: Any = default, *_: Any, **options: Any) -> bool:
        return device is not None and "stream_id" not in options and torch.device(device).type == device_type

    name = plain.__name__
    members = {"plain": plain, "ours": ours, "chooses": staticmethod(chooses), "__doc__": plain.__doc__}
    kind = type("_Chooser", (_Chooser, type(plain)), {})  # ``plain`` may have a metaclass of its own
    setattr(torch, name, kind(name, (plain,), {**members, "__module__": "torch"}))


def compiled_by(device_type: str, backend: str) -> None:
    """Let ``torch.compile`` without a backend use ``backend`` for graphs with tensors of the device.

    PyTorch's default is Inductor, which fails on a device that it has no code for. The change lasts for the
    rest of the process.
    """
    inductor = _inductor.get()
    plain = inductor.__call__

    def call(self: Any, model_: Any, inputs_: Any, **patches: Any) -> Any:
        values = (*inputs_, *(node.meta.get("example_value") for node in model_.graph.nodes))
        if any(isinstance(one, torch.Tensor) and one.device.type == device_type for one in values):
            return torch._dynamo.lookup_backend(backend)(model_, inputs_)
        return plain(self, model_, inputs_, **patches)

    inductor.__call__ = call


def operator_names() -> Iterator[str]:
    """Yield the names of ATen's operators (``add.Tensor``) that are not composite implicit in PyTorch."""
    for schema in all_schemas():
        if not schema.name.startswith("aten::"):
            continue
        name = f"{schema.name}.{schema.overload_name}" if schema.overload_name else schema.name
        try:
            composed = torch._C._dispatch_has_kernel_for_dispatch_key(name, "CompositeImplicitAutograd")
        except RuntimeError:  # an operator of TorchScript only, which the dispatcher does not know
            continue
        if not composed:
            yield name.removeprefix("aten::")


def _schema(name: str) -> Any:
    packet, _, overload = name.partition(".")
    return torch._C._get_schema(f"aten::{packet}", overload)


def overload_named(name: str) -> OpOverload:
    """Return the overload of a name: ``aten.add.Tensor`` for ``add.Tensor``."""
    packet, _, overload = name.partition(".")
    found: OpOverload = getattr(getattr(torch.ops.aten, packet), overload or "default")
    return found


def full_name(overload: OpOverload) -> str:
    """Return ``add.Tensor`` for ``aten.add.Tensor``, and ``relu`` for the default overload of ``relu``."""
    name: str = overload.name().removeprefix("aten::")
    return name


def below_autocast() -> Any:
    """Return a context without autocast for the device, and for the CPU, which may stand in for it."""
    return exclude_keys(_AUTOCAST)


def is_view(overload: OpOverload) -> bool:
    """Whether the operator's result is a view of an argument's memory."""
    infos = [one.alias_info for one in schema_of(overload).arguments]
    return any(info is not None and not info.is_write for info in infos)


def computes(name: str) -> bool:
    """Whether an operator computes values; views and changes of a tensor's own shape do not."""
    overload = _schema(name)
    infos = [(one.alias_info, one.kwarg_only) for one in overload.arguments if one.alias_info is not None]
    looks = any(not info.is_write for info, _ in infos)
    return not looks and name.partition(".")[0] not in _SHAPE_CHANGES


_SHAPE_CHANGES = frozenset(
    {
        "as_strided_",
        "squeeze_",
        "t_",
        "transpose_",
        "unsqueeze_",
        "swapaxes_",
        "swapdims_",
        "detach_",
        "rename_",
        "set_",
        "resize_",
        "resize_as_",
        "resize_as_sparse_",
        "sparse_resize_",
        "sparse_resize_and_clear_",
    }
)


def takes_device(name: str) -> bool:
    """Whether the operator takes tensors, and an argument for the device of its result."""
    kinds = [(one.name, str(one.type)) for one in _schema(name).arguments]
    return ("device", "Optional[Device]") in kinds and any("Tensor" in kind for _, kind in kinds)


def written_arguments(overload: OpOverload) -> list[str]:
    """Return the names of the arguments that the operator writes into."""
    return [
        one.name
        for one in schema_of(overload).arguments
        if one.alias_info is not None and one.alias_info.is_write
    ]


def writes_in_place(overload: OpOverload) -> bool:
    """Whether the operator writes into an argument that is not an ``out=`` argument."""
    return any(
        not one.kwarg_only
        for one in schema_of(overload).arguments
        if one.alias_info is not None and one.alias_info.is_write
    )


def functional_form(overload: OpOverload) -> OpOverload | None:
    """Return the functional form of ``overload``: ``add.Tensor`` for ``add_.Tensor`` and ``add.out``.

    An overload that writes nothing is its own functional form. Returns None if PyTorch has no such form.
    """
    written = written_arguments(overload)
    if not written:
        return overload
    base = schema_of(overload).name.removeprefix("aten::")
    wanted = [
        one.name for one in schema_of(overload).arguments if not (one.kwarg_only and one.name in written)
    ]
    if base.endswith("_") and not base.endswith("__"):
        packet = getattr(torch.ops.aten, base[:-1], None)
        found = getattr(packet, overload_name(overload), None) if packet is not None else None
        candidates = [found] if found is not None else []
    else:
        packet = getattr(torch.ops.aten, base)
        candidates = [getattr(packet, name) for name in packet.overloads()]
    for candidate in candidates:
        if not written_arguments(candidate) and _parameters(candidate) == _parameters(overload, wanted):
            return candidate
    return None


def parameters_of(overload: OpOverload) -> list[str]:
    """Return the names of all arguments."""
    return [one.name for one in schema_of(overload).arguments]


def _parameters(overload: OpOverload, only: list[str] | None = None) -> list[tuple[str, str]]:
    return [
        (one.name, str(one.type)) for one in schema_of(overload).arguments if only is None or one.name in only
    ]


def is_random(overload: OpOverload) -> bool:
    return torch.Tag.nondeterministic_seeded in overload.tags


def has_cpu_kernel(overload: OpOverload) -> bool:
    """Whether PyTorch can run the operator on the CPU."""
    keys = (DispatchKey.CPU, DispatchKey.CompositeExplicitAutograd, DispatchKey.CompositeImplicitAutograd)
    return any(has_kernel_for(overload, key) for key in keys)


def storages_of(
    device_type: str,
    make: Callable[[torch.device, int], torch.UntypedStorage],
    methods: dict[str, Callable[..., Any]],
) -> None:
    """Let ``torch.UntypedStorage(nbytes, device=…)`` call ``make``, and let its storages use ``methods``.

    PyTorch has no allocator for the device, and its own methods refuse storages without memory. Copies of
    storages (``copy.deepcopy``, ``storage.clone()``, ``storage.cpu()``) are made in this way, too. The
    ``__reduce__`` among the methods also serves to pickle tensors, and to send them through queues between
    processes.
    """
    plain: Callable[..., Any] = torch._C.StorageBase.__new__

    def new(cls: type, *args: Any, device: Any = None, **kwargs: Any) -> Any:
        if device is None:
            return plain(cls, *args, **kwargs)
        place = torch.device(device)
        if place.type != device_type:
            return plain(cls, *args, device=device, **kwargs)
        if args and not isinstance(args[0], int):
            raise TypeError(
                f"a storage of {device_type} is made with its size in bytes, not from a"
                f" {type(args[0]).__name__}\n  next: make a tensor and move it"
            )
        return make(place, args[0] if args else 0)

    torch.UntypedStorage.__new__ = new  # type: ignore[method-assign]
    for name, method in methods.items():
        setattr(torch.UntypedStorage, name, _for(device_type, method, getattr(torch.UntypedStorage, name)))
    plain_reduce: Callable[..., Any] = torch.TypedStorage.__reduce__

    def reduce(self: Any) -> Any:
        here = self._untyped_storage.device.type == device_type
        return reductions.reduce_typed_storage(self) if here else plain_reduce(self)

    torch.TypedStorage.__reduce__ = reduce  # type: ignore[method-assign]
    # Processes share CPU memory, but the contents of this device's storages must be sent.
    ForkingPickler.register(
        torch.UntypedStorage, _for(device_type, methods["__reduce__"], reductions.reduce_storage)
    )


def dlpack_of(device_type: str, read: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Let DLPack export tensors of the device as the CPU tensors that ``read`` makes of them.

    DLPack has no name for the device, and PyTorch would export a null pointer. The change lasts for the rest
    of the process.
    """

    def dlpack(self: torch.Tensor, **kwargs: Any) -> Any:
        if self.requires_grad:
            raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
        return read(self).__dlpack__(**kwargs)

    def place(self: torch.Tensor) -> Any:
        return torch.empty(0, device="cpu").__dlpack_device__()

    tensor: Any = torch.Tensor
    tensor.__dlpack__ = _for(device_type, dlpack, torch.Tensor.__dlpack__)
    tensor.__dlpack_device__ = _for(device_type, place, torch.Tensor.__dlpack_device__)
    torch.utils.dlpack.to_dlpack = _for(device_type, dlpack, torch.utils.dlpack.to_dlpack)
    torch.to_dlpack = torch.utils.dlpack.to_dlpack


def _for(device_type: str, ours: Callable[..., Any], theirs: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls ``ours`` if an argument is on the device, and ``theirs`` otherwise."""

    @functools.wraps(theirs)
    def chosen(*args: Any, **kwargs: Any) -> Any:
        here = any(isinstance(one, _PLACED) and one.device.type == device_type for one in args)
        return (ours if here else theirs)(*args, **kwargs)

    return chosen


_PLACED = (torch.UntypedStorage, torch.Tensor)
