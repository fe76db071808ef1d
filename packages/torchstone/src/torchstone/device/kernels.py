"""Kernels that are not programs: empty tensors, views, changes of storage, and queries about the device."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..torch_internals import private_device
from ..torch_internals.device_tensors import put_on
from ..torch_internals.operators import namespace
from ..torch_internals.private_device import redispatched
from . import optimizers, sampling, scaling, selection
from .calls import check_device, element_of
from .operators import Operator
from .storage import DEVICE_TYPE, box_of, new_box, new_storage, new_tensor
from .transfers import allclose, copy_, equal, local_scalar_dense, to_copy, to_cpu

aten = namespace("aten")
Tensor = torch.Tensor
Kernel = Callable[..., Any]


def _refuse_layout(layout: torch.layout | None) -> None:
    if layout not in (None, torch.strided):
        raise NotImplementedError(
            f"pjrt tensors are strided; {layout} is not supported\n  next: make it on the CPU"
        )


def _empty(
    size: Sequence[int],
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
    memory_format: torch.memory_format | None = None,
) -> Tensor:
    _refuse_layout(layout)
    like = torch.empty(size, dtype=dtype, device="meta", memory_format=memory_format)
    return _empty_strided(like.shape, like.stride(), dtype=like.dtype, device=device)


def _empty_strided(
    size: Sequence[int],
    stride: Sequence[int],
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> Tensor:
    _refuse_layout(layout)
    if device is not None:
        check_device(device)
    dtype = dtype or torch.get_default_dtype()
    end = 1 + sum((n - 1) * step for n, step in zip(size, stride, strict=True)) if 0 not in size else 0
    nbytes = end * dtype.itemsize
    return new_tensor(None, element_of(dtype), dtype, nbytes, tuple(size), tuple(stride))


def _set_storage(
    self: Tensor, source: torch.UntypedStorage, offset: int = 0, size: Any = None, stride: Any = None
) -> Tensor:
    if size is None:
        size, stride = (source.nbytes() // self.dtype.itemsize,), (1,)
    elif not stride:
        stride = _contiguous(size)
    _require_room(source, self.dtype, size, stride, offset)
    return put_on(self, source, size, stride, offset)


def _require_room(
    storage: torch.UntypedStorage, dtype: torch.dtype, size: Sequence[int], stride: Sequence[int], offset: int
) -> None:
    if 0 in size:
        return
    end = offset + 1 + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    if end * dtype.itemsize > storage.nbytes():
        raise RuntimeError(
            f"setStorage: sizes {list(size)}, strides {list(stride)}, storage offset {offset}, and itemsize"
            f" {dtype.itemsize} requiring a storage size of {end * dtype.itemsize} are out of bounds for"
            f" storage of size {storage.nbytes()}"
        )


def _set_tensor(self: Tensor, source: Tensor) -> Tensor:
    return put_on(self, source.untyped_storage(), source.shape, source.stride(), source.storage_offset())


def _set_nothing(self: Tensor) -> Tensor:
    return put_on(self, new_storage(new_box(None, element_of(self.dtype), 0)), (0,), (1,), 0)


def _contiguous(size: Sequence[int]) -> tuple[int, ...]:
    return tuple(math.prod(max(n, 1) for n in size[axis + 1 :]) for axis in range(len(size)))


def _as_strided_copy(
    self: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Tensor:
    """Copy a view of the tensor's storage, which may hold more than the tensor."""
    return self.as_strided(size, stride, storage_offset).clone(memory_format=torch.contiguous_format)


