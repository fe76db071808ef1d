"""Autograd, modules and optimizers on the device give what they give on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves

from .mirrored import DEVICE, mirrored

MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mlp": (lambda: nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.LayerNorm(8), nn.Linear(8, 4)), (5, 6)),
    "cnn": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 4, 3),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.AvgPool2d(2),
            nn.Flatten(),
            nn.Linear(16, 4),
        ),
        (5, 1, 10, 10),
    ),
}
OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, 0.1),
    "momentum": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "adam": lambda p: torch.optim.Adam(p, 0.01),
    "adamw": lambda p: torch.optim.AdamW(p, 0.01, amsgrad=True, foreach=False),
    "rmsprop": lambda p: torch.optim.RMSprop(p, 0.01),
    "adagrad": lambda p: torch.optim.Adagrad(p, 0.01),
}


def train(model: nn.Module, x: torch.Tensor, steps: int, make: Callable[[Any], torch.optim.Optimizer]) -> Any:
    """Return the losses, and the state of the model afterwards."""
    optimizer = make(model.parameters())
    targets = torch.arange(len(x), device=x.device) % 4
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.detach())
    return losses, [value.detach() for value in model.state_dict().values()]


def check(model: Callable[[], nn.Module], size: tuple[int, ...], make: Callable[[Any], Any]) -> None:
    def run(device: str) -> Any:
        module, x = model(), torch.randn(size)
        losses, state = train(module.to(device), x.to(device), 3, make)
        return [*losses, *(value.clone() for value in state)]

    mirrored(run, rtol=1e-3, atol=1e-4)


@pytest.mark.kept("cnn")
@pytest.mark.parametrize("name", MODELS)
def test_models_train(name: str) -> None:
    model, size = MODELS[name]
    check(model, size, OPTIMIZERS["sgd"])


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_step(name: str) -> None:
    check(lambda: nn.Linear(6, 4), (5, 6), OPTIMIZERS[name])


FUSED: dict[str, tuple[Any, dict[str, Any]]] = {
    "sgd": (torch.optim.SGD, {}),
    "momentum": (torch.optim.SGD, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1, "maximize": True}),
    "adam": (torch.optim.Adam, {"amsgrad": True, "weight_decay": 0.1}),
    "adamw": (torch.optim.AdamW, {"maximize": True}),
    "adagrad": (torch.optim.Adagrad, {"lr_decay": 0.1, "weight_decay": 0.1}),
}


@pytest.mark.kept("sgd-dtype1", "momentum-dtype0", "adamw-dtype0", "adagrad-dtype1")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", FUSED)
def test_fused_optimizers_are_one_program(name: str, dtype: torch.dtype) -> None:
    """The CPU's own kernels are the reference. A learning rate schedule compiles nothing new."""
    from torchstone.device.operators import plan_count

    make, options = FUSED[name]
    counts = []

    def run(device: str) -> list[torch.Tensor]:
        torch.manual_seed(0)
        sizes = ((3,), (2, 4), ())
        parameters = [nn.Parameter(torch.randn(size).to(dtype).to(device)) for size in sizes]
        optimizer = make(parameters, 0.1, fused=True, **options)
        for _ in range(4):
            optimizer.zero_grad()
            sum((one * one).sum() for one in parameters).backward()
            optimizer.step()
            optimizer.param_groups[0]["lr"] *= 0.5
            counts.append(plan_count())
        return [one.detach().cpu() for one in parameters]

    for found, expected in zip(run(DEVICE), run("cpu"), strict=True):
        torch.testing.assert_close(found, expected)
    assert counts[1] == counts[3]


@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.Adagrad])
def test_fused_optimizers_unscale_gradients_and_leave_steps_out(make: Any) -> None:
    def run(device: str) -> list[Any]:
        scaler = torch.amp.GradScaler(device, init_scale=8.0)
        parameter = nn.Parameter(torch.tensor([1.0, 2.0]).to(device))
        optimizer = make([parameter], 0.1, fused=True)
        found = []
        for factor in (1.0, float("inf"), 2.0):
            optimizer.zero_grad()
            scaler.scale((parameter * factor).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
            assert parameter.grad is not None
            found += [parameter.detach().cpu().clone(), parameter.grad.cpu().clone(), scaler.get_scale()]
        return found

    for found, expected in zip(run(DEVICE), run("cpu"), strict=True):
        torch.testing.assert_close(found, expected)


RECURRENT: dict[str, Callable[[], nn.Module]] = {
    "lstm": lambda: nn.LSTM(4, 5, 2, batch_first=True),
    "gru": lambda: nn.GRU(4, 5, bidirectional=True),
    "rnn": lambda: nn.RNN(4, 5, nonlinearity="relu"),
    "lstm with projections": lambda: nn.LSTM(4, 6, proj_size=3),
    "lstm without bias": lambda: nn.LSTM(4, 5, bias=False),
    "gru without bias": lambda: nn.GRU(4, 5, bias=False),
    "transformer": lambda: nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0),
}


