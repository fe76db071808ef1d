"""Operators called by hand, with arguments that autograd never passes: eager's values, or a refusal."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

import torchstone
from torchstone.errors import CaptureError, FallbackWarning, TorchstoneError, UnsupportedOperators
from torchstone.lowering import load

aten = torch.ops.aten


def agrees(function: Callable[..., Any], *args: Any) -> None:
    torch.testing.assert_close(torchstone.export(function, args)(*args), function(*args), equal_nan=True)


@pytest.mark.parametrize("reduction", [0, 1, 2])
def test_nll_loss_backward_of_one_sample_and_a_gradient_of_one_element(reduction: int) -> None:
    agrees(
        lambda grad, x, target, total: aten.nll_loss_backward(grad, x, target, None, reduction, -100, total),
        torch.ones(1),
        torch.randn(3),
        torch.tensor(1),
        torch.tensor(2.0),
    )


@pytest.mark.sampled(4)
@pytest.mark.parametrize("padding_idx", [-1, 4])
@pytest.mark.parametrize("mode", [0, 1, 2], ids=["sum", "mean", "max"])
@pytest.mark.parametrize("operator", [aten._embedding_bag, aten._embedding_bag_forward_only], ids=str)
def test_all_results_of_embedding_bag(operator: Any, mode: int, padding_idx: int) -> None:
    agrees(
        lambda weight, indices, offsets: operator(
            weight, indices, offsets, False, mode, False, None, False, padding_idx
        ),
        torch.randn(6, 3),
        torch.tensor([1, 2, 4, 5, 4]),
        torch.tensor([0, 2, 2, 4]),
    )


def test_max_pooling_backward_with_indices_of_any_place() -> None:
    indices = torch.tensor([[[[0, 0], [0, 15]]]])
    agrees(
        lambda grad, x, indices: aten.max_pool2d_with_indices_backward(
            grad, x, [2, 2], [2, 2], [0, 0], [1, 1], False, indices
        ),
        torch.randn(1, 1, 2, 2),
        torch.randn(1, 1, 4, 4),
        indices,
    )
    agrees(
        lambda grad, x, indices: aten.max_pool3d_with_indices_backward(
            grad, x, [2, 2, 2], [2, 2, 2], [0, 0, 0], [1, 1, 1], False, indices
        ),
        torch.randn(1, 1, 2, 2, 2),
        torch.randn(1, 1, 4, 4, 4),
        torch.tensor([0, 0, 1, 63, 5, 6, 7, 7]).reshape(1, 1, 2, 2, 2),
    )


@pytest.mark.parametrize(
    ("expand", "sumdim"), [([0], []), ([0], [0]), ([0, 1], [0, 1])], ids=["kept", "summed", "two"]
)
def test_trilinear_with_an_axis_that_no_tensor_has(expand: list[int], sumdim: list[int]) -> None:
    x = torch.tensor(2.0)
    with pytest.raises(UnsupportedOperators, match="an axis is inserted into each of its tensors"):
        torchstone.export(
            lambda a, b, c: aten._trilinear(a, b, c, expand, expand, expand, sumdim, 0), (x, x, x)
        )


@pytest.mark.parametrize("other", [torch.float64, torch.float16, torch.int64], ids=str)
def test_threshold_backward_of_two_dtypes(other: torch.dtype) -> None:
    with pytest.raises(UnsupportedOperators, match="its arguments differ in dtype"):
        torchstone.export(
            lambda grad, x: aten.threshold_backward(grad, x, 0), (torch.ones(3), torch.ones(3).to(other))
        )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_glu_backward_at_special_values(dtype: torch.dtype) -> None:
    """float16 rounds the sigmoid of -20 to zero, so the gradient is NaN if the other half is infinite."""
    special = torch.tensor([0.0, -0.0, 1, -1, torch.inf, -torch.inf, torch.nan, 65504, -65504, 20, -20])
    pairs = torch.cartesian_prod(special, special).to(dtype)
    agrees(lambda grad, x: aten.glu_backward(grad, x, -1), torch.ones(len(pairs), 1, dtype=dtype), pairs)


MATRIX = torch.arange(12.0).reshape(3, 4)
CODES: dict[str, tuple[Callable[[torch.Tensor], Any], str]] = {
    "normalization": (lambda x: aten._fft_c2c(x + 0j, [1], -2, True), "normalization=-2 is unknown"),
    "reduction": (
        lambda x: aten.binary_cross_entropy(x / 12, x / 12, None, 5),
        "reduction=5 is unknown: use one of 0 .none., 1 .mean., 2 .sum.",
    ),
    "strides": (lambda x: aten._reshape_alias(x, [4, 3], [2, 1]) * 2, r"strides \[2, 1\] do not show"),
    "images": (
        lambda x: aten._adaptive_avg_pool3d_backward(x[None, None, None], x[None, None, None][:0]),
        r"grad_output has shape \[1, 1, 1, 3, 4\]; expected \[0, 1, 1, 3, 4\]",
    ),
}


@pytest.mark.parametrize("name", CODES)
def test_calls_without_a_meaning(name: str) -> None:
    """Calls with a meaningless argument, such as an undefined code. Compiled code leaves them to eager."""
    function, told = CODES[name]
    with pytest.raises(UnsupportedOperators, match=told):
        torchstone.export(function, (MATRIX,))
    torch._dynamo.reset()
    with pytest.warns(FallbackWarning):
        found = torch.compile(function, backend="torchstone")(MATRIX)
    torch.testing.assert_close(found, function(MATRIX))


@pytest.mark.parametrize("operator", [aten._softmax_backward_data, aten._log_softmax_backward_data], ids=str)
def test_softmax_gradients_of_integers(operator: Any) -> None:
    """The kernels write numbers of the gradient's dtype into memory of another dtype."""
    with pytest.raises(UnsupportedOperators, match=r"input_dtype=torch\.uint8 is not a floating-point dtype"):
        torchstone.export(lambda x: operator(x, x, -1, torch.uint8), (MATRIX.half(),))


