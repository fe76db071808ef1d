"""A chip made of NumPy: an engine with a kernel for each StableHLO operation that it knows."""

import operator

import numpy as np

from torchstone.runtime import SimulatedEngine
from torchstone.runtime.windows import corners, padded, window

KERNELS = {}


class NumpyChip(SimulatedEngine):
    """``TORCHSTONE_ENGINE=numpy_chip:NumpyChip`` makes it the engine."""

    name, platform, kernels = "numpy-chip", "numpy", KERNELS


def each(same, **others):
    """Kernels that are functions of arrays alone; ``same`` are those that NumPy calls the same."""
    functions = {name: getattr(np, name) for name in same.split()} | others
    return {name: lambda op, *x, function=function: function(*x) for name, function in functions.items()}


# Stage 1: memory, shapes, arithmetic


def broadcast(op, x):
    new = [axis for axis in range(len(op.shape)) if axis not in op.broadcast_dimensions]
    return np.broadcast_to(np.expand_dims(x.transpose(np.argsort(op.broadcast_dimensions)), new), op.shape)


KERNELS |= each("add multiply") | {
    "broadcast_in_dim": broadcast,
    "reshape": lambda op, x: x.reshape(op.shape),
    "transpose": lambda op, x: x.transpose(op.permutation),
    "slice": lambda op, x: x[tuple(map(slice, op.start_indices, op.limit_indices, op.strides))],
    "concatenate": lambda op, *arrays: np.concatenate(arrays, op.dimension),
    "pad": lambda op, x, v: padded(x, v, op.edge_padding_low, op.edge_padding_high, op.interior_padding),
    "convert": lambda op, x: (x.real if x.dtype.kind == "c" != op.dtype.kind else x).astype(op.dtype),
    "bitcast_convert": lambda op, x: np.ascontiguousarray(x).ravel().view(op.dtype).reshape(op.shape),
}

# Stage 2: mathematics, comparisons, sums, products of matrices


def dot_general(op, a, b):
    left, right = list(range(a.ndim)), list(range(a.ndim, a.ndim + b.ndim))
    batch, summed = op.lhs_batching_dimensions, op.lhs_contracting_dimensions
    others = op.rhs_batching_dimensions + op.rhs_contracting_dimensions
    for one, other in zip(batch + summed, others, strict=True):
        right[other] = one
    kept = batch + [one for one in left + right if (one in left) != (one in right)]
    return np.einsum(a.astype(op.dtype), left, b.astype(op.dtype), right, kept)


def reduce(op, *given):
    *arrays, body = given
    count, axes = len(arrays) // 2, op.dimensions
    lines = [np.moveaxis(x, axes, range(len(axes))) for x in arrays[:count]]
    found = [np.broadcast_to(one, op.shape) for one in arrays[count:]]
    for place in np.ndindex(lines[0].shape[: len(axes)]):
        found = body(*found, *(x[place] for x in lines))
    return found


