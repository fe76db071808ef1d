"""Decides which calls made by hand are defined in eager PyTorch, and which have values to compare with.

A call that is not defined is not made at all, because eager may read or write memory outside the tensors. A
call that is not compared may return any values, but must not end in an internal error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

from torchstone.parity.operators import Sample
from torchstone.torch_internals.operators import OpOverload, schema_of
from torchstone.torch_internals.pytree import tree_leaves

Given = Mapping[str, Any]


def is_defined(overload: OpOverload, call: Sample) -> bool:
    """Whether PyTorch defines what the call returns, and its kernel computes that.

    These calls are not defined:

    - ``topk`` that need not sort.
    - A float that an integer dtype cannot hold: it becomes any integer.
    - A polynomial of NaN or of a degree beyond int64: it reads memory that nothing wrote.
    - Resampling with a scale whose inverse is too large: it writes outside its result. With antialiasing and
      a result that is one column wide, it reads the wrong rows.
    - The gradient of batch norm without the input's gradient. PyTorch's shape rule returns that even if
      ``output_mask`` leaves it out; the kernel does not.
    - Embedding bags of bfloat16 rows: the shape rule returns the bag of each index, and the kernel does not.
    - CTC's gradient and a reshaped alias: they read where their arguments say, inside the memory or not.
    - A Huber loss whose delta is not positive.
    - Large complex numbers: they overflow in eager's sigmoid, and infinite ones become NaN in its products.
    - An inverse Fourier transform to a size other than its spectrum's: it writes outside its memory. So does
      the gradient of a table at an index that the table does not have.
    - The gradient of fractional pooling and the kernels of group normalization for tensors that are not
      contiguous.
    """
    name, values = str(overload), [*call.args, *call.kwargs.values()]
    numbers = [one for one in values if type(one) is float]
    tensors = [one for one in call.tensors() if one.dtype.is_floating_point or one.dtype.is_complex]
    if overload == torch.ops.aten.topk.default:
        return not ((len(call.args) > 4 and call.args[4] is False) or call.kwargs.get("sorted") is False)
    if "_polynomial_" in name:
        largest = max((one.double().abs().max().item() for one in call.tensors() if one.numel()), default=0)
        return not any(one != one for one in (*numbers, largest)) and largest < 2**62
    if "upsample" in name:
        narrow = name.startswith("aten._upsample") and list(call.args[1] or ())[-1:] == [1]
        return not narrow and not any(0 < one < 1e-9 for one in numbers)
    if "_ctc_loss_backward" in name or overload == torch.ops.aten._reshape_alias.default:
        return False
    if "_fft_c2r" in name:
        x, axes, _, size = call.args
        return bool(axes) and -x.dim() <= axes[-1] < x.dim() and size // 2 + 1 == x.shape[axes[-1]]
    if "embedding" in name and "loss" not in name:
        return _in_table(overload, call)
    if name.startswith(("aten.fractional_max_pool", "aten.native_group_norm")):
        return all(one.is_contiguous() for one in call.tensors())
    if "huber_loss" in name:
        return all(one > 0 for one in numbers)
    if "space.default" in name:
        return not any(isinstance(one, torch.dtype) and not one.is_floating_point for one in values) or all(
            math.isfinite(one) for one in numbers
        )
    if overload == torch.ops.aten.native_batch_norm_backward.default:
        return bool(call.args[-1][0])
    if overload == torch.ops.aten.batch_norm_backward.default:
        return bool(call.args[9][0])
    if any(one.dtype.is_complex for one in tensors):
        bound = 50 if any(cell in name for cell in ("lstm", "gru", "rnn")) else math.inf
        return all(bool((one.to(torch.complex128).abs() < bound).all()) for one in tensors)
    return True


def _in_table(overload: OpOverload, call: Sample) -> bool:
    given, name = _given(overload, call), str(overload)
    table = given.get("weight", given.get("self"))
    forward = "_embedding_bag." in name or "_embedding_bag_forward" in name
    if forward and table is not None and table.dtype is torch.bfloat16:
        return False
    if given["indices"].is_complex():
        return True  # eager refuses it
    rows = given["num_weights"] if table is None else (*table.shape, 0)[0]
    return bool(((given["indices"] >= 0) & (given["indices"] < rows)).all())


def _given(overload: OpOverload, call: Sample) -> dict[str, Any]:
    names = (one.name for one in schema_of(overload).arguments)
    return {**dict(zip(names, call.args, strict=False)), **call.kwargs}


def is_compared(overload: OpOverload, call: Sample) -> bool:
    """Whether there is one right value for each result of a defined call."""
    given = _given(overload, call)
    return all(rule(given) for words, rule in _RULES if any(word in str(overload) for word in words))


def _regular(given: Given) -> bool:
    """Whether no matrix is nearly singular: then rounding would decide the result."""
    return all(_condition(one) < _CONDITION.get(one.dtype, 0) for one in _matrices(given))


_CONDITION = {torch.float32: 1e3, torch.complex64: 1e3, torch.float64: 1e7, torch.complex128: 1e7}


def _matrices(given: Given) -> list[torch.Tensor]:
    found = [one for one in given.values() if isinstance(one, torch.Tensor) and one.dim() > 1 and one.numel()]
    return [one for one in found if one.is_floating_point() or one.is_complex()]


def _condition(matrix: torch.Tensor) -> float:
    exact = matrix.to(torch.complex128 if matrix.is_complex() else torch.float64)
    if not exact.isfinite().all():
        return math.inf
    return float(torch.linalg.cond(exact).max())


def _triangular(given: Given) -> bool:
    used = given["self"].triu() if given["upper"] else given["self"].tril()
    if given.get("unitriangular"):
        used.diagonal(dim1=-2, dim2=-1).fill_(1)
    return _regular({"self": used})


def _definite(given: Given) -> bool:
    """Whether the matrix is positive definite: a factorization that fails returns an unfinished result."""
    (matrix,) = _matrices(given) or [torch.eye(1)]
    low = (matrix.mH if given.get("upper") else matrix).tril()
    whole = low + low.tril(-1).mH
    return bool(whole.isfinite().all()) and bool((torch.linalg.eigvalsh(whole) > 0).all())


def _factors(given: Given) -> bool:
    """Whether complex factors have a real diagonal, as the factor of a Hermitian matrix has."""
    factors = [one for one in _matrices(given) if one.is_complex() and given.get("hermitian", True)]
    return not any(bool(one.diagonal(dim1=-2, dim2=-1).imag.any()) for one in factors)


def _pivots(given: Given) -> bool:
    """Whether each row stays in place or is exchanged with a row below it."""
    pivots = given["pivots"]
    return bool((pivots.abs() > torch.arange(pivots.shape[-1])).all())


def _distinct(given: Given) -> bool:
    """Whether all elements differ and none is NaN: otherwise the index of any of them may be returned."""
    x = given["self"]
    return x.unique().numel() == x.numel() and not bool(x.isnan().any())


def _in_range(given: Given) -> bool:
    """Whether an integer dtype can hold everything between ``quant_min`` and ``quant_max``."""
    dtype = given["dtype"]
    if dtype == torch.bool or dtype.is_floating_point or dtype.is_complex:
        return False
    info = torch.iinfo(dtype)
    return info.min <= given["quant_min"] <= given["quant_max"] <= info.max


def _entries(given: Given) -> bool:
    """Whether the indices of a sparse tensor are within its size, sorted and unique."""
    indices, sizes = given["indices"], given.get("size")
    if sizes is not None and (
        len(sizes) != len(indices) or bool((indices >= torch.tensor(sizes)[:, None]).any())
    ):
        return False
    return bool((indices >= 0).all()) and torch.equal(indices.unique(dim=1), indices)


def _packed(given: Given) -> bool:
    """Whether batch sizes are positive, never rise, and add up to the number of rows."""
    rows = next(given[name] for name in ("input", "gates", "data", "grad_output") if name in given)
    sizes = given.get("batch_sizes")
    if sizes is None:
        return True
    falling = sizes.dim() == 1 and bool((sizes.diff() <= 0).all()) and bool((sizes > 0).all())
    return falling and int(sizes.sum()) == rows.shape[0]


def _usable_scales(given: Given) -> bool:
    """Whether no scale is 0: capture rules never pass one."""
    return all(one != 0 for one in tree_leaves([given.get("weight_scale"), given.get("scale")]))


def _of_full_rank(given: Given) -> bool:
    """Whether ``rcond`` leaves out no singular values: the shape of the residuals depends on that."""
    return (given.get("rcond") or 0) <= 0.01


def _finite_numbers(given: Given) -> bool:
    """Whether all float arguments are finite.

    Infinity times a sum is not the sum of infinities, and comparing NaN depends on the order of the operands.
    """
    return all(math.isfinite(one) for one in tree_leaves(dict(given)) if isinstance(one, float))


def _finite(given: Given) -> bool:
    """Whether all float arguments and tensors are finite.

    Kernels differ in the integer that C++ makes of NaN, and in the corners or keys that an infinity reaches.
    """
    tensors = [one for one in tree_leaves(dict(given)) if isinstance(one, torch.Tensor)]
    return _finite_numbers(given) and all(bool(one.isfinite().all()) for one in tensors)


def _whole(given: Given) -> bool:
    """Whether the gradient has the input's shape: PyTorch's decomposition, which is compiled, requires it."""
    return given["grad_out"].shape == given["input"].shape


def _statistics(given: Given) -> bool:
    """Whether there are as many means as deviations: eager reads one of each for every row."""
    return given["mean"].numel() == given["rstd"].numel()


def _is_strided(given: Given) -> bool:
    """Whether the gradient is not sparse: sparse gradients are not compared."""
    return not given.get("sparse")


def _without_nan(given: Given) -> bool:
    """Whether no element is NaN.

    There, eager's vectorized kernel gives 0, and for the elements left over at the end it gives the gradient.
    """
    return not bool(given["self"].isnan().any())


def _power(given: Given) -> bool:
    """Whether the base is positive and finite.

    Powers of other bases are infinities and NaN that depend on the platform's library.
    """
    base = given.get("base", 10.0)
    return math.isfinite(base) and base > 0


def _scaled(given: Given) -> bool:
    """Whether the scale is finite and not 0: eager may scale the mask too, and 0 times infinity is NaN."""
    scale = given.get("scale")
    return scale is None or (math.isfinite(scale) and scale != 0)


def _summable(given: Given) -> bool:
    """Whether no integer is large: if large ones cancel, only rounding errors are left."""
    x = given["self"]
    return x.is_floating_point() or x.is_complex() or not x.numel() or int(x.double().abs().max()) < 2**31


def _of_one_dtype(given: Given) -> bool:
    """Whether all tensors have one dtype: otherwise eager rounds to the narrower one on the way."""
    return len({one.dtype for one in given.values() if isinstance(one, torch.Tensor)}) < 2


_RULES: tuple[tuple[tuple[str, ...], Callable[[Given], bool]], ...] = (
    (("_det", "slogdet", "linalg_lu", "lu_factor", "solve_ex", "inv_ex"), _regular),
    (("geqrf", "linalg_qr", "ldl", "lstsq"), _regular),
    (("solve_triangular",), _triangular),
    (("linalg_cholesky_ex",), _definite),
    (("cholesky_inverse", "cholesky_solve", "ldl_solve"), _factors),
    (("ldl_solve",), _pivots),
    (("median.dim", "kthvalue", "mode.default", "topk"), _distinct),
    (("quantized_decomposed.quantize_",), _in_range),
    (("torchstone.sparse_",), _entries),
    (("torchstone.gru_packed", "torchstone.lstm_packed", "torchstone.rnn_"), _packed),
    (("lstsq", "aten.addbmm"), _finite_numbers),
    (("torchstone.quantize", "torchstone.dequantize."), _finite),
    (("torchstone.quantized_",), _usable_scales),
    (("native_layer_norm_backward",), _statistics),
    (("native_batch_norm_backward",), _whole),
    (("lstsq",), _of_full_rank),
    (("embedding_bag_backward",), _is_strided),
    (("shrink_backward",), _without_nan),
    (("logspace",), _power),
    (("scaled_dot_product",), _scaled),
    (("grid_sampler_2d_backward", "grid_sampler_3d_backward", "product_flash"), _finite),
    (("aten.mean",), _summable),
    (("binary_cross_entropy_with_logits",), _of_one_dtype),
)
"""The rules for overloads whose names contain one of these parts."""
