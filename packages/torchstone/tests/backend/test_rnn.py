"""Recurrent networks through ``torch.compile`` and export: whole, as loops, with eager's gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_sequence
from torch.utils import _pytree as pytree

import torchstone
from torchstone.backend.records import GraphRecord, recorded
from torchstone.lowering.own import STAND_INS

INPUTS, HIDDEN, TIME, BATCH = 3, 5, 4, 2
LAYER, BACKWARD = "torchstone.rnn_layer.default", "torchstone.rnn_layer_backward.default"

NETWORKS: dict[str, Callable[[], nn.RNNBase]] = {
    "lstm": lambda: nn.LSTM(INPUTS, HIDDEN),
    "lstm-projected": lambda: nn.LSTM(
        INPUTS, HIDDEN, num_layers=2, bidirectional=True, proj_size=2, batch_first=True
    ),
    "gru": lambda: nn.GRU(INPUTS, HIDDEN, num_layers=2, bidirectional=True),
    "gru-no-biases": lambda: nn.GRU(INPUTS, HIDDEN, bias=False, batch_first=True),
    "rnn-tanh": lambda: nn.RNN(INPUTS, HIDDEN, num_layers=2),
    "rnn-relu": lambda: nn.RNN(INPUTS, HIDDEN, nonlinearity="relu", bidirectional=True),
}


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


def compiled(function: Callable[..., Any], **settings: Any) -> Any:
    """Compile ``function``; raise on a graph break or on an operator that would run in eager PyTorch."""
    return torch.compile(
        function, backend="torchstone", fullgraph=True, options={"fallback": False}, **settings
    )


def initial(network: nn.RNNBase, batch: Sequence[int] = (BATCH,), dtype: torch.dtype | None = None) -> Any:
    """Random initial states of a network, of 0 or 1 batch dimensions."""
    count = network.num_layers * (1 + network.bidirectional)
    hidden = torch.randn(count, *batch, network.proj_size or HIDDEN, dtype=dtype, requires_grad=True)
    if not isinstance(network, nn.LSTM):
        return hidden
    return hidden, torch.randn(count, *batch, HIDDEN, dtype=dtype, requires_grad=True)


def outputs_and_gradients(network: nn.Module, call: Callable[..., Any], *args: Any) -> list[torch.Tensor]:
    """Return all outputs, then the gradients of their weighted sum: arguments' first, then parameters'."""
    leaves = [leaf for leaf in pytree.tree_leaves(args) if getattr(leaf, "requires_grad", False)]
    leaves += list(network.parameters())
    outputs = [leaf for leaf in pytree.tree_leaves(call(*args)) if leaf.is_floating_point()]
    total = sum((o * torch.arange(o.numel(), dtype=o.dtype).view(o.shape).sin()).sum() for o in outputs)
    return [*outputs, *torch.autograd.grad(total, leaves)]


def agree(ours: Sequence[torch.Tensor], eager: Sequence[torch.Tensor], **tolerance: float) -> None:
    assert len(ours) == len(eager)
    for a, b in zip(ours, eager, strict=True):
        torch.testing.assert_close(a, b, **tolerance)


def counts(records: list[GraphRecord]) -> dict[str, tuple[int, int]]:
    """Return, by kind of graph, how many layers and how many gradients of layers it has."""
    return {record.kind: (record.native[LAYER], record.native[BACKWARD]) for record in records}


@pytest.mark.kept("gru")
@pytest.mark.parametrize("name", NETWORKS)
def test_gradients_agree_with_eager(name: str) -> None:
    network = NETWORKS[name]()
    x = torch.randn(TIME, BATCH, INPUTS, requires_grad=True)
    hx = initial(network, (TIME if network.batch_first else BATCH,))
    with recorded() as records:
        ours = outputs_and_gradients(network, compiled(network), x, hx)
    agree(ours, outputs_and_gradients(network, network, x, hx))
    layers = network.num_layers * (1 + network.bidirectional)
    assert counts(records) == {"forward": (layers, 0), "backward": (0, layers)}


@pytest.mark.kept("lstm", "gru-no-biases")
@pytest.mark.parametrize("name", NETWORKS)
def test_float64_gradients_without_initial_states(name: str) -> None:
    network = NETWORKS[name]().double()
    x = torch.randn(TIME, BATCH, INPUTS, dtype=torch.float64, requires_grad=True)
    ours = outputs_and_gradients(network, compiled(network), x)
    agree(ours, outputs_and_gradients(network, network, x), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["lstm-projected", "gru", "rnn-relu"])
def test_inference_is_one_operator(name: str) -> None:
    network, x = NETWORKS[name](), torch.randn(TIME, BATCH, INPUTS)
    with recorded() as records, torch.no_grad():
        agree(pytree.tree_leaves(compiled(network)(x)), pytree.tree_leaves(network(x)))
    (record,) = records
    assert record.native[f"torchstone.{network.mode.lower()}.default"] == 1


@pytest.mark.kept("gru")
@pytest.mark.parametrize("name", ["lstm-projected", "gru", "rnn-relu"])
def test_inference_over_several_blocks_of_steps(name: str) -> None:
    """The 150 steps are several whole blocks and a part of one, read from either end."""
    network = NETWORKS[name]()
    x = torch.randn(*((BATCH, 150) if network.batch_first else (150, BATCH)), INPUTS)
    with torch.no_grad():
        agree(pytree.tree_leaves(compiled(network)(x)), pytree.tree_leaves(network(x)))


def test_more_steps_make_no_larger_graph() -> None:
    network, sizes = nn.LSTM(INPUTS, HIDDEN), []
    for time in (2, 200):
        torch._dynamo.reset()
        with recorded() as records:
            outputs_and_gradients(network, compiled(network), torch.randn(time, BATCH, INPUTS))
        sizes.append([record.native for record in records])
    assert sizes[0] == sizes[1]


def test_inside_a_model() -> None:
    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(10, INPUTS)
            self.network = nn.LSTM(INPUTS, HIDDEN, bidirectional=True)
            self.head = nn.Linear(2 * HIDDEN, 4)

        def forward(self, words: torch.Tensor) -> torch.Tensor:
            return self.head(self.network(self.embedding(words))[0]).relu()

    model, words = Tagger(), torch.randint(0, 10, (TIME, BATCH))
    with recorded() as records:
        ours = outputs_and_gradients(model, compiled(model), words)
    agree(ours, outputs_and_gradients(model, model, words))
    assert [record.kind for record in records] == ["forward", "backward"]


def test_unbatched() -> None:
    network, x = nn.GRU(INPUTS, HIDDEN), torch.randn(TIME, INPUTS, requires_grad=True)
    hx = initial(network, ())
    ours = outputs_and_gradients(network, compiled(network), x, hx)
    agree(ours, outputs_and_gradients(network, network, x, hx))


def test_bfloat16() -> None:
    network = nn.LSTM(INPUTS, HIDDEN).bfloat16()
    x = torch.randn(TIME, BATCH, INPUTS, dtype=torch.bfloat16, requires_grad=True)
    ours = outputs_and_gradients(network, compiled(network), x)
    wide = outputs_and_gradients(network.double(), network, x.detach().double().requires_grad_())
    assert all(tensor.dtype is torch.bfloat16 for tensor in ours)
    for a, b in zip(ours, wide, strict=True):  # bfloat16 has 8 bits: allow a few roundings of 2⁻⁸ each
        assert (a.double() - b).abs().max() <= 2**-6 * b.abs().max()


def test_sequence_length_may_vary() -> None:
    network = nn.LSTM(INPUTS, HIDDEN)
    fast = compiled(network, dynamic=True)
    for time in (3, 6):
        x = torch.randn(time, BATCH, INPUTS, requires_grad=True)
        agree(outputs_and_gradients(network, fast, x), outputs_and_gradients(network, network, x))


@pytest.mark.kept("LSTMCell")
@pytest.mark.parametrize("kind", [nn.LSTMCell, nn.GRUCell, nn.RNNCell])
def test_cells(kind: Any) -> None:
    cell, x = kind(INPUTS, HIDDEN), torch.randn(BATCH, INPUTS, requires_grad=True)

    def thrice(x: torch.Tensor) -> Any:
        state = None
        for _ in range(3):
            state = cell(x, state)
        return state

    agree(outputs_and_gradients(cell, compiled(thrice), x), outputs_and_gradients(cell, thrice, x))


class TestPacked:
    """``PackedSequence`` arguments; packing itself is Python that Dynamo leaves to eager."""

    @staticmethod
    def sequences(dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
        return [torch.randn(size, INPUTS, dtype=dtype, requires_grad=True) for size in (5, 2, 4, 2)]

    @pytest.mark.kept("gru")
    @pytest.mark.parametrize("name", ["lstm-projected", "gru", "rnn-tanh", "rnn-relu"])
    def test_gradients_agree_with_eager(self, name: str) -> None:
        network = NETWORKS[name]().double()
        fast, sequences = compiled(network), self.sequences(torch.float64)
        hx = initial(network, (4,), torch.float64)

        def through(call: Any) -> list[torch.Tensor]:
            def whole(sequences: list[torch.Tensor], hx: Any) -> Any:
                output, states = call(pack_sequence(sequences, enforce_sorted=False), hx)
                assert isinstance(output, PackedSequence)
                return output.data, states

            return outputs_and_gradients(network, whole, sequences, hx)

        with recorded() as records:
            ours = through(fast)
            agree(through(fast), ours, rtol=0, atol=0)
        agree(ours, through(network), rtol=1e-12, atol=1e-12)
        layers = network.num_layers * (1 + network.bidirectional)
        assert counts(records) == {"forward": (layers, 0), "backward": (0, layers)}

    def test_inference_of_sorted_sequences(self) -> None:
        network, hx = nn.LSTM(INPUTS, HIDDEN), (torch.randn(1, 4, HIDDEN), torch.randn(1, 4, HIDDEN))
        packed = pack_sequence(sorted(self.sequences(), key=len, reverse=True))
        with recorded() as records, torch.no_grad():
            (output, states), (expected, last) = compiled(network)(packed, hx), network(packed, hx)
        agree([output.data, *states], [expected.data, *last])
        assert records[0].native["torchstone.lstm_packed.default"] == 1

    def test_without_initial_states_dynamo_steps_aside(self) -> None:
        """The number of sequences depends on data, so Dynamo runs the call in eager PyTorch."""
        network, packed = nn.GRU(INPUTS, HIDDEN), pack_sequence(self.sequences(), enforce_sorted=False)
        output, last = torch.compile(network, backend="torchstone")(packed)
        expected, state = network(packed)
        agree([output.data, last], [expected.data, state])


class TestDropout:
    def test_seed_repeats_and_calls_differ(self) -> None:
        network, x = nn.LSTM(INPUTS, 32, num_layers=2, dropout=0.5), torch.randn(TIME, BATCH, INPUTS)
        fast = compiled(network)
        torch.manual_seed(3)
        first, second = fast(x)[0], fast(x)[0]
        torch.manual_seed(3)
        assert torch.equal(fast(x)[0], first)
        assert not torch.equal(first, second)

    @staticmethod
    def identity(size: int, dropout: float) -> nn.RNN:
        """Return two layers that change positive inputs only by the dropout between the layers."""
        network = nn.RNN(size, size, num_layers=2, nonlinearity="relu", bias=False, dropout=dropout)
        with torch.no_grad():
            for name, weight in network.named_parameters():
                weight.copy_(torch.eye(size) if "ih" in name else torch.zeros(size, size))
        return network

    def test_forward_and_backward_share_masks_of_the_right_statistics(self) -> None:
        network = self.identity(64, 0.25)
        x = torch.ones(16, 8, 64, requires_grad=True)
        result = compiled(network)(x)[0]
        result.sum().backward()
        assert torch.equal(x.grad, result.detach())
        kept = result[result != 0]
        torch.testing.assert_close(kept, torch.full_like(kept, 1 / 0.75))
        share = 1 - kept.numel() / result.numel()
        assert abs(share - 0.25) < 0.02  # five standard deviations of 8192 draws are 0.024
        steps = (result[0] == 0, result[1] == 0)
        assert not torch.equal(*steps)

    def test_nothing_is_dropped_in_evaluation_or_after_the_last_layer(self) -> None:
        x = torch.ones(3, 2, 8)
        assert torch.equal(compiled(self.identity(8, 0.5).eval())(x)[0], x)
        single = nn.RNN(8, 8, nonlinearity="relu")
        single.dropout = 0.5
        agree([compiled(single)(x)[0]], [single(x)[0]])

    def test_without_gradients(self) -> None:
        with torch.no_grad():
            result = compiled(self.identity(64, 0.5))(torch.ones(4, 4, 64))[0]
        assert set(result.unique().tolist()) == {0.0, 2.0}


class TestDynamo:
    def test_other_backends_are_traced_as_ever(self) -> None:
        network, x = nn.LSTM(INPUTS, HIDDEN), torch.randn(TIME, BATCH, INPUTS)
        before = {original: dict(original.py_kernels) for original in STAND_INS}
        compiled(network)(x)
        assert torch._dynamo.config.allow_rnn is False
        assert {original: original.py_kernels for original in STAND_INS} == before
        torch._dynamo.reset()
        with pytest.raises(torch._dynamo.exc.Unsupported, match="does not support RNN, GRU, or LSTM"):
            torch.compile(network, backend="eager", fullgraph=True)(x)

    def test_backend_given_as_a_function(self) -> None:
        from torchstone.backend import torchstone as backend

        network, x = nn.GRU(INPUTS, HIDDEN), torch.randn(TIME, BATCH, INPUTS)
        agree([torch.compile(network, backend=backend, fullgraph=True)(x)[0]], [network(x)[0]])

    def test_wrong_input_names_what_is_wrong(self) -> None:
        with pytest.raises(Exception, match=r"input.size\(-1\) must be equal to input_size"):
            compiled(nn.LSTM(INPUTS, HIDDEN))(torch.randn(TIME, BATCH, INPUTS + 1))

    def test_no_steps_is_an_error_as_in_eager(self) -> None:
        network, nothing = nn.LSTM(INPUTS, HIDDEN), torch.randn(0, BATCH, INPUTS)
        for call in (network, compiled(network)):
            with pytest.raises(Exception, match="Expected sequence length to be larger than 0 in RNN"):
                call(nothing)


class TestExport:
    @pytest.mark.parametrize("name", ["lstm-projected", "gru", "rnn-relu"])
    def test_one_loop_per_layer_and_direction(self, name: str) -> None:
        network, x = NETWORKS[name](), torch.randn(TIME, BATCH, INPUTS)
        program = torchstone.export(network, (x,))
        text = program.mlir_text()
        assert text.count("stablehlo.while") == network.num_layers * (1 + network.bidirectional)
        assert "custom_call" not in text
        agree(pytree.tree_leaves(program(x)), [t.detach() for t in pytree.tree_leaves(network(x))])

    def test_packed(self) -> None:
        network = nn.LSTM(INPUTS, HIDDEN, bidirectional=True)
        packed = pack_sequence([torch.randn(size, INPUTS) for size in (4, 2, 1)])
        hx = torch.randn(2, 3, HIDDEN), torch.randn(2, 3, HIDDEN)

        class Packed(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.weights = nn.ParameterList(network._flat_weights)

            def forward(self, data: torch.Tensor, sizes: torch.Tensor, h: Any, c: Any) -> Any:
                return torch.lstm(data, sizes, (h, c), list(self.weights), True, 1, 0.0, False, True)

        program = torchstone.export(Packed(), (packed.data, packed.batch_sizes, *hx))
        assert "custom_call" not in program.mlir_text()
        assert 'composite "torchstone.lstm_packed"' in program.mlir_text()
        output, last = network(packed, hx)
        found = program(packed.data, packed.batch_sizes, *hx)
        agree(list(found), [t.detach() for t in (output.data, *last)])


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_strides_of_results_without_gradients(kind: Callable[..., nn.RNNBase]) -> None:
    network = kind(INPUTS, HIDDEN, num_layers=2, batch_first=True)
    x, states = torch.randn(BATCH, TIME, INPUTS), torch.randn(BATCH, 2, HIDDEN).transpose(0, 1)
    with torch.no_grad():
        for args in ((x,), (x, (states, states) if kind is nn.LSTM else states)):
            found = zip(
                pytree.tree_leaves(compiled(network)(*args)), pytree.tree_leaves(network(*args)), strict=True
            )
            for one, other in found:
                torch.testing.assert_close(one, other, check_stride=True)
