"""Finds where an eager run meets one of the Limits of ``docs/backend.md``, so that values may differ.

Each limit is one sentence there. Only the eager run is examined: its operators and their arguments.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from torchstone.torch_internals import pytree

NOT_RESIZABLE = "Trying to resize storage that is not resizable"
"""PyTorch's message if a result would have to grow."""
ZERO_DIVISOR = "ZeroDivisionError"
"""PyTorch's message for an integer division by zero. Programs give it under ``config.check_values``."""
_CASTS = {"_to_copy": 0, "to": 0, "type_as": 0, "_copy_from": 0, "copy": 1, "copy_": 1}
"""Operators that change a dtype, and which tensor they read. In inference mode, ``to`` is one of them."""
_BITS = {"signbit": 0, "copysign": 1, "view": 0}
"""Operators that read the bits of a NaN, and the place of the tensor whose bits they read."""
_CANCELLING = "norm_backward"
"""How the names of gradients end whose terms cancel."""
_SUMS = ("add", "add_")
_TOTALS = ("sum", "mean", "nansum", "cumsum")
_SOFTMAXES = ("_softmax", "_log_softmax", "softmax", "log_softmax")
_LARGE_LOGIT = 100
_ONE_SIDED = (
    *("elu_backward", "hardshrink_backward", "hardswish_backward", "hardtanh_backward", "logit_backward"),
    "softshrink_backward",
)
_VARIANCES = (
    *("var", "std", "var_mean", "std_mean"),
    *("native_batch_norm", "_native_batch_norm_legit", "_batch_norm_with_update"),
)
_VARIANCE_GRADIENTS = ("native_batch_norm_backward", "batch_norm_backward")
_INDICES = ("median", "nanmedian", "kthvalue", "mode")
_CONVOLUTIONS = ("convolution", "conv1d", "conv2d")
_FACTORIZATIONS = (
    *("geqrf", "linalg_qr", "linalg_lu", "linalg_lu_factor_ex", "linalg_ldl_factor_ex", "linalg_cholesky_ex"),
    *("cholesky", "cholesky_inverse", "cholesky_solve", "linalg_ldl_solve", "linalg_lu_solve"),
    *("linalg_inv_ex", "_linalg_solve_ex", "linalg_solve_triangular", "triangular_solve", "linalg_lstsq"),
    *("_linalg_det", "_linalg_slogdet"),
)
"""Factorizations, and operators that use one."""
_EIGENVALUES = ("linalg_eig", "linalg_eigvals", "_linalg_eigvals")
_VECTORS = {"_linalg_svd": (0, 2), "_linalg_eigh": (1,), "linalg_eig": (1,)}
"""Decompositions, and the places of the results that hold singular vectors or eigenvectors."""
_RUNNING = ("cumsum", "cumprod")
_TELL_FROM_ZERO = (
    *("eq", "ne", "lt", "le", "gt", "ge", "sign", "sgn", "nonzero", "count_nonzero"),
    *("logical_not", "logical_and", "logical_or", "logical_xor", "any", "all"),
)
"""Operators whose result shows whether a small number is 0. Some conversions do too: :func:`_keeps_apart`."""
_NARROW = (torch.float32, torch.float16, torch.bfloat16)
_SINGLE = torch.finfo(torch.float32)


