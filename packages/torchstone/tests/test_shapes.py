"""Symbolic shapes: what a call's sizes say about symbols, and how a size that does not fit is named."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch

import torchstone
from torchstone.errors import ArtifactError, InputMismatch
from torchstone.shapes import bind, evaluate, is_condition

RANGES = {"s0": (1, 16)}


@pytest.mark.parametrize(
    ("dimension", "size", "value"),
    [
        ("s0", 3, 3),
        ("4*s0", 12, 3),
        ("s0*4", 12, 3),
        ("s0 + 1", 4, 3),
        ("2*s0 - 1", 5, 3),
        ("1 - 2*(2 - s0)", 3, 3),
        ("s0 + s0", 6, 3),
        ("20 - s0", 17, 3),
    ],
)
def test_linear_dimension_gives_its_symbol(dimension: str, size: int, value: int) -> None:
    assert bind([("x", (dimension, 2))], [(size, 2)], RANGES) == {"s0": value}


def test_other_expressions_are_checked_with_the_symbols_of_other_inputs() -> None:
    declared = [("x", ("s0", "s0*s1")), ("y", ("s1", "s0 - s0"))]
    assert bind(declared, [(3, 6), (2, 0)], {}) == {"s0": 3, "s1": 2}
    with pytest.raises(InputMismatch, match=r"x has shape \(3, 7\); expected \[s0, s0\*s1\]"):
        bind(declared, [(3, 7), (2, 0)], {})


@pytest.mark.parametrize(
    ("declared", "found", "message"),
    [
        (["4*s0"], [7], "x0 has shape (7,); expected [4*s0]: 7 is not 4*s0 for any s0"),
        (["2*s0 - 1"], [4], "x0 has shape (4,); expected [2*s0 - 1]: 4 is not 2*s0 - 1 for any s0"),
        (["s0", "4*s0"], [2, 12], "x1 has shape (12,); expected [4*s0] with s0 = 2"),
        (["4*s0", "s0"], [8, 3], "x1 has shape (3,); expected [s0] with s0 = 2"),
        (["4*s0"], [400], "dimension s0 is 100; the program allows 1 to 16"),
        (["s0 + 1"], [0], "dimension s0 is -1; the program allows 1 to 16"),
    ],
)
def test_size_that_does_not_fit(declared: list[str], found: list[int], message: str) -> None:
    named = [(f"x{i}", (dimension,)) for i, dimension in enumerate(declared)]
    with pytest.raises(InputMismatch, match=f"^{re.escape(message)}"):
        bind(named, [(size,) for size in found], RANGES)


def test_program_of_a_multiple() -> None:
    """The program is exported with ``4 * Dim``, which is bound when the program is called."""

    def model(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.reshape(-1, 4, 3).sum(1) + y[1:]

    blocks = torch.export.Dim("blocks", min=2, max=16)
    shapes = ({0: 4 * blocks}, {0: blocks + 1})
    program = torchstone.export(model, (torch.randn(8, 3), torch.randn(3, 3)), dynamic_shapes=shapes)
    for count in (2, 5):
        x, y = torch.randn(4 * count, 3), torch.randn(count + 1, 3)
        torch.testing.assert_close(program(x, y), model(x, y))
    assert list(program.signature.symbols.values()) == [(2, 16)]
    with pytest.raises(InputMismatch, match=r"input 0 has shape \(9, 3\).*9 is not 4\*s\d+ for any s\d+"):
        program(torch.randn(9, 3), torch.randn(3, 3))
    with pytest.raises(InputMismatch, match=r"input 1 has shape \(3, 3\).* with s\d+ = 3"):
        program(torch.randn(12, 3), torch.randn(3, 3))


@pytest.mark.parametrize(
    ("relation", "size", "holds"),
    [
        ("s0 % 2 == 0", 4, True),
        ("s0 % 2 == 0", 5, False),
        ("s0 != 5 and s0 < 7", 5, False),
        ("s0 == 5 or s0 // 2 >= 4", 9, True),
        ("not s0 == 5", 5, False),
        ("max(s0, 4) > 2*s0 - 1", 2, True),
        ("(3*s0 - 1) // s0 == 2", 4, True),
        ("(3*s0 - 1) // s0 == 2", 0, False),
    ],
)
def test_relations(relation: str, size: int, holds: bool) -> None:
    if holds:
        assert bind([("x", ("s0",))], [(size,)], {}, [relation]) == {"s0": size}
    else:
        told = relation.replace("s0", "x.shape[0]")
        message = f"x has shape ({size},); the program was made for sizes with {told}"
        with pytest.raises(InputMismatch, match=f"^{re.escape(message)}\n  next: export again"):
            bind([("x", ("s0",))], [(size,)], {}, [relation])


def test_a_dimension_that_divides_by_a_size_without_elements() -> None:
    with pytest.raises(InputMismatch, match=r"the dimension 9 // s0 divides by 0 with {'s0': 0}"):
        evaluate("9 // s0", {"s0": 0})


@pytest.mark.parametrize("relation", ["s0", "1 < s0 < 3", "s0 == s1", "s0 == 1 / 0", "f(s0) == 1", "s0 =="])
def test_what_is_not_a_relation(relation: str) -> None:
    with pytest.raises(ArtifactError, match="cannot evaluate the relation"):
        bind([("x", ("s0",))], [(2,)], {}, [relation])


@pytest.mark.parametrize(
    "relation", ["1 < s0 < 3", "s0 == s1 / 2", "s0 in s0", "(s0 == 1) == 1", "f(s0) == 1"]
)
def test_what_is_not_a_condition(relation: str) -> None:
    assert not is_condition(relation)


RELATED: dict[str, tuple[Callable[..., torch.Tensor], list[tuple[int, ...]], list[list[tuple[int, ...]]]]] = {
    "a branch": (lambda x: x * 2 if x.shape[0] % 2 == 0 else x * 3, [(6, 3)], [[(5, 3)], [(4, 2)]]),
    "a fraction": (
        lambda x: x * 2 if x.shape[0] * 0.5 > 3.3 else x * 3,
        [(8, 3)],
        [[(6, 3)], [(7, 2)]],
    ),
    "parts": (lambda x: x.chunk(3)[-1] + x.shape[0], [(5, 3)], [[(9, 3)], [(5, 4)]]),
    "as many elements": (
        lambda x, y: x.reshape(-1) + y.reshape(-1),
        [(6, 3), (9, 2)],
        [[(6, 3), (3, 4)], [(4, 5), (10, 2)]],
    ),
}
"""By name: a model, the shapes of its examples, of a call that it refuses and of one that it accepts."""


@pytest.mark.parametrize("name", RELATED)
def test_what_tracing_assumed_of_sizes_is_asserted(name: str) -> None:
    model, examples, (refused, taken) = RELATED[name]
    sizes = tuple(dict.fromkeys(range(len(shape)), torch.export.Dim.AUTO) for shape in examples)
    program = torchstone.export(model, tuple(map(torch.ones, examples)), dynamic_shapes=sizes)
    given = tuple(map(torch.rand, taken))
    torch.testing.assert_close(program(*given), model(*given))
    with pytest.raises(InputMismatch, match=r"the program was made for sizes with .*input 0\.shape\[0\]"):
        program(*map(torch.rand, refused))
