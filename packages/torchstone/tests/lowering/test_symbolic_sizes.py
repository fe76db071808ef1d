"""Lowerings whose arithmetic on sizes would be wrong if a symbol were frozen at its first value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import torchstone
from torchstone.errors import InputMismatch, UnsupportedOperators, UnsupportedShape

F = torch.nn.functional


@pytest.mark.kept("median", "slice", "searchsorted", "nonzero_static", "matrices")
@pytest.mark.parametrize(
    "model",
    [
        pytest.param(lambda x: x.median(0).values, id="median"),
        pytest.param(lambda x: x[-1:, ::2], id="slice"),
        pytest.param(lambda x: x[torch.tensor([0, -1])], id="negative index"),
        pytest.param(lambda x: x.select_scatter(x[0], 0, -1), id="select_scatter"),
        pytest.param(lambda x: x.roll(1, 0), id="roll"),
        pytest.param(lambda x: torch.searchsorted(x.sort(0).values[:, 0], x), id="searchsorted"),
        pytest.param(lambda x: torch.nonzero_static(x > 0, size=60), id="nonzero_static"),
        pytest.param(lambda x: torch.nn.functional.pad(x, (0, 0, 2, 1)), id="pad"),
        pytest.param(lambda x: torch.take(x, torch.tensor([-1])), id="take"),
        pytest.param(lambda x: x.view(torch.uint8), id="bytes"),
        pytest.param(lambda x: torch.cat([x, x], 1).view(torch.int64), id="words"),
        pytest.param(lambda x: x * (x.shape[0] ** 0.5) / (x.shape[0] / 3), id="fractions of sizes"),
        pytest.param(lambda x: torch.full((2,), x.shape[0] / 3), id="full of a fraction"),
        pytest.param(lambda x: torch.nn.functional.leaky_relu(x, 1 / x.shape[0]), id="a fraction as slope"),
        pytest.param(lambda x: torch.ops.aten.hardshrink_backward(x, x.sin(), 0.5), id="hardshrink_backward"),
        pytest.param(lambda x: torch.ops.aten.softshrink_backward(x, x.sin(), 0.5), id="softshrink_backward"),
        pytest.param(lambda x: torch.histogram(x, 5).hist, id="histogram"),
        pytest.param(
            lambda x: torch.histogram(x, torch.tensor([-1.0, 0.0, 1.0])).hist, id="histogram by edges"
        ),
        pytest.param(lambda x: torch.nextafter(x, x.sin()), id="nextafter"),
        pytest.param(lambda x: F.multi_margin_loss(x.T, torch.tensor([2, 1, 0])), id="classes"),
        pytest.param(
            lambda x: torch.linalg.solve(torch.eye(3) + x[:, :, None] * x[:, None], x), id="matrices"
        ),
    ],
)
def test_one_program_for_every_size(model: Callable[[torch.Tensor], torch.Tensor]) -> None:
    rows = torch.export.Dim("rows", min=2, max=64)
    program = torchstone.export(model, (torch.randn(4, 3),), dynamic_shapes=({0: rows},))
    for size in (3, 20):
        x = torch.randn(size, 3)
        torch.testing.assert_close(program(x), model(x))


def written(x: torch.Tensor, write: Callable[[torch.Tensor], object]) -> torch.Tensor:
    y = x + 1
    write(y)
    return y


@pytest.mark.kept("slice_scatter", "write into the last row")
@pytest.mark.parametrize(
    "model",
    [
        pytest.param(lambda x: torch.slice_scatter(x, x[::2] * 2, 0, 0, 99, 2), id="slice_scatter"),
        pytest.param(lambda x: written(x, lambda y: y[::2].zero_()), id="write into every second row"),
        pytest.param(lambda x: written(x, lambda y: y[:-1].mul_(2)), id="write into all rows but one"),
        pytest.param(lambda x: written(x, lambda y: y[-1:].mul_(2)), id="write into the last row"),
        pytest.param(lambda x: written(x, lambda y: y[:, 1:].zero_()), id="write into columns"),
    ],
)
def test_writes_into_parts_of_any_size(model: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """PyTorch writes the end of such a part as the largest integer."""
    sizes = dict.fromkeys((0, 1), torch.export.Dim.AUTO)
    program = torchstone.export(model, (torch.randn(6, 3),), dynamic_shapes=(sizes,))
    for rows in (6, 7, 20):
        x = torch.randn(rows, 4)
        torch.testing.assert_close(program(x), model(x))


@pytest.mark.kept("from and to", "steps", "write", "backward")
@pytest.mark.parametrize(
    "model",
    [
        pytest.param(lambda x: x[x.shape[1] :], id="from"),
        pytest.param(lambda x: x[: x.shape[1]] * 1, id="to"),
        pytest.param(lambda x: x[x.shape[1] : 2 * x.shape[1]], id="from and to"),
        pytest.param(lambda x: x[5:], id="from a number"),
        pytest.param(lambda x: x[5::2], id="steps"),
        pytest.param(lambda x: x[-5:] * 1, id="from before the first"),
        pytest.param(lambda x: written(x, lambda y: y[x.shape[1] :].zero_()), id="write"),
        pytest.param(lambda x: torch.ops.aten.slice_backward(x[5:], x.shape, 0, 5, 99, 1), id="backward"),
        pytest.param(lambda x: torch.ops.aten.slice_backward(x[5::2], x.shape, 0, 5, 99, 2), id="with steps"),
    ],
)
def test_slices_beyond_an_axis(model: Callable[[torch.Tensor], torch.Tensor]) -> None:
    sizes = dict.fromkeys((0, 1), torch.export.Dim.AUTO)
    program = torchstone.export(model, (torch.randn(3, 4),), dynamic_shapes=(sizes,))
    for rows in (3, 2):
        x = torch.randn(rows, 4)
        torch.testing.assert_close(program(x), model(x))


@pytest.mark.parametrize(
    ("model", "example", "fitting", "other", "relation"),
    [
        pytest.param(
            lambda x, at, values: x.index_put((at,), values),
            [(5, 3), (3,), (3, 3)],
            [(5, 3), (2,), (2, 3)],
            [(5, 3), (2,), (4, 3)],
            r"input 1\.shape\[0\] == input 2\.shape\[0\]",
            id="index_put",
        ),
        pytest.param(
            lambda x, values: x.slice_scatter(values, 0, 1),
            [(5, 3), (4, 3)],
            [(9, 3), (8, 3)],
            [(9, 3), (4, 3)],
            r"input 1\.shape\[0\]",
            id="slice_scatter",
        ),
        pytest.param(
            lambda x, values: torch.diagonal_scatter(x, values[:, 0]),
            [(4, 3), (3, 2)],
            [(2, 3), (2, 2)],
            [(2, 3), (3, 2)],
            r"input 1\.shape\[0\]",
            id="diagonal_scatter",
        ),
    ],
)
def test_sizes_that_kernels_compare(
    model: Callable[..., torch.Tensor],
    example: list[tuple[int, ...]],
    fitting: list[tuple[int, ...]],
    other: list[tuple[int, ...]],
    relation: str,
) -> None:
    """PyTorch's metadata functions do not compare these sizes, so its trace assumes nothing about them."""

    def inputs(shapes: list[tuple[int, ...]]) -> list[torch.Tensor]:
        return [torch.randn(shape) if len(shape) > 1 else torch.arange(shape[0]) for shape in shapes]

    sizes = tuple({0: torch.export.Dim.AUTO} for _ in example)
    program = torchstone.export(model, tuple(inputs(example)), dynamic_shapes=sizes)
    given = inputs(fitting)
    torch.testing.assert_close(program(*given), model(*given))
    with pytest.raises(RuntimeError):
        model(*inputs(other))
    with pytest.raises(InputMismatch, match=relation):
        program(*inputs(other))


