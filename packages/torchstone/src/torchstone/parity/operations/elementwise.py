"""Elementwise operators: arithmetic, functions, comparison, selection, activation, conversion."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F

from .operation import BOOLS, COMPLEX, EVERY, FLOATS, INTEGERS, Make, operation

SHAPE = (3, 4)
REAL = (*FLOATS, *INTEGERS)
INEXACT = (*FLOATS, *COMPLEX)


def _one(low: float = -3, high: float = 3) -> Any:
    return lambda make: (make(*SHAPE, low=low, high=high),)


def _two(low: float = -3, high: float = 3) -> Any:
    return lambda make: (make(*SHAPE), make(*SHAPE, low=low, high=high))


for _name in ("add", "sub", "mul", "maximum", "minimum", "atan2"):
    operation("elementwise_binary", _name, getattr(torch, _name), _two())
for _name in ("div", "true_divide", "remainder", "fmod", "floor_divide"):
    operation("elementwise_binary", _name, getattr(torch, _name), _two(1, 4))
operation("elementwise_binary", "pow", torch.pow, lambda make: (make(*SHAPE, low=1), make(*SHAPE, low=0)))
for _name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
    operation("elementwise_binary", _name, getattr(torch, _name), _two(), dtypes=(*INTEGERS, *BOOLS))
for _name in ("bitwise_left_shift", "bitwise_right_shift"):
    operation("elementwise_binary", _name, getattr(torch, _name), _two(0, 3), dtypes=INTEGERS)
for _name in ("logical_and", "logical_or", "logical_xor"):
    operation("elementwise_binary", _name, getattr(torch, _name), _two(-1, 2))

_EVERYWHERE = (
    *("neg", "abs", "exp", "exp2", "sin", "cos", "atan", "tanh", "sinh", "cosh", "asinh", "sigmoid"),
    *("sign", "floor", "ceil", "round", "trunc", "expm1", "square", "erf", "erfc"),
)
for _name in _EVERYWHERE:
    operation("elementwise_unary", _name, getattr(torch, _name), _one())
for _name in ("log", "log2", "log10", "log1p", "sqrt", "rsqrt", "reciprocal", "lgamma", "digamma", "acosh"):
    operation("elementwise_unary", _name, getattr(torch, _name), _one(1.1, 5))
for _name in ("asin", "acos", "atanh"):
    operation("elementwise_unary", _name, getattr(torch, _name), _one(-0.9, 0.9), dtypes=(*INEXACT, *BOOLS))
operation("elementwise_unary", "tan", torch.tan, _one(-1, 1))

for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    operation("comparison", _name, getattr(torch, _name), _two(), trains=False)


def _mask() -> torch.Tensor:
    return torch.rand(SHAPE) < 0.5


operation("selection", "where", torch.where, lambda make: (_mask(), make(*SHAPE), make(*SHAPE)))
operation("selection", "clamp", lambda x: x.clamp(0, 2), _one())
operation("selection", "masked_fill", lambda x, m: x.masked_fill(m, 1), lambda make: (make(*SHAPE), _mask()))
operation("selection", "select", lambda x: x.select(1, 2), _one())


def _activation(name: str, function: Any = None, calls: str = "") -> None:
    operation("activation", name, function or getattr(F, name), _one(), dtypes=FLOATS, calls=calls)


for _name in (
    *("relu", "leaky_relu", "elu", "celu", "gelu", "mish", "softplus", "softsign", "hardtanh", "relu6"),
    *("hardsigmoid", "hardswish", "selu", "logsigmoid", "sigmoid", "tanh"),
):
    _activation(_name)
_activation("silu/swish", F.silu, "torch.nn.functional.silu")
operation("activation", "prelu", F.prelu, lambda make: (make(3, 4), make(4, low=0, high=1)), dtypes=FLOATS)

_TYPES = {
    "float": torch.float32,
    "half": torch.float16,
    "double": torch.float64,
    "int": torch.int32,
    "long": torch.int64,
    "bool": torch.bool,
    "bfloat16": torch.bfloat16,
}


def _conversion(name: str, dtype: torch.dtype, calls: str) -> None:
    def convert(x: torch.Tensor) -> torch.Tensor:
        return x.to(dtype)

    # A conversion to the tensor's own dtype would be no program: it adds one before.
    def args(make: Make) -> tuple[torch.Tensor, ...]:
        return (make(*SHAPE),)

    real = tuple(d for d in EVERY if d not in COMPLEX and d is not dtype)
    operation("type_conversion", name, convert, args, dtypes=real, calls=calls)


for _name, _dtype in _TYPES.items():
    _conversion(_name, _dtype, f"torch.Tensor.{_name}")
_conversion("to", torch.float64, "torch.Tensor.to")
