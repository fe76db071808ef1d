"""Softmax and its logarithm, their gradients, and the masked variants.

Not here: ``logsumexp`` (``reduction``), attention.

Each is a composite.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ... import hlo
from ...dtypes import FLOATING
from ...hlo import Value
from ...torch_internals.operators import namespace
from ..common import axes_of, restore
from ..composites import composed
from ..misfits import Arguments, other_shape
from ..registry import Spec, lowers

aten = namespace("aten")


def exponentials(x: Value, axes: Sequence[int]) -> tuple[Value, Value]:
    """Return ``x − max(x)`` over ``axes``, and the sum of its exponentials (without ``axes``)."""
    shifted = x - restore(hlo.reduce_max(x, axes), x.shape, axes)
    return shifted, hlo.reduce_sum(hlo.exponential(shifted), axes)


def softmax_over(x: Value, axes: Sequence[int]) -> Value:
    """Softmax over ``axes`` in the value's own dtype."""
    shifted, total = exponentials(x, axes)
    return hlo.exponential(shifted) / restore(total, x.shape, axes)


def _log_softmax_over(x: Value, axes: Sequence[int]) -> Value:
    shifted, total = exponentials(x, axes)
    return shifted - restore(hlo.log(total), x.shape, axes)


def _softmax_gradient(grad: Value, y: Value, axes: Sequence[int]) -> Value:
    weighted = grad * y
    return weighted - y * restore(hlo.reduce_sum(weighted, axes), y.shape, axes)


def _log_softmax_gradient(grad: Value, y: Value, axes: Sequence[int]) -> Value:
    return grad - hlo.exponential(y) * restore(hlo.reduce_sum(grad, axes), y.shape, axes)


def _along(
    name: str, inputs: Sequence[Value], dim: int, out: Spec, kernel: Callable[..., Value]
) -> list[Value | None]:
    """Make ``kernel(*inputs, axes)`` a composite; 16-bit floats are computed in float32."""
    axes = axes_of(dim, inputs[0].rank)
    return composed(name, inputs, lambda *values: kernel(*values, axes), out, {"axes": axes})


# The dtype of the result already reflects half_to_float and input_dtype.


@lowers(aten._softmax.default, dtypes=FLOATING, ignores=("half_to_float",))
def softmax(self: Value, dim: int, out: Spec) -> list[Value | None]:
    """``exp(self) / sum(exp(self))`` over ``dim``."""
    return _along("softmax", [self], dim, out, softmax_over)


@lowers(aten._log_softmax.default, dtypes=FLOATING, ignores=("half_to_float",))
def log_softmax(self: Value, dim: int, out: Spec) -> list[Value | None]:
    """``self − log(sum(exp(self)))`` over ``dim``."""
    return _along("log_softmax", [self], dim, out, _log_softmax_over)


def _refuses_another_shape(given: Arguments) -> str | None:
    """Refuse gradients of another shape than the result: kernels read both without checking."""
    return other_shape("grad_output", given["grad_output"].shape, given["output"].shape)


def _refuses_other_inputs(given: Arguments) -> str | None:
    """Refuse gradients of another shape than the result, and an ``input_dtype`` that is not floating-point.

    Kernels read both tensors without checking, and write numbers of the gradient's dtype for any
    ``input_dtype``.
    """
    dtype = given["input_dtype"]
    if not dtype.is_floating_point:
        return f"input_dtype={dtype} is not a floating-point dtype"
    return _refuses_another_shape(given)


@lowers(
    aten._softmax_backward_data.default,
    dtypes=FLOATING,
    ignores=("input_dtype",),
    refuses=_refuses_other_inputs,
)
def softmax_backward(grad_output: Value, output: Value, dim: int, out: Spec) -> list[Value | None]:
    """Gradient of softmax from its result."""
    return _along("softmax_backward", [grad_output, output], dim, out, _softmax_gradient)


@lowers(
    aten._log_softmax_backward_data.default,
    dtypes=FLOATING,
    ignores=("input_dtype",),
    refuses=_refuses_other_inputs,
)
def log_softmax_backward(grad_output: Value, output: Value, dim: int, out: Spec) -> list[Value | None]:
    """Gradient of log-softmax from its result."""
    return _along("log_softmax_backward", [grad_output, output], dim, out, _log_softmax_gradient)


@lowers(aten._masked_softmax.default, dtypes=FLOATING)
def masked_softmax(
    self: Value, mask: Value, dim: int | None = None, mask_type: int | None = None, *, out: Spec
) -> list[Value | None]:
    """Softmax over ``dim`` (default: the last) where ``mask`` is False; a row without elements is NaN.

    ``mask_type`` 0 is ``(L, L)`` for all heads, 1 ``(B, L)`` for all queries, 2 has the shape of ``self``.
    """
    axes = axes_of(self.rank - 1 if dim is None else dim, self.rank)

    def kernel(x: Value, mask: Value) -> Value:
        if mask_type == 1:
            mask = hlo.expand_dims(mask, range(1, x.rank - 1))
        return softmax_over(hlo.select(hlo.broadcast_to(mask, x.shape), float("-inf"), x), axes)

    attributes = {"axes": axes, "mask_type": mask_type}
    return composed("masked_softmax", [self, mask], kernel, out, attributes)


@lowers(aten._masked_softmax_backward.default, dtypes=FLOATING, refuses=_refuses_another_shape)
def masked_softmax_backward(
    grad_output: Value, output: Value, mask: Value, dim: int | None = None, *, out: Spec
) -> list[Value | None]:
    """Gradient of masked softmax from its result: 0 where ``mask`` holds."""
    axes = axes_of(output.rank - 1 if dim is None else dim, output.rank)

    def kernel(grad: Value, y: Value, mask: Value) -> Value:
        # A row without elements is NaN and has no gradient.
        hidden = hlo.broadcast_to(mask, y.shape)
        return hlo.select(hidden, 0.0, _softmax_gradient(grad, hlo.select(hidden, 0.0, y), axes))

    return composed("masked_softmax_backward", [grad_output, output, mask], kernel, out, {"axes": axes})