def test_a_mode_below_zero_is_not_the_last_one() -> None:
    bags = (torch.tensor([0, 2]), torch.tensor([0, 1]))
    with pytest.raises(UnsupportedOperators, match="mode=-1 is unknown: use one of 0"):
        torchstone.export(lambda x: aten._embedding_bag(x, *bags, False, -1)[0], (MATRIX,))


def test_edges_of_no_bins() -> None:
    agrees(lambda x: aten._histogramdd_bin_edges(x, [0, 2]), torch.randn(5, 2))
    agrees(lambda x: aten._reshape_alias(x, [4, 3], [3, 1]) + 1, MATRIX)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("kernel", [[0, 3], [2, 0], [0, 0], [-1, 2], [-100, -2]], ids=str)
def test_fractional_pooling_with_windows_of_no_elements(kernel: list[int]) -> None:
    """The maximum of such a window is −inf, at the place where the window begins."""
    agrees(
        lambda x, samples: aten.fractional_max_pool2d(x, kernel, [3, 2], samples),
        torch.randn(2, 3, 6, 5),
        torch.rand(2, 3, 2),
    )
    agrees(
        lambda x, samples: aten.fractional_max_pool3d(x, [*kernel, 1], [3, 2, 2], samples),
        torch.randn(3, 6, 5, 4),
        torch.rand(1, 3, 3),
    )


@pytest.mark.sampled(4)
@pytest.mark.parametrize("reduction", [0, 1, 2])
@pytest.mark.parametrize(
    "shapes", [((3, 4), (4,)), ((4, 1, 4), (4, 1, 4)), ((4, 1, 4), (4, 1, 1)), ((2, 1), ())]
)
def test_binary_cross_entropy_backward_broadcasts_without_axes_of_size_one(
    shapes: tuple[tuple[int, ...], tuple[int, ...]], reduction: int
) -> None:
    x, target = map(torch.rand, shapes)
    grad = torch.randn(()) if reduction else torch.randn(x.shape)
    weight = torch.rand(x.shape[-1])
    agrees(lambda *given: aten.binary_cross_entropy_backward(*given, reduction), grad, x, target, weight)


@pytest.mark.parametrize(
    ("shape", "target"),
    [((3, 4), (2, 3, 4)), ((3, 4), (1, 3, 4)), ((1, 4), (3, 4)), ((), (4,)), ((3, 4), (3, 1))],
)
def test_binary_cross_entropy_backward_of_a_target_that_eager_does_not_broadcast(
    shape: tuple[int, ...], target: tuple[int, ...]
) -> None:
    tensors = (torch.tensor(1.0), torch.rand(shape), torch.rand(target))
    with pytest.raises(UnsupportedOperators, match="do not broadcast to the shape of self"):
        torchstone.export(lambda *given: aten.binary_cross_entropy_backward(*given), tensors)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("zero_infinity", [False, True])
@pytest.mark.parametrize("blank", [0, 2])
def test_ctc_loss_backward_with_a_blank_among_the_targets(blank: int, zero_infinity: bool) -> None:
    log_probs = torch.randn(7, 4, 5).log_softmax(2)
    targets = torch.tensor([[1, 2, 0], [0, 2, 3], [2, 2, 2], [3, 0, 1]])
    inputs, lengths = [7, 6, 7, 5], [3, 2, 3, 2]
    loss, alpha = aten._ctc_loss(log_probs, targets, inputs, lengths, blank)
    agrees(
        lambda *given: aten._ctc_loss_backward(*given[:3], inputs, lengths, *given[3:], blank, zero_infinity),
        torch.randn(4),
        log_probs,
        targets,
        loss,
        alpha,
    )
    agrees(
        lambda *given: aten._ctc_loss_backward(*given, blank, zero_infinity),
        *(torch.randn(4), log_probs, targets, torch.tensor(inputs), torch.tensor([lengths]), loss, alpha),
    )


@pytest.mark.parametrize("blank", [-1, 5])
def test_ctc_loss_backward_with_a_blank_that_is_not_a_class(blank: int) -> None:
    """It is not traced: PyTorch's own shape function runs the kernel, which would write out of bounds."""
    registered = load().get(aten._ctc_loss_backward.default)
    assert registered is not None
    assert registered.refuses is not None
    told = registered.refuses({"blank": blank, "log_probs": torch.empty(7, 1, 5)})
    assert told == f"blank={blank} is not one of its 5 classes"


@pytest.mark.sampled(8)
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("step", [0.0, -0.0, float("nan"), float("inf"), 1e-300])
@pytest.mark.parametrize("operator", [aten.fft_fftfreq, aten.fft_rfftfreq], ids=str)
@pytest.mark.parametrize("count", [0, 5])
def test_frequencies_of_any_spacing(operator: Any, step: float, dtype: torch.dtype, count: int) -> None:
    agrees(lambda x: (operator(count, step, dtype=dtype), x), torch.ones(1))


@pytest.mark.parametrize("count", [-3, -2, -1])
def test_frequencies_of_a_negative_count(count: int) -> None:
    agrees(lambda x: (aten.fft_rfftfreq(count, 0.5), x), torch.ones(1))


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float32], ids=str)
def test_trilinear_of_empty_tensors_whose_axes_do_not_match(dtype: torch.dtype) -> None:
    tensors = tuple(torch.empty(shape, dtype=dtype) for shape in [(2, 0), (5, 0, 4), (1, 2, 4)])

    def function(*given: torch.Tensor) -> torch.Tensor:
        return aten._trilinear(*given, [1, 3], [0], [1, 2], [2, 3]).float()

    agrees(function, *tensors)