KERNELS |= {
    "dot_general": dot_general,
    "reduce": reduce,
    "reverse": lambda op, x: np.flip(x, op.dimensions),
    "iota": lambda op: np.broadcast_to(np.indices(op.shape, sparse=True)[op.iota_dimension], op.shape),
    "compare": lambda op, a, b: getattr(operator, op.comparison_direction.lower())(a, b),
} | each(
    "subtract maximum minimum power sqrt cbrt sign abs floor ceil tan tanh real imag",
    negate=np.negative, remainder=np.fmod, rsqrt=lambda x: 1 / np.sqrt(x), atan2=np.arctan2, log=np.log,
    exponential=np.exp, exponential_minus_one=np.expm1, log_plus_one=np.log1p, sine=np.sin, cosine=np.cos,
    logistic=lambda x: 1 / (1 + np.exp(-x)), round_nearest_even=np.rint, is_finite=np.isfinite,
    divide=lambda a, b: a / b if a.dtype.kind in "fc" else (a - np.fmod(a, b)) // np.where(b == 0, 1, b),
    select=np.where, clamp=lambda low, x, high: np.clip(x, low, high), complex=lambda a, b: a + 1j * b,
    **{"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "not": np.invert},
    shift_left=lambda a, by: np.where(by < 8 * a.itemsize, a << by, 0),
    shift_right_logical=lambda a, by: (a.view(f"u{a.itemsize}") >> by.astype("u1")) * (by < 8 * a.itemsize),
    shift_right_arithmetic=lambda a, by: a >> np.minimum(by, 8 * a.itemsize - 1),
)  # fmt: skip

# Stage 3: sorting, indexing, convolutions


def sort(op, *given):
    *arrays, before = given
    lines = [np.moveaxis(x.copy(), op.dimension, 0) for x in arrays]
    for turn in range(len(lines[0])):  # neighbors change places, at even places and at odd ones in turn
        pairs = [(x[turn % 2 : -1 : 2], x[turn % 2 + 1 :: 2]) for x in lines]
        (swap,) = before(*(one for left, right in pairs for one in (right, left)))
        for left, right in pairs:
            left[...], right[...] = np.where(swap, right, left), np.where(swap, left, right)
    return [np.moveaxis(x, 0, op.dimension) for x in lines]


def gather(op, x, indices):
    found, gone = np.empty(op.shape, op.dtype), (*op.collapsed_slice_dims, *op.operand_batching_dims)
    pieces = np.moveaxis(found, op.offset_dims, range(-len(op.offset_dims), 0))
    for place, corner in corners(op, indices, x.ndim):
        pieces[place] = x[window(x, corner, op.slice_sizes)].squeeze(gone)
    return found


def dynamic_update_slice(op, x, new, *start):
    found = x.copy()
    found[window(x, start, new.shape)] = new
    return found


def scatter(op, x, indices, updates, body):
    found, once = x.copy(), op.inserted_window_dims + op.input_batching_dims
    updates = np.moveaxis(updates, op.update_window_dims, range(-len(op.update_window_dims), 0))
    for place, start in corners(op, indices, x.ndim):
        new = np.expand_dims(updates[place], once)
        if np.all((start >= 0) & (start + new.shape <= x.shape)):
            at = window(x, start, new.shape)
            found[at] = body(found[at], new)[0]
    return found


def convolution(op, x, w):
    x = x.transpose(op.input_batch_dimension, op.input_feature_dimension, *op.input_spatial_dimensions)
    kernel = op.kernel_output_feature_dimension, op.kernel_input_feature_dimension
    w = w.transpose(*kernel, *op.kernel_spatial_dimensions)
    w = np.flip(w, [2 + axis for axis, flipped in enumerate(op.window_reversal) if flipped])
    x = padded(x, 0, *([0, 0, *side] for side in op.padding.T), [0, 0, *(n - 1 for n in op.lhs_dilation)])
    parts = [np.split(part, op.feature_group_count, 1) for part in np.split(x, op.batch_group_count)]
    x = np.stack([one for part in parts for one in part])
    w = np.stack(np.split(w, len(x)))
    sizes = [op.shape[axis] for axis in op.output_spatial_dimensions]
    found = 0
    for place in np.ndindex(w.shape[3:]):
        steps = zip(place, op.rhs_dilation, sizes, op.window_strides, strict=True)
        seen = x[(..., *(slice(a * gap, a * gap + (n - 1) * step + 1, step) for a, gap, n, step in steps))]
        found = found + np.einsum("gnc...,goc->ngo...", seen, w[(..., *place)])
    found = found.reshape(x.shape[1], -1, *sizes)
    output = op.output_batch_dimension, op.output_feature_dimension
    return np.moveaxis(found, range(found.ndim), [*output, *op.output_spatial_dimensions])


KERNELS["dynamic_slice"] = lambda op, x, *start: x[window(x, start, op.slice_sizes)]
KERNELS |= {one.__name__: one for one in (sort, gather, dynamic_update_slice, scatter, convolution)}