def test_a_negative_size_is_counted_from_the_end() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        return x[-x.shape[1] :] * 1

    sizes = dict.fromkeys((0, 1), torch.export.Dim.AUTO)
    program = torchstone.export(model, (torch.randn(5, 3),), dynamic_shapes=(sizes,))
    for shape in ((5, 3), (7, 2)):
        x = torch.randn(shape)
        torch.testing.assert_close(program(x), model(x))


@pytest.mark.kept("{'is_causal': True}")
@pytest.mark.parametrize(
    "options", [{}, {"is_causal": True}, {"attn_mask": torch.ones(1, 1, dtype=torch.bool)}], ids=str
)
def test_attention_over_any_width(options: dict[str, Any]) -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(x, x, x, **options)

    sizes = dict.fromkeys(range(4), torch.export.Dim.AUTO)
    program = torchstone.export(model, (torch.randn(2, 3, 5, 8),), dynamic_shapes=(sizes,))
    for shape in ((2, 3, 5, 8), (3, 2, 7, 6)):
        x = torch.randn(shape)
        torch.testing.assert_close(program(x), model(x))


@pytest.mark.kept("diagonal", "cummax", "gather")
@pytest.mark.parametrize(
    "model",
    [
        pytest.param(torch.diagonal_copy, id="diagonal"),
        pytest.param(torch.trace, id="trace"),
        pytest.param(lambda x: torch.diagonal_scatter(x, x.diagonal() * 2), id="diagonal_scatter"),
        pytest.param(lambda x: x.cummax(0).indices, id="cummax"),
        pytest.param(lambda x: x.sort(1).values, id="sort"),
        pytest.param(lambda x: x.gather(0, x.argsort(0)), id="gather"),
        pytest.param(lambda x: x[torch.arange(x.shape[0])], id="index"),
        pytest.param(lambda x: torch.nn.functional.embedding(torch.arange(x.shape[0]), x), id="embedding"),
        pytest.param(lambda x: x.view(torch.int16), id="view"),
    ],
)
def test_nothing_is_taken_from_empty_axes(model: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """PyTorch traces sizes from 2 up, and lets a program take fewer."""
    rows, columns = (torch.export.Dim(name, min=0) for name in ("rows", "columns"))
    program = torchstone.export(model, (torch.randn(6, 5),), dynamic_shapes=({0: rows, 1: columns},))
    for shape in ((6, 5), (0, 3), (2, 0), (0, 0), (1, 4)):
        x = torch.randn(shape)
        torch.testing.assert_close(program(x), model(x))


def test_masked_scatter_backward_of_two_inputs() -> None:
    """PyTorch's shape function does not say that their sizes are equal."""

    def model(grad: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten.masked_scatter_backward(grad, mask, [9])

    sizes = dict.fromkeys((0, 1), torch.export.Dim.AUTO)
    args = torch.randn(2, 4), torch.ones(2, 4, dtype=torch.bool)
    program = torchstone.export(model, args, dynamic_shapes=(sizes, sizes))
    for shape in ((2, 4), (3, 2)):
        grad = torch.randn(shape)
        torch.testing.assert_close(program(grad, grad > 0), model(grad, grad > 0))


def test_sizes_that_a_traced_shape_does_not_fit() -> None:
    """PyTorch assumes that the result has two rows, because it traces sizes from 2 up."""

    class TwoRows(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x[:2] * 1

    x, sizes = torch.randn(4), ({0: torch.export.Dim("n", min=0)},)
    told = r"the model returns float32\[1\] there, and the program float32\[2\]"
    with pytest.raises(InputMismatch, match=told):
        torchstone.export(TwoRows(), (x,), dynamic_shapes=sizes)(torch.randn(1))
    traced = torch.export.export(TwoRows(), (x,), dynamic_shapes=sizes)  # without trying small sizes
    with pytest.raises(
        InputMismatch, match=r"sizes of 2 or more and cannot take s\d+ = 1 \(.*\n  next: export"
    ):
        torchstone.export(traced)(torch.randn(1))


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(lambda x: torch.var(x, correction=x.shape[0] - 1), id="var"),
        pytest.param(lambda x: torch.norm(x, x.shape[0]), id="norm"),
        pytest.param(torch.linalg.pinv, id="pinv"),
    ],
)
def test_sizes_that_are_needed_as_numbers(model: Callable[[torch.Tensor], torch.Tensor]) -> None:
    sizes = dict.fromkeys((0, 1), torch.export.Dim.AUTO)
    with pytest.raises(UnsupportedShape, match=r"needs sizes of .* as numbers: .*\n  next: mark this"):
        torchstone.export(model, (torch.randn(4, 3),), dynamic_shapes=(sizes,))


def test_a_returned_fraction_of_a_size_is_refused() -> None:
    with pytest.raises(UnsupportedShape, match=r"cannot be computed from sizes .*\n  next: return"):
        torchstone.export(
            lambda x: x.shape[0] / 2, (torch.randn(4),), dynamic_shapes=({0: torch.export.Dim.AUTO},)
        )


@pytest.mark.kept("fft_fftshift")
@pytest.mark.parametrize("model", [lambda x: x.roll(1, 0), torch.fft.fftshift, lambda x: x.cumsum(0)])
def test_no_elements(model: Callable[[torch.Tensor], torch.Tensor]) -> None:
    program = torchstone.export(model, (torch.randn(4),), dynamic_shapes=({0: torch.export.Dim("n", min=0)},))
    for size in (0, 1, 5):
        x = torch.randn(size)
        torch.testing.assert_close(program(x), model(x))


@pytest.mark.parametrize("shift", [3, -7])
def test_roll_by_more_than_the_size(shift: int) -> None:
    program = torchstone.export(
        lambda x: x.roll(shift, 0), (torch.randn(4),), dynamic_shapes=({0: torch.export.Dim.AUTO},)
    )
    for size in (2, 3, 5):
        x = torch.randn(size)
        torch.testing.assert_close(program(x), x.roll(shift, 0))


def test_strides_of_an_input_are_not_part_of_a_program() -> None:
    example = torch.randn(4, 9)[:, :3]
    auto = dict.fromkeys((0, 1), torch.export.Dim.AUTO)
    with pytest.raises(UnsupportedOperators, match=r"stride \[s\d+, 1\]\) covers only a part"):
        torchstone.export(lambda x: x.as_strided((2, 2), (1, 2)), (example,), dynamic_shapes=(auto,))


RESAMPLINGS = {
    "nearest": ({"mode": "nearest"}, 2),
    "nearest exact": ({"mode": "nearest-exact"}, 2),
    "nearest volume": ({"mode": "nearest"}, 3),
    "linear": ({"mode": "linear"}, 1),
    "bilinear": ({"mode": "bilinear"}, 2),
    "bilinear corners": ({"mode": "bilinear", "align_corners": True}, 2),
    "bicubic": ({"mode": "bicubic"}, 2),
    "bicubic corners": ({"mode": "bicubic", "align_corners": True}, 2),
    "trilinear": ({"mode": "trilinear"}, 3),
}
LAST = {2: torch.channels_last, 3: torch.channels_last_3d}
"""The memory format with channels last, by the number of spatial axes."""


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", RESAMPLINGS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_resampling_between_any_sizes(name: str, dtype: torch.dtype) -> None:
    options, rank = RESAMPLINGS[name]

    def resampled(x: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.interpolate(x, size=like.shape[2:], **options)

    def inputs(size: int, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        rest = [5] * (rank - 1)
        return torch.randn(2, 3, size, *rest, dtype=dtype), torch.randn(1, 1, count, *rest, dtype=dtype)

    size, count = (torch.export.Dim(name, min=2, max=64) for name in ("size", "count"))
    program = torchstone.export(resampled, inputs(6, 9), dynamic_shapes=({2: size}, {2: count}))
    for sizes in ((6, 9), (7, 7), (12, 5), (3, 20)):
        args = inputs(*sizes)
        torch.testing.assert_close(program(*args), resampled(*args))


@pytest.mark.kept("bilinear")
@pytest.mark.parametrize("name", RESAMPLINGS)
def test_gradients_of_resampling_from_any_size(name: str) -> None:
    options, rank = RESAMPLINGS[name]

    def resampled(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.interpolate(x, scale_factor=1.5, **options)

    compiled = torch.compile(resampled, backend="torchstone", dynamic=True)
    for size, form in ((6, torch.contiguous_format), (9, torch.contiguous_format), (7, LAST.get(rank))):
        x = torch.randn(2, 3, *[size] * rank, dtype=torch.float64)
        x = x.contiguous(memory_format=form or torch.contiguous_format).requires_grad_()
        found, expected = compiled(x), resampled(x)
        torch.testing.assert_close(found, expected)
        cotangent = torch.randn_like(expected)
        gradients = [torch.autograd.grad(one, x, cotangent)[0] for one in (found, expected)]
        torch.testing.assert_close(*gradients)
        assert gradients[0].stride() == gradients[1].stride()


@pytest.mark.kept("bilinear")
@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
def test_resampling_by_a_whole_factor(mode: str) -> None:
    def doubled(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.interpolate(x, scale_factor=2, mode=mode)

    height, width = (torch.export.Dim(name, min=2, max=64) for name in ("height", "width"))
    program = torchstone.export(doubled, (torch.randn(2, 3, 6, 6),), dynamic_shapes=({2: height, 3: width},))
    for size in ((6, 6), (5, 9)):
        x = torch.randn(2, 3, *size)
        torch.testing.assert_close(program(x), doubled(x))


def test_resampling_by_a_fraction_of_a_symbol_is_refused() -> None:
    def enlarged(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.interpolate(x, scale_factor=1.5, mode="linear")

    size = torch.export.Dim("size", min=2, max=64)
    with pytest.raises(UnsupportedShape, match=r"resampling needs a static size.*\n  next: mark this"):
        torchstone.export(enlarged, (torch.randn(2, 3, 6),), dynamic_shapes=({2: size},))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("loss", [F.cross_entropy, F.nll_loss])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_losses_of_a_batch_of_any_size(loss: Callable[..., torch.Tensor], reduction: str) -> None:
    rows = torch.export.Dim("rows", min=1, max=64)
    inputs = torch.randn(6, 4), torch.randint(4, (6,))
    program = torchstone.export(
        lambda x, classes: loss(x, classes, reduction=reduction),
        inputs,
        dynamic_shapes=({0: rows}, {0: rows}),
    )
    for size in (1, 6, 9):
        x, classes = torch.randn(size, 4), torch.randint(4, (size,))
        torch.testing.assert_close(program(x, classes), loss(x, classes, reduction=reduction))


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 3, 0, 255), id="one scale"),
        pytest.param(
            lambda x: torch.fake_quantize_per_tensor_affine(
                x, torch.tensor(0.1), torch.tensor(3, dtype=torch.int32), 0, 255
            ),
            id="one scale in a tensor",
        ),
        pytest.param(
            lambda x: torch.fake_quantize_per_channel_affine(
                x, torch.tensor([0.1, 0.2, 0.3]), torch.tensor([1, 2, 3], dtype=torch.int32), 1, 0, 255
            ),
            id="a scale for each column",
        ),
    ],
)
def test_fake_quantization_of_any_size(model: Callable[[torch.Tensor], torch.Tensor]) -> None:
    rows = torch.export.Dim("rows", min=1, max=64)
    program = torchstone.export(model, (torch.randn(4, 3),), dynamic_shapes=({0: rows},))
    for size in (1, 20):
        x = torch.randn(size, 3)
        torch.testing.assert_close(program(x), model(x))


ADAPTIVE: dict[str, tuple[int, Callable[[torch.Tensor], Any]]] = {
    "average of 1 axis": (1, lambda x: F.adaptive_avg_pool1d(x, 4)),
    "average of 2 axes": (2, lambda x: F.adaptive_avg_pool2d(x, (3, 5))),
    "average along 1 axis of 2": (2, lambda x: F.adaptive_avg_pool2d(x, (3, None))),
    "average of 3 axes": (3, lambda x: F.adaptive_avg_pool3d(x, (2, 3, 4))),
    "maximum of 1 axis": (1, lambda x: F.adaptive_max_pool1d(x, 4, return_indices=True)),
    "maximum of 2 axes": (2, lambda x: F.adaptive_max_pool2d(x, (2, 7), return_indices=True)),
    "maximum of 3 axes": (3, lambda x: F.adaptive_max_pool3d(x, (2, 3, 4), return_indices=True)),
}


def image(rank: int, size: int) -> torch.Tensor:
    return torch.randn(2, 3, *[size + axis for axis in range(rank)])


@pytest.mark.kept("average of 2 axes", "maximum of 2 axes")
@pytest.mark.parametrize("name", ADAPTIVE)
def test_adaptive_pooling_of_any_size(name: str) -> None:
    rank, model = ADAPTIVE[name]
    dims = {2 + axis: torch.export.Dim(f"size_{axis}", min=1, max=256) for axis in range(rank)}
    program = torchstone.export(model, (image(rank, 9),), dynamic_shapes=(dims,))
    for size in (1, 3, 7, 12, 30):
        x = image(rank, size)
        if size == 7:
            x[0, 0], x[1, 1] = float("nan"), float("inf")
        torch.testing.assert_close(program(x), model(x), equal_nan=True)


@pytest.mark.kept("average of 2 axes", "maximum of 2 axes")
@pytest.mark.parametrize("name", ADAPTIVE)
def test_gradients_of_adaptive_pooling_of_any_size(name: str) -> None:
    rank, model = ADAPTIVE[name]
    compiled = torch.compile(model, backend="torchstone", dynamic=True)
    for size in (9, 3, 12):
        x = image(rank, size)
        found, expected = (gradient(function, x) for function in (compiled, model))
        torch.testing.assert_close(found, expected)


def gradient(function: Callable[[torch.Tensor], Any], x: torch.Tensor) -> torch.Tensor:
    x = x.clone().requires_grad_()
    result = function(x)
    result = result[0] if isinstance(result, tuple) else result
    return torch.autograd.grad(result, x, torch.arange(result.numel()).view_as(result).float())[0]


def test_reads_beyond_an_operand_of_symbolic_size() -> None:
    """Such reads used to return zeros for memory between and behind the elements of an input."""
    anything = ({0: torch.export.Dim.AUTO},)
    with pytest.raises(UnsupportedOperators, match=r"stride \[.*\]\) covers only a part of what it reads"):
        torchstone.export(
            lambda x: x.as_strided((2, x.shape[0]), (1, 1), 1),
            (torch.arange(14.0)[::2],),
            dynamic_shapes=anything,
        )
    with pytest.raises(UnsupportedOperators, match="covers only a part of what it reads"):
        torchstone.export(
            lambda x: x.as_strided((2, x.shape[0]), (1, 1), 1), (torch.arange(7.0),), dynamic_shapes=anything
        )


def test_reads_inside_an_operand_of_symbolic_size_are_assumed() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        return x.as_strided((2, 3), (1, 1), 0)

    program = torchstone.export(model, (torch.arange(7.0),), dynamic_shapes=({0: torch.export.Dim.AUTO},))
    for size in (4, 9):
        x = torch.randn(size)
        torch.testing.assert_close(program(x), model(x))
    with pytest.raises(InputMismatch, match=r"input 0\.shape\[0\] > 3"):
        program(torch.randn(3))
    rows = torchstone.export(
        lambda x: x.expand(3, -1).as_strided((x.shape[0],), (1,), 0),
        (torch.arange(7.0),),
        dynamic_shapes=({0: torch.export.Dim.AUTO},),
    )
    assert rows(torch.arange(5.0)).tolist() == [0, 1, 2, 3, 4]
