"""A call of the inventory: its Python text, evaluated on named example inputs.

The same text is run and shown in the inventory, so that the two cannot differ. Names in
the text are example inputs (:mod:`.inputs`), and ``dtype`` is the dtype in which the call
is tried. Modules (``nn.LSTM(4, 5)``) are made once, before the call.
"""

from __future__ import annotations

import ast
import copy
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.ao.nn import quantized

from ....torch_internals.pytree import tree_leaves
from .inputs import FIXED, FOLLOWING

_GLOBALS = {"torch": torch, "nn": nn, "F": nn.functional}


@dataclass(frozen=True)
class Bound:
    """A call with its inputs in one dtype: ``function(*modules, *inputs)``."""

    function: Callable[..., Any]
    modules: Sequence[nn.Module]
    inputs: Sequence[torch.Tensor]

    def __call__(self) -> list[torch.Tensor]:
        """Return the results of eager PyTorch on copies of the modules and inputs."""
        modules, inputs = copy.deepcopy((list(self.modules), list(self.inputs)))
        return results(self.function(*modules, *inputs))

    def to(self, convert: Callable[[torch.Tensor], torch.Tensor]) -> Bound:
        """Return a copy with ``convert`` applied to every input, parameter and buffer."""
        modules = [copy.deepcopy(module)._apply(convert) for module in self.modules]
        return Bound(self.function, modules, [convert(each.clone()) for each in self.inputs])


@dataclass(frozen=True)
class Call:
    """One call: ``text`` such as ``torch.add(x, y)``.

    ``ruled`` says that the call needs capture rules, also for its gradients. ``eager`` is the
    text that eager PyTorch runs instead, if it has no such kernel on the CPU or gives a result
    of another size.
    """

    text: str
    ruled: bool = False
    eager: str = ""

    @property
    def follows(self) -> bool:
        """Whether the call has an operand whose dtype can be chosen."""
        tree = ast.parse(self.text, mode="eval")
        return any(
            isinstance(node, ast.Name) and (node.id in FOLLOWING or node.id in ("dtype", "nn"))
            for node in ast.walk(tree)
        )

    def bind(self, dtype: torch.dtype, *, eager: bool = False) -> Bound:
        """Return the call in one dtype, always with the same values; ``eager`` binds eager PyTorch's text.

        Raises :class:`TypeError` for a module whose parameters cannot have the dtype.
        """
        tree = ast.parse((eager and self.eager) or self.text, mode="eval")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(zlib.crc32(self.text.encode()))
            hoisted = _Hoisted()
            body = ast.unparse(hoisted.visit(tree))
            modules = [_in_dtype(module.eval(), dtype) for module in hoisted.modules]
        names = [name for name in (*FOLLOWING, *FIXED) if _mentions(tree, name)]
        inputs = [FOLLOWING[name](dtype) if name in FOLLOWING else FIXED[name]() for name in names]
        parameters = ", ".join([*(f"module{i}" for i in range(len(modules))), *names])
        function = eval(f"lambda {parameters}: {body}", {**_GLOBALS, "dtype": dtype})  # our own text
        return Bound(function, modules, inputs)


def results(value: Any) -> list[torch.Tensor]:
    """Return the tensors in a call's result; numbers in it become tensors."""
    return [torch.as_tensor(leaf) for leaf in tree_leaves(value) if leaf is not None]


class _Hoisted(ast.NodeTransformer):
    """A transformer that builds the modules of an expression, and replaces each by a name."""

    def __init__(self) -> None:
        self.modules: list[nn.Module] = []

    def visit_Call(self, node: ast.Call) -> ast.AST:
        text = ast.unparse(node)
        place, _, kind = ast.unparse(node.func).rpartition(".")
        if place in ("nn", "torch.ao.nn.quantized") and kind.isidentifier() and kind[0].isupper():
            self.modules.append(eval(text, dict(_GLOBALS)))  # our own text
            return ast.Name(f"module{len(self.modules) - 1}", ast.Load())
        return self.generic_visit(node)


def _mentions(tree: ast.AST, name: str) -> bool:
    return any(isinstance(node, ast.Name) and node.id == name for node in ast.walk(tree))


def _in_dtype(module: nn.Module, dtype: torch.dtype) -> nn.Module:
    """Return ``module`` with parameters of ``dtype``; raises :class:`TypeError` if they cannot have it."""
    if isinstance(module, (quantized.Linear, quantized.Conv2d)):
        _fill(module)
    if dtype.is_floating_point or dtype.is_complex:
        return module.to(dtype)
    if list(module.parameters()):
        raise TypeError(f"parameters cannot be {dtype}")
    return module


def _fill(module: quantized.Linear | quantized.Conv2d) -> None:
    """Give a quantized module weights, which PyTorch leaves uninitialized, and a matching scale."""
    weight, bias = module._weight_bias()
    values = torch.quantize_per_tensor(torch.randn(weight.shape) * 0.3, 0.01, 0, torch.qint8)
    module.set_weight_bias(values, torch.randn(bias.shape) * 0.1)
    module.scale, module.zero_point = 0.1, 60


@dataclass(frozen=True)
class Operator:
    """The calls that one operator name stands for.

    ``bounds`` are declared during capture; ``reason`` is what a user must know.
    ``in_eager`` names the overloads that compiled gradients leave to eager PyTorch.
    ``trains`` is False if PyTorch does not differentiate the calls themselves, only the
    text that eager runs instead.
    """

    calls: Sequence[Call]
    bounds: Mapping[str, int] | None = None
    reason: str = ""
    in_eager: tuple[str, ...] = ()
    trains: bool = True


CALLS: dict[tuple[str, str], Operator] = {}
"""The operators, by family and name."""


def family(name: str, table: Mapping[str, Sequence[str] | Operator], *, ruled: bool = False) -> None:
    """Register the operators of one family; ``table`` has the texts of each operator's calls by its name."""
    for operator, found in table.items():
        if not isinstance(found, Operator):
            found = Operator([Call(text, ruled) for text in found])
        CALLS[name, operator] = found
