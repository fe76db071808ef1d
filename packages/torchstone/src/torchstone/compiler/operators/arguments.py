"""Checks for arguments that operators refuse in eager PyTorch but accept when they are traced.

PyTorch's shape functions check less than its kernels. The missing checks are here, by operator. Each check
returns PyTorch's error message, or None if the arguments are fine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from ...dtypes import scalar_type
from ...lowering.misfits import broadcasts, misfit_of_mask, other_shape
from ...lowering.own import STAND_INS, own
from ...torch_internals.decompositions import quantized_decomposed
from ...torch_internals.operators import namespace
from .checked_numbers import axis_of_scalar
from .declaring import declare

quantized_decomposed.get()  # PyTorch registers the operators when it is imported
aten, decomposed = namespace("aten"), namespace("quantized_decomposed")
Arguments = Mapping[str, Any]
Check = Callable[[Arguments], str | None]

_CPP_TYPES = {
    torch.bool: "bool",
    torch.uint8: "unsigned char",
    torch.int8: "signed char",
    torch.int16: "short int",
    torch.int32: "int",
    torch.int64: "long int",
    torch.float16: "c10::Half",
    torch.bfloat16: "c10::BFloat16",
    torch.float32: "float",
    torch.float64: "double",
}
_UNMULTIPLIED = frozenset({torch.bool, torch.uint16, torch.uint32, torch.uint64})


def _aminmax(given: Arguments) -> str | None:
    wanted = given["self"].dtype
    for out in (given.get("min"), given.get("max")):
        if out is not None and out.dtype != wanted:
            return (
                f"Expected out tensor to have dtype {_CPP_TYPES[wanted]},"
                f" but got {_CPP_TYPES.get(out.dtype, out.dtype)} instead"
            )
    return None


def _bernoulli(given: Arguments) -> str | None:
    p = given.get("p")
    if isinstance(p, (int, float)) and not 0 <= p <= 1:
        return f"bernoulli_ expects p to be in [0, 1], but got p={p:g}"
    return None


def _whole_gradient(given: Arguments) -> str | None:
    """Check the gradient's shape. PyTorch's kernels read past the end of a smaller gradient instead."""
    return other_shape("grad_out", given["grad_out"].shape, given["input"].shape)


def _boundaries(given: Arguments) -> str | None:
    rank = given["boundaries"].dim()
    return None if rank == 1 else f"boundaries tensor must be 1 dimension, but got dim({rank})"


def _complex_parts(given: Arguments) -> str | None:
    first, second = list(given.values())[:2]
    if first.dtype != second.dtype:
        return (
            f"Expected object of scalar type {scalar_type(first.dtype)}"
            f" but got scalar type {scalar_type(second.dtype)} for second argument"
        )
    out = given.get("out")
    if out is not None and out.dtype != first.dtype.to_complex():
        return (
            f"Expected object of scalar type {scalar_type(first.dtype.to_complex())}"
            f" but got scalar type {scalar_type(out.dtype)} for argument 'out'"
        )
    return None


def _dequantized(given: Arguments) -> str | None:
    """Check ``out_dtype``. PyTorch does not: its metadata say integers, and its kernels return floats."""
    dtype = given.get("out_dtype")
    if dtype is None or dtype.is_floating_point:
        return None
    return f"out_dtype must be a floating-point dtype, got {dtype}"


def _dropout(given: Arguments) -> str | None:
    p, train = given["p"], given["train"]
    if train is False or 0 <= p <= 1:
        return None
    return f"dropout probability has to be between 0 and 1, but got {p:g}"


def _implemented(kernel: str, *names: str, dtypes: frozenset[torch.dtype] = _UNMULTIPLIED) -> Check:
    """Return a check that refuses ``dtypes``, for which ``kernel`` is missing, unless an operand is empty."""

    def check(given: Arguments) -> str | None:
        """Check that there is a kernel for the dtype."""
        operands = [given[name] for name in names]
        if getattr(operands[0], "dtype", None) not in dtypes or any(
            _has_none(one) for one in operands[len(names) == 1 :]
        ):
            return None
        return f"\"{kernel}\" not implemented for '{scalar_type(operands[0].dtype)}'"

    return check


def _has_none(tensor: torch.Tensor) -> bool:
    return any(isinstance(size, int) and size == 0 for size in tensor.shape)


def _masked_scatter(given: Arguments) -> str | None:
    mask = given["mask"].dtype
    if mask == torch.bool:
        return None
    return f"masked_scatter_ only supports boolean masks, but got mask with dtype {scalar_type(mask)}"


def _masked_scatter_in_place(given: Arguments) -> str | None:
    return _masked_scatter(given) or misfit_of_mask(given["mask"].shape, given["self"].shape)


def _padded_gradient(given: Arguments) -> str | None:
    """Check the gradient's shape. PyTorch's kernels for three axes read past the end of a smaller one."""
    padded = list(given["self"].shape)
    amounts = given["padding"]
    for place in range(len(amounts) // 2):
        padded[-1 - place] += amounts[2 * place] + amounts[2 * place + 1]
    return other_shape("grad_output", given["grad_output"].shape, padded)


def _parameters_of_tokens(given: Arguments) -> str | None:
    """Check the shapes of parameters. In PyTorch, larger ones give a larger result than its metadata say."""
    shape = given["input"].shape
    for name in ("scales", "zero_points"):
        if not broadcasts(given[name].shape, shape):
            return f"{name} of shape {list(given[name].shape)} do not broadcast to the input's {list(shape)}"
    return None


def _quantized_range(given: Arguments) -> str | None:
    """Check the range. PyTorch does not, and converts numbers that may not fit the dtype."""
    low, high = given["quant_min"], given["quant_max"]
    return None if low <= high else f"quant_min must not exceed quant_max, got {low} and {high}"


def _places_of_matrix(given: Arguments) -> str | None:
    indices = given["indices"].shape
    return (
        None
        if len(indices) == 2 and indices[0] == 2
        else f"indices has shape {list(indices)}; expected [2, n]"
    )


def _places_of_values(given: Arguments) -> str | None:
    return other_shape("places", given["places"].shape, given["values"].shape)


def _weights(given: Arguments) -> str | None:
    """Check the number of weights. PyTorch does not, and its networks ignore surplus weights."""
    hx, count = given["hx"], len(given["params"])
    directions = given["num_layers"] * (2 if given["bidirectional"] else 1)
    projected = not isinstance(hx, torch.Tensor) and hx[0].shape[-1] != hx[-1].shape[-1]
    wanted = directions * (2 + 2 * given["has_biases"] + projected)
    return None if count == wanted else f"Expected {wanted} weights, got {count}"


def _repeats(given: Arguments) -> str | None:
    size = given["output_size"]
    if not _has_none(given["repeats"]) or not isinstance(size, int) or size == 0:
        return None
    return "allocated size does not match required size"


def _multinomial(given: Arguments) -> str | None:
    """Check as in aten/src/ATen/native/Distributions.cpp. The shape function checks the rank."""
    weights, count, out = given["self"], given["num_samples"], given.get("out")
    if not weights.is_floating_point():
        name = scalar_type(weights.dtype)
        return f"multinomial only supports floating-point dtypes for input, got: {name}"
    if out is not None and out.dtype != torch.int64:
        return f"multinomial expects Long tensor out, got: {scalar_type(out.dtype)}"
    if not isinstance(count, int) or not isinstance(weights.shape[-1], int):
        return None
    if count <= 0:
        return "cannot sample n_sample <= 0 samples"
    if count > weights.shape[-1] and not given["replacement"]:
        return "cannot sample n_sample > prob_dist.size(-1) samples without replacement"
    return "number of categories cannot exceed 2^24" if weights.shape[-1] > 2**24 else None


def _slices(given: Arguments) -> str | None:
    into, source, dim = given["self"].shape, given["source"].shape, given["dim"]
    rank = max(len(into), 1)
    if not -rank <= dim < rank:
        return f"Dimension out of range (expected to be in range of [{-rank}, {rank - 1}], but got {dim})"
    sizes = [list(shape) for shape in (into, source)]
    for one in sizes:
        if one:
            del one[dim]
    same = len(into) == len(source) and sizes[0] == sizes[1]
    if not all(isinstance(size, int) for one in sizes for size in one) or same:
        return None
    return (
        "source tensor shape must match self tensor shape, excluding the specified dimension."
        f" Got self.shape = {list(into)} source.shape = {list(source)}"
    )


_LONG = frozenset({torch.int64})
_LONG_OR_INT = frozenset({torch.int64, torch.int32})
_INDICES = _LONG_OR_INT | {torch.uint8, torch.bool}


def _indexed(text: str, allowed: frozenset[torch.dtype], then: Check | None = None) -> Check:
    """Return a check of the dtype of ``index``, then ``then``. ``{}`` in ``text`` is the dtype's name."""

    def check(given: Arguments) -> str | None:
        dtype = given["index"].dtype
        if dtype in allowed:
            return None if then is None else then(given)
        return text.format(scalar_type(dtype))

    return check


