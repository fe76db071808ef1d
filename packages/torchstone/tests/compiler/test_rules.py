"""Capture rules: PyTorch's own, users', what they say when they cannot, and that nothing stays replaced."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.ao.nn import quantized
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import torchstone
from torchstone.compiler.rules import RULES, replacements
from torchstone.compiler.rules.registry import capture_rule, without_replaced_modules
from torchstone.errors import CaptureError, UnsupportedOperators


@pytest.fixture
def own_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the rules that the test registers when it ends."""
    for name in ("calls", "modules", "attributes"):
        monkeypatch.setattr(RULES, name, dict(getattr(RULES, name)))


class Library:
    """A user's library, which torch.export cannot trace."""

    @staticmethod
    def largest(x: Tensor) -> float:
        return x.max().item()


@pytest.mark.usefixtures("own_rules")
def test_a_function_of_torch_is_replaced() -> None:
    @torchstone.capture_rule(torch.histc)
    def histogram(x: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Any:
        return NotImplemented if bins == 3 else x.new_zeros(bins)

    x = torch.tensor([0.5, 1.5, 2.5])
    assert torchstone.export(lambda x: torch.histc(x, 2, 0, 3), (x,))(x).tolist() == [0, 0]
    assert torchstone.export(lambda x: torch.histc(x, 3, 0, 3), (x,))(x).tolist() == [1, 1, 1]
    assert torch.histc(x, 2, 0, 3).tolist() == [1, 2]


@pytest.mark.usefixtures("own_rules")
def test_a_call_that_does_not_fit_the_rule_is_pytorchs_own() -> None:
    torchstone.capture_rule(torch.neg)(lambda x: x * 0)

    def model(x: Tensor) -> Any:
        return torch.neg(x), torch.neg(x, out=torch.empty_like(x))

    plain, out = torchstone.export(model, (torch.tensor([2.0]),))(torch.tensor([2.0]))
    assert (plain.tolist(), out.tolist()) == ([0], [-2])


@pytest.mark.usefixtures("own_rules")
def test_an_attribute_is_replaced() -> None:
    capture_rule((Library, "largest"))(lambda x: x.sum())
    x = torch.tensor([1.0, 3.0])
    assert torchstone.export(lambda x: x / Library.largest(x), (x * 4,))(x).tolist() == [0.25, 0.75]
    assert Library.largest(x) == 3.0


@pytest.mark.usefixtures("own_rules")
def test_a_module_is_replaced_and_the_model_stays_as_it_is() -> None:
    class Odd(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x if x.sum() > 0 else -x

    capture_rule(Odd)(lambda module: lambda x: x * 2)
    model = nn.Sequential(nn.Linear(2, 2), nn.ModuleDict({"odd": Odd()})["odd"])
    x = torch.ones(1, 2)
    program = torchstone.export(model, (x,))
    torch.testing.assert_close(program(x), model[0](x) * 2)
    assert isinstance(model[1], Odd)
    assert set(program.signature.inputs[0].target or "") & set("weight")
    assert torchstone.export(Odd(), (x,))(x).tolist() == [[2, 2]]


def test_one_hot_needs_a_bound() -> None:
    x = torch.tensor([1, 4, 2])
    with pytest.raises(
        CaptureError, match="number of classes of one_hot without num_classes depends on values"
    ):
        torchstone.export(F.one_hot, (x,))
    with torchstone.bounds(classes=6):
        program = torchstone.export(F.one_hot, (x,))
    assert torch.equal(program(x), F.one_hot(x, 6))
    with pytest.raises(CaptureError):
        torchstone.export(F.one_hot, (x,))


@pytest.mark.parametrize("size", [0, -1, 2.5])
def test_a_bound_is_a_positive_integer(size: Any) -> None:
    with pytest.raises(CaptureError, match="is not a positive integer"), torchstone.bounds(classes=size):
        pass


def test_a_bound_on_nonzeros() -> None:
    def nonzeros(x: Tensor) -> tuple[Tensor, Tensor, int]:
        sparse = x.to_sparse()
        return sparse.indices(), sparse.values(), sparse._nnz()

    x = torch.tensor([[0.0, 2.0], [3.0, 4.0]])
    with torchstone.bounds(nonzeros=2):
        program = torchstone.export(nonzeros, (x,))
    indices, values, count = program(x)
    assert indices.tolist() == [[0, 1], [1, 0]]
    assert values.tolist() == [2, 3]
    assert count == 3  # more than there is room for
    indices, values, count = program(torch.tensor([[0.0, 0.0], [0.0, 5.0]]))
    assert (indices.tolist(), values.tolist(), count) == ([[1, 2], [1, 2]], [5, 0], 1)


def test_selections_by_a_mask() -> None:
    def selected(x: Tensor, mask: Tensor, rows: Tensor) -> list[Tensor]:
        return [x.masked_select(mask), x[mask], x[rows], mask.nonzero(), mask.sum(), rows.sum()]

    x, mask = torch.randn(3, 4), torch.rand(3, 4) < 0.5
    rows = torch.tensor([True, False, True])
    with torchstone.bounds(selected=9):
        program = torchstone.export(selected, (x, mask, rows))
    for given in (mask, torch.zeros_like(mask), ~mask):
        *found, count, whole = program(x, given, rows)
        expected = selected(x, given, rows)
        for have, want, size in zip(found, expected, (count, count, whole, count), strict=False):
            assert torch.equal(have[:size], want)
        for have, size in zip(found[:3], (count, count, whole), strict=True):
            assert have.shape[0] == 9
            assert not have[size:].any()
        assert (found[3][count:] == -1).all()
    everything = program(x, torch.ones_like(mask), rows)
    assert torch.equal(everything[0], x.flatten()[:9])
    assert everything[4] == 12  # more than there is room for
    assert torch.equal(torchstone.export(lambda x, m: x[m], (x, mask))(x, mask), x[mask])


def test_narrow_from_where_a_tensor_says() -> None:
    def window(x: Tensor, start: Tensor) -> Tensor:
        return torch.narrow(x, 1, start, 2) * 2

    x = torch.arange(12.0).reshape(3, 4)
    program = torchstone.export(window, (x, torch.tensor(1)))
    for start in (0, 2, -3):
        assert torch.equal(program(x, torch.tensor(start)), window(x, torch.tensor(start)))
    with pytest.raises(CaptureError, match="is a copy in a program, a view in PyTorch"):
        torchstone.export(lambda x, start: x.clone().narrow(1, start, 2).zero_(), (x, torch.tensor(1)))


def test_a_sparse_result_leaves_as_its_parts() -> None:
    x = torch.tensor([[0.0, 2.0], [3.0, 0.0]])
    parts = torchstone.export(lambda x: x.to_sparse_csr(), (x,))(x)
    assert parts["crow_indices"].tolist() == [0, 1, 2]
    assert parts["col_indices"].tolist() == [1, 0, 2, 2]
    assert parts["count"] == 2


@pytest.mark.filterwarnings("ignore:.*:UserWarning")
def test_sparse_products_from_all_sides() -> None:
    def products(values: Tensor, left: Tensor, right: Tensor) -> list[Tensor]:
        a = torch.sparse_coo_tensor(torch.tensor([[0, 1, 1], [2, 0, 2]]), values, (2, 3))
        csr = a.coalesce().to_sparse_csr()
        return [
            a @ right,
            torch.mm(csr, right),
            left @ a.to_dense(),
            (a * 2).t() @ left.T,
            left @ right.T + a,
        ]

    inputs = torch.randn(3), torch.randn(2, 2), torch.randn(3, 2)
    expected = products(*inputs)
    for found, want in zip(torchstone.export(products, inputs)(*inputs), expected, strict=True):
        torch.testing.assert_close(found, want)


@pytest.mark.filterwarnings("ignore:.*:UserWarning")
def test_sampled_products() -> None:
    def sampled(a: Tensor, b: Tensor, values: Tensor) -> Tensor:
        at = torch.sparse_csr_tensor(torch.tensor([0, 1, 3]), torch.tensor([2, 0, 1]), values, (2, 3))
        return torch.sparse.sampled_addmm(at, a, b, beta=0.5, alpha=2.0).to_dense()

    inputs = torch.randn(2, 4), torch.randn(4, 3), torch.randn(3)
    torch.testing.assert_close(torchstone.export(sampled, inputs)(*inputs), sampled(*inputs))


def test_semi_structured_sparsity_names_its_format_and_pattern() -> None:
    def halved(x: Tensor, weight: Tensor) -> Tensor:
        return F.linear(x, torch.sparse.to_sparse_semi_structured(weight))

    x, weight = torch.randn(8, 64), torch.randn(64, 64) * torch.tensor([1, 0, 0, 1]).repeat(16)
    program = torchstone.export(halved, (x, weight))
    for line in program.mlir_text().splitlines():
        if "composite" in line and "semi_structured" in line:
            assert 'format = "semi_structured", pattern = "2:4"' in line
    assert program.mlir_text().count('pattern = "2:4"') >= 2
    torch.testing.assert_close(program(x, weight), F.linear(x, weight))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dim", [0, 1, 2, -1])
def test_softmax_of_a_sparse_tensor_with_dense_dimensions(dim: int) -> None:
    def normalized(values: Tensor, index: Tensor) -> list[Tensor]:
        sparse = torch.sparse_coo_tensor(index, values, (3, 4, 2, 3))
        made = [torch.sparse.softmax(sparse, dim), torch.sparse.log_softmax(sparse, dim)]
        return [one.to_dense() for one in made]

    inputs = torch.randn(5, 2, 3), torch.tensor([[0, 2, 0, 1, 0], [1, 3, 0, 2, 1]])
    for found, want in zip(torchstone.export(normalized, inputs)(*inputs), normalized(*inputs), strict=True):
        torch.testing.assert_close(found, want)


def test_what_no_rule_covers_is_said() -> None:
    with pytest.raises(
        CaptureError, match=r"sin has no capture rule for a sparse tensor\n  next: make it dense"
    ):
        torchstone.export(lambda x: torch.sin(x.to_sparse()), (torch.eye(2),))
    with pytest.raises(CaptureError, match="gives a quantized tensor the attribute 'sigmoid'"):
        torchstone.export(
            lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.quint8).sigmoid(), (torch.eye(2),)
        )
    with pytest.raises(CaptureError, match="size of sparse_coo_tensor without size= depends on values"):
        torchstone.export(lambda i, v: torch.sparse_coo_tensor(i, v), (torch.tensor([[1]]), torch.ones(1)))


@pytest.mark.filterwarnings("ignore:.*:UserWarning")
def test_parts_of_a_quantized_tensor() -> None:
    def parts(x: Tensor) -> list[Any]:
        q = torch.quantize_per_tensor(x, 0.05, 3, torch.qint8)
        return [
            q.int_repr(),
            q.q_scale(),
            q.q_zero_point(),
            q.reshape(-1).dequantize(),
            torch.relu(q).int_repr(),
        ]

    x = torch.randn(3, 4) * 3
    found, want = torchstone.export(parts, (x,))(x), parts(x)
    assert found[1:3] == want[1:3]
    for position in (0, 3, 4):
        assert torch.equal(found[position], want[position])


@pytest.mark.filterwarnings("ignore:.*:UserWarning")
def test_a_quantized_convolution_with_relu_in_bits() -> None:
    layer = quantized.Conv2d(2, 3, 3, stride=2)
    weight = torch.quantize_per_tensor(torch.randn(3, 2, 3, 3), 0.02, 0, torch.qint8)
    layer.set_weight_bias(weight, torch.randn(3))
    layer.scale, layer.zero_point = 0.1, 60
    model = nn.Sequential(quantized.Quantize(0.05, 64, torch.quint8), layer, nn.ReLU())
    x = torch.randn(2, 2, 9, 9)
    found = torchstone.export(model, (x,))(x)
    assert torch.equal(found["integers"], model(x).int_repr())
    assert found["scale"] == [layer.scale]


@pytest.mark.filterwarnings("ignore:.*:UserWarning", "ignore:.*:DeprecationWarning")
@pytest.mark.parametrize("dtype", [torch.qint8, torch.float16])
def test_dynamic_quantization(dtype: torch.dtype) -> None:
    model = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 3, bias=False))
    model = torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, dtype=dtype)
    x = torch.randn(5, 16)
    torch.testing.assert_close(torchstone.export(model, (x,))(x), model(x))


