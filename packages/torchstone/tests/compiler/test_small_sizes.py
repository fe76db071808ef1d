"""Programs at the sizes 0 and 1 of a dynamic dimension: eager PyTorch's results, or its refusal."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._higher_order_ops.map import map as map_over
from torch.export import Dim

import torchstone
from torchstone.errors import InputMismatch

F = nn.functional


def exported(f: Callable[..., Any], x: Tensor, axis: int = 0, most: int = 64) -> torchstone.Program:
    return torchstone.export(f, (x,), dynamic_shapes=({axis: Dim("d", min=0, max=most)},))


REFUSED_WITHOUT_ELEMENTS: dict[str, Callable[[Tensor], Tensor]] = {
    "max": lambda x: x.max(),
    "amax": lambda x: x.amax(0),
    "argmax": lambda x: x.argmax(0),
    "aminmax": lambda x: torch.aminmax(x)[0],
    "median": lambda x: x.median(0).values,
    "kthvalue": lambda x: x.kthvalue(1, 0).values,
    "quantile": lambda x: x.quantile(0.3),
    "norm": lambda x: torch.linalg.vector_norm(x, float("inf"), 0),
    "embedding": lambda x: F.embedding(torch.zeros(2, dtype=torch.long), x),
    "gather": lambda x: x.gather(0, torch.zeros(1, 3, dtype=torch.long)),
}


@pytest.mark.parametrize("name", REFUSED_WITHOUT_ELEMENTS)
def test_what_eager_refuses_is_refused_with_its_words(name: str) -> None:
    f = REFUSED_WITHOUT_ELEMENTS[name]
    program = exported(f, torch.randn(5, 3))
    with pytest.raises((RuntimeError, IndexError)) as eager:
        f(torch.randn(0, 3))
    with pytest.raises(InputMismatch, match=r"input 0 has shape \(0, 3\).*input 0\.shape\[0\] != 0") as ours:
        program(torch.randn(0, 3))
    assert " ".join(str(eager.value).split())[:100] in str(ours.value)
    one = torch.randn(1, 3)
    torch.testing.assert_close(program(one), f(one))


@pytest.mark.parametrize("mode", ["circular", "replicate", "reflect"])
def test_padding_of_nothing(mode: str) -> None:
    program = exported(lambda x: F.pad(x, (1, 1), mode=mode), torch.randn(2, 3, 7), axis=2)
    with pytest.raises(InputMismatch, match=r"input 0\.shape\[2\] != 0: eager PyTorch raises RuntimeError: "):
        program(torch.randn(2, 3, 0))


def test_one_row_of_a_batch_norm_is_refused_and_no_row_is_not() -> None:
    program = exported(lambda x: F.batch_norm(x, None, None, training=True), torch.randn(4, 3))
    assert program(torch.randn(0, 3)).shape == (0, 3)
    with pytest.raises(InputMismatch, match=r"!= 1: eager PyTorch raises ValueError: Expected more than 1"):
        program(torch.randn(1, 3))


def test_a_branch_that_small_sizes_take_otherwise() -> None:
    program = exported(lambda x: x[-x.shape[1] :], torch.randn(5, 3), axis=1, most=5)
    assert program(torch.randn(5, 2)).shape == (2, 2)
    wanted = r"the model returns float32\[5, 0\] there, and the program float32\[0, 0\]"
    with pytest.raises(InputMismatch, match=wanted):
        program(torch.randn(5, 0))


def test_the_median_of_no_elements_is_what_eager_says(tmp_path: Path) -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.int8):
        for f in (torch.median, torch.nanmedian):
            some, none = torch.ones(3, 2).to(dtype), torch.ones(0, 2).to(dtype)
            program = torchstone.load(exported(lambda x, f=f: f(x), some).save(tmp_path / "p.tsz"))
            for x in (some, none):
                torch.testing.assert_close(program(x), f(x), equal_nan=True)


@pytest.mark.parametrize("used", [True, False])
def test_models_that_call_gradients_are_not_run_without_elements(used: bool) -> None:
    """Some of PyTorch's kernels divide by a size and end the process if it is 0."""

    def model(x: Tensor) -> Tensor:
        rows, columns = x.shape
        given = (x[None].contiguous(), x[None].contiguous(), x[None, :, :1].mean(1), x[None, :, :1].amax(1))
        backward = torch.ops.aten.native_group_norm_backward
        gradient = backward(*given, None, 1, rows, columns, 1, [True, False, False])[0]
        return gradient + x.sum(0) if used else x + 1

    program = exported(model, torch.randn(5, 3), axis=1)
    assert not program.signature.reasons
    x = torch.randn(5, 1)
    torch.testing.assert_close(program(x), model(x))


