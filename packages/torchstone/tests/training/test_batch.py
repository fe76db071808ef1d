"""What a step takes as a batch and gives back: containers of any class, constants, and what is refused."""

from __future__ import annotations

import dataclasses
import datetime
import enum
from collections import OrderedDict, UserDict
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

import torchstone
from torchstone.errors import CaptureError, TrainingError
from torchstone.torch_internals import pytree
from torchstone.training.batch import flatten
from training_loops import mlp

Tensor = torch.Tensor
Loss = Callable[[torch.nn.Module, Any], Any]


@dataclasses.dataclass(frozen=True)
class Pair:
    x: Tensor
    scale: float = 1.0


@dataclasses.dataclass(slots=True)
class Slotted:
    x: Tensor
    inner: Pair | None = None


class Named(NamedTuple):
    x: Tensor
    scale: float = 1.0


class Keyed(dict[str, Any]):
    """A dict with an attribute of its own."""


class Listed(list[Any]):
    pass


class Tokens(UserDict[str, Any]):
    """A dict with another object beside it that a program cannot hold, like the batches of tokenizers."""

    def __init__(self, data: Any, kept: Any = None) -> None:
        super().__init__(data)
        self.kept = kept


class Unknown:
    """An object whose text does not depend on its content."""

    def __init__(self, x: Any) -> None:
        self.x = x

    def __repr__(self) -> str:
        return "Unknown"


class Marked(torch.Tensor):
    pass


class Phase(enum.Enum):
    FIRST = 1
    SECOND = 2


def stepping(loss: Loss) -> tuple[Callable[[Any], Any], Callable[[Any], Any], Any]:
    """Return a compiled step, the same step in eager PyTorch, and the compiled step's model."""
    model, expected = mlp(), mlp()
    step = torchstone.compile_step(model, torch.optim.SGD(model.parameters(), lr=0.1), loss)
    optimizer = torch.optim.SGD(expected.parameters(), lr=0.1)

    def eager(batch: Any) -> Any:
        optimizer.zero_grad()
        result = loss(expected, batch)
        (result[0] if isinstance(result, tuple) else result).backward()
        optimizer.step()
        return result

    return step, eager, model


def examples(count: int) -> list[Tensor]:
    return list(torch.randn(count, 4, 8, generator=torch.Generator().manual_seed(0)))


