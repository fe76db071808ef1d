"""Linear recurrences, such as those of state space models: ``y[t] = coefficient[t] * y[t - 1] + input[t]``.

PyTorch computes them with ``associative_scan``, which it traces as a tree of slices. Autograd would keep the
values of every level of the tree. In traces of training steps, :func:`linear_recurrences` puts the operator
``torchstone::linear_recurrence`` in its place, whose gradient needs only its arguments and its result.

The first coefficient is not used. With ``reverse``, the operator is the transposed map of ``input``:
``y[t] = coefficient[t + 1] * y[t + 1] + input[t]``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ...lowering.own import own
from ...torch_internals import scans
from ...torch_internals.patches import Patch
from ...torch_internals.tensors import check
from .declaring import differentiate, implement

Tensor = torch.Tensor
_DTYPES = frozenset(
    {torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128}
)


def _kernel(coefficient: Tensor, input: Tensor, dim: int, reverse: bool) -> Tensor:
    made = _shapes(coefficient, input, dim, reverse)
    a, b, y = (one.unbind(dim) for one in (coefficient, input, made))
    places = range(len(y))[:: -1 if reverse else 1]
    for before, t in zip([None, *places], places, strict=False):
        if before is None:
            y[t].copy_(b[t])
        else:
            between = max(before, t)  # the coefficient from one step to the next belongs to the later one
            torch.addcmul(b[t], a[between], y[before], out=y[t])
    return made


def _shapes(coefficient: Tensor, input: Tensor, dim: int, reverse: bool) -> Tensor:
    check(
        -input.dim() <= dim < input.dim(),
        lambda: f"linear_recurrence: the input has {input.dim()} axes, but dim is {dim}",
    )
    check(
        coefficient.shape == input.shape and coefficient.dtype == input.dtype,
        lambda: (
            "linear_recurrence: coefficient and input differ: "
            f"{coefficient.dtype}{list(coefficient.shape)} and {input.dtype}{list(input.shape)}"
        ),
    )
    check(input.dtype in _DTYPES, lambda: f"linear_recurrence: not implemented for {input.dtype}")
    check(input.shape[dim] > 0, lambda: "linear_recurrence: expected at least one step")
    return torch.empty_like(input)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    coefficient, _, ctx.dim, ctx.reverse = inputs
    ctx.save_for_backward(coefficient, output)


def _differentiate(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None]:
    coefficient, output = (one.conj().resolve_conj() for one in ctx.saved_tensors)
    dim, count = ctx.dim, output.shape[ctx.dim]
    of_input = own.linear_recurrence(coefficient, grad, dim, not ctx.reverse)
    earlier, later = (output, of_input) if not ctx.reverse else (of_input, output)
    products = earlier.narrow(dim, 0, count - 1) * later.narrow(dim, 1, count - 1)
    return torch.cat([torch.zeros_like(output.narrow(dim, 0, 1)), products], dim), of_input, None, None


implement("linear_recurrence", _kernel, _shapes)
differentiate("linear_recurrence", _differentiate, _save, through="linear_recurrence and its factors")


# Scans that are linear recurrences -------------------------------------------------


def linear_recurrences() -> list[Patch]:
    """Return patches that compute each ``associative_scan`` that is a linear recurrence by the operator."""
    return scans.replacing(_scanned)


def _scanned(combine: Callable[..., Sequence[Any]], leaves: Sequence[Tensor]) -> list[Tensor] | None:
    """Return the results of a scan along axis 0, or None if it is not a linear recurrence.

    ``combine(*earlier, *later)`` returns the combined leaves.
    """
    place = _coefficient_place(combine) if len(leaves) == 2 else None
    if place is None:
        return None
    a, b = leaves if place == 0 else reversed(leaves)
    if (a.dtype, a.shape) != (b.dtype, b.shape) or a.dtype not in _DTYPES:
        return None
    dim = _place_in_memory(b)
    found = own.linear_recurrence(a.movedim(0, dim), b.movedim(0, dim), dim, False).movedim(dim, 0)
    products = torch.cumprod(a, 0)
    return [products, found] if place == 0 else [found, products]


def _place_in_memory(tensor: Tensor) -> int:
    """Return which place axis 0 has among all axes, if these are in the order of the tensor's memory."""
    strides = tensor.stride()
    return sum(stride > strides[0] for stride in strides)


def _coefficient_place(combine: Callable[..., Sequence[Any]]) -> int | None:
    """Return which of two leaves holds the coefficients, or None if this is not a linear recurrence."""
    symbols = [_Polynomial({(name,): 1}) for name in ("0 before", "1 before", "0", "1")]
    try:
        found = combine(*symbols)
    except Exception:  # noqa: BLE001  # it does more than add and multiply
        return None
    for place in (0, 1):
        a, b = str(place), str(1 - place)
        products = {tuple(sorted((f"{a} before", a))): 1}
        sums = {tuple(sorted((f"{b} before", a))): 1, (b,): 1}
        if len(found) == 2 and [_terms(found[place]), _terms(found[1 - place])] == [products, sums]:
            return place
    return None


def _terms(value: Any) -> Mapping[tuple[str, ...], int] | None:
    return value.terms if isinstance(value, _Polynomial) else None


class _Polynomial:
    """Stands for a tensor in a function that adds and multiplies; finds out what the function computes."""

    def __init__(self, terms: Mapping[tuple[str, ...], int]) -> None:
        self.terms = terms
        """The factor of each product of symbols."""

    def __add__(self, other: Any) -> _Polynomial:
        if not isinstance(other, _Polynomial):
            return NotImplemented
        return _Polynomial(Counter(self.terms) + Counter(other.terms))

    def __mul__(self, other: Any) -> _Polynomial:
        if not isinstance(other, _Polynomial):
            return NotImplemented
        products: Counter[tuple[str, ...]] = Counter()
        for one, factor in self.terms.items():
            for two, times in other.terms.items():
                products[tuple(sorted(one + two))] += factor * times
        return _Polynomial(products)

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if kwargs:
            return NotImplemented
        if function is torch.addcmul and len(args) == 3:
            return args[0] + args[1] * args[2]
        operation = {torch.add: cls.__add__, torch.mul: cls.__mul__}.get(function)
        return NotImplemented if operation is None else operation(*args)