@pytest.mark.filterwarnings("ignore:.*:UserWarning", "ignore:.*:DeprecationWarning")
def test_dynamic_quantization_of_recurrent_layers_says_that_it_has_no_rule() -> None:
    model = torch.ao.quantization.quantize_dynamic(nn.ModuleDict({"lstm": nn.LSTM(4, 4)}))
    with pytest.raises(CaptureError, match="LSTM with dynamic quantization has no capture rule"):
        torchstone.export(model["lstm"], (torch.randn(3, 2, 4),))


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_gaussian_nll_loss(reduction: str) -> None:
    def losses(x: Tensor, y: Tensor, var: Tensor) -> list[Tensor]:
        of_rows, of_one = var.amax(1), var.amax(1, keepdim=True)
        return [
            F.gaussian_nll_loss(x, y, v, reduction=reduction, full=v is var) for v in (var, of_rows, of_one)
        ]

    inputs = torch.randn(3, 4), torch.randn(3, 4), torch.rand(3, 4)
    for found, want in zip(torchstone.export(losses, inputs)(*inputs), losses(*inputs), strict=True):
        torch.testing.assert_close(found, want)
    with pytest.raises(CaptureError, match="var is of incorrect size"):
        torchstone.export(lambda x, v: F.gaussian_nll_loss(x, x, v), (torch.ones(3, 4), torch.ones(2)))
    with pytest.raises(CaptureError, match="var has negative entry"):
        torchstone.export(lambda x: F.gaussian_nll_loss(x, x, -1.0), (torch.ones(3),))


