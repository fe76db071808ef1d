"""Capture, normalization and the walk: what they refuse, and how they say so."""

from __future__ import annotations

import cProfile
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import torchstone
from torchstone import hlo, lowering
from torchstone.compiler import build_program
from torchstone.compiler.capture import capture
from torchstone.compiler.eager_calls import called_eagerly
from torchstone.compiler.normalize import _all_decompositions, decompositions
from torchstone.compiler.program import lower_program, normalize
from torchstone.errors import CaptureError, LoweringBug, UnsupportedOperators
from torchstone.lowering import lowers

HERE = "test_compiler.py:"


def define(name: str) -> Any:
    """An operator ``torchstone_tests::name`` that has no lowering and cannot be traced through."""

    @torch.library.custom_op(f"torchstone_tests::{name}", mutates_args=())
    def operator(x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(x.numpy() + 1)

    operator.register_fake(lambda x: torch.empty_like(x))
    return getattr(torch.ops.torchstone_tests, name).default


first, second, wrong = define("first"), define("second"), define("wrong")


@pytest.fixture
def _registered() -> Iterator[None]:
    yield
    lowering.load().remove(wrong)


def test_every_unsupported_operator_is_listed_at_once() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        y = first(x)
        for _ in range(3):
            y = second(y)
        return y.sin()

    with pytest.raises(UnsupportedOperators) as caught:
        build_program(model, (torch.ones(2),))
    listed = {node.overload: node for node in caught.value.nodes}
    assert {name: node.count for name, node in listed.items()} == {
        "torchstone_tests.first.default": 1,
        "torchstone_tests.second.default": 3,
    }
    text = str(caught.value)
    assert "2 operator(s) in 4 call(s) cannot be lowered to StableHLO" in text
    assert text.count(HERE) == 2
    assert "no lowering and no decomposition is registered" in text
    assert "torchstone.lowering.lowers" in text


def test_unsupported_dtype_names_it() -> None:
    with pytest.raises(UnsupportedOperators, match="dtype complex32 is not supported"):
        build_program(lambda x: x.clone(), (torch.ones(2).to(torch.complex32),))


@pytest.mark.usefixtures("_registered")
def test_a_wrong_result_is_a_lowering_bug_with_the_source_line() -> None:
    @lowers(wrong)
    def lowered(x: hlo.Value) -> hlo.Value:
        return hlo.reduce_sum(x, [0])

    with pytest.raises(
        LoweringBug, match=r"torchstone_tests.wrong.default returned .*tensor<f32>.*\(2,\) float32"
    ) as e:
        build_program(lambda x: wrong(x), (torch.ones(2),))
    assert HERE in str(e.value)


@pytest.mark.usefixtures("_registered")
def test_an_exception_inside_a_lowering_names_it() -> None:
    @lowers(wrong)
    def lowered(x: hlo.Value) -> hlo.Value:
        return x / [][0]

    with pytest.raises(
        LoweringBug, match=r"lowering of torchstone_tests\.wrong\.default failed .*IndexError"
    ):
        build_program(lambda x: wrong(x), (torch.ones(2),))


class TestCapture:
    def test_example_inputs_must_be_a_tuple(self) -> None:
        with pytest.raises(
            CaptureError, match="must be a tuple of positional arguments, not a Tensor"
        ) as caught:
            build_program(torch.nn.ReLU(), torch.ones(2))
        assert "write (x,)" in str(caught.value)

    def test_not_a_model(self) -> None:
        with pytest.raises(CaptureError, match="cannot export an int"):
            build_program(3, (torch.ones(2),))

    def test_pytorch_s_own_message_comes_through(self) -> None:
        with pytest.raises(
            CaptureError, match=r"torch\.export cannot capture Linear: RuntimeError"
        ) as caught:
            build_program(torch.nn.Linear(3, 4), (torch.ones(2, 5),))
        assert "[2, 5] X [3, 4]" in str(caught.value)

    def test_what_eager_refuses_too_is_told_in_its_words(self) -> None:
        """Eager PyTorch gets copies that share memory as the inputs do, so the inputs are not written."""
        x = torch.ones(3)
        shared = torch.zeros(1).expand(6)

        def model(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            x.add_(1)
            return torch.cat([x, x], out=y)

        with pytest.raises(CaptureError, match="refuses the same inputs: RuntimeError: unsupp") as caught:
            build_program(model, (x, shared))
        assert isinstance(caught.value.__cause__, RuntimeError)
        assert x.tolist() == [1, 1, 1]

    def test_branching_on_values(self) -> None:
        def model(x: torch.Tensor) -> torch.Tensor:
            return x + 1 if x.sum() > 0 else x

        told = r"needs a size or number now that only a call knows: .* at .*test_compiler\.py:\d+"
        with pytest.raises(CaptureError, match=told) as caught:
            build_program(model, (torch.ones(2),))
        assert "torch.cond" in str(caught.value)

    def test_exported_programs_take_no_inputs(self) -> None:
        exported = torch.export.export(torch.nn.ReLU(), (torch.ones(2),))
        with pytest.raises(CaptureError, match="takes no example inputs"):
            build_program(exported, (torch.ones(2),))
        assert "stablehlo.maximum" in build_program(exported).mlir_text()

    def test_unknown_weights(self) -> None:
        with pytest.raises(CaptureError, match="weights='inside' is unknown"):
            build_program(torch.nn.ReLU(), (torch.ones(2),), weights="inside")


def test_source_lines_reach_the_module() -> None:
    text = build_program(lambda x: x.sin(), (torch.ones(2),)).mlir_text(debug_info=True)
    assert HERE.rstrip(":") in text


def test_weights_as_constants_leave_no_arguments() -> None:
    model = torch.nn.Linear(3, 2)
    program = torchstone.export(model, (torch.ones(1, 3),), weights="constants")
    assert [spec.kind for spec in program.signature.inputs] == ["input"]
    x = torch.randn(1, 3)
    torch.testing.assert_close(program(x), model(x))


def test_explain_lists_both_kinds() -> None:
    explanation = torchstone.explain(lambda x: second(x.sin()), (torch.ones(2),))
    assert not explanation.compiles
    assert explanation.native == {"aten.sin.default": 1}
    assert [node.overload for node in explanation.unsupported] == ["torchstone_tests.second.default"]
    assert "1 operators do not" in str(explanation)
    assert explanation.to_dict()["unsupported"][0]["locations"][0].count(HERE) == 1
    assert "everything compiles" in str(torchstone.explain(lambda x: x.sin(), (torch.ones(2),)))


def test_explain_says_why_capture_failed() -> None:
    explanation = torchstone.explain(torch.nn.Linear(3, 4), (torch.ones(2, 5),))
    assert not explanation.compiles
    assert "cannot be captured" in str(explanation)


def test_who_asks_first_for_decompositions_does_not_matter() -> None:
    """PyTorch's table holds the expansions that operators have when the table is made."""

    def loss(x: torch.Tensor) -> torch.Tensor:
        targets = torch.ones(2, 2, dtype=torch.long)
        return torch.nn.functional.ctc_loss(x.log_softmax(2), targets, [6, 6], [2, 1])

    _all_decompositions.cache_clear()
    decompositions()
    x = torch.randn(6, 2, 5)
    torch.testing.assert_close(torchstone.export(loss, (x,))(x), loss(x))


@pytest.mark.parametrize("size", [15, pytest.param(50, marks=pytest.mark.conformance)])
def test_lowering_takes_steps_in_proportion_to_the_graph(size: int) -> None:
    """Counted in calls of functions, which no other process changes; ``benchmarks compile`` has the time."""

    def steps(rounds: int) -> int:
        def chain(x: torch.Tensor) -> torch.Tensor:
            for place in range(rounds):
                x = torch.tanh(x + place).view(4, 4).t().reshape(16)
            return x

        normalized = normalize(capture(chain, (torch.randn(16),)))
        profile = cProfile.Profile()
        profile.runcall(lower_program, normalized)
        return sum(one.callcount for one in profile.getstats())

    steps(2)  # leave out what is imported and cached once
    few, many = steps(size), steps(8 * size)
    assert 7 * few < many < 9 * few


def test_buffers_keep_their_strides_where_eager_pytorch_is_asked() -> None:
    """Some of PyTorch's kernels end the process for one layout only."""

    class Strided(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("part", torch.arange(8.0).view(2, 4)[:, 1:3])

        def forward(self) -> tuple[int, ...]:
            self.part.add_(1)
            return self.part.stride()

    model = Strided()
    assert called_eagerly(model, (), {}) == (4, 1)
    assert torch.equal(model.part, torch.tensor([[1.0, 2.0], [5.0, 6.0]]))
