"""Elementwise operators: arithmetic, functions, comparison, selection, activation, conversion."""

from __future__ import annotations

from .call import family

family(
    "elementwise_binary",
    {
        "add": ["torch.add(x, y)", "torch.add(x, row, alpha=2)", "x + 2"],
        "sub": ["torch.sub(x, y)", "torch.sub(x, row, alpha=2)", "2 - x"],
        "mul": ["torch.mul(x, y)", "x * row", "x * 3"],
        "div": [
            "torch.div(x, positive)",
            "torch.div(x, positive, rounding_mode='trunc')",
            "torch.div(x, positive, rounding_mode='floor')",
        ],
        "pow": ["torch.pow(positive, exponent)", "x**2", "torch.pow(2, exponent)"],
        "remainder": ["torch.remainder(x, positive)", "torch.remainder(x, 2)"],
        "fmod": ["torch.fmod(x, positive)", "torch.fmod(x, 2)"],
        "true_divide": ["torch.true_divide(x, positive)", "x / 2"],
        "floor_divide": ["torch.floor_divide(x, positive)", "x // 2"],
        "bitwise_left_shift": ["torch.bitwise_left_shift(x, exponent)", "x << 2"],
        "bitwise_right_shift": ["torch.bitwise_right_shift(x, exponent)", "x >> 1"],
        **{
            name: [f"torch.{name}(x, y)", f"torch.{name}(x, row)"]
            for name in (
                *("maximum", "minimum", "atan2", "bitwise_and", "bitwise_or", "bitwise_xor"),
                *("logical_and", "logical_or", "logical_xor"),
            )
        },
    },
)

_ON_REALS = (
    *("neg", "abs", "exp", "exp2", "sin", "cos", "tan", "atan", "tanh", "sinh", "cosh", "asinh", "sigmoid"),
    *("sign", "floor", "ceil", "round", "trunc", "expm1", "square", "erf", "erfc", "lgamma", "digamma"),
)
_ON_POSITIVE = ("log", "sqrt", "rsqrt", "acosh", "log1p", "log2", "log10", "reciprocal")

family(
    "elementwise_unary",
    {
        **{name: [f"torch.{name}(x)"] for name in _ON_REALS},
        **{name: [f"torch.{name}(positive)"] for name in _ON_POSITIVE},
        **{name: [f"torch.{name}(unit)"] for name in ("asin", "acos", "atanh")},
        "round": ["torch.round(x)", "torch.round(x, decimals=1)"],
    },
)
family(
    "comparison",
    {
        name: [f"torch.{name}(x, y)", f"torch.{name}(x, x)", f"torch.{name}(x, 1)"]
        for name in ("eq", "ne", "lt", "le", "gt", "ge")
    },
)
family(
    "selection",
    {
        "where": ["torch.where(mask, x, y)", "torch.where(mask, x, 1)"],
        "clamp": ["torch.clamp(x, 0, 2)", "torch.clamp(x, min=y)"],
        "masked_fill": ["x.masked_fill(mask, 1)"],
        "select": ["torch.select(x, 1, 2)", "x[1]"],
    },
)

_ACTIVATIONS = (
    *("relu", "elu", "celu", "gelu", "mish", "softplus", "softsign", "hardtanh", "relu6"),
    *("hardsigmoid", "hardswish", "selu", "logsigmoid", "sigmoid", "tanh"),
)
family(
    "activation",
    {
        **{name: [f"F.{name}(x)"] for name in _ACTIVATIONS},
        "leaky_relu": ["F.leaky_relu(x)", "F.leaky_relu(x, 0.2)"],
        "silu/swish": ["F.silu(x)"],
        "gelu": ["F.gelu(x)", "F.gelu(x, approximate='tanh')"],
        "prelu": ["F.prelu(x, row)", "nn.PReLU()(x)"],
        "sigmoid": ["torch.sigmoid(x)", "nn.Sigmoid()(x)"],
        "tanh": ["torch.tanh(x)", "nn.Tanh()(x)"],
    },
)
family(
    "type_conversion",
    {
        "to": ["x.to(torch.float64)", "x.to(torch.int16)"],
        **{name: [f"x.{name}()"] for name in ("float", "half", "double", "int", "long", "bool", "bfloat16")},
    },
)
