"""Functions by which the other modules of this package add what they know to the records of operators.

They ignore operators that the installed PyTorch lacks (a missing overload, or None).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, TypeVar

import torch

from ...lowering.own import library, own
from ...lowering.registry import registry
from ...torch_internals.dispatch import DispatchKey
from ...torch_internals.operators import MissingOverload, OpOverload, OpOverloadPacket, Packet
from ...torch_internals.pytree import tree_leaves

Function = TypeVar("Function", bound=Callable[..., Any])

COMPOSITE = DispatchKey.CompositeImplicitAutograd
AUTOGRAD = DispatchKey.Autograd


def declare(*operators: Any, **parts: Any) -> None:
    """Add the same parts to the record of each operator; a packet stands for all its overloads."""
    for overload in overloads(*operators):
        registry.declare(overload, **parts)


def declare_symbolic_shapes(*operators: Any, shapes: Callable[..., Any]) -> None:
    """Declare ``shapes``, which returns empty results, as the shape rule for calls with symbolic sizes.

    PyTorch's own rule is kept for all other calls: it can trace these operators only with plain numbers.
    """

    @wraps(shapes)
    def rule(mode: Any, _: OpOverload, *given: Any, **named: Any) -> Any:
        leaves = tree_leaves((given, named))
        sizes = [size for one in leaves if isinstance(one, torch.Tensor) for size in one.shape]
        if not any(isinstance(size, torch.SymInt) for size in (*sizes, *leaves)):
            return NotImplemented
        with mode:
            return shapes(*given, **named)

    declare(*operators, shapes=rule)


def overloads(*operators: Any) -> Iterator[Any]:
    """Yield the operators that this PyTorch has, and all overloads of packets."""
    for operator in operators:
        if isinstance(operator, (Packet, OpOverloadPacket)):
            yield from (getattr(operator, name) for name in operator.overloads())
        elif operator is not None and not isinstance(operator, MissingOverload):
            yield operator


# Torchstone's own operators -----------------------------------------------------------


def implement(
    name: str, kernel: Callable[..., Any], shapes: Callable[..., Any], no_gradient: str | None = None
) -> None:
    """Give Torchstone's operator ``name`` a CPU kernel for eager PyTorch, and a shape rule for tracing.

    ``no_gradient`` says why the operator is never differentiated, if it is not.
    """
    library.impl(name, kernel, "CPU")
    torch.library.register_fake(f"torchstone::{name}", shapes, lib=library)
    if no_gradient is not None:
        declare(getattr(own, name), derivative=f"none: {no_gradient}")


def differentiate(name: str, backward: Callable[..., Any], keep: Callable[..., Any], *, through: str) -> None:
    """Give Torchstone's operator ``name`` the derivative ``backward(ctx, *gradients)``.

    ``keep(ctx, inputs, output)`` stores what ``backward`` needs. ``through`` names the operators that make
    up the derivative.
    """
    torch.library.register_autograd(f"torchstone::{name}", backward, setup_context=keep, lib=library)
    declare(getattr(own, name), derivative=f"its own, through {through}")


def implicit(function: Function) -> Function:
    """Register a function as the expansion of Torchstone's operator of its name; autograd sees only that."""
    library.impl(function.__name__, function, "CompositeImplicitAutograd")
    return function