def test_layer_norm_backward_of_another_shape() -> None:
    with pytest.raises(CaptureError, match=r"grad_out has shape \[s\d+, 4\]; expected \[0, 4\]"):
        torchstone.export(
            lambda grad, x: aten.native_layer_norm_backward(
                grad, x, [4], x.mean(1), x.mean(1), None, None, [True, False, False]
            ),
            (torch.randn(6, 4), torch.randn(0, 4)),
            dynamic_shapes=({0: torch.export.Dim.AUTO}, None),
        )


@pytest.mark.parametrize("shape", [(), (48,), (1, 2, 2, 3, 4), (1, 2, 3, 4)], ids=str)
def test_masked_softmax_backward_of_another_shape(shape: tuple[int, ...]) -> None:
    grad, output = torch.randn(2, 2, 3, 4), torch.rand(shape)
    with pytest.raises(UnsupportedOperators, match=r"grad_output has shape \[2, 2, 3, 4\]; expected"):
        torchstone.export(
            lambda grad, y: aten._masked_softmax_backward(grad, y, grad > 0, -1), (grad, output)
        )


@pytest.mark.sampled(4)
@pytest.mark.parametrize("place", range(6))
@pytest.mark.parametrize(
    "change", [lambda x: x[None], lambda x: x[:1], lambda x: x[:, :1]], ids=["rank", "batch", "heads"]
)
def test_attention_backward_of_tensors_that_do_not_fit_together(
    change: Callable[[torch.Tensor], torch.Tensor], place: int
) -> None:
    """The kernels read beyond the smaller tensors, and may end the process."""
    query, key = torch.randn(2, 2, 3, 4), torch.randn(2, 2, 5, 4)
    tensors = [query, query, key, key, query, query[..., 0]]
    tensors[place] = change(tensors[place])
    told = "its tensors do not fit together|eager PyTorch refuses the same inputs"
    with pytest.raises(TorchstoneError, match=told):
        torchstone.export(
            lambda *given: aten._scaled_dot_product_flash_attention_for_cpu_backward(*given, 0.0, False),
            tuple(tensors),
        )


ATTENTION = aten._scaled_dot_product_flash_attention_for_cpu
KEYS = torch.randn(2, 2, 5, 4)


@pytest.mark.parametrize(
    ("key", "value"),
    [(KEYS[:1], KEYS[:1]), (KEYS, KEYS[:, :1]), (KEYS, KEYS[:, :, :3]), (KEYS[:, :0], KEYS[:, :0])],
    ids=["batch", "heads", "keys", "no heads"],
)
def test_flash_attention_of_tensors_that_do_not_fit_together(key: torch.Tensor, value: torch.Tensor) -> None:
    with pytest.raises(UnsupportedOperators, match="its tensors do not fit together: query"):
        torchstone.export(lambda *given: ATTENTION(*given)[0], (torch.randn(2, 2, 3, 4), key, value))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("change", [lambda x: x.mT.contiguous().mT, lambda x: x[..., :1].expand_as(x)])
@pytest.mark.parametrize("place", range(3))
def test_flash_attention_of_rows_that_are_not_contiguous(
    place: int, change: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    """The kernels assume that the elements of a row are adjacent, and would read other elements."""
    tensors = [torch.randn(2, 2, 3, 4), KEYS, KEYS]
    tensors[place] = change(tensors[place])
    name = ("query", "key", "value")[place]
    with pytest.raises(UnsupportedOperators, match=f"the rows of {name} are not contiguous"):
        torchstone.export(lambda *given: ATTENTION(*given)[0], tuple(tensors))
    query, key, value = tensors
    out, logsumexp = ATTENTION(*(one.contiguous() for one in tensors))
    with pytest.raises(UnsupportedOperators, match=f"the rows of {name} are not contiguous"):
        torchstone.export(
            lambda *given: aten._scaled_dot_product_flash_attention_for_cpu_backward(*given, 0.0, False),
            (torch.ones_like(out), query, key, value, out, logsumexp),
        )


@pytest.mark.parametrize("heads", [(1, 4), (4, 2), (2, 1)], ids=str)
def test_attention_with_other_heads_of_values_than_of_keys(heads: tuple[int, int]) -> None:
    agrees(
        lambda *given: aten.scaled_dot_product_attention(*given, enable_gqa=True),
        torch.randn(2, 4, 3, 4),
        *(torch.randn(2, count, 5, 4) for count in heads),
    )


@pytest.mark.parametrize(
    ("query", "key", "value", "mask", "told"),
    [
        (
            (0, 2, 3, 4),
            (0, 2, 5, 4),
            (0, 2, 5, 4),
            (0, 2, 5, 4),
            r"attn_mask \[0, 2, 5, 4\] does not broadcast",
        ),
        ((2, 2, 0, 4), (2, 2, 3, 4), (2, 2, 3, 4), (5, 7), r"the scores' shape \[2, 2, 0, 3\]"),
        ((2, 2, 3, 4), (2, 2, 0, 4), (2, 2, 0, 4), (3, 5), r"the scores' shape \[2, 2, 3, 0\]"),
        ((2, 2, 3, 4), (2, 2, 5, 4), (2, 2, 7, 4), (3, 1), "are not of the same number of keys"),
        ((1, 2, 3, 4), (2, 2, 5, 4), (0, 2, 5, 4), (3, 1), "are not of the same batch"),
        ((2, 2, 3, 4), (2, 2, 0, 5), (2, 2, 0, 5), (3, 1), "are not of the same width"),
    ],
    ids=[
        *("empty batch", "no queries", "no keys", "values of other keys", "values of another batch"),
        "no keys of another width",
    ],
)
def test_attention_that_eager_does_not_check(
    query: tuple[int, ...], key: tuple[int, ...], value: tuple[int, ...], mask: tuple[int, ...], told: str
) -> None:
    tensors = tuple(torch.ones(shape) for shape in (query, key, value, mask))
    aten.scaled_dot_product_attention(*tensors)
    with pytest.raises(UnsupportedOperators, match=told):
        torchstone.export(lambda *given: aten.scaled_dot_product_attention(*given), tensors)


ROW = MATRIX[0]


@pytest.mark.parametrize(
    "call",
    [
        lambda x, row: aten.select_scatter(x, row, 0, 9),
        lambda x, row: aten.select_scatter(x, row, 5, 0),
        lambda x, row: aten.select_backward(row, [3, 4], 0, -4),
        lambda x, row: aten.slice_backward(x, [3, 4], 0, 0, 2, 1),
        lambda x, row: aten.diagonal_scatter(x, row[:3], 0, 0, 5),
        lambda x, row: aten.diagonal_backward(row[:3], [3, 4], 0, 0, 5),
        lambda x, row: aten.diagonal_backward(row[:3], [2, 2], 0, 0, 1),
        lambda x, row: aten.index_reduce(x, 2, torch.tensor([0, 1, 1]), x, "amin"),
    ],
)
def test_calls_that_eager_refuses_and_shape_rules_do_not(call: Callable[..., Any]) -> None:
    with pytest.raises((RuntimeError, IndexError)):
        call(MATRIX, ROW)
    with pytest.raises(CaptureError, match=r"correct the arguments: eager PyTorch refuses them as well"):
        torchstone.export(call, (MATRIX, ROW))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("dtype", [torch.int64, torch.int16, torch.uint8], ids=str)
def test_ldl_solve_with_pivots_of_another_dtype(dtype: torch.dtype) -> None:
    factors, pivots = torch.linalg.ldl_factor(torch.eye(3) * 4 + 1)
    agrees(torch.linalg.ldl_solve, factors, pivots.to(dtype), MATRIX)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("grad", "x"),
    [
        (torch.randn(14), torch.randn(())),
        (torch.randn(1), torch.randn(0)),
        (torch.randn(1, 1, 2), torch.randn(2, 1)),
    ],
    ids=["number", "nothing", "ranks"],
)
@pytest.mark.parametrize(
    "operator",
    [
        aten.mish_backward,
        aten.silu_backward,
        pytest.param(partial(aten.gelu_backward, approximate="tanh"), id="gelu_backward tanh"),
    ],
    ids=str,
)
def test_gradients_of_activations_broadcast(operator: Any, grad: torch.Tensor, x: torch.Tensor) -> None:
    agrees(operator, grad, x)


