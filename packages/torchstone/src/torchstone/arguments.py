"""The arguments of a program's call: which values are allowed, and how mutations are written back to them.

An argument for a tensor is a torch tensor, a NumPy array or scalar, a
:class:`~torchstone.runtime.Buffer`, an object with ``__dlpack__``, or the
:class:`~torchstone.LocalPart` of one of these. Nothing here imports
torch before a tensor shows up.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy

from .errors import InputMismatch, UnsupportedLayout, described
from .overlap import overlap, repeats_elements
from .runtime import Buffer, BufferSpec, get_engine
from .sharding import LocalPart
from .signature import InputSpec


def is_tensor(value: Any) -> bool:
    """Whether ``value`` is a torch tensor, subclasses included."""
    return sys.modules.get("torch") is not None and isinstance(value, sys.modules["torch"].Tensor)


def wants_torch(given: Sequence[Any]) -> bool:
    """Whether a call returns torch tensors: if it was given any, or given nothing while torch is loaded."""
    arrays = (one.array if isinstance(one, LocalPart) else one for one in given)
    return any(map(is_tensor, arrays)) or (not given and sys.modules.get("torch") is not None)


def check_arguments(
    specs: Sequence[InputSpec], given: Sequence[Any], labels: Mapping[str, str], mutated: Collection[str]
) -> None:
    """Raise :class:`InputMismatch` or :class:`UnsupportedLayout` if a value cannot be passed for a tensor.

    ``mutated`` names the inputs that the program writes into. Dtypes and shapes are compared elsewhere.
    """
    for spec, value in zip(specs, given, strict=True):
        _check_kind(labels[spec.name], spec, value)
        if spec.name in mutated:
            _check_writable(labels[spec.name], value)


def _check_kind(label: str, spec: InputSpec, value: Any) -> None:
    if getattr(value, "is_nested", False):
        raise UnsupportedLayout(
            f"{label} is a nested tensor; expected a plain {spec.dtype} tensor",
            hint="pad it with torch.nested.to_padded_tensor first",
        )
    if not hasattr(value, "shape") or not hasattr(value, "dtype"):
        raise InputMismatch(
            f"{label} is {described(value)}; expected a {spec.dtype} tensor",
            hint="pass a torch tensor or a NumPy array",
        )
    if isinstance(value, numpy.ma.MaskedArray):
        raise InputMismatch(
            f"{label} is a masked array, and a program would compute with what its mask hides",
            hint="pass value.filled(...), and the mask as an input of its own",
        )
    if is_tensor(value) and _has_tangent(value):
        raise InputMismatch(
            f"{label} is a dual tensor; a program has no forward-mode derivative: the tangent would be lost",
            hint="differentiate the model, or pass torch.autograd.forward_ad.unpack_dual(value).primal",
        )


def _has_tangent(tensor: Any) -> bool:
    from torch.autograd import forward_ad

    return forward_ad.unpack_dual(tensor).tangent is not None


def _check_writable(label: str, value: Any) -> None:
    """Raise if a mutation could not be written back to ``value``, or if eager PyTorch would refuse it."""
    writable = value.flags.writeable if isinstance(value, numpy.ndarray) else is_tensor(value)
    if not writable:
        raise InputMismatch(
            f"{label} is a read-only {type(value).__name__}, and the model mutates it",
            hint="pass a torch tensor or a writable NumPy array",
        )
    if repeats_elements(value):
        raise InputMismatch(
            f"{label} is expanded, and the model mutates it: several elements are the same memory",
            hint="pass a copy: value.clone() of a tensor, value.copy() of an array",
        )
    if is_tensor(value):
        _check_writable_tensor(label, value)


def _check_writable_tensor(label: str, tensor: Any) -> None:
    import torch

    if tensor.requires_grad and torch.is_grad_enabled():
        kind = "a leaf Variable that requires grad" if tensor.is_leaf else "a tensor that requires grad"
        raise InputMismatch(
            f"{label}: {kind} is being used in an in-place operation; a program records no gradients",
            hint="call the program inside torch.no_grad(), or pass value.detach().clone()",
        )
    if tensor.is_inference() and not torch.is_inference_mode_enabled():
        raise InputMismatch(
            f"{label} is an inference tensor, and the model mutates it outside of inference mode",
            hint="call the program inside torch.inference_mode(), or pass value.clone()",
        )


def check_aliasing(
    specs: Sequence[InputSpec], given: Sequence[Any], labels: Mapping[str, str], mutated: Collection[str]
) -> None:
    """Raise :class:`InputMismatch` if an input that the program writes into shares memory with another."""
    for place, (spec, value) in enumerate(zip(specs, given, strict=True)):
        if spec.name not in mutated:
            continue
        for position, (other, another) in enumerate(zip(specs, given, strict=True)):
            if position != place and overlap(value, another):
                raise InputMismatch(
                    f"{labels[spec.name]} and {labels[other.name]} share memory, and the model mutates "
                    f"{labels[spec.name]}: a program takes its inputs as independent values",
                    hint="pass a copy of one of them",
                )


def stored_array(name: str, spec: InputSpec, value: Any) -> numpy.ndarray[Any, Any]:
    """Return a copy of ``value`` for the weight ``name``, which may be a Python number if that is 0-d.

    Raises :class:`InputMismatch` if its shape or dtype is not that of ``spec``.
    """
    if spec.shape == () and isinstance(value, (bool, int, float)):
        return numpy.asarray(value, dtype=spec.dtype.numpy)
    _check_kind(name, spec, value)
    buffer = get_engine().import_array(value)
    if (buffer.shape, buffer.dtype) != (spec.shape, spec.dtype):
        found = BufferSpec(buffer.shape, buffer.dtype)
        raise InputMismatch(
            f"{name} is {spec.dtype}{list(spec.shape)} in the program, and {found} was given",
            hint="convert it, or export the model for this shape and dtype",
        )
    return buffer.to_numpy().copy()


def overwrite(target: Any, buffer: Buffer) -> None:
    """Write a mutation back into the caller's tensor or array."""
    if isinstance(target, numpy.ndarray):
        target[...] = buffer.to_numpy()
        return
    import torch

    from .runtime.torch_bridge import to_torch

    with torch.no_grad():
        target.copy_(to_torch(buffer))