CONTAINERS: dict[str, tuple[Callable[[Tensor], Any], Callable[[Any], Tensor]]] = {
    "a dataclass": (Pair, lambda batch: batch.x * batch.scale),
    "a dataclass with slots": (
        lambda x: Slotted(x, Pair(x, 2.0)),
        lambda batch: batch.x * batch.inner.scale + batch.inner.x,
    ),
    "a named tuple": (Named, lambda batch: batch.x * batch.scale),
    "a class of dicts": (lambda x: Keyed(x=x, more=[x]), lambda batch: batch["x"] + batch["more"][0]),
    "a class of lists": (lambda x: Listed([x, 2]), lambda batch: batch[0] * batch[1]),
    "a UserDict": (lambda x: Tokens({"x": x, "n": 3}), lambda batch: batch["x"] * batch["n"]),
    "a UserDict with more": (lambda x: Tokens({"x": x}, [object()]), lambda batch: batch["x"]),
    "a namespace": (lambda x: SimpleNamespace(x=x), lambda batch: batch.x),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", CONTAINERS)
def test_containers_are_opened(name: str) -> None:
    """All batches use one program, and code of the step sees the class that the batch has."""
    make, read = CONTAINERS[name]
    kind = type(make(torch.zeros(4, 8)))

    def loss(model: torch.nn.Module, batch: Any) -> Tensor:
        assert type(batch) is kind
        result: Tensor = model(read(batch)).square().mean()
        return result

    step, eager, _ = stepping(loss)
    for x in examples(3):
        torch.testing.assert_close(step(make(x)), eager(make(x)).detach())
    assert step.programs == 1  # type: ignore[attr-defined]


def test_an_attribute_that_no_program_can_have_is_refused_where_it_is_used() -> None:
    step, _, _ = stepping(lambda model, batch: model(batch["x"]).square().mean() * len(batch.kept))
    with pytest.raises(CaptureError, match=r"uses the attribute 'kept' of the batch.*test_batch\.py:\d+"):
        step(Tokens({"x": examples(1)[0]}, [object()]))


REFUSED: dict[str, tuple[Callable[[Tensor], Any], str]] = {
    "an array": (lambda x: x.numpy(), r"a NumPy array of shape \[4, 8\](.|\n)*torch\.from_numpy"),
    "an object": (Unknown, "a Unknown, and nothing tells whether it stays the same"),
    "an iterator": (lambda x: iter([x]), "a list_iterator, and nothing tells"),
    "a subclass of tensors": (
        lambda x: x.as_subclass(Marked),
        r"a Marked, a subclass of torch\.Tensor(.|\n)*as_subclass",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_leaves_that_may_change_unseen_are_refused(name: str) -> None:
    make, message = REFUSED[name]
    step, _, model = stepping(lambda model, batch: model(batch["x"]).square().mean())
    before = {key: value.clone() for key, value in model.state_dict().items()}
    x = examples(1)[0]
    with pytest.raises(TrainingError, match=f"leaf 1 of the batch is {message}"):
        step({"x": x, "more": make(x)})
    torch.testing.assert_close(model.state_dict(), before)
    with pytest.raises(TrainingError, match=f"leaf 1 of the batch is {message}"):
        torchstone.export_step(
            model,
            torch.optim.SGD(model.parameters()),
            torch.nn.functional.mse_loss,
            ({"x": x, "y": make(x)},),
        )


CONSTANTS: dict[str, tuple[list[Any], int, Callable[[Any], Any]]] = {
    "numbers of NumPy": ([np.int64(2), np.int64(2), np.int64(3)], 2, int),
    "sets": (
        [{1, 2}, {2, 1}, {1.0, 2}, {3}],
        3,
        lambda one: sum(map(float, one)) + isinstance(max(one), int),
    ),
    "enumerations": ([Phase.FIRST, Phase.SECOND, Phase.FIRST], 2, lambda one: one.value),
    "dates": ([datetime.date(2020, 1, day) for day in (1, 2, 1)], 2, lambda one: one.day),
    "slices": ([slice(0, 2), slice(0, 3), slice(0, 2)], 2, lambda one: one.stop),
    "functions": ([torch.relu, torch.sin, torch.relu], 2, lambda one: one(torch.ones(())).item()),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", CONSTANTS)
def test_constants_are_known_by_value(name: str) -> None:
    values, programs, read = CONSTANTS[name]
    step, eager, _ = stepping(lambda model, batch: model(batch[0]).square().mean() * read(batch[1]))
    for x, value in zip(examples(len(values)), values, strict=True):
        torch.testing.assert_close(step((x, value)), eager((x, value)).detach())
    assert step.programs == programs  # type: ignore[attr-defined]


def test_results_in_containers() -> None:
    """Results come back in the same classes, in new objects for each step."""

    def loss(model: torch.nn.Module, x: Tensor) -> Any:
        y = model(x)
        return y.square().mean(), Pair(y.sum(), 2.0), Tokens({"y": y}), [None, float, Slotted(y, Pair(x))]

    step, eager, _ = stepping(loss)
    for x in examples(2):
        found, expected = step(x), eager(x)
        assert found[1].scale == 2.0
        assert found[3][:2] == [None, float]
        assert list(map(type, found)) == list(map(type, expected))
        pairs = [(found[1].x, expected[1].x), (found[2]["y"], expected[2]["y"])]
        pairs += [(found[3][2].x, expected[3][2].x), (found[3][2].inner.x, expected[3][2].inner.x)]
        for one, other in pairs:
            assert type(one) is Tensor
            torch.testing.assert_close(one, other.detach())


def test_a_result_that_hides_tensors_is_refused() -> None:
    step, _, model = stepping(lambda model, x: (model(x).square().mean(), Unknown([{"y": model(x)}])))
    before = {key: value.clone() for key, value in model.state_dict().items()}
    with pytest.raises(CaptureError, match="loss_fn returns a Unknown, which has tensors of the step in it"):
        step(examples(1)[0])
    torch.testing.assert_close(model.state_dict(), before)


def test_trees_of_plain_containers_are_those_of_pytree() -> None:
    x, y = torch.ones(1), torch.ones(2)
    made: list[Any] = [(x, y), [x, y], ((x,), y), (x, [y]), {"a": x, "b": y}, {"b": x, "a": y}, {1: x, 2: y}]
    made += [{1.0: x, 2: y}, {"a": (x, {"b": [y, None, 3]})}, (), [], {}, ((), []), x]
    made += [(x, OrderedDict(a=y)), (x, torch.Size([1, 2]))]
    for value in made * 2:  # the second time, the trees are known
        leaves, tree = flatten(value)
        expected, own = pytree.tree_flatten(value)
        assert [*map(id, leaves)] == [*map(id, expected)]
        assert tree == own
        assert repr(pytree.tree_unflatten(leaves, tree)) == repr(pytree.tree_unflatten(expected, own))