def test_the_exact_gradient_of_gelu_broadcasts() -> None:
    """Use float64: for float32 eager PyTorch uses oneDNN, which accepts only some of these shapes."""
    agrees(aten.gelu_backward, torch.randn(1, 1, 2).double(), torch.randn(2, 1).double())


def test_gradients_of_activations_of_integers_and_bools() -> None:
    agrees(aten.silu_backward, torch.randn(3).half(), torch.tensor([1, -2, 0]))
    agrees(aten.gelu_backward, torch.randn(3), torch.tensor([True, False, True]))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("loss", [aten.huber_loss, aten.soft_margin_loss], ids=str)
@pytest.mark.parametrize("other", [torch.float16, torch.float64, torch.int64], ids=str)
def test_losses_have_the_dtype_of_their_input(loss: Any, other: torch.dtype) -> None:
    x = torch.randn(3, 2)
    agrees(loss, x, (x > 0).to(other))
    torch._dynamo.reset()
    compiled = torch.compile(lambda x, y: loss(x, y), backend="torchstone", dynamic=True)
    torch.testing.assert_close(compiled(x, (x > 0).to(other)), loss(x, (x > 0).to(other)))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("parameters", [torch.float32, None], ids=str)
def test_statistics_of_16_bits_have_the_dtype_of_the_parameters(
    dtype: torch.dtype, parameters: torch.dtype | None
) -> None:
    x, own = torch.randn(2, 6, 4).to(dtype), parameters or dtype
    weight, var, long = torch.rand(6).to(own), torch.rand(6).to(own), torch.rand(4).to(own)

    def function(x: torch.Tensor, weight: torch.Tensor, var: torch.Tensor, long: torch.Tensor) -> Any:
        def own() -> tuple[torch.Tensor, ...]:  # native_batch_norm writes into the last two
            return weight, weight, weight.clone(), var.clone()

        return (
            *aten.native_layer_norm(x, [4], long, None, 1e-5),
            *aten.native_group_norm(x, weight, weight, 2, 6, 4, 2, 1e-5),
            *aten.native_batch_norm(x, *own(), True, 0.1, 1e-5),
            *aten._native_batch_norm_legit_functional(x, *own(), True, 0.1, 1e-5),
            *aten._native_batch_norm_legit.no_stats(x, weight, weight, True, 0.1, 1e-5),
            *aten._batch_norm_with_update_functional(x, *own(), 0.1, 1e-5),
        )

    args = (x, weight, var, long)
    found, wanted = torchstone.export(function, args)(*args), function(*args)
    assert [one.dtype for one in found] == [one.dtype for one in wanted]
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=2e-2, atol=2e-2)


def test_a_triangular_system_has_the_dtype_of_its_matrix() -> None:
    matrix = torch.randn(3, 3).triu() + 3 * torch.eye(3)
    for other in (torch.float64, torch.int64):
        agrees(
            lambda a, b: torch.linalg.solve_triangular(a, b, upper=True), matrix, torch.ones(3, 1).to(other)
        )


def test_resampling_by_a_scale_next_to_zero() -> None:
    program = torchstone.export(
        lambda g: aten.upsample_nearest2d_backward(g, [3, 4], [1, 1, 7, 9], None, 1e-30),
        (torch.ones(1, 1, 3, 4),),
    )
    assert program(torch.ones(1, 1, 3, 4)).sum() == 12