def _as_strided_scatter(
    self: Tensor,
    src: Tensor,
    size: Sequence[int],
    stride: Sequence[int],
    storage_offset: int | None = None,
) -> Tensor:
    """Write into a copy of the whole storage, or of the tensor alone if its elements share memory."""
    if any(n > 1 and step == 0 for n, step in zip(self.shape, self.stride(), strict=True)):
        copied = self.clone()
    else:
        whole = (self.untyped_storage().nbytes() // self.dtype.itemsize,)
        copied = self.as_strided(whole, (1,), 0).clone()
        copied = copied.as_strided(self.shape, self.stride(), self.storage_offset())
    copied.as_strided(size, stride, storage_offset).copy_(src)
    return copied


def _resize(self: Tensor, size: Sequence[int], *, memory_format: torch.memory_format | None = None) -> Tensor:
    """Resize the tensor in place. A storage that is too small grows; other tensors on it still share it."""
    size = tuple(size)
    if memory_format in (None, torch.contiguous_format, torch.preserve_format):
        if size == tuple(self.shape):
            return self
        stride = _contiguous(size)
    else:
        stride = torch.empty(size, device="meta", memory_format=memory_format).stride()
    end = self.storage_offset() + math.prod(size)
    nbytes = int(end) * self.dtype.itemsize if math.prod(size) else 0
    storage, box = self.untyped_storage(), box_of(self)
    if nbytes > storage.nbytes():
        box.grow(nbytes)
        storage = new_storage(box)
    return put_on(self, storage, size, stride, self.storage_offset())


def _is_set_to(self: Tensor, other: Tensor) -> bool:
    return box_of(self) is box_of(other) and (self.shape, self.stride(), self.storage_offset()) == (
        other.shape,
        other.stride(),
        other.storage_offset(),
    )


def _copy_from(source: Tensor, target: Tensor, non_blocking: bool = False) -> Tensor:
    return copy_(target, source)


def _copy_from_and_resize(source: Tensor, target: Tensor) -> Tensor:
    target.resize_(source.shape)
    return copy_(target, source)


_STATISTICS = Operator("_native_batch_norm_legit")
_NO_STATISTICS = Operator("_native_batch_norm_legit.no_stats")


def _native_batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    """Run ``_native_batch_norm_legit`` in place of ``native_batch_norm``.

    Its schema says that it writes the running statistics. Without them, its form ``no_stats`` runs.
    """
    if running_mean is None or running_var is None:
        return _NO_STATISTICS(input, weight, bias, training, momentum, eps)
    return _STATISTICS(input, weight, bias, running_mean, running_var, training, momentum, eps)


def _check_factorization(info: Tensor, api_name: str, *, is_matrix: bool) -> None:
    """Raise if a factorization failed. This depends on values of ``info``, so the CPU checks them."""
    aten._linalg_check_errors.default(to_cpu(info), api_name, is_matrix=is_matrix)


def _all_here(operator: Operator) -> Kernel:
    """Return a kernel that moves CPU tensors (lengths, which PyTorch keeps there) to the device first."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return operator(
            *(one.to(DEVICE_TYPE) if isinstance(one, Tensor) and one.is_cpu else one for one in args),
            **kwargs,
        )

    return call


def where_asked(operator: Operator) -> Kernel:
    """Return a kernel that leaves the call to another device if its ``device`` argument names one."""

    def call(*args: Any, **kwargs: Any) -> Any:
        device = kwargs.get("device")
        if device is None or device.type == DEVICE_TYPE:
            return operator(*args, **kwargs)
        return operator.overload(*map(_read, args), **{name: _read(one) for name, one in kwargs.items()})

    return call


def _read(value: Any) -> Any:
    return to_cpu(value) if isinstance(value, Tensor) and value.device.type == DEVICE_TYPE else value


def _record_stream(self: Tensor, stream: torch.Stream) -> None:
    """Do nothing: a storage lives as long as any program that reads it."""


def _random(
    self: Tensor,
    low: int = 0,
    high: int | None = None,
    *,
    generator: torch.Generator | None = None,
) -> Tensor:
    """``random_()`` and ``random_(from, to)``: integers below ``high``, or all that the dtype can hold."""
    if (low, high) != (0, None):
        torch.empty(0, dtype=self.dtype, device="cpu").random_(low, high)  # raises what PyTorch refuses
    if high is None:
        high = _integers_of(self.dtype)
    given: dict[str, Any] = {"dtype": torch.int64, "device": self.device, "generator": generator}
    return self.copy_(torch.randint(low, high, self.shape, **given))


def _random_below(self: Tensor, to: int, *, generator: torch.Generator | None = None) -> Tensor:
    """``random_(to)``."""
    return _random(self, 0, to, generator=generator)


def _integers_of(dtype: torch.dtype) -> int:
    """Return n + 1 for the largest n such that ``dtype`` holds all integers from 0 to n, up to 2**63 - 1."""
    if dtype.is_floating_point:
        return int(2 / torch.finfo(dtype).eps) + 1
    return 2 if dtype is torch.bool else min(torch.iinfo(dtype).max + 1, 2**63 - 1)


def _choose_attention(*_: Any, **__: Any) -> int:
    """Choose ``SDPBackend.MATH``: attention composed of other operators."""
    return 0


def _not_pinned(self: Tensor, device: torch.device | None = None) -> bool:
    return False


def _never_nested(t: Tensor, mask: Tensor) -> bool:
    """Return False so that ``nn.TransformerEncoder`` uses padded batches, as there are no nested tensors."""
    return False


def _pin_memory(self: Tensor, device: torch.device | None = None) -> Tensor:
    """Return a copy in ordinary memory, for loaders that pin batches. Engines stage transfers themselves."""
    return self.clone()


OTHER_KINDS = tuple(
    f"{kind}{private_device.KEY}" for kind in ("Sparse", "SparseCsr", "Quantized", "NestedTensor")
)
"""Dispatch keys of the kinds of tensors that the device does not have."""


def refuse_kind(overload: Any, *_: Any, **__: Any) -> Any:
    """Raise ``NotImplementedError``: the kernel of every operator on tensors of ``OTHER_KINDS``."""
    raise NotImplementedError(
        f"{overload} cannot run on pjrt: its tensors are strided, and none is sparse, nested or quantized"
        "\n  next: keep such a tensor on the CPU, or make it dense first (to_dense, dequantize)"
    )


VIEWS = ("as_strided", "view", "_reshape_alias", "unfold", "view_as_real", "view_as_complex")

KERNELS: dict[str, Kernel] = {
    **{name: redispatched(getattr(torch.ops.aten, name).default) for name in VIEWS},
    "empty.memory_format": _empty,
    "empty_strided": _empty_strided,
    "set_.source_Storage": _set_storage,
    "set_.source_Storage_storage_offset": _set_storage,
    "set_.source_Tensor": _set_tensor,
    "set_": _set_nothing,
    "resize_": _resize,
    "is_set_to": _is_set_to,
    "copy_": copy_,
    "_to_copy": to_copy,
    "_copy_from": _copy_from,
    "_copy_from_and_resize": _copy_from_and_resize,
    "_local_scalar_dense": local_scalar_dense,
    "equal": equal,
    "allclose": allclose,
    "native_batch_norm": _native_batch_norm,
    "native_batch_norm.out": selection.all_written(_native_batch_norm, "out", "save_mean", "save_invstd"),
    "linalg_lstsq.out": selection.all_written(
        aten.linalg_lstsq.default, "solution", "residuals", "rank", "singular_values"
    ),
    "as_strided_copy": _as_strided_copy,
    "as_strided_copy.out": selection.written(_as_strided_copy),
    "as_strided_scatter": _as_strided_scatter,
    "as_strided_scatter.out": selection.written(_as_strided_scatter),
    "_linalg_check_errors": _check_factorization,
    "record_stream": _record_stream,
    "_fused_sdp_choice": _choose_attention,
    "is_pinned": _not_pinned,
    "_nested_tensor_from_mask_left_aligned": _never_nested,
    **{name: _all_here(Operator(name)) for name in ("_ctc_loss.Tensor", "_ctc_loss_backward.Tensor")},
    **sampling.KERNELS,
    **selection.KERNELS,
    **scaling.KERNELS,
    **optimizers.KERNELS,
    "random_": _random,
    "random_.from": _random,
    "random_.to": _random_below,
}
"""The kernels by operator name. Every other operator that PyTorch does not compose is a program."""


def _may_replace(self: Tensor, other: Tensor) -> bool:
    """Whether ``self.data = other`` is allowed, which moves a parameter and keeps the same Python object.

    PyTorch refuses this between devices that it does not know. ``module.to("pjrt")`` would then make new
    parameters: tied weights would become separate, and optimizers would go on updating the old ones.
    """
    if all(one.device.type in (DEVICE_TYPE, "cpu") and _is_plain(one) for one in (self, other)):
        return True
    return bool(aten._has_compatible_shallow_copy_type.default.decompose(self, other))


def _is_plain(tensor: Tensor) -> bool:
    return tensor.layout is torch.strided and not (tensor.is_quantized or tensor.is_nested)


OVERRIDES: dict[str, Kernel] = {"_has_compatible_shallow_copy_type": _may_replace}
"""The device's kernels for operators that PyTorch would otherwise compose."""

CPU_KERNELS: dict[str, Kernel] = {"_pin_memory": _pin_memory}
"""Kernels for CPU tensors of operators for which PyTorch would need a device's C++ code."""

LEFT_TO_PYTORCH = frozenset(
    {
        "empty_like",
        "new_empty",
        "new_empty_strided",
        "empty_permuted",
        "empty_quantized",
        "_unsafe_view",
        "_assert_tensor_metadata",
        "_has_same_storage_numel",
        "_is_all_true",
        "_is_any_true",
        "_pack_padded_sequence",
        "_pack_padded_sequence_backward",
        "is_same_size",
        "resize_as_",
        "lift",
        "lift_fresh",
        "_pin_memory",
        "q_scale",
        "q_zero_point",
        "qscheme",
    }
)
"""Operators that get no kernel here, because PyTorch composes them of other operators.

``_pack_padded_sequence`` reads lengths that stay on the CPU. The result of ``_unsafe_view`` shares its
argument's storage, although its schema does not say so.
"""


def is_program(name: str) -> bool:
    """Whether the operator's kernel on the device is a program of its own.

    Operators over lists of tensors (``_foreach_``) are not: PyTorch calls the one-tensor operator for each.
    """
    listed = name in LEFT_TO_PYTORCH or name.startswith("_foreach_")
    return not listed and private_device.computes(name)