def test_gaussian_nll_loss_of_integers_and_a_number() -> None:
    x = torch.arange(4)
    found = torchstone.export(lambda x: F.gaussian_nll_loss(x, x + 1, 0.5), (x,))(x)
    torch.testing.assert_close(found, F.gaussian_nll_loss(x, x + 1, 0.5))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
@pytest.mark.parametrize("batch_first", [False, True])
def test_packed_sequences_come_back(batch_first: bool, dtype: torch.dtype) -> None:
    def there_and_back(x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        packed = pack_padded_sequence(x, lengths, batch_first, enforce_sorted=False)
        return pad_packed_sequence(packed, batch_first, padding_value=-1.0, total_length=5)

    x, lengths = (torch.randn(5, 3, 2) * 9).to(dtype), torch.tensor([2, 5, 4])
    x = x.transpose(0, 1) if batch_first else x
    found = torchstone.export(there_and_back, (x, lengths))(x, lengths)
    for have, want in zip(found, there_and_back(x, lengths), strict=True):
        assert have.dtype == want.dtype
        assert torch.equal(have, want)


def test_packed_rows_come_first() -> None:
    def packed(x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        made = pack_padded_sequence(x, lengths)
        return made.data, made.batch_sizes

    x, lengths = torch.randn(4, 2, 3), torch.tensor([3, 1])
    data, sizes = torchstone.export(packed, (x, lengths))(x, lengths)
    want = packed(x, lengths)
    assert torch.equal(data[:4], want[0])
    assert not data[4:].any()
    assert sizes.tolist() == [*want[1].tolist(), 0]


@pytest.mark.parametrize("network", [nn.LSTM(2, 3, bidirectional=True), nn.GRU(2, 3, num_layers=2)])
def test_a_network_over_packed_sequences_takes_any_lengths(network: nn.Module) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, x: Tensor, lengths: Tensor) -> Any:
            output, last = self.network(pack_padded_sequence(x, lengths, enforce_sorted=False))
            return pad_packed_sequence(output, total_length=5), last

    model, x = Model().eval(), torch.randn(5, 3, 2)
    program = torchstone.export(model, (x, torch.tensor([2, 5, 4])))
    for lengths in ([2, 5, 4], [1, 3, 2], [5, 5, 5]):
        torch.testing.assert_close(program(x, torch.tensor(lengths)), model(x, torch.tensor(lengths)))


def test_nothing_stays_replaced() -> None:
    with pytest.raises(CaptureError):
        torchstone.export(lambda x: x.to_sparse().no_such_thing, (torch.eye(2),))
    assert torch.eye(2).to_sparse().layout is torch.sparse_coo
    with pytest.raises(RuntimeError, match="is not supported"):
        torch.sparse.to_sparse_semi_structured(torch.eye(64))


STATISTICS: dict[str, Callable[[Tensor], Tensor]] = {
    "covariance": torch.cov,
    "of one variable": lambda x: torch.cov(x[0]),
    "frequencies": lambda x: torch.cov(x, fweights=torch.tensor([1, 2, 3, 1]), correction=0),
    "weights": lambda x: torch.cov(x, aweights=torch.tensor([0.5, 1.0, 2.0, 0.25])),
    "correlations": torch.corrcoef,
    "complex correlations": lambda x: torch.corrcoef(torch.complex(x, x.flip(0))),
    "pairs": lambda x: torch.combinations(x[0]),
    "triples with replacement": lambda x: torch.combinations(x[0], 3, with_replacement=True),
    "none": lambda x: torch.combinations(x[0, :1], 2),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", STATISTICS)
def test_statistics_that_look_at_values_in_eager(name: str) -> None:
    x = torch.tensor([[0.5, -1.0, 2.0, 0.0], [1.0, 3.0, -2.0, 0.5], [2.0, 0.0, 1.0, 4.0]])
    function = STATISTICS[name]
    torch.testing.assert_close(torchstone.export(function, (x,))(x), function(x))


def test_least_squares() -> None:
    def solved(a: Tensor, b: Tensor) -> list[Tensor]:
        found = torch.linalg.lstsq(a, b, driver="gelsd")
        return [found.solution, found.residuals, found.rank]

    a = torch.tensor([[1.0, 2.0], [3.0, -1.0], [0.5, 4.0], [2.0, 2.0]])
    b = torch.tensor([[1.0], [0.0], [2.0], [-1.0]])
    program = torchstone.export(solved, (a, b))
    torch.testing.assert_close(program(a, b), solved(a, b))
    solution, residuals, rank = program(a[:, :1].expand(4, 2).contiguous(), b)
    torch.testing.assert_close(solution, solved(a[:, :1].expand(4, 2), b)[0])
    assert rank == 1
    assert residuals.isnan().all()  # PyTorch returns no residuals here
    with pytest.raises(CaptureError, match=r"size\(-2\) should match"):
        torchstone.export(solved, (a, b[:3]))


@pytest.mark.parametrize(("kind", "shape"), [(nn.BatchNorm1d, (6, 4)), (nn.BatchNorm2d, (3, 4, 5, 5))])
def test_batch_norm_with_a_cumulative_average(kind: Any, shape: tuple[int, ...]) -> None:
    """PyTorch divides by the number of batches as a Python number."""
    model = nn.Sequential(nn.Identity(), kind(4, momentum=None)).train()
    twin = copy.deepcopy(model)
    program = torchstone.export(twin, (torch.randn(shape),))
    assert twin.state_dict().keys() == program.state().keys()
    for _ in range(3):
        x = torch.randn(shape) * 2 + 1
        torch.testing.assert_close(program(x), model(x))
    for name, value in model.state_dict().items():
        torch.testing.assert_close(torch.from_numpy(program.state()[name].copy()), value)
    model.eval()
    torch.testing.assert_close(torchstone.export(model, (x,))(x), model(x))


def test_a_rule_that_leaves_a_module_as_it_is_replaces_nothing() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4))
    with replacements() as replaced:
        assert without_replaced_modules(model) is model
    assert replaced == set()
    model[1].momentum = None
    with replacements() as replaced:
        assert without_replaced_modules(model) is not model
    assert replaced == {"BatchNorm2d"}