def _reduced_slices(given: Arguments) -> str | None:
    said = _slices(given)
    if said is not None:
        return said
    source, dim = given["source"].shape, given["dim"]
    wanted, count = source[dim] if source else 1, given["index"].numel()
    if not (isinstance(wanted, int) and isinstance(count, int)) or wanted == count:
        return None
    return (
        f"index_reduce_(): Number of indices ({count}) should be equal to source.size(dim): ({wanted}),"
        f" for dim: {dim}"
    )


def _put(given: Arguments) -> str | None:
    source, index = given["source"].numel(), given["index"].numel()
    if not (isinstance(source, int) and isinstance(index, int)) or source == index:
        return None
    return (
        "put_(): Expected source and index to have the same number of elements, but got source.numel() ="
        f" {source}, index.numel() = {index}"
    )


def _indices(given: Arguments) -> str | None:
    if all(one is None or one.dtype in _INDICES for one in given["indices"]):
        return None
    return "tensors used as indices must be long, int, byte or bool tensors"


def _written(view: Any, source: str, *names: str) -> Callable[[Arguments], str | None]:
    """Return a check for an operator that writes ``source`` into a view. Its shape function makes no view."""

    def check(given: Arguments) -> str | None:
        """Check that the view exists, and that ``source`` fits it."""
        options = [given[name] for name in names]
        whole = given["self"] if "self" in given else given[source].new_empty(given["input_sizes"])
        if not all(isinstance(size, int) for size in (*whole.shape, *options)):
            return None
        try:
            shape = view(whole, *options).shape
        except (IndexError, RuntimeError) as error:
            return str(error)
        written = given[source].shape
        if broadcasts(written, shape):
            return None
        return f"{source} of shape {list(written)} does not broadcast to the view's shape {list(shape)}"

    return check


