"""The operator ``scaled_relu``: its descriptor and its reference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from optest.operators import AttributeSpec, OperatorDescriptor, Setup, operator_registry

FLOATS = ("float16", "float32", "float64")


def scaled_relu_reference(
    inputs: tuple[np.ndarray[Any, Any], ...], attributes: Mapping[str, Any]
) -> tuple[np.ndarray[Any, Any], ...]:
    """max(x, 0) · factor in a wider type; optest rounds it to the output's."""
    (x,) = inputs
    wide = x.astype(np.longdouble if x.dtype == np.float64 else np.float64)
    return (np.maximum(wide, 0) * attributes["factor"],)


operator_registry.register(
    OperatorDescriptor(
        name="scaled_relu",
        category="activation",
        inputs=("input0",),
        outputs=("output0",),
        dtypes=tuple((name,) for name in FLOATS),
        reference="company_optest_plugins.operators:scaled_relu_reference",
        output_dtypes=lambda dtypes, attributes: dtypes,
        output_shapes=lambda shapes, attributes: {"output0": shapes["input0"]},
        attributes={"factor": AttributeSpec(float, 2.0, doc="what positive values are multiplied by")},
        setups=(
            Setup({"input0": (8, 33)}),
            Setup({"input0": (8, 33)}, {"factor": 0.5}),
            Setup({"input0": ()}, note="0-d"),
            Setup({"input0": (0, 4)}, note="empty"),
        ),
        aliases={"x": "input0"},
        doc="relu times a factor.",
    )
)
