"""Values that eager PyTorch refuses: computed with by default, errors with ``config.check_values``."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

import torchstone
from torchstone.config import override
from torchstone.errors import InvalidValue

t = torch.tensor
nan, inf = torch.nan, torch.inf
EYE, ZEROS = torch.eye(2), torch.zeros(2, 2)
PIVOTS, BEYOND = t([1, 2], dtype=torch.int32), t([1, 7], dtype=torch.int32)


@dataclass
class Case:
    """A call that eager PyTorch accepts with ``good``, and refuses with ``bad``, saying ``words``."""

    function: Callable[..., Any]
    good: Any
    bad: Any
    words: str
    random: bool = False

    def given(self, which: str) -> tuple[torch.Tensor, ...]:
        chosen = getattr(self, which)
        return chosen if isinstance(chosen, tuple) else (chosen,)


def ctc(input_lengths: torch.Tensor, target_lengths: torch.Tensor) -> torch.Tensor:
    scores = torch.linspace(-1, 1, 12).reshape(3, 1, 4).log_softmax(2)
    return F.ctc_loss(scores, t([[1, 2]]), input_lengths, target_lengths)


def sums(offsets: torch.Tensor) -> torch.Tensor:
    return F.embedding_bag(t([0, 1]), EYE, offsets, mode="sum")


def packed(lengths: torch.Tensor) -> torch.Tensor:
    sequences = torch.nn.utils.rnn.pack_padded_sequence(torch.ones(3, 2, 1), lengths)
    return torch.nn.utils.rnn.pad_packed_sequence(sequences, total_length=3)[0]


_ROWS = t([[1.0, 3], [2, 8]])
_BATCH = torch.stack([EYE, EYE * 2])
_DIVISION = "ZeroDivisionError"
_SINGULAR = "the inversion could not be completed because the input matrix is singular"
_INDEFINITE = "the input is not positive-definite"
_CONVERGED = "linalg.svd: The algorithm failed to converge"
_WEIGHTS = "probability tensor contains either `inf`, `nan` or element < 0"

CASES: dict[str, Case] = {
    "floor_divide": Case(lambda x: t([7, 8]) // x, t([2, 3]), t([2, 0]), _DIVISION),
    "remainder": Case(lambda x: t([7, 8]) % x, t([2, 3]), t([2, 0]), _DIVISION),
    "remainder of a number": Case(lambda x: torch.remainder(7, x), t([2, 3]), t([2, 0]), _DIVISION),
    "fmod": Case(lambda x: t([7, 8]).fmod(x), t([2, 3]), t([2, 0]), _DIVISION),
    "div": Case(lambda x: t([7]).div(x, rounding_mode="trunc"), t([2, 3]), t([2, 0]), _DIVISION),
    "inv": Case(torch.linalg.inv, EYE, ZEROS, _SINGULAR),
    "inv of a batch": Case(torch.linalg.inv, _BATCH, torch.stack([EYE, ZEROS]), _SINGULAR),
    "inv_ex": Case(lambda a: torch.linalg.inv_ex(a, check_errors=True)[0], EYE, ZEROS, _SINGULAR),
    "inv of complex numbers": Case(torch.linalg.inv, EYE + 0j, ZEROS + 0j, _SINGULAR),
    "tensorinv": Case(lambda a: torch.linalg.tensorinv(a, ind=1), EYE, ZEROS, _SINGULAR),
    "matrix_power": Case(lambda a: torch.linalg.matrix_power(a, -1), EYE, ZEROS, _SINGULAR),
    "solve": Case(
        lambda a: torch.linalg.solve(a, torch.ones(2)), EYE, ZEROS, "linalg.solve: The solver failed"
    ),
    "solve_ex": Case(
        lambda a: torch.linalg.solve_ex(a, torch.ones(2), check_errors=True)[0],
        EYE,
        ZEROS,
        "linalg.solve_ex: The solver failed",
    ),
    "lu_factor": Case(torch.linalg.lu_factor, EYE, ZEROS, "would result in a division by zero"),
    "lu_solve": Case(
        lambda p: torch.linalg.lu_solve(EYE, p, torch.ones(2, 1)), PIVOTS, BEYOND, "Pivots given to lu_solve"
    ),
    "lu_unpack": Case(lambda p: torch.lu_unpack(EYE, p), PIVOTS, BEYOND, "pivots passed to lu_unpack"),
    "ldl_factor": Case(torch.linalg.ldl_factor, EYE, ZEROS, "torch.linalg.ldl_factor"),
    "linalg.cholesky": Case(torch.linalg.cholesky, EYE, -EYE, _INDEFINITE),
    "linalg.cholesky of NaN": Case(torch.linalg.cholesky, EYE, EYE * nan, _INDEFINITE),
    "cholesky_ex": Case(lambda a: torch.linalg.cholesky_ex(a, check_errors=True)[0], EYE, -EYE, _INDEFINITE),
    "cholesky": Case(torch.cholesky, _BATCH, torch.stack([EYE, -EYE]), _INDEFINITE),
    "cholesky_inverse": Case(torch.cholesky_inverse, EYE, ZEROS, _SINGULAR),
    "svd": Case(lambda a: torch.linalg.svd(a)[1], EYE, EYE * nan, _CONVERGED),
    "svdvals": Case(torch.linalg.svdvals, EYE, EYE * nan, _CONVERGED),
    "pinv": Case(torch.linalg.pinv, EYE, EYE * nan, _CONVERGED),
    "eig": Case(lambda a: torch.linalg.eig(a)[0], EYE, EYE * inf, "should not contain infs or NaNs"),
    "multinomial below zero": Case(lambda p: p.multinomial(1), t([0.0, 1]), t([-1.0, 1]), _WEIGHTS),
    "multinomial of NaN": Case(lambda p: p.multinomial(1), t([0.0, 1]), t([nan, 1]), _WEIGHTS),
    "multinomial of inf": Case(lambda p: p.multinomial(1), t([0.0, 1]), t([inf, 1]), _WEIGHTS),
    "multinomial of zeros": Case(
        lambda p: p.multinomial(1), t([[0.0, 1], [1, 0]]), t([[0.0, 1], [0, 0]]), "invalid multinomial"
    ),
    "bernoulli": Case(torch.bernoulli, t([0.0, 1]), t([0.0, 1.5]), "p_in >= 0 && p_in <= 1"),
    "bernoulli of NaN": Case(torch.bernoulli, t([0.0, 1]), t([0.0, nan]), "p_in >= 0 && p_in <= 1"),
    "bernoulli_": Case(
        lambda p: torch.zeros(2).bernoulli_(p), t([0.0, 1]), t([-0.5, 1]), "p_in >= 0 && p_in <= 1"
    ),
    "normal": Case(
        lambda std: torch.normal(torch.zeros(2), std), t([0.0, 1]), t([0.0, -1]), "std >= 0.0", random=True
    ),
    "binary_cross_entropy": Case(
        lambda x: F.binary_cross_entropy(x, t([1.0])), t([0.5]), t([1.5]), "elements of input should be"
    ),
    "binary_cross_entropy's target": Case(
        lambda y: F.binary_cross_entropy(t([0.5]), y), t([1.0]), t([nan]), "elements of target should be"
    ),
    "one_hot below zero": Case(lambda x: F.one_hot(x, 3), t([2]), t([-1]), "must be non-negative"),
    "one_hot beyond": Case(lambda x: F.one_hot(x, 3), t([2]), t([3]), "smaller than num_classes"),
    "histc": Case(torch.histc, t([1.0, 2]), t([nan, 2]), "is not finite"),
    "histogram": Case(lambda x: x.histogram(3), t([1.0, 2]), t([nan, 2]), "is not finite"),
    "ctc_loss with too many steps": Case(
        ctc, (t([3]), t([2])), (t([4]), t([2])), "input_lengths to have value at most"
    ),
    "ctc_loss with negative steps": Case(
        ctc, (t([3]), t([2])), (t([-1]), t([2])), "input_lengths to have value at least 0"
    ),
    "ctc_loss with negative targets": Case(
        ctc, (t([3]), t([2])), (t([3]), t([-1])), "target_lengths to have value at least 0"
    ),
    "ctc_loss with too few targets": Case(ctc, (t([3]), t([2])), (t([3]), t([3])), "'targets'"),
    "repeat_interleave": Case(
        lambda n: torch.repeat_interleave(t([5, 6, 7]), n, output_size=3),
        t([1, 2, 0]),
        t([3, -3, 3]),
        "repeats can not be negative",
    ),
    "repeat_interleave's size": Case(
        lambda n: torch.repeat_interleave(t([5, 6]), n, output_size=3), t([1, 2]), t([1, 1]), "allocated size"
    ),
    "searchsorted": Case(
        lambda order: torch.searchsorted(t([2.0, 1]), t([1.5]), sorter=order),
        t([1, 0]),
        t([1, 5]),
        "sorter index out of range",
    ),
    "max_unpool1d": Case(
        lambda i: F.max_unpool1d(t([[[1.0]]]), i, 2), t([[[1]]]), t([[[2]]]), "invalid max index"
    ),
    "max_unpool2d": Case(
        lambda i: F.max_unpool2d(t([[[[1.0]]]]), i, 2), t([[[[3]]]]), t([[[[-1]]]]), "invalid max index"
    ),
    "max_unpool3d": Case(
        lambda i: F.max_unpool3d(t([[[[[1.0]]]]]), i, 2), t([[[[[7]]]]]), t([[[[[8]]]]]), "invalid max index"
    ),
    "fake_quantize": Case(
        lambda z: torch.fake_quantize_per_channel_affine(EYE, torch.ones(2), z, 0, 0, 255),
        t([0, 255], dtype=torch.int32),
        t([0, 256], dtype=torch.int32),
        "`zero_point` must be between",
    ),
    "embedding_bag's first bag": Case(sums, t([0, 1]), t([1, 2]), r"offsets[0] has to be 0"),
    "embedding_bag's last bag": Case(sums, t([0, 1]), t([0, 5]), r"offsets[-1] can not be greater"),
    "masked_scatter": Case(
        lambda m: torch.zeros(3).masked_scatter(m, t([1.0, 2])),
        t([True, True, False]),
        t([True] * 3),
        "Number of elements of source",
    ),
    "index_put": Case(
        lambda m: torch.zeros(3).index_put((m,), t([1.0, 2])),
        t([True, True, False]),
        t([True] * 3),
        "shape mismatch: value tensor of shape [2] cannot be broadcast to indexing result",
    ),
    "index_put of rows": Case(
        lambda m: torch.zeros(2, 2).index_put((m,), torch.ones(2, 2), accumulate=True),
        t([True, True]),
        t([False, True]),
        "shape mismatch: value tensor of shape [2, 2] cannot be broadcast to indexing result",
    ),
    "index_put of values with gradients": Case(
        lambda m: torch.zeros(3).index_put((m,), t([1.0, 2], requires_grad=True)),
        t([True, True, False]),
        t([False, True, False]),
        "shape mismatch: value tensor of shape [2] cannot be broadcast to indexing result",
    ),
    "masked_scatter_backward": Case(
        lambda m: torch.ops.aten.masked_scatter_backward(_ROWS, m, [2]),
        t([True, False]),
        t([True, True]),
        "shape '[2]' is invalid for input",
    ),
    "cov's fweights": Case(
        lambda w: _ROWS.cov(fweights=w), t([1, 2]), t([1, -1]), "fweights cannot be negative"
    ),
    "cov's aweights": Case(
        lambda w: _ROWS.cov(aweights=w), t([1.0, 2]), t([3.0, -1]), "aweights cannot be negative"
    ),
    "cov of no weight": Case(
        lambda w: _ROWS.cov(aweights=w), t([1.0, 2]), t([0.0, 0]), "weights sum to zero"
    ),
    "gaussian_nll_loss": Case(
        lambda v: F.gaussian_nll_loss(t([1.0]), t([2.0]), v),
        t([1.0]),
        t([-1.0]),
        "var has negative entry/entries",
    ),
    "segment_reduce of negative lengths": Case(
        lambda n: torch.segment_reduce(t([1.0, 2]), "sum", lengths=n),
        t([1, 1]),
        t([-1, 3]),
        "lengths contains negative value",
    ),
    "segment_reduce of too many": Case(
        lambda n: torch.segment_reduce(t([1.0, 2]), "sum", lengths=n),
        t([1, 1]),
        t([1, 3]),
        "Expected all rows of lengths",
    ),
    "quantile": Case(
        lambda q: t([1.0, 2]).quantile(q, dim=0), t([0.5]), t([1.5]), "q values must be in the range [0, 1]"
    ),
    "nanquantile": Case(
        lambda q: torch.nanquantile(t([1.0, 2]), q),
        t([0.5]),
        t([-0.5]),
        "q values must be in the range [0, 1]",
    ),
    "histogramdd": Case(
        lambda x: torch.histogramdd(x, [2, 2])[0], t([[1.0, 2]]), t([[nan, 2]]), "is not finite"
    ),
    "pack_padded_sequence of nothing": Case(
        packed, t([3, 2]), t([2, 0]), "Length of all samples has to be greater than 0"
    ),
    "pack_padded_sequence unsorted": Case(
        packed, t([3, 2]), t([2, 3]), "`lengths` array must be sorted in decreasing order"
    ),
    "assert": Case(
        lambda x: (torch._assert_async((x > 0).all(), "x is positive"), x + 1)[1],
        t([1]),
        t([0]),
        "x is positive",
    ),
}


def exported(function: Callable[..., Any], *args: Any) -> torchstone.Program:
    with override(check_values=True):
        return torchstone.export(function, args)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", CASES)
def test_exported_programs_raise_in_pytorchs_words(name: str) -> None:
    case = CASES[name]
    program = exported(lambda *given: case.function(*given), *case.given("good"))
    expected, found = case.function(*case.given("good")), program(*case.given("good"))
    if not case.random:
        torch.testing.assert_close(found, expected)
    with pytest.raises((RuntimeError, ValueError)) as eager:
        case.function(*case.given("bad"))
    with pytest.raises(InvalidValue, match=r"aten\.\w+\.\w+ at .*test_value_checks\.py:\d+: ") as raised:
        program(*case.given("bad"))
    assert case.words in str(raised.value)
    assert case.words in str(eager.value)


COMPILED = [
    "floor_divide",
    "inv",
    "solve",
    "linalg.cholesky",
    "multinomial below zero",
    "binary_cross_entropy",
    "assert",
    "one_hot below zero",
    "one_hot beyond",
    "quantile",
    "nanquantile",
    "gaussian_nll_loss",
    "cov's fweights",
    "segment_reduce of negative lengths",
]


WITHOUT_LINE = {"inv", "linalg.cholesky"}
"""Calls without a line of the user's code: PyTorch adds their checks while it decomposes them."""


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", COMPILED)
def test_compiled_functions_raise(name: str) -> None:
    case = CASES[name]
    compiled = torch.compile(case.function, backend="torchstone", options={"check_values": True})
    torch.testing.assert_close(compiled(*case.given("good")), case.function(*case.given("good")))
    place = ":" if name in WITHOUT_LINE else r" at .*\.py:\d+: "
    with pytest.raises(InvalidValue, match=rf"aten\.\w+\.\w+{place}") as raised:
        compiled(*case.given("bad"))
    assert case.words in str(raised.value)