def test_loops_that_ran_without_elements_compile_afterwards() -> None:
    """In eager mode, PyTorch compiles operators that take functions when they are called, and caches that."""

    def model(x: Tensor) -> Any:
        return map_over(lambda row: {"a": (map_over(torch.neg, row), row * 2)}, x)

    exported(model, torch.randn(5, 3))
    found = model(torch.ones(2, 3))
    assert torch.equal(found["a"][0], -torch.ones(2, 3))


def test_relations_that_divide_by_a_size_without_elements() -> None:
    def model(x: Tensor) -> Tensor:
        rows = x.sum(1)
        return torch.ops.aten.glu_backward(rows, torch.cat([rows, rows], -1), -1)

    program = exported(model, torch.randn(5, 3))
    x = torch.randn(1, 3)
    torch.testing.assert_close(program(x), model(x))
    with pytest.raises(InputMismatch, match=r"// input 0\.shape\[0\]"):
        program(torch.randn(0, 3))


def test_refusals_are_in_the_artifact(tmp_path: Path) -> None:
    loaded = torchstone.load(exported(lambda x: x.amax(0), torch.randn(5, 3)).save(tmp_path / "p.tsz"))
    ((relation, reason),) = loaded.signature.reasons.items()
    assert relation in loaded.signature.relations
    assert "amax(): Expected reduction dim 0" in reason
    with pytest.raises(InputMismatch, match=re.escape(reason)):
        loaded(torch.randn(0, 3))


def test_indices_of_the_example_are_not_a_reason() -> None:
    program = torchstone.export(
        lambda x, at: x[at],
        (torch.randn(5, 3), torch.tensor([4, 2])),
        dynamic_shapes=({0: Dim("d", min=1)}, None),
    )
    assert not program.signature.reasons
    x = torch.randn(1, 3)
    torch.testing.assert_close(program(x, torch.tensor([0, 0])), x[[0, 0]])


def test_sizes_that_are_arguments_too() -> None:
    """The model is not run at small sizes: the number would have to shrink together with the tensor."""

    def model(x: Tensor, rows: int) -> Tensor:
        return x.reshape(rows, -1)

    program = torchstone.export(model, (torch.randn(5, 3), 5), dynamic_shapes=({0: Dim.DYNAMIC}, Dim.DYNAMIC))
    x = torch.randn(4, 3)
    torch.testing.assert_close(program(x, 4), model(x, 4))
    assert not program.signature.reasons


class Remembering(nn.Module):
    """A model that changes its own buffers and weights when it is called."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(3)
        self.rows = nn.Embedding(4, 3, max_norm=0.1)
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return F.dropout(self.norm(x)) + self.rows(torch.zeros(1, dtype=torch.long))


def test_asking_the_model_leaves_it_as_it_is() -> None:
    model = Remembering()
    before = {name: one.clone() for name, one in model.state_dict().items()}
    x, state = torch.randn(4, 3), torch.get_rng_state()
    program = torchstone.export(model, (x,), dynamic_shapes=({0: Dim("d")},))
    assert next(iter(program.signature.reasons.values())).startswith("eager PyTorch raises ValueError")
    assert torch.equal(torch.get_rng_state(), state)
    assert model.calls == 0
    assert all(torch.equal(model.state_dict()[name], value) for name, value in before.items())