def _subtraction(given: Arguments) -> str | None:
    first, second = (
        one.dtype == torch.bool if isinstance(one, torch.Tensor) else isinstance(one, bool)
        for one in (given["self"], given["other"])  # PyTorch's expansions also subtract from numbers
    )
    if not (first or second):
        return None
    if first and second:
        return (
            "Subtraction, the `-` operator, with two bool tensors is not supported."
            " Use the `^` or `logical_xor()` operator instead."
        )
    return (
        "Subtraction, the `-` operator, with a bool tensor is not supported."
        " If you are trying to invert a mask, use the `~` or `logical_not()` operator instead."
    )


def _random_range(given: Arguments) -> str | None:
    """Check that the range is not empty, and that its first and last integers fit the dtype."""
    low, high = given.get("low", given.get("from", 0)), given.get("high", given.get("to"))
    if not (isinstance(low, int) and isinstance(high, int)):
        return None
    if low >= high:
        return f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}"
    dtype = given.get("dtype") or given["self"].dtype
    if not isinstance(dtype, torch.dtype):  # the default of the schema is a number
        dtype = torch.int64
    if dtype is torch.bool:
        least, most = 0.0, 1.0
    else:
        limits: Any = torch.finfo(dtype) if dtype.is_floating_point else torch.iinfo(dtype)
        least, most = limits.min, limits.max
    for name, value in (("from", low), ("to - 1", high - 1)):
        if not least <= value <= most:
            return f"{name} is out of bounds for {_CPP_TYPES.get(dtype, dtype)}"
    return None


def _uniform(given: Arguments) -> str | None:
    low, high = given["from"], given["to"]
    if isinstance(low, (int, float)) and isinstance(high, (int, float)) and low > high:
        return f"uniform_ expects to return a [from, to) range, but found from={low:g} > to={high:g}"
    return None


