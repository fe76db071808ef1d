"""Typed functions over the StableHLO and CHLO dialects.

Operands are strict: equal shapes and dtypes, no implicit broadcasting or
promotion. Dimensions are integers or symbols. This package does not depend on
ATen, PyTorch or any engine.
"""

from .bits import bitcast, signbit
from .collectives import Groups, all_gather, all_reduce, all_to_all, place_in_group, reduce_scatter
from .composite import Attribute, composite
from .contraction import cholesky, convolution, dot, dot_general, fft, triangular_solve
from .control import case, fori, if_, while_
from .dimensions import (
    Dim,
    Shape,
    assume_same,
    assume_same_shape,
    at_least,
    at_most,
    is_negative,
    is_static,
    product,
    same_dim,
    same_shape,
    static_dim,
)
from .elementwise import (
    abs_,
    acos,
    acosh,
    asin,
    asinh,
    atan,
    atan2,
    atanh,
    bessel_i1e,
    cbrt,
    ceil,
    clamp,
    complex_,
    conj,
    convert,
    cosh,
    cosine,
    count_leading_zeros,
    digamma,
    divide,
    eq,
    erf,
    erf_inv,
    erfc,
    exponential,
    exponential_minus_one,
    floor,
    imag,
    is_finite,
    is_nan,
    lgamma,
    log,
    log_plus_one,
    logical_not,
    logistic,
    maximum,
    minimum,
    ne,
    negate,
    next_after,
    optimization_barrier,
    popcnt,
    power,
    real,
    reduce_precision,
    remainder,
    round_nearest_afz,
    round_nearest_even,
    rsqrt,
    select,
    shift_left,
    shift_right_arithmetic,
    shift_right_logical,
    sign,
    sine,
    sinh,
    sqrt,
    tan,
    tanh,
)
from .indexing import gather, put, put_along, scatter, take, take_along
from .module import Argument, Module, call_program, location
from .portable import resolve_version
from .random import Rng
from .reduction import (
    highest,
    lowest,
    reduce,
    reduce_and,
    reduce_max,
    reduce_min,
    reduce_or,
    reduce_sum,
    sort,
)
from .scan import associative_scan
from .shape import (
    broadcast_in_dim,
    broadcast_shapes,
    broadcast_to,
    concatenate,
    dynamic_slice,
    dynamic_update_slice,
    expand_dims,
    index_of,
    iota,
    move_axis,
    pad,
    pad_axis,
    reshape,
    respelled,
    reverse,
    slice_,
    slice_axis,
    squeeze,
    transpose,
)
from .value import Number, Value, condition_scalar, constant, dim_scalar, full, full_like, scalar, zeros_like

__all__ = [name for name in dir() if not name.startswith("_")]
