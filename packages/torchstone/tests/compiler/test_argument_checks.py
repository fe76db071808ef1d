"""Arguments that only PyTorch's kernels refuse: the same words, when a program is made."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
import torch

import torchstone
from torchstone.errors import CaptureError, LoweringBug

aten = torch.ops.aten
ROWS, PLACES = torch.rand(3, 2), torch.tensor([0, 1])
BYTES = torch.ones(3, 2, dtype=torch.uint8)
Function = Callable[[torch.Tensor], object]

WRONG: dict[str, Function] = {
    "aminmax.out": lambda x: torch.aminmax(x, dim=0, out=(torch.ones(2), torch.ones(2).double())),
    "aminmax.out of integers": lambda x: torch.aminmax(x.long(), out=(PLACES[0].int(), PLACES[0].clone())),
    "bernoulli_": lambda x: x.clone().bernoulli_(1.5),
    "bucketize": lambda x: torch.bucketize(x, x),
    "bucketize of a number": lambda x: torch.bucketize(1.0, x),
    "complex": lambda x: torch.complex(x, x.double()),
    "complex.out": lambda x: torch.complex(x.double(), x.double(), out=torch.ones(3, 2) * 1j),
    "polar": lambda x: torch.polar(x, x.double()),
    "index_add": lambda x: x.index_add(0, PLACES, x[0]),
    "index_add_ from the end": lambda x: x.clone().index_add_(-1, PLACES[:1], torch.ones(2, 1)),
    "index_reduce": lambda x: x.index_reduce(0, PLACES, x[0], "prod"),
    "masked_scatter": lambda x: x.masked_scatter(BYTES, x),
    "masked_scatter_": lambda x: x.clone().masked_scatter_(BYTES, x),
    "multinomial of integers": lambda x: torch.multinomial(x.long(), 1),
    "multinomial.out": lambda x: torch.multinomial(x, 2, out=torch.ones(3, 2)),
    "multinomial of nothing": lambda x: torch.multinomial(x, 0),
    "multinomial of too many": lambda x: torch.multinomial(x, 3),
    "multinomial among too many": lambda x: torch.multinomial(torch.ones(2**24 + 1), 1),
    "uniform_": lambda x: x.clone().uniform_(3, -1.5),
    "corrcoef": lambda x: torch.corrcoef(x[None]),
    "cov": lambda x: torch.cov(x[None]),
    "cov of bools": lambda x: torch.cov(x > 0),
    "cov, weights of rows": lambda x: torch.cov(x, aweights=x),
    "cov, fractions of observations": lambda x: torch.cov(x, fweights=x[0]),
    "cov, whole weights": lambda x: torch.cov(x, aweights=PLACES),
    "cov, too few weights": lambda x: torch.cov(x, fweights=PLACES[:1]),
    "dropout": lambda x: torch.dropout(x, 2.0, True),
    "conv1d of mixed dtypes": lambda x: torch.conv1d(x.half(), torch.ones(2, 3, 1)),
    "conv_transpose1d of mixed dtypes": lambda x: torch.conv_transpose1d(x, torch.ones(3, 2, 1).half()),
    # dtypes without a kernel
    "abs of bools": lambda x: (x > 0.5).abs(),
    "abs_ of bools": lambda x: (x > 0.5).abs_(),
    "mm of bools": lambda x: (x > 0.5) @ (x.T > 0.5),
    "wide bytes times integers": lambda x: x.to(torch.uint32) * x.long(),
    "wide bytes plus complex": lambda x: x.to(torch.uint16) + 1j * x,
    "where of wide bytes": lambda x: torch.where(x > 0, x.to(torch.uint64), x.long()),
    "cat of wide bytes": lambda x: torch.cat([x.to(torch.uint16), x.long()]),
    "mm of wide bytes": lambda x: x.to(torch.uint16) @ x.T.to(torch.uint16),
    "bmm of bools": lambda x: torch.bmm(x[None] > 0.5, x.T[None] > 0.5),
    "addmm of bools": lambda x: torch.addmm(x[0] > 0, x > 0.5, x[:2] > 0.5),
    "baddbmm of bools": lambda x: torch.baddbmm(x[None] > 0, x[None] > 0.5, x[None, :2] > 0.5),
    "addbmm of bools": lambda x: torch.addbmm(x > 0, x[None] > 0.5, x[None, :2] > 0.5),
    "mv of bools": lambda x: (x > 0.5) @ (x[0] > 0.5),
    "addmv of bools": lambda x: torch.addmv(x[:, 0] > 0, x > 0.5, x[0] > 0.5),
    "dot of bools": lambda x: torch.dot(x[0] > 0, x[1] > 0),
    "vdot of bools": lambda x: torch.vdot(x[0] > 0, x[1] > 0),
    "einsum of bools": lambda x: torch.einsum("i...,i...->...", x > 0, x > 0),
    "the rest of a division by a complex number": lambda x: x % 1j,
    "the rest, with the dividend's sign, for a complex number": lambda x: torch.fmod(x, 1j),
    "a whole quotient for a complex number": lambda x: x // 1j,
    "a minimum that is a complex number": lambda x: x.clamp_min(1j),
    "integers of no range": lambda x: torch.randint_like(x, 3, 3),
    "integers that do not fit": lambda x: torch.randint(0, 300, (2,), dtype=torch.int8),
    "bools minus a number": lambda x: (x > 0.5) - 2,
    "numbers minus True": lambda x: x - True,
    "numbers minus bools": lambda x: x.clone().sub_(x > 0.5),
    "a number minus bools": lambda x: 2 - (x > 0.5),
    "True minus bools": lambda x: torch.rsub(x > 0.5, True),
    "True minus numbers": lambda x: torch.rsub(x, True),
    "bools from a tensor": lambda x: torch.rsub(x > 0.5, x),
    "bools from bools": lambda x: torch.rsub(x > 0.5, x > 0.5),
    "a tensor from bools": lambda x: torch.rsub(x, x > 0.5),
    # results that do not fit into the dtype of the tensor they are written into
    "bools times a number": lambda x: (x > 0.5).mul_(2),
    "bools times integers": lambda x: (x > 0.5).mul_(PLACES),
    "bools plus themselves and a number": lambda x: (x > 0.5).add_(x > 0.5, alpha=1).add_(2),
    "integers divided": lambda x: x.long().div_(2),
    "integers times a fraction": lambda x: x.long().mul_(0.5),
    "roots of integers": lambda x: x.long().sqrt_(),
    # numbers that do not fit into a dtype
    "where": lambda x: torch.where(x > 0, x.int(), 2**40),
    "where, the number first": lambda x: torch.where(x > 0, 2**40, x.int()),
    "clamp": lambda x: x.int().clamp(max=2**40),
    "clamp of bytes": lambda x: BYTES.clamp(-1, 300) + x,
    "clamp_min": lambda x: x.half().clamp_min(1e6),
    "full": lambda x: torch.full((3, 2), 2**40, dtype=torch.int32) + x,
    "full of nothing": lambda x: (torch.full((0,), 2**31, dtype=torch.int32), x),
    "full_like": lambda x: torch.full_like(x, 1e300),
    "full_like of nan": lambda x: torch.full_like(x, float("nan"), dtype=torch.int16),
    "full_like of a complex number": lambda x: torch.full_like(x, 1j),
    "new_full": lambda x: x.int().new_full((2,), 2**40),
    "fill_": lambda x: x.int().fill_(2**40),
    "masked_fill": lambda x: x.int().masked_fill(x > 0, 2**40),
    "masked_fill of halves": lambda x: x.half().masked_fill(x > 0, 1e6),
    "index_fill": lambda x: x.int().index_fill(0, PLACES, 2**40),
    "scatter": lambda x: x.int().scatter(0, PLACES[None], 2**40),
    "pad": lambda x: torch.nn.functional.pad(x.int(), (1, 1), value=2**40),
    "threshold": lambda x: torch.threshold(x.int(), 2**40, 0),
    "add, alpha": lambda x: torch.add(x.int(), x.int(), alpha=2**40),
    "addcmul": lambda x: torch.addcmul(x.int(), x.int(), x.int(), value=2**40),
    "addmm, beta": lambda x: torch.addmm(x[:2].int(), x[:2].int(), x[:2].int(), beta=2**40),
    "pow": lambda x: x.int() ** 2**40,
    "pow, negative": lambda x: x.int() ** -1,
    "linspace": lambda x: torch.linspace(0, 2**40, 3, dtype=torch.int32)[:, None] + x,
    "floor_divide": lambda x: x.int() // 0,
    "div": lambda x: torch.div(x.int(), 0, rounding_mode="trunc"),
    "remainder": lambda x: x.int() % 0,
    "fmod": lambda x: torch.fmod(x.int(), 0),
    # reductions of empty tensors
    "max of nothing": lambda x: x[:0].max(),
    "min of nothing": lambda x: x[:0].min(),
    "max over nothing": lambda x: x[:0].max(0),
    "argmax of nothing": lambda x: x[:0].argmax(),
    "amax over nothing": lambda x: x[:0].amax(0),
    "median over nothing": lambda x: x[:0].median(0),
    "nanmedian over nothing": lambda x: x[:0].nanmedian(0),
    "mode over nothing": lambda x: x[:0].mode(0),
    "aminmax of nothing": lambda x: torch.aminmax(x[:0]),
    # elements of empty tensors
    "index of nothing": lambda x: x[:0][PLACES],
    "index of nothing, two axes": lambda x: x[:, :0][PLACES, PLACES],
    "index_put of nothing": lambda x: x[:0].clone().index_put_((PLACES,), x[0, 0]),
    "index_select of nothing": lambda x: x[:0].index_select(0, PLACES),
    "index_copy of nothing": lambda x: x[:0].index_copy(0, PLACES, x[:2]),
    "index_reduce of nothing": lambda x: x[:0].index_reduce(0, PLACES, x[:2], "mean"),
    "gather of nothing": lambda x: x[:0].gather(0, PLACES[None]),
    "scatter of nothing": lambda x: x[:0].scatter_add(0, PLACES[None], x),
    "put of nothing": lambda x: x[:0].put(PLACES, x[0]),
    "embedding of nothing": lambda x: torch.nn.functional.embedding(PLACES, x[:0]),
    # dtypes that are not those of indices
    "index_put of floats": lambda x: x.index_put((x[0],), x[0]),
    "index_put_ of short integers": lambda x: aten.index_put_(x.clone(), (None, PLACES.short()), x[0]),
    "assignment at no floats": lambda x: x.clone().__setitem__(x[:0, 0], 1.0),
    "index_select of bytes": lambda x: x.index_select(0, PLACES.byte()),
    "index_add of short integers": lambda x: x.index_add(0, PLACES.short(), x[:2]),
    "index_reduce of bytes": lambda x: x.index_reduce(0, PLACES.byte(), x[:2], "prod"),
    "index_copy of integers": lambda x: x.index_copy(0, PLACES.int(), x[:2]),
    "index_fill of integers": lambda x: x.index_fill(0, PLACES.int(), 2.0),
    "index_fill_ of floats": lambda x: x.clone().index_fill_(0, x[0], 2.0),
    "put of floats": lambda x: x.put(x[0], x[0]),
    # axes of tensors without dimensions
    "sort of a number": lambda x: x[0, 0].sort(1),
    "argsort of a number": lambda x: x[0, 0].argsort(-2),
    "softmax of a number": lambda x: x[0, 0].softmax(1),
    "cummax of a number": lambda x: x[0, 0].cummax(1),
    "cummin of a number": lambda x: x[0, 0].cummin(-2),
    "index_select of a number": lambda x: x[0, 0].index_select(1, PLACES[0]),
    # ranges and words
    "histc without an end": lambda x: torch.histc(x, 3, 0, float("inf")),
    "searchsorted on no side": lambda x: torch.searchsorted(x[0], x[0], side="middle"),
    # results that are larger than the tensor they are written into
    "pow_ that grows": lambda x: x[:1].clone().pow_(x),
    "eq_ that grows": lambda x: x[:1].clone().eq_(x),
    "clamp_ that grows": lambda x: x[0, 0].clone().clamp_(x),
    "div_ that grows": lambda x: x[:1].clone().div_(x, rounding_mode="floor"),
    "a list of pow_ that grows": lambda x: torch._foreach_pow_([x[:1].clone()], [x]),
    "a result that grows an input": lambda x: torch.pow(y := x[:1].clone(), x, out=y),
    # dtypes that cannot be combined
    "binary_cross_entropy of two dtypes": lambda x: torch.nn.functional.binary_cross_entropy(x, x.double()),
    "huber_loss of two dtypes": lambda x: aten.huber_loss_backward(x, x, x.double(), 1, 1.0),
}
RIGHT: dict[str, Function] = {
    "a result that grows": lambda x: torch.pow(x, x, out=torch.ones(0)),
    "aminmax.out": lambda x: tuple(torch.aminmax(x, dim=0, out=(torch.ones(2), torch.ones(2)))),
    "complex.out": lambda x: torch.complex(x, x, out=torch.ones(3, 2) * 1j),
    "index_add": lambda x: x.index_add(-1, PLACES[:1], torch.ones(3, 1)),
    "index_add without dimensions": lambda x: x[0, 0].index_add(0, PLACES[0], x[1, 1]),
    "cov": lambda x: torch.cov(x, fweights=PLACES + 1, aweights=x[0]),
    "index_put of integers and masks": lambda x: x.index_put((PLACES.int(),), x[0]).index_put(
        (x > 0,), x[0, 1]
    ),
    "index_select of integers": lambda x: x.index_select(0, PLACES.int()),
    "index_add of integers": lambda x: x.index_add(0, PLACES.int(), x[:2]),
    # numbers that fit, or that PyTorch converts
    "add of a large number": lambda x: x.half() + 1e6,
    "masked_fill with infinity": lambda x: x.half().masked_fill(x > 0.5, float("-inf")),
    "full_like of bytes": lambda x: torch.full_like(BYTES, -1),
    "comparison with a large number": lambda x: x.int() < 2**40,
    "floor_divide of floats": lambda x: x // 0,
    "where": lambda x: torch.where(x > 0.5, x.int(), 2**31 - 1),
    # operations on empty tensors that have a result
    "sum of nothing": lambda x: x[:0].sum(),
    "max over something": lambda x: x[:, :0].max(0).values,
    "product with nothing": lambda x: x[:0] @ x.T,
    "no elements of nothing": lambda x: x[:0][PLACES[:0]],
    "no rows of nothing": lambda x: x[:0].gather(0, PLACES[:0, None].expand(0, 2)),
    "index_add of nothing": lambda x: x[:0].index_add(0, PLACES, x[:2]),
    "index_copy without columns": lambda x: x.repeat(3, 1)[:, :0].index_copy(
        0, torch.arange(5), x.new_ones(5, 0)
    ),
    "huber_loss of two dtypes": lambda x: torch.nn.functional.huber_loss(x, x.double()),
    "product of bools with nothing": lambda x: (x[:0] > 0) @ (x.T > 0),
}


def causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


@pytest.mark.parametrize("name", WRONG)
def test_what_eager_refuses_is_refused_in_its_words(name: str) -> None:
    with pytest.raises((RuntimeError, IndexError)) as eager:
        WRONG[name](ROWS)
    words = str(eager.value).partition("\n")[0]
    with pytest.raises(CaptureError, match=re.escape(words)) as raised:
        torchstone.export(WRONG[name], (ROWS,))
    assert any(type(one) is type(eager.value) and words in str(one) for one in causes(raised.value))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", RIGHT)
def test_what_eager_takes_is_taken(name: str) -> None:
    program = torchstone.export(RIGHT[name], (ROWS,))
    torch.testing.assert_close(program(ROWS), RIGHT[name](ROWS))


def test_expansions_subtract_numbers_from_numbers() -> None:
    torch._dynamo.reset()
    torch.testing.assert_close(
        torch.compile(lambda x: x.logit(0.1), backend="torchstone")(ROWS), ROWS.logit(0.1)
    )


@pytest.mark.parametrize(
    "function",
    [
        lambda x: aten._adaptive_avg_pool2d_backward(x[None, None], x[0, 0]),
        lambda x: aten._adaptive_avg_pool3d_backward(x[None, None].half(), x[None, None, None]),
        lambda x: aten._batch_norm_with_update_functional(x, x[0], x[0], x[:1], x[0], 0.1, 1e-5),
        lambda x: torch.addmm(x.double(), x[:, :1].double(), x[:1], beta=True),
    ],
    ids=["ranks", "dtypes", "statistics", "dtypes of a product"],
)
def test_a_call_that_no_kernel_takes_is_no_internal_error(function: Function) -> None:
    """PyTorch's shape functions accept these calls of derivatives, but its kernels do not."""
    with pytest.raises((RuntimeError, IndexError)) as eager:
        function(ROWS)
    words = str(eager.value).partition("\n")[0]
    with pytest.raises(CaptureError, match=re.escape(words)) as exported:
        torchstone.export(function, (ROWS,))
    torch._dynamo.reset()
    with pytest.raises(Exception, match=re.escape(words)) as compiled:
        torch.compile(function, backend="torchstone")(ROWS)
    for raised in (exported, compiled):
        assert not any(isinstance(one, LoweringBug) for one in causes(raised.value))