class Limits(TorchDispatchMode):
    """A mode that notes in ``found`` which limits operators meet, and which values depend on that."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()
        self._signs: dict[int, torch.Tensor] = {}
        """Like ``_reached``, for values that depend on a zero whose sign follows from the order of a sum."""
        self._reached: dict[int, torch.Tensor] = {}
        """By storage, a tensor whose values depend on a limit.

        The tensor keeps its storage alive, so that no other storage gets the same key.
        """
        self._reached_python = False

    def reach(self, tensor: torch.Tensor) -> bool:
        """Whether the values of ``tensor`` depend on the result of an operator that met a limit."""
        return self._reached_python or _storage(tensor) in self._reached

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        given = [one for one in pytree.tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)]
        reached = any(self.reach(one) for one in given)
        met = set(_met(func.overloadpacket.__name__, given, args, kwargs))  # before it writes into them
        writes = [one for one in _written(func, args, kwargs) if isinstance(one, torch.Tensor)]
        if any(_reads_elsewhere(one, other) for one in writes for other in given if other is not one):
            met.add("an operator that overwrites what it reads")
        by_some = dict(_met_by_some(func.overloadpacket.__name__, given, args))
        made = func(*args, **kwargs)
        results = [one for one in pytree.tree_leaves(made) if isinstance(one, torch.Tensor)]
        name = func.overloadpacket.__name__
        if name.endswith(_CANCELLING) or any(_storage(one) in self._signs for one in given):
            self._signs |= {_storage(one): one for one in results}
            if _reads_bits(name, args) and (given[_BITS[name]] == 0).any():
                met.add("the sign of a zero")
        if name in _CASTS and results and not _holds(results[0].dtype, given[_CASTS[name]]):
            met.add("a float beyond an integer dtype")
        if name in _TOTALS and _begins_with_negative_zero(name, args, results[0]):
            met.add("a zero is added to -0.0")
        if not met and "_polynomial_" in name and results and not _finite(results[0]):
            met.add("a polynomial that overflows")
        self.found |= met | {*by_some}
        for places in by_some.values():
            self._reached |= {_storage(results[at]): results[at] for at in places if at < len(results)}
        if met or reached:
            self._reached |= {_storage(one): one for one in (*results, *writes)}
            self._reached_python |= not results and not writes
        return made


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _written(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    declared = func._schema.arguments
    values = {**dict(zip([one.name for one in declared], args, strict=False)), **kwargs}
    written = [one.name for one in declared if one.alias_info is not None and one.alias_info.is_write]
    return pytree.tree_leaves([values.get(name) for name in written])


def _reads_elsewhere(written: torch.Tensor, read: torch.Tensor) -> bool:
    """Whether ``read`` contains an element of ``written`` at a different position."""
    if _storage(written) != _storage(read) or written.dtype != read.dtype:
        return False
    size = written.untyped_storage().nbytes() // written.itemsize
    ours, theirs = (
        torch.arange(size).as_strided(one.size(), one.stride(), one.storage_offset())
        for one in (written, read)
    )
    return not torch.equal(ours, theirs) and bool(torch.isin(ours.flatten(), theirs.flatten()).any())


def _met(
    name: str, given: list[torch.Tensor], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Iterator[str]:
    """Yield the limits that an operator with these arguments meets, whatever its result."""
    if _reads_bits(name, args) and len(given) > _BITS[name] and given[_BITS[name]].isnan().any():
        yield "the bits of a NaN"
    if name.startswith(("upsample_", "_upsample_")) and not _finite(given[0]):
        yield "an infinite neighbor in resampling"
    if name in _FACTORIZATIONS and not all(map(_finite, given)):
        yield "a factorization of infinite values"
    if name in _EIGENVALUES and given[0].shape[-1] > 1:
        yield "the order of eigenvalues"
    if name in _SOFTMAXES and bool((given[0].detach().abs() > _LARGE_LOGIT).any()):
        yield "a softmax of large values"
    if name == "special_zeta" and bool((torch.as_tensor(args[0]).detach().double() >= 1e20).any()):
        yield "a huge exponent of zeta"
    if name in _ONE_SIDED and given[-1].isnan().any():
        yield "a gradient at a NaN"
    if "_polynomial_" in name and not _are_degrees(args):
        yield "a polynomial of a NaN or of a degree beyond int64"
    if name in _SUMS and _negative_zero_beside_zeros(*args[:2], **kwargs):
        yield "a zero is added to -0.0"
    if name in _VARIANCES and given[0].dtype in _NARROW and _squares_overflow(given[0]):
        yield "squares of deviations overflow"
    if name in _VARIANCE_GRADIENTS and given[0].dtype in _NARROW and any(map(_squares_overflow, given)):
        yield "a product in the gradient of batch normalization overflows"
    if name in _RUNNING and given[0].dtype in _NARROW and _overflows_on_the_way(name, given[0]):
        yield "a running sum or product that overflows on the way"
    if any(
        name in _TELL_FROM_ZERO or _keeps_apart(one, kwargs.get("dtype")) for one in filter(_subnormal, given)
    ):
        yield "a comparison of subnormal numbers"
    if name in _CONVOLUTIONS and len(args) > 4 and _pads(args[4]) and not _finite(given[1]):
        yield "padding times an infinite weight"


def _met_by_some(
    name: str, given: list[torch.Tensor], args: tuple[Any, ...]
) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the limits that only some results of an operator meet, with the places of these results."""
    if name in ("var_mean", "std_mean") and given[0].detach().isinf().any():
        yield "the mean of infinite values", (1,)
    if name in _INDICES and (name == "mode" or len(args) > 1) and _repeat(given[0]):  # else one number
        yield "the index of one of equal elements", (1,)
    if name in _VECTORS:
        yield "the sign of a vector", _VECTORS[name]


