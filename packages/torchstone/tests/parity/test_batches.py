"""Which inputs of a model have a batch, and programs at sizes that their example does not have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

import torchstone
from torchstone.parity import zoo
from torchstone.parity.batches import Batch, NoBatch, at_every_size, batch_of
from torchstone.parity.examples import check_forward
from torchstone.parity.zoo import Example

x, w = torch.randn(3, 4), torch.randn(4, 3)


def example(model: Callable[..., Any], *args: Any) -> Example:
    return Example(model, args)


@pytest.mark.parametrize(
    ("one", "axes"),
    [
        (example(torch.relu, x), (0,)),
        (example(torch.add, x, x), (0, 0)),
        (example(torch.matmul, x, w), (0, None)),
        (example(torch.matmul, w.mT.contiguous(), w), (0, None)),
        (example(lambda table, i: table[i], w, torch.tensor([3, 0])), (None, 0)),
        (example(nn.LSTM(4, 5), torch.randn(6, 3, 4), (torch.zeros(1, 3, 5), torch.ones(1, 3, 5))), (1,) * 3),
        (example(nn.LSTM(4, 5, batch_first=True), torch.randn(3, 6, 4)), (0,)),
        (example(lambda sequences: torch.cat(sequences, 1), [x, x]), (0, 0)),
    ],
)  # fmt: skip
def test_the_axes_that_eager_takes_at_any_size(one: Example, axes: tuple[int | None, ...]) -> None:
    assert batch_of(one).axes == axes


@pytest.mark.parametrize("size", [1, 2, 3, 9])
def test_sizes_are_four_at_least_with_1_and_a_larger_one(size: int) -> None:
    sizes = Batch((0,), size).sizes
    assert sizes[0] == size
    assert len(set(sizes)) == len(sizes) >= 4
    assert 1 in sizes
    assert max(sizes) > size


def test_a_model_of_one_size_has_no_batch() -> None:
    with pytest.raises(NoBatch, match="no other batch size: RuntimeError: shape '\\[12\\]' is invalid"):
        batch_of(example(lambda a: a.reshape(12), x))
    with pytest.raises(NoBatch, match="not dense tensors with axes"):
        batch_of(example(torch.relu, torch.tensor(1.0)))


def test_sparse_tensors_are_not_made_of_sizes_that_do_not_fit() -> None:
    with pytest.raises(NoBatch):
        batch_of(zoo.INVENTORY["sparse_csr_tensor"].make())


def test_a_program_for_every_size() -> None:
    many, sizes = at_every_size(example(torch.add, x, x))
    assert sizes == (3, 1, 2, 4, 7)
    assert [args[0].shape[0] for args in (many.args, *many.others)] == [3, 1, 2, 4, 7]
    found = check_forward(many)
    assert len(found) == 5
    assert all(each.passed for each in found)


def test_a_program_that_is_wrong_at_one_size_is_found() -> None:
    def model(a: Tensor) -> Tensor:
        return a + 0 if torch.compiler.is_compiling() else a + (a.shape[0] > 4)

    found = check_forward(at_every_size(example(model, x))[0])
    assert [each.passed for each in found] == [True, True, True, True, False], "7 rows alone are wrong"


@pytest.mark.conformance
def test_a_transformer_at_eight_lengths() -> None:
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()
    embedding, head = nn.Embedding(50, 16), nn.Linear(16, 50)
    model = nn.Sequential(embedding, nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), head)
    model.eval()
    batch, length = Dim("batch", min=1, max=64), Dim("length", min=1, max=512)
    program = torchstone.export(model, (torch.randint(50, (2, 7)),), dynamic_shapes=({0: batch, 1: length},))
    for rows, many in zip((1, 2, 3, 1, 2, 4, 1, 2), (1, 2, 3, 7, 8, 31, 64, 200), strict=True):
        tokens = torch.randint(50, (rows, many))
        torch.testing.assert_close(program(tokens), model(tokens).detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.conformance
def test_a_convolutional_network_at_four_image_sizes() -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding="same"),
        nn.Upsample(scale_factor=2, mode="bilinear"),
        nn.AdaptiveAvgPool2d(3),
        nn.Flatten(),
        nn.Linear(144, 10),
    ).eval()
    batch, high, wide = Dim("batch", max=64), Dim("high", min=16, max=512), Dim("wide", min=16, max=512)
    program = torchstone.export(
        model, (torch.randn(2, 3, 32, 48),), dynamic_shapes=({0: batch, 2: high, 3: wide},)
    )
    for shape in ((1, 16, 16), (2, 32, 48), (3, 65, 31), (1, 224, 224)):
        images = torch.randn(shape[0], 3, *shape[1:])
        torch.testing.assert_close(program(images), model(images).detach(), rtol=1e-4, atol=1e-5)
