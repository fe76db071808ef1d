"""How the modules beside this one declare what they know of operators: each adds a part to records.

What this PyTorch lacks (a missing overload, or None for a function) is left out everywhere.
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
    """Add the same parts to the record of each operator; a packet stands for all of its overloads."""
    for overload in overloads(*operators):
        registry.declare(overload, **parts)


def declare_symbolic_shapes(*operators: Any, shapes: Callable[..., Any]) -> None:
    """``shapes`` makes empty results of a call that has symbolic sizes; PyTorch's own rule does of any other.

    PyTorch traces these operators with numbers alone.
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
    """Each operator that is there, and every overload of a packet."""
    for operator in operators:
        if isinstance(operator, (Packet, OpOverloadPacket)):
            yield from (getattr(operator, name) for name in operator.overloads())
        elif operator is not None and not isinstance(operator, MissingOverload):
            yield operator


# Torchstone's own operators -----------------------------------------------------------


def implement(
    name: str, kernel: Callable[..., Any], shapes: Callable[..., Any], no_gradient: str | None = None
) -> None:
    """Run an own operator in eager PyTorch as ``kernel``, and trace it by its rule for ``shapes``.

    ``no_gradient`` says why it is never differentiated, if it is not.
    """
    library.impl(name, kernel, "CPU")
    torch.library.register_fake(f"torchstone::{name}", shapes, lib=library)
    if no_gradient is not None:
        declare(getattr(own, name), derivative=f"none: {no_gradient}")


def differentiate(name: str, backward: Callable[..., Any], keep: Callable[..., Any], *, through: str) -> None:
    """``backward(ctx, *gradients)``; ``keep(ctx, inputs, output)`` stores what it needs.

    ``through`` names the operators that make up the derivative.
    """
    torch.library.register_autograd(f"torchstone::{name}", backward, setup_context=keep, lib=library)
    declare(getattr(own, name), derivative=f"its own, through {through}")


def implicit(function: Function) -> Function:
    """Expand the own operator of that name, which autograd looks through."""
    library.impl(function.__name__, function, "CompositeImplicitAutograd")
    return function