@pytest.mark.parametrize("mask", [[True, True], [True, False], [False, True]], ids=str)
def test_the_gradient_of_a_grid_is_there_whatever_the_mask(mask: list[bool]) -> None:
    args = (torch.randn(2, 3, 3, 4), torch.randn(2, 3, 5, 4), torch.rand(2, 3, 4, 2) - 0.5)
    function = lambda *xs: aten.grid_sampler_2d_backward(*xs, 0, 0, True, mask)  # noqa: E731
    found, wanted = torchstone.export(function, args)(*args), function(*args)
    for one, other in zip(found, wanted, strict=True):
        assert (one is None) == (other is None)
        if other is not None:
            torch.testing.assert_close(one, other)


def test_parameters_of_batch_norm_have_any_shape() -> None:
    x, one = torch.randn(5, 2), torch.rand(2)
    agrees(
        lambda x, one: aten._native_batch_norm_legit_no_training(x, one, one[None], one, one, 0.1, 1e-5)[0],
        x,
        one,
    )


LOSSES: list[tuple[Any, tuple[float, ...]]] = [
    (aten.mse_loss_backward, ()),
    (aten.smooth_l1_loss_backward, (1.0,)),
    (aten.huber_loss_backward, (1.0,)),
    (aten.soft_margin_loss_backward, ()),
]


@pytest.mark.sampled(4)
@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize(("operator", "options"), LOSSES, ids=str)
def test_the_mean_of_a_broadcast_loss_divides_by_the_elements_of_its_input(
    operator: Any, options: tuple[float, ...]
) -> None:
    def function(grad: torch.Tensor, *tensors: torch.Tensor) -> Any:
        pairs = zip(tensors[::2], tensors[1::2], strict=True)
        return [operator(grad, x, y, reduction, *options) for x, y in pairs for reduction in range(3)]

    shapes = [(3,), (2, 3), (2, 1), (1, 3), (2, 3), ()]
    agrees(function, torch.tensor(2.0), *map(torch.randn, shapes))


@pytest.mark.parametrize(
    ("operator", "name"), [(aten.huber_loss_backward, "delta"), (aten.smooth_l1_loss_backward, "beta")]
)
def test_gradients_of_losses_refuse_negative_widths(operator: Any, name: str) -> None:
    given = torch.randn(3, 11)
    with pytest.raises(UnsupportedOperators, match=f"{name} is -2.0, which the loss itself refuses"):
        torchstone.export(lambda *xs: operator(*xs, 0, -2.0), tuple(given))
    for width in (0.0, 1.0, float("inf"), float("nan")):
        agrees(lambda *xs, width=width: operator(*xs, 0, width), *given)


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize(("operator", "options"), LOSSES[:3], ids=str)
def test_the_gradient_of_a_loss_may_be_larger_than_its_input(
    operator: Any, options: tuple[float, ...]
) -> None:
    function = lambda grad, x, y: [operator(grad, x, y, reduction, *options) for reduction in range(3)]  # noqa: E731
    agrees(function, torch.randn(2, 3), torch.randn(3), torch.randn(3))
    agrees(function, torch.randn(1), torch.randn(()), torch.randn(()))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("other", [torch.float64, torch.float16])
@pytest.mark.parametrize(("operator", "options"), [LOSSES[0], LOSSES[1], LOSSES[3]], ids=str)
def test_the_gradient_of_a_loss_has_the_dtype_of_its_input(
    operator: Any, options: tuple[float, ...], other: torch.dtype, place: int
) -> None:
    given = [torch.ones(3), torch.tensor([0.5, 2, -3]), torch.tensor([1.0, -1, 1])]
    given[place] = given[place].to(other)
    agrees(lambda *tensors: operator(*tensors, 0, *options), *given)


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_a_compiled_loss_of_a_broadcast_input_trains() -> None:
    x, y = torch.randn(3, requires_grad=True), torch.randn(2, 3)
    (expected,) = torch.autograd.grad(aten.mse_loss(x, y), x)
    torch._dynamo.reset()
    for dynamic in (False, True):
        compiled = torch.compile(lambda x, y: aten.mse_loss(x, y), backend="torchstone", dynamic=dynamic)
        torch.testing.assert_close(torch.autograd.grad(compiled(x, y), x)[0], expected)


@pytest.mark.parametrize("p", [1, 2])
def test_a_margin_that_is_nan_is_no_violation(p: int) -> None:
    inf, nan = float("inf"), float("nan")
    x = torch.tensor([[inf, nan, 1.0, inf], [nan, nan, -inf, 2.0], [-inf, -inf, 3.0, 4.0]])
    agrees(
        lambda grad, x, target: (
            aten.multi_margin_loss(x, target, p, 0.5, None, 0),
            aten.multi_margin_loss_backward(grad, x, target, p, 0.5, None, 0),
        ),
        torch.ones(3),
        x,
        torch.tensor([0, 2, 1]),
    )


def test_gradient_of_smooth_l1_loss_with_a_beta_of_nan() -> None:
    x = torch.randn(3)
    agrees(lambda x: aten.smooth_l1_loss_backward(x, x, -x, 0, float("nan")), x)
    agrees(lambda x: aten.smooth_l1_loss_backward(x, x, -x, 0, 0.5), x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.complex64])
@pytest.mark.parametrize("beta", [0, 2])
def test_products_that_count_nothing_hide_their_nans(dtype: torch.dtype, beta: int) -> None:
    added = torch.ones(3, 3, dtype=dtype)
    matrix = added.clone()
    matrix[0, 1] = float("nan")
    agrees(lambda x, y: torch.addmm(x, y, y, beta=beta, alpha=0), added, matrix)
    agrees(lambda x, y: torch.addbmm(x, y[None], y[None], beta=beta, alpha=0), added, matrix)
    agrees(lambda x, y: torch.addmv(x[0], y, y[0], beta=beta, alpha=0), added, matrix)