declare(aten.abs, aten.abs_, arguments=_implemented("abs_cpu", "self", dtypes=frozenset({torch.bool})))
declare(aten.mm, arguments=_implemented("addmm_impl_cpu_", "self", "mat2"))
declare(aten.addmm, arguments=_implemented("addmm_impl_cpu_", "mat1", "mat2"))
declare(aten.addbmm, arguments=_implemented("addmm_impl_cpu_", "batch1", "batch2"))
declare(aten.bmm, arguments=_implemented("bmm", "self", "mat2"))
declare(aten.baddbmm, arguments=_implemented("baddbmm", "batch1", "batch2"))
declare(aten.mv, arguments=_implemented("addmv_impl_cpu", "self", "vec"))
declare(aten.addmv, arguments=_implemented("addmv_impl_cpu", "mat", "vec"))
declare(aten.dot, arguments=_implemented("dot", "self", "tensor"))
declare(aten.vdot, arguments=_implemented("dot", "self", "other"))
declare(aten.aminmax, arguments=_aminmax)
declare(aten.bernoulli, aten.bernoulli_, arguments=_bernoulli)
declare(aten.bucketize, arguments=_boundaries)
declare(aten.complex, aten.polar, arguments=_complex_parts)
declare(
    aten.alpha_dropout,
    aten.dropout,
    aten.feature_alpha_dropout,
    aten.feature_dropout,
    aten.native_dropout,
    arguments=_dropout,
)
for _name, _then in (("index_add", _slices), ("index_reduce", _reduced_slices)):
    _text = f"{_name}_(): Expected dtype int32/int64 for index but got: {{}}"
    declare(
        getattr(aten, _name), getattr(aten, f"{_name}_"), arguments=_indexed(_text, _LONG_OR_INT, then=_then)
    )
for _name, _last in (("index_copy", None), ("put", _put)):
    _text = f"{_name}_(): Expected a long tensor for index, but got {{}}"
    declare(getattr(aten, _name), getattr(aten, f"{_name}_"), arguments=_indexed(_text, _LONG, then=_last))
declare(
    aten.index_fill,
    aten.index_fill_,
    arguments=_indexed("index_fill_(): Expected dtype int64 for index.", _LONG),
)
declare(
    aten.index_select,
    arguments=_indexed(
        "index_select(): Expected dtype int32 or int64 for index", _LONG_OR_INT, then=axis_of_scalar
    ),
)
declare(
    aten.index_put,
    aten.index_put_,
    aten._index_put_impl,
    aten._index_put_impl_,
    aten._unsafe_index_put,
    arguments=_indices,
)
declare(aten.masked_scatter, arguments=_masked_scatter)
declare(aten.masked_scatter_, arguments=_masked_scatter_in_place)
declare(aten.multinomial, arguments=_multinomial)
declare(aten.native_batch_norm_backward, aten.native_layer_norm_backward, arguments=_whole_gradient)
declare(aten.reflection_pad3d_backward, aten.replication_pad3d_backward, arguments=_padded_gradient)
declare(decomposed.dequantize_per_tensor, decomposed.dequantize_per_channel, arguments=_dequantized)
declare(decomposed.quantize_per_tensor, decomposed.quantize_per_channel, arguments=_quantized_range)
declare(own.sparse_sampled_mm, own.sparse_sampled_addmm, arguments=_places_of_matrix)
declare(own.semi_structured_to_dense, arguments=_places_of_values)
declare(*STAND_INS.values(), arguments=_weights)
declare(aten.randint, aten.randint_like, arguments=_random_range)
declare(aten.repeat_interleave.Tensor, arguments=_repeats)
declare(decomposed.quantize_per_token, decomposed.dequantize_per_token, arguments=_parameters_of_tokens)
declare(aten.sub, aten.sub_, aten.rsub, arguments=_subtraction)
declare(aten.select_scatter, arguments=_written(aten.select.int, "src", "dim", "index"))
declare(aten.select_backward, arguments=_written(aten.select.int, "grad_output", "dim", "index"))
declare(
    aten.slice_backward, arguments=_written(aten.slice.Tensor, "grad_output", "dim", "start", "end", "step")
)
declare(aten.diagonal_scatter, arguments=_written(aten.diagonal.default, "src", "offset", "dim1", "dim2"))
declare(
    aten.diagonal_backward,
    arguments=_written(aten.diagonal.default, "grad_output", "offset", "dim1", "dim2"),
)
declare(aten.uniform, aten.uniform_, arguments=_uniform)