def test_compiled_functions_that_train_raise() -> None:
    def step(a: torch.Tensor) -> torch.Tensor:
        return torch.linalg.inv(a).sum() + torch.linalg.cholesky(a).sum()

    compiled = torch.compile(step, backend="torchstone", options={"check_values": True})
    a, same = (EYE.clone().requires_grad_() for _ in range(2))
    compiled(a).backward()
    step(same).backward()
    torch.testing.assert_close(a.grad, same.grad)
    with pytest.raises(InvalidValue, match=r"linalg\.inv: .*linalg\.cholesky: "):
        compiled(ZEROS.clone().requires_grad_())


def test_compiled_functions_with_symbolic_sizes_raise() -> None:
    compiled = torch.compile(
        lambda a, b: a // b, backend="torchstone", dynamic=True, options={"check_values": True}
    )
    for size in (3, 4):
        compiled(torch.ones(size, dtype=torch.int64), torch.ones(size, dtype=torch.int64))
        with pytest.raises(InvalidValue, match="ZeroDivisionError"):
            compiled(torch.ones(size, dtype=torch.int64), torch.arange(size))


@pytest.mark.kept("quantile")
@pytest.mark.parametrize(
    ("function", "words"),
    [
        (torch.linalg.inv, _SINGULAR),
        (lambda a: torch.ones(4).quantile(1 - a.flatten()), "q values must be in the range [0, 1]"),
        (lambda a: F.gaussian_nll_loss(a, a, 1 - 2 * a), "var has negative entry/entries"),
    ],
    ids=["inv", "quantile", "gaussian_nll_loss"],
)
def test_operators_without_results_are_checked_with_symbolic_sizes(
    function: Callable[..., Any], words: str
) -> None:
    """PyTorch makes sizes symbolic at the second call. Specializing that graph used to drop the checks."""
    torch._dynamo.reset()
    compiled = torch.compile(lambda a: function(a), backend="torchstone", options={"check_values": True})
    for size in (2, 3, 4):
        good, bad = (torch.eye(size), torch.zeros(size, size))
        if function is not torch.linalg.inv:
            good, bad = bad, good * 2
        torch.testing.assert_close(compiled(good), function(good))
        with pytest.raises(InvalidValue, match=re.escape(words)):
            compiled(bad)
    torch._dynamo.reset()