MEANINGLESS: dict[str, tuple[Callable[[], Any], str]] = {
    "batch_norm_backward": (
        lambda: aten.native_batch_norm_backward(
            torch.ones(1, 1, 3), torch.ones(2, 1, 3), *[torch.ones(1)] * 5, True, 1e-5, [True] * 3
        ),
        r"grad_out has shape \[1, 1, 3\]; expected \[2, 1, 3\]",
    ),
    "layer_norm_backward": (
        lambda: aten.native_layer_norm_backward(
            torch.ones(3, 5), torch.ones(1, 5), [5], *[torch.ones(3, 1)] * 2, None, None, [True] * 3
        ),
        r"grad_out has shape \[3, 5\]; expected \[1, 5\]",
    ),
    "reflection_pad3d_backward": (
        lambda: aten.reflection_pad3d_backward(torch.ones(1, 3, 3, 3), torch.ones(2, 1, 1, 1), [1] * 6),
        r"grad_output has shape \[1, 3, 3, 3\]; expected \[2, 3, 3, 3\]",
    ),
    "repeat_interleave": (
        lambda: aten.repeat_interleave.Tensor(torch.ones(0, dtype=torch.int64), output_size=3),
        "allocated size does not match",
    ),
    "dequantize_per_token": (
        lambda: torch.ops.quantized_decomposed.dequantize_per_token(
            *(torch.zeros(1, 3, 4).to(torch.uint8), torch.ones(2, 3, 1), torch.zeros(2, 3, 1).long()),
            *(0, 255, torch.uint8, torch.float32),
        ),
        r"scales of shape \[2, 3, 1\] do not broadcast to the input's \[1, 3, 4\]",
    ),
    "quantize_per_token": (
        lambda: torch.ops.quantized_decomposed.quantize_per_token(
            torch.ones(2, 3), torch.ones(2, 1), torch.ones(1, 2, 1), -128, 127, torch.int8
        ),
        r"zero_points of shape \[1, 2, 1\] do not broadcast to the input's \[2, 3\]",
    ),
    "dequantize to integers": (
        lambda: torch.ops.quantized_decomposed.dequantize_per_tensor(
            torch.ones(2, dtype=torch.int8), 0.5, 3, -128, 127, torch.int8, out_dtype=torch.int64
        ),
        "out_dtype must be a floating-point dtype, got torch.int64",
    ),
    "quantize by zero": (
        lambda: torch.ops.quantized_decomposed.quantize_per_tensor(
            torch.ones(2, 3), 0.0, 3, -128, 127, torch.int8
        ),
        "division by zero",
    ),
    "quantize to an empty range": (
        lambda: torch.ops.quantized_decomposed.quantize_per_tensor(
            torch.ones(2, 3), 0.5, 3, 0, -1, torch.uint8
        ),
        "quant_min must not exceed quant_max, got 0 and -1",
    ),
    "more weights than a network has": (
        lambda: torch.ops.torchstone.lstm(
            *(torch.ones(1, 2, 3), [torch.ones(1, 2, 5)] * 2),
            *([torch.ones(20, 3), torch.ones(20, 5), torch.ones(20), torch.ones(20)], False),
            *(1, 0.0, False, False, False),
        ),
        "Expected 2 weights, got 4",
    ),
    "more weights than a packed network has": (
        lambda: torch.ops.torchstone.gru_packed(
            *(torch.ones(2, 3), torch.ones(1, dtype=torch.int64) * 2, torch.ones(1, 2, 5)),
            *([torch.ones(15, 3), torch.ones(15, 5), torch.ones(15), torch.ones(15)], False),
            *(1, 0.0, False, False),
        ),
        "Expected 2 weights, got 4",
    ),
    "places in a vector": (
        lambda: torch.ops.torchstone.sparse_sampled_mm(
            torch.zeros(1, 5, dtype=torch.int64), torch.ones(4, 3), torch.ones(3, 6)
        ),
        r"indices has shape \[1, 5\]; expected \[2, n\]",
    ),
    "fewer places than values": (
        lambda: torch.ops.torchstone.semi_structured_to_dense(
            torch.ones(2, 2), torch.zeros(1, 2, dtype=torch.int8)
        ),
        r"places has shape \[1, 2\]; expected \[2, 2\]",
    ),
}


@pytest.mark.parametrize("name", MEANINGLESS)
def test_what_has_no_meaning_is_refused(name: str) -> None:
    call, says = MEANINGLESS[name]
    with pytest.raises(CaptureError, match=says):
        torchstone.export(lambda x: (call(), x), (torch.ones(1),))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("weight", [(4, 3), (1, 3), (4, 1), (1,), (), (2, 4, 3)], ids=str)
def test_rms_norm_with_a_weight_that_broadcasts(weight: tuple[int, ...]) -> None:
    agrees(
        lambda x, weight: aten._fused_rms_norm(x, [3], weight, 1e-5), torch.randn(4, 3), torch.randn(weight)
    )


@pytest.mark.parametrize(("grad", "mask"), [((2, 3), (3,)), ((3,), (2, 3)), ((2, 1), (1, 3))], ids=str)
def test_masked_scatter_backward_broadcasts(grad: tuple[int, ...], mask: tuple[int, ...]) -> None:
    agrees(
        lambda grad, mask: aten.masked_scatter_backward(grad, mask, [2, 4]),
        torch.randn(grad),
        torch.arange(3).expand(mask) != 1,
    )


@pytest.mark.sampled(4)
@pytest.mark.parametrize("enabled", [1, 0, 0.5])
@pytest.mark.parametrize("zero_point", [1, 1.7])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.float64], ids=str)
def test_simulated_quantization_by_tensors_of_any_dtype(
    dtype: torch.dtype, zero_point: float, enabled: float
) -> None:
    agrees(
        lambda *args: aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams(*args, -1, 2),
        torch.tensor([0.3, 0.55, 3.0, -9.0]),
        torch.tensor([2], dtype=dtype),
        torch.tensor([zero_point]),
        torch.tensor([enabled]),
    )