@pytest.mark.kept("gru")
@pytest.mark.filterwarnings("ignore:LSTM with projections:UserWarning")
@pytest.mark.parametrize("name", RECURRENT)
def test_recurrent_and_attention_modules(name: str) -> None:
    def run(device: str) -> Any:
        module, x = RECURRENT[name]().to(device), torch.randn(3, 2, 4).to(device).requires_grad_()
        outputs = [one for one in tree_leaves(module(x)) if isinstance(one, torch.Tensor)]
        torch.stack([(one * one).sum() for one in outputs]).sum().backward()
        gradients = [value.grad for value in module.parameters()]
        return [
            one.detach().clone(memory_format=torch.contiguous_format)
            for one in (*outputs, *gradients, x.grad)
        ]

    mirrored(run, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("padding", [None, [[False, False, True], [False, False, False]]])
def test_an_encoder_in_evaluation(padding: list[list[bool]] | None) -> None:
    """PyTorch would take its fast path, which uses nested tensors if the padding is on the right."""

    def run(device: str) -> Any:
        layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
        encoder = nn.TransformerEncoder(layer, 2).eval().to(device)
        mask = None if padding is None else torch.tensor(padding).to(device)
        with torch.no_grad():
            found = encoder(torch.randn(2, 3, 4).to(device), src_key_padding_mask=mask)
        return found if mask is None else found.masked_fill(mask[..., None], 0)

    mirrored(run, rtol=1e-4, atol=1e-5)


@pytest.mark.kept("False-lengths0")
@pytest.mark.parametrize("lengths", [[4, 2, 1], [1, 4, 3]])
@pytest.mark.parametrize("batch_first", [True, False])
def test_sequences_of_several_lengths(lengths: list[int], batch_first: bool) -> None:
    rnn = nn.utils.rnn

    def run(device: str) -> Any:
        module = nn.GRU(4, 5, batch_first=batch_first).to(device)
        x = torch.randn((3, 4, 4) if batch_first else (4, 3, 4)).to(device).requires_grad_()
        packed = rnn.pack_padded_sequence(x, torch.tensor(lengths), batch_first, enforce_sorted=False)
        outputs, last = module(packed)
        padded, found = rnn.pad_packed_sequence(outputs, batch_first, padding_value=-1.0)
        (padded.square().sum() + last.sum()).backward()
        return [
            found,
            *(one.detach().clone(memory_format=torch.contiguous_format) for one in (padded, last, x.grad)),
        ]

    mirrored(run, rtol=1e-4, atol=1e-5)


def test_an_optimizer_compiles_nothing_new_in_later_steps() -> None:
    from torchstone.device.operators import plan_count

    model, x = nn.Linear(3, 4).to(DEVICE), torch.randn(5, 3).to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)

    def step() -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    step()
    step()
    before = plan_count()
    for _ in range(4):
        step()
    assert plan_count() == before


def test_gradients_of_gradients() -> None:
    def run(device: str) -> Any:
        x = torch.linspace(0.1, 1, 6).to(device).requires_grad_()
        (first,) = torch.autograd.grad((x.sin() * x).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.exp().sum(), x)
        return first.detach(), second.clone()  # how often autograd wrote into it may differ

    mirrored(run)


def test_a_module_that_moves_keeps_its_parameters() -> None:
    """A weight in two places stays one weight, and an optimizer made before the move still updates it."""
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = model[0].weight
    weight = model[0].weight
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for device in (DEVICE, "cpu", DEVICE):
        model.to(device)
        assert model[0].weight is model[1].weight is weight
        assert weight.device.type == device
        assert weight.grad is None or weight.grad.device.type == device
        before = weight.detach().clone()
        optimizer.zero_grad(set_to_none=device != "cpu")
        model(torch.ones(2, 3, device=device)).sum().backward()
        optimizer.step()
        assert not torch.equal(weight, before)


def test_parameters_that_wait_for_their_first_input() -> None:
    model = nn.Sequential(nn.LazyLinear(3), nn.LazyBatchNorm1d()).to(DEVICE)
    assert model(torch.ones(2, 4, device=DEVICE)).shape == (2, 3)
    assert {one.device.type for one in model.parameters()} == {DEVICE}


def test_data_of_another_device_keeps_pytorch_s_rules() -> None:
    x = torch.ones(2, device=DEVICE)
    with pytest.raises(RuntimeError, match="incompatible tensor type"):
        x.data = torch.ones(2).to_sparse()
    with pytest.raises(RuntimeError, match="incompatible tensor type"):
        x.data = torch.ones(2, device="meta")
    x.data = torch.zeros(3)
    assert (x.device.type, x.tolist()) == ("cpu", [0, 0, 0])


def test_hooks_and_accumulation() -> None:
    def run(device: str) -> Any:
        x = torch.ones(3).to(device).requires_grad_()
        x.register_hook(lambda grad: grad * 2)
        for _ in range(2):
            (x * x).sum().backward()
        return x.grad

    mirrored(run)


def test_a_loss_over_alignments_with_lengths_on_the_cpu() -> None:
    def run(device: str) -> Any:
        scores = torch.linspace(-1, 1, 60).view(6, 2, 5).to(device).requires_grad_()
        targets = torch.tensor([[1, 2], [3, 0]], device=device)
        loss = F.ctc_loss(scores.log_softmax(2), targets, torch.tensor([6, 5]), torch.tensor([2, 1]))
        loss.backward()
        return loss.detach(), None if scores.grad is None else scores.grad.clone()

    mirrored(run, rtol=1e-4, atol=1e-5)