def _reads_bits(name: str, args: tuple[Any, ...]) -> bool:
    if name == "view":
        return isinstance(args[1], torch.dtype) and not args[1].is_floating_point
    return name in _BITS


def _are_degrees(args: tuple[Any, ...]) -> bool:
    """Whether a polynomial's arguments have no NaN, and int64 can hold its degrees."""
    numbers, degrees = (torch.as_tensor(one).detach().double() for one in args[:2])
    return not bool(numbers.isnan().any()) and bool((degrees.abs() < 2**62).all())


def _holds(dtype: torch.dtype, source: torch.Tensor) -> bool:
    """Whether an integer ``dtype`` can hold each float of ``source``. True for all other pairs of dtypes."""
    if dtype.is_floating_point or dtype.is_complex or dtype == torch.bool:
        return True
    if not source.is_floating_point():
        return True
    held = torch.iinfo(dtype)
    values = source.detach().double().trunc()
    return bool(((values >= held.min) & (values < held.max + 1)).all())


def _negative_zero_beside_zeros(one: Any, other: Any, alpha: Any = 1) -> bool:
    """Whether one addend is 0.0 everywhere, like a constant known to XLA, and the other contains a -0.0."""
    addends = (torch.as_tensor(one).detach(), torch.as_tensor(other).detach() * alpha)
    if any(addend.is_complex() for addend in addends):
        return False
    zero, negative = ([(addend == 0) & (addend.signbit() == sign) for addend in addends] for sign in (0, 1))
    return bool((zero[0].all() and negative[1].any()) or (zero[1].all() and negative[0].any()))


def _begins_with_negative_zero(name: str, args: tuple[Any, ...], total: torch.Tensor) -> bool:
    """Whether -0.0 is the only addend of some element of a sum, or the first one of a running sum."""
    addends = args[0].detach()
    if name == "cumsum" and addends.numel() and addends.ndim:
        addends = addends.select(args[1], 0)
    elif addends.numel() != total.numel():
        return False
    return bool(((addends == 0) & addends.signbit()).any())


def _repeat(values: torch.Tensor) -> bool:
    """Whether two elements are equal, or any element is NaN."""
    known = values.detach()
    return known.unique().numel() < known.numel() or bool((known != known).any())


def _squares_overflow(values: torch.Tensor) -> bool:
    finite = values.detach().double().nan_to_num(0.0, 0.0, 0.0)
    return bool(finite.numel() and finite.abs().max() ** 2 > _SINGLE.max)


def _overflows_on_the_way(name: str, values: torch.Tensor) -> bool:
    """Whether the sum or product of some of the elements could be outside the range of float32."""
    sizes = values.detach().double().abs()
    sizes = sizes[sizes.isfinite() & (sizes != 0)]
    if name == "cumsum":
        return bool(sizes.sum() > _SINGLE.max)
    return bool(sizes.clamp(min=1).prod() > _SINGLE.max or sizes.clamp(max=1).prod() < _SINGLE.tiny)


def _subnormal(values: torch.Tensor) -> bool:
    """Whether an element is subnormal. None is in float16: its subnormal numbers are normal in float32."""
    if not values.is_floating_point() or values.dtype is torch.float16:
        return False
    sizes = values.detach().abs().double()
    return bool(((sizes > 0) & (sizes < torch.finfo(values.dtype).tiny)).any())


def _keeps_apart(values: torch.Tensor, dtype: torch.dtype | None) -> bool:
    """Whether a conversion to ``dtype`` keeps subnormal numbers of ``values`` different from 0.

    That is so for bool, and for a dtype whose smallest normal number is smaller.
    """
    if dtype is None or not (dtype.is_floating_point or dtype.is_complex):
        return dtype is torch.bool
    return torch.finfo(dtype).tiny < torch.finfo(values.dtype).tiny


def _pads(padding: Any) -> bool:
    return padding == "same" or (isinstance(padding, (list, tuple)) and any(padding))


def _finite(values: torch.Tensor) -> bool:
    return bool(values.detach().isfinite().all())