@pytest.mark.sampled(6)
@pytest.mark.parametrize("shape", [(), (1,), (2,), (2, 1), (1, 2), (1, 1), (2, 2)], ids=str)
@pytest.mark.parametrize(
    "call",
    [
        lambda grad: aten.select_backward(grad, [2, 2, 3], 2, 1),
        lambda grad: aten.slice_backward(grad, [2, 5], 1, 1, 3, 1),
        lambda grad: aten.slice_backward(grad, [2, 5], -1, 0, 9, 3),
        lambda grad: aten.diagonal_backward(grad, [2, 4, 3], 1, 1, 2),
        lambda grad: aten.diagonal_backward(grad, [4, 2, 2], -2, 0, 2),
    ],
    ids=["select", "slice", "steps", "diagonal", "lower diagonal"],
)
def test_gradients_of_views_broadcast(
    call: Callable[[torch.Tensor], torch.Tensor], shape: tuple[int, ...]
) -> None:
    agrees(call, torch.randn(shape))


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("weight", [torch.nan, torch.inf])
def test_weights_of_margin_losses_count_only_where_the_margin_is_broken(p: int, weight: float) -> None:
    x, target = torch.tensor([[3.0, 1.0, 2.5], [0.0, 5.0, 1.0]]), torch.tensor([0, 1])
    weights = torch.full((3,), weight)
    agrees(lambda x: aten.multi_margin_loss(x, target, p, 1.0, weights, 0), x)
    agrees(lambda x: aten.multi_margin_loss_backward(torch.ones(2), x, target, p, 1.0, weights, 0), x)


def test_mean_embedding_bag_backward_with_bags_of_size_zero() -> None:
    agrees(
        lambda grad, indices, bags, sizes: aten._embedding_bag_dense_backward(
            grad, indices, bags, sizes, sizes, 5, True, 1, None, 1
        ),
        torch.randn(4, 3),
        torch.tensor([4, 1, 4, 0, 3, 2]),
        torch.tensor([0, 0, 2, 2, 2, 3]),
        torch.tensor([1, 3, 0, 1]),
    )


@pytest.mark.kept("(2, 1)")
@pytest.mark.parametrize("shape", [(), (4,), (2, 1)], ids=str)
def test_pseudo_inverses_of_one_matrix_with_several_tolerances(shape: tuple[int, ...]) -> None:
    matrix = torch.randn(3, 2, dtype=torch.float64)
    agrees(lambda a, atol: torch.linalg.pinv(a, atol=atol), matrix, torch.rand(shape, dtype=torch.float64))


@pytest.mark.parametrize("dtype", [torch.qint8, torch.quint8, torch.qint32], ids=str)
@pytest.mark.parametrize("zero", [0, 3, 65])
def test_quantized_ties(zero: int, dtype: torch.dtype) -> None:
    """Each kernel rounds in its own order: bytes once, 32 bits before and after the zero point is added."""
    x = torch.arange(-303, 303) * 0.025
    agrees(lambda x: torch.quantize_per_tensor(x, 0.05, zero, dtype).int_repr(), x)


WEIGHTS = torch.ones(3)
BATCH = torch.randn(2, 3, 4)
INT4 = (torch.randn(2, 64).bfloat16(), torch.zeros(16, 32, dtype=torch.uint8))
MISFITS: dict[str, tuple[Callable[[], Any], str]] = {
    "groups": (
        lambda: aten._weight_int4pack_mm_for_cpu(*INT4, 32, torch.ones(1, 16, 2).bfloat16()),
        r"qScaleAndZeros has shape \[1, 16, 2\]; expected \[2, 16, 2\]",
    ),
    "saved statistics": (
        lambda: aten.native_batch_norm_backward(
            BATCH, BATCH, WEIGHTS, None, None, WEIGHTS, WEIGHTS[:1], True, 1e-5, [True, True, True]
        ),
        r"save_invstd has shape \[1\]; expected \[3\]",
    ),
    "running statistics": (
        lambda: aten._native_batch_norm_legit_no_training(BATCH, None, None, WEIGHTS, WEIGHTS[:1], 0.1, 1e-5),
        r"running_var has shape \[1\], and the input has 3 channels",
    ),
    "gradient of another batch": (
        lambda: aten.batch_norm_backward(
            BATCH[:1], BATCH, WEIGHTS, None, None, WEIGHTS, WEIGHTS, True, 1e-5, [True] * 3, WEIGHTS[:0]
        ),
        r"grad_out has shape \[1, 3, 4\]; expected \[2, 3, 4\]",
    ),
    "padded rows": (
        lambda: aten.replication_pad1d_backward(torch.ones(3, 7), torch.ones(2, 4), [1, 2]),
        r"grad_output has shape \[3, 7\]; expected \[2, 7\]",
    ),
    "log_softmax": (
        lambda: aten._log_softmax_backward_data(torch.ones(1), torch.ones(()), 0, torch.float32),
        r"grad_output has shape \[1\]; expected \[\]",
    ),
    "pairs": (
        lambda: aten._pdist_backward(torch.ones(6), torch.ones(4, 3), 2.0, torch.ones(())),
        r"pdist has shape \[\]; expected \[6\]",
    ),
    "dtypes": (
        lambda: aten.native_layer_norm_backward(
            *(torch.ones(0, 4), torch.ones(0, 4).int(), [4], torch.ones(0, 1), torch.ones(0, 1)),
            *(torch.ones(4), torch.ones(4), [True] * 3),
        ),
        r"input is of torch\.int32, which is not a floating-point dtype",
    ),
    "rows": (
        lambda: aten.native_layer_norm_backward(
            *(MATRIX, MATRIX, [4], torch.ones(()), torch.ones(3, 1)),
            *(torch.ones(4), torch.ones(4), [True] * 3),
        ),
        r"mean has shape \[\], and the input has 3 rows",
    ),
    "sizes of bags": (
        lambda: aten._embedding_bag_dense_backward(
            torch.ones(4, 3), *[torch.zeros(6).long()] * 2, *[torch.ones(1).long()] * 2, 5, False, 1, None
        ),
        r"bag_size has shape \[1\]; expected a size of each of 4 bags",
    ),
    "reduced": (
        lambda: aten.multi_margin_loss_backward(WEIGHTS[:2], MATRIX[:2], torch.tensor([0, 1]), 1, 1.0),
        r"grad_output has shape \[2\], and a reduced loss is one number",
    ),
    "indices": (
        lambda: aten._embedding_bag(MATRIX, torch.zeros(1, 6).long(), torch.tensor([0, 2]))[0],
        "indices has 2 dimensions; expected 1",
    ),
    "offsets": (
        lambda: aten._embedding_bag_per_sample_weights_backward(
            torch.ones(3, 4), MATRIX, torch.zeros(6).long(), *[torch.zeros(n).long() for n in (1, 0)], 0
        ),
        r"offsets has shape \[1\], and the gradient has 3 bags",
    ),
    "products": (
        lambda: aten.addbmm(MATRIX.long(), torch.ones(0, 3, 2), torch.ones(0, 2, 4).long()),
        r"its arguments differ in dtype \(batch1 torch\.float32, batch2 torch\.int64\)",
    ),
    "images": (
        lambda: aten.avg_pool2d_backward(
            *(BATCH[None][:0], BATCH[None], [1, 1], [1, 1], [0, 0], False, True, None)
        ),
        r"grad_output has shape \[0, 2, 3, 4\]; expected \[1, 2, 3, 4\]",
    ),
    "unsigned": (
        lambda: aten.soft_margin_loss(WEIGHTS, WEIGHTS.to(torch.uint8)),
        r"target of torch\.uint8 has no negative",
    ),
    "target": (
        lambda: aten.binary_cross_entropy(WEIGHTS[0], WEIGHTS),
        "do not broadcast to the shape of self without axes of size 1",
    ),
}