def test_nothing_is_checked_without_the_setting() -> None:
    divide = CASES["floor_divide"]
    plain, checking = (
        torchstone.export(divide.function, (divide.good,)),
        exported(divide.function, divide.good),
    )
    assert [spec.kind for spec in plain.signature.outputs] == ["output"]
    assert [spec.kind for spec in checking.signature.outputs] == ["output", "value_check"]
    assert plain(divide.bad).shape == (2,)
    solve = CASES["solve"]
    graph = torchstone.export(solve.function, (EYE,))
    assert len(graph.signature.outputs) == 1
    assert not graph(ZEROS).isfinite().all()


def test_floating_point_division_asks_nothing() -> None:
    program = exported(lambda x: (1.0 // x, 7 % x, x / 0), t([2.0]))
    assert {spec.kind for spec in program.signature.outputs} == {"output"}
    program(t([0.0]))


def test_a_division_of_nothing_by_zero_is_right() -> None:
    program = exported(lambda x, y: x // y, torch.ones(0, dtype=torch.int64), t([1]))
    assert program(torch.ones(0, dtype=torch.int64), t([0])).shape == (0,)


def in_a_branch(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.cond(
        x.sum() > 0,
        lambda x, y: x // y,
        lambda x, y: torch.linalg.inv(x[:4].reshape(2, 2) * 1.0).long().sum() + y,
        (x, y),
    )


def test_the_branch_that_is_taken_is_checked() -> None:
    ones, zeros = torch.ones(4, dtype=torch.int64), torch.zeros(4, dtype=torch.int64)
    program = exported(in_a_branch, ones, 2 * ones)
    torch.testing.assert_close(program(ones, ones), ones)
    with pytest.raises(
        InvalidValue, match=r"aten\.floor_divide.*test_value_checks\.py:\d+: ZeroDivisionError"
    ):
        program(ones, zeros)
    with pytest.raises(InvalidValue, match=r"linalg\.inv: ") as raised:
        program(zeros, zeros)
    assert "ZeroDivisionError" not in str(raised.value)


def test_every_turn_of_a_loop_is_checked() -> None:
    def turned(start: torch.Tensor) -> Any:
        return while_loop(lambda i, s: i < 3, lambda i, s: (i + 1, s + 6 // i), (start, t(0)))

    program = exported(turned, t(1))
    torch.testing.assert_close(program(t(1)), turned(t(1)))
    with pytest.raises(InvalidValue, match="ZeroDivisionError"):
        program(t(-1))  # its last iteration divides by two


def test_every_step_of_a_scan_is_checked() -> None:
    def scanned(divisors: torch.Tensor) -> Any:
        return scan(lambda s, d: (s + 6 // d, s * 2), t(0), divisors, dim=0)

    program = exported(scanned, t([1, 2, 3]))
    torch.testing.assert_close(program(t([3, 2, 1])), scanned(t([3, 2, 1])))
    with pytest.raises(InvalidValue, match="ZeroDivisionError"):
        program(t([1, 0, 3]))


def test_a_saved_program_checks_too_and_writes_nothing_first(tmp_path: Path) -> None:
    class Counting(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, a: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            return torch.linalg.inv(a)

    program = torchstone.load(exported(Counting(), EYE).save(tmp_path / "counting.stone"))
    with pytest.raises(InvalidValue, match=r"linalg\.inv: "):
        program(ZEROS.numpy())
    assert program.state()["calls"] == 0
    program(EYE.numpy())
    assert program.state()["calls"] == 1


def test_symbolic_sizes_are_checked() -> None:
    with override(check_values=True):
        size = torch.export.Dim("size", min=2, max=64)
        program = torchstone.export(
            lambda x, y: x // y, (t([1, 2, 3]), t([1, 2, 3])), dynamic_shapes=({0: size}, {0: size})
        )
    assert program(t([4] * 5), t([2] * 5)).tolist() == [2] * 5
    with pytest.raises(InvalidValue, match="ZeroDivisionError"):
        program(t([4] * 5), t([2, 2, 0, 2, 2]))
