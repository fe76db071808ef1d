"""Overrides of composite-implicit operators: what PyTorch makes of them, but made once."""

from __future__ import annotations

from collections.abc import Callable
from inspect import unwrap
from typing import Any

import pytest
import torch
from torch._export import utils
from torch.export import exported_program

from torchstone.compiler import normalize
from torchstone.compiler.capture import capture
from torchstone.compiler.overrides import overriding
from torchstone.torch_internals import export
from torchstone.torch_internals.dispatch import python_kernels
from torchstone.torch_internals.export import composites
from torchstone.torch_internals.fake import fake_rules

aten = torch.ops.aten
OPERATORS = (aten.linear.default, aten.einsum.default, aten.cross_entropy_loss.default)


def keep(*_: Any, **__: Any) -> Any:
    return NotImplemented


def decompose(*_: Any, **__: Any) -> Any:
    return None


def _tables(operator: torch._ops.OpOverload) -> Any:
    return dict(python_kernels(operator)), fake_rules().get(operator)


def described(tables: Any) -> Any:
    """Make tables comparable by names: PyTorch makes most of their functions anew each time."""
    kernels, rule = tables
    functions = {key: unwrap(one) for key, one in kernels.items()}
    return {key: getattr(one, "__qualname__", type(one)) for key, one in functions.items()}, rule is None


@pytest.mark.parametrize("expansion", [keep, decompose])
def test_tables_are_pytorchs_own(expansion: Callable[..., Any]) -> None:
    expansions = dict.fromkeys(OPERATORS, expansion)
    before = [_tables(operator) for operator in OPERATORS]
    with exported_program._override_composite_implicit_decomp(expansions):
        theirs = [described(_tables(operator)) for operator in OPERATORS]
    for _ in range(2):  # the first time the override is made, the second time it is reused
        with overriding(expansions):
            assert [described(_tables(operator)) for operator in OPERATORS] == theirs
            implicit = torch._C.DispatchKey.CompositeImplicitAutograd
            assert all(operator.py_kernels[implicit].__wrapped__ is expansion for operator in OPERATORS)
        assert [_tables(operator) for operator in OPERATORS] == before


def test_an_override_is_made_again_for_other_kernels() -> None:
    operator, key = aten.linear.default, torch._C.DispatchKey.CPU
    with overriding({operator: keep}):
        pass
    operator.py_kernels[key] = decompose
    try:
        with overriding({operator: keep}):
            assert operator.py_kernels[key] is decompose
        assert operator.py_kernels == {key: decompose}
    finally:
        del operator.py_kernels[key]
        operator._dispatch_cache.clear()


def test_changes_of_other_code_stay() -> None:
    operator, keys = aten.linear.default, torch._C.DispatchKey
    before, operator.py_kernels = operator.py_kernels, {keys.CPU: keep}
    try:
        with overriding({operator: keep}):
            operator.py_kernels[keys.CUDA] = decompose
            del operator.py_kernels[keys.CPU]
        assert operator.py_kernels == {keys.CUDA: decompose}
        with overriding({operator: keep}):
            operator.py_kernels = other = {keys.CPU: keep}
        assert operator.py_kernels is other
    finally:
        operator.py_kernels = before
        operator._dispatch_cache.clear()


def test_composites_are_pytorchs_own() -> None:
    library = torch.library.Library("torchstone_overrides", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x + x, "CompositeImplicitAutograd")
    found = composites()
    assert torch.ops.torchstone_overrides.twice.default in found
    assert found == utils._collect_all_valid_cia_ops()


def test_an_export_makes_nothing_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch takes longer to make the overrides than to trace a small program."""
    program = capture(lambda x: torch.nn.functional.gelu(x), (torch.randn(3),))
    normalize(program)
    made: list[Any] = []
    looked_up: list[None] = []
    overridden, look_up = torch._ops.OpOverload.py_impl, export._materialize
    monkeypatch.setattr(torch._ops.OpOverload, "py_impl", lambda *a: made.append(a) or overridden(*a))
    monkeypatch.setattr(export, "_materialize", lambda: looked_up.append(None) or look_up())
    normalize(program)
    assert len(made) < 100
    assert len(looked_up) == 1