@pytest.mark.parametrize("name", MISFITS)
def test_tensors_that_do_not_fit_together(name: str) -> None:
    """Eager PyTorch accepts these tensors, and reads beyond the smaller ones."""
    call, told = MISFITS[name]
    with pytest.raises(UnsupportedOperators, match=told):
        torchstone.export(lambda x: (x, call()), (MATRIX,))


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
def test_complex_zero_to_the_power_of_zero(dtype: torch.dtype) -> None:
    zeros, exponents = torch.zeros(3, dtype=dtype), torch.tensor([0, 1j, 2], dtype=dtype)
    agrees(lambda x, y: (x**y, 0**y, x**0), zeros, exponents)


def test_trilinear_with_axes_from_the_end() -> None:
    agrees(
        lambda a, b, c: aten._trilinear(a, b, c, [-3, 3], [0], [1, 2], [2, -1]),
        *(torch.randn(2, 3), torch.randn(5, 3, 4), torch.randn(2, 4)),
    )


def test_no_rows_of_int4_weights() -> None:
    agrees(lambda x: aten._convert_weight_to_int4pack_for_cpu(x, 1), torch.zeros(0, 64, dtype=torch.int32))


@pytest.mark.parametrize("axes", [2, 3])
def test_grid_samplers_give_elements_outside_nothing_of_an_infinite_gradient(axes: int) -> None:
    grad = torch.randn(1, 2, *[3] * axes)
    grad.view(-1)[3], grad.view(-1)[9] = torch.inf, torch.nan
    operator = aten.grid_sampler_2d_backward if axes == 2 else aten.grid_sampler_3d_backward
    agrees(
        lambda grad, x, grid: operator(grad, x, grid, 0, 0, True, [True, False])[0],
        *(grad, torch.randn(1, 2, *[3] * axes), torch.randn(1, *[3] * axes, axes) * 1.2),
    )


def test_nan_in_bags_of_maxima() -> None:
    weight = torch.randn(5, 2)
    weight[1, 0] = weight[3, 1] = torch.nan
    bags = (torch.tensor([1, 0, 0, 1, 2, 3, 3, 4]), torch.tensor([0, 2, 5, 5, 7]))
    agrees(lambda weight: aten._embedding_bag(weight, *bags, False, 2), weight)


@pytest.mark.parametrize("operator", [aten.nextafter, aten.fmod, aten.atan2, aten.special_zeta], ids=str)
@pytest.mark.parametrize("dtype", [torch.bool, torch.uint64], ids=str)
def test_functions_of_real_numbers_with_a_second_operand_that_is_complex(
    operator: Any, dtype: torch.dtype
) -> None:
    """MLIR would end the process when some of these operations are made."""
    with pytest.raises(TorchstoneError, match=r"not supported for complex64|eager PyTorch refuses"):
        torchstone.export(
            lambda x, y: operator(x, y), (torch.ones(3).to(dtype), torch.ones(3, dtype=torch.complex64))
        )


@pytest.mark.parametrize("name", ["multilabel_margin_loss_forward", "multi_margin_loss"])
def test_targets_without_elements_have_any_dtype(name: str) -> None:
    call = getattr(torch.ops.aten, name).default

    def function(x: torch.Tensor) -> Any:
        return call(x, x, 0) if name.startswith("multilabel") else call(x, x[:, 0], 1, 1.0, None, 0)

    x = torch.randn(0, 5)
    torch.testing.assert_close(torchstone.export(function, (x,))(x), function(x), equal_nan=True)


def test_an_rms_norm_over_more_axes_than_there_are_is_refused() -> None:
    norm = torch.ops.aten._fused_rms_norm.default
    with pytest.raises(UnsupportedOperators, match="it normalizes over 1 axes, and its input has 0"):
        torchstone.export(lambda x: norm(x, [2], None, 0.1)[0], (torch.tensor(1.0),))