def test_bincount_with_declared_bins() -> None:
    numbers, weights = torch.tensor([1, 2, 2, 5]), torch.tensor([0.5, 1.0, 2.0, 4.0])
    with pytest.raises(UnsupportedOperators, match="bincount"):
        torchstone.export(torch.bincount, (numbers,))
    with torchstone.bounds(bins=5):
        plain = torchstone.export(torch.bincount, (numbers,))
        weighted = torchstone.export(lambda x, w: x.bincount(w, minlength=8), (numbers, weights))
        double = torchstone.export(lambda x, w: x.bincount(w), (numbers.int(), weights.double()))
    torch.testing.assert_close(plain(numbers), torch.bincount(numbers)[:5])
    torch.testing.assert_close(weighted(numbers, weights), numbers.bincount(weights, minlength=8))
    torch.testing.assert_close(
        double(numbers.int(), weights.double()), numbers.bincount(weights.double())[:5]
    )


def test_index_put_by_its_inner_name() -> None:
    def put(x: Tensor, places: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        written = x.clone()
        torch.ops.aten._index_put_impl_(written, [places], values, False, True)
        return torch.ops.aten._index_put_impl(x, [places], values, True), written

    args = (torch.randn(5), torch.tensor([0, 3, 4]), torch.randn(3))
    torch.testing.assert_close(torchstone.export(put, args)(*args), put(*args))