def test_the_error_names_the_operator_and_the_line() -> None:
    place = r"^aten\.masked_scatter\.default at .*test_argument_checks\.py:\d+: masked_scatter_ only supports"
    with pytest.raises(CaptureError, match=place + r"(?s:.*)\n  next: correct the arguments"):
        torchstone.export(WRONG["masked_scatter"], (ROWS,))


COMPILED = [
    "where",
    "clamp",
    "clamp of bytes",
    "full",
    "full_like",
    "fill_",
    "masked_fill",
    "pow",
    "floor_divide",
    "abs of bools",
    "bmm of bools",
    "a number minus bools",
]


@pytest.mark.parametrize("name", [*COMPILED, "masked_scatter", "max of nothing", "dropout"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_functions_refuse_as_well(name: str, dynamic: bool) -> None:
    with pytest.raises((RuntimeError, IndexError)) as eager:
        WRONG[name](ROWS)
    torch._dynamo.reset()
    compiled = torch.compile(WRONG[name], backend="torchstone", dynamic=dynamic)
    with pytest.raises(Exception, match=re.escape(str(eager.value).partition("\n")[0])):
        compiled(ROWS)


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_product_of_two_dtypes_is_no_internal_error(dynamic: bool) -> None:
    """The operator's shape function accepts the two dtypes, but its lowering does not."""

    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.addmm(x[0], x, x.T.double())

    words = "self and mat2 must have the same dtype, but got Float and Double"
    sizes = ({0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO},) if dynamic else None
    torch._dynamo.reset()
    for call in (
        lambda: torchstone.export(function, (torch.rand(3, 3),), dynamic_shapes=sizes),
        lambda: torch.compile(function, backend="torchstone", dynamic=dynamic)(torch.rand(3, 3)),
    ):
        with pytest.raises(Exception, match=words) as raised:
            call()
        assert not any(isinstance(one, LoweringBug) for one in causes(raised.value))


def test_a_call_on_empty_tensors_keeps_their_sizes() -> None:
    """Smaller tensors would not fit the sizes among the arguments."""
    program = torchstone.export(
        lambda gradient: torch.ops.aten.slice_backward(gradient, [4, 6], 0, 2, 2, 1), (torch.ones(0, 6),)
    )
    assert torch.equal(program(torch.ones(0, 6)), torch.zeros(4, 6))


def test_a_number_divided_by_integers_is_not_divided_by_zero() -> None:
    """Negative numbers, and numbers that the dtype cannot hold, are tried besides zeros and ones."""
    x, small = torch.tensor([1, 2, 3, -4, 5]), torch.tensor([1, 7, 200], dtype=torch.uint8)

    def quotients(x: torch.Tensor, small: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return -7 % x, -7 // x, 0 % x, 300 // small, 300 % small, -7 % small, -1 // small

    found = torchstone.export(quotients, (x, small))(x, small)
    assert all(map(torch.equal, found, quotients(x, small)))


def test_masks_do_not_grow_the_tensor_that_is_written() -> None:
    def grown(x: torch.Tensor) -> torch.Tensor:
        return x[:1].clone().masked_scatter_(x > 0, x)

    with pytest.raises(RuntimeError):
        grown(ROWS)
    words = re.escape("mask of shape [3, 2] does not broadcast to the tensor's shape [1, 2]")
    with pytest.raises(CaptureError, match=words):
        torchstone.export(grown, (ROWS,))


def test_masks_that_broadcast_are_written_in_place() -> None:
    def written(x: torch.Tensor) -> torch.Tensor:
        return x.clone().masked_scatter_(x[0] > x[0].min(), -x)

    torch.testing.assert_close(torchstone.export(written, (ROWS,))(ROWS), written(ROWS))
