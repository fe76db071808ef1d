"""Sets, deques and iterators that a step changes, and tensors that it keeps: refused, and restored."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader

import torchstone
from torchstone.errors import CaptureError
from training_loops import batches, eager_step, mlp

Tensor = torch.Tensor
LAST: Any = None
COUNT = itertools.count(1)


def step_with(change: Callable[[Tensor], Any]) -> torchstone.CompiledStep:
    def loss_fn(out: Tensor, targets: Tensor) -> Tensor:
        loss = F.cross_entropy(out, targets)
        change(loss.detach())
        return loss

    model = mlp()
    return torchstone.compile_step(model, torch.optim.SGD(model.parameters(), lr=0.1), loss_fn)


def refused(change: Callable[[Tensor], Any], message: str) -> None:
    """Check that a step with ``change`` is refused twice: the first time, everything is restored."""
    step, batch = step_with(change), next(batches(1))
    for _ in range(2):
        with pytest.raises(CaptureError, match=message):
            step(*batch)


CONTAINERS: dict[str, tuple[Any, Callable[[Any, Tensor], Any], str]] = {
    "a deque": (deque([0.0], maxlen=2), lambda own, _: own.append(1.0), r"changes own\[1\]"),
    "a full deque": (deque([0.0, 1.0], maxlen=2), lambda own, _: own.append(2.0), r"changes own\[0\] from 0"),
    "popped": (deque([torch.ones(()), torch.zeros(())]), lambda own, _: own.popleft(), r"changes own\[0\]"),
    "a set": ({0}, lambda own, _: own.add(len(own)), "changes the set own"),
    "a smaller set": ({0}, lambda own, _: own.clear(), "changes the set own"),
    "a tensor in a list": ([], lambda own, loss: own.append(loss), r"keeps one of its tensors in own\[0\]"),
    "a tensor in a dict": ({}, lambda own, loss: own.update(loss=loss), r"its tensors in own\['loss'\]"),
    "in place of a number": ({"loss": 0.0}, lambda own, loss: own.update(loss=loss), r"own\['loss'\]"),
    "a nested tensor": ([], lambda own, loss: own.append((1, {"loss": loss})), r"tensors in own\[0\]"),
    "a tensor in a deque": (deque(), lambda own, loss: own.append(loss), r"its tensors in own\[0\]"),
    "a tensor in a set": (set(), lambda own, loss: own.add(loss), "one of its tensors in the set own"),
    "a new tensor in a list": ([], lambda own, _: own.append(torch.ones(3)), r"its tensors in own\[0\]"),
    "a random one": ([], lambda own, _: own.append(torch.rand(3)), r"its tensors in own\[0\]"),
    "a random one in a dict": ({}, lambda own, _: own.update(x=torch.rand(3)), r"its tensors in own\['x'\]"),
    "a new tensor in a set": (set(), lambda own, _: own.add(torch.ones(3)), "tensors in the set own"),
    "a tensor in an object": (
        SimpleNamespace(loss=None),
        lambda own, loss: setattr(own, "loss", loss),
        r"its tensors in own\.loss",
    ),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", CONTAINERS)
def test_containers(name: str) -> None:
    own, change, message = CONTAINERS[name]
    before = repr(own)
    refused(lambda loss: change(own, loss), message)
    assert repr(own) == before


def keep(loss: Tensor) -> None:
    global LAST
    LAST = loss


def test_random_numbers_in_a_module() -> None:
    model = mlp()

    def loss_fn(out: Tensor, targets: Tensor) -> Tensor:
        model.noise = torch.rand(3)
        return F.cross_entropy(out + model.noise, targets)

    step = torchstone.compile_step(model, torch.optim.SGD(model.parameters(), lr=0.1), loss_fn)
    with pytest.raises(CaptureError, match="keeps a tensor of the step in its attribute 'noise'"):
        step(*next(batches(1)))
    assert not hasattr(model, "noise")


def test_caches_of_constants() -> None:
    """Entries of dicts and attributes that are made once, in the first step."""
    models = [mlp(), mlp()]
    optimizers = [torch.optim.SGD(one.parameters(), lr=0.1) for one in models]

    def loss_of(cache: dict[int, Tensor], held: Any) -> Callable[[Tensor, Tensor], Tensor]:
        def loss_fn(out: Tensor, targets: Tensor) -> Tensor:
            if len(out) not in cache:
                cache[len(out)] = torch.arange(3.0) * 0.1
            if held.mask is None:
                held.mask = torch.ones(3) * 2
            return F.cross_entropy(out * held.mask + cache[len(out)], targets)

        return loss_fn

    caches: list[dict[int, Tensor]] = [{}, {}]
    losses = [loss_of(cache, SimpleNamespace(mask=None)) for cache in caches]
    step = torchstone.compile_step(models[0], optimizers[0], losses[0])
    for size in (32, 16, 32):
        batch = next(batches(1, size))
        wanted = eager_step(models[1], optimizers[1], *batch, losses[1])
        torch.testing.assert_close(step(*batch), wanted)
    torch.testing.assert_close(caches[0], caches[1])


def test_a_tensor_in_a_variable() -> None:
    last = None

    def keep_here(loss: Tensor) -> None:
        nonlocal last
        last = loss

    refused(keep, "keeps one of its tensors in LAST")
    refused(keep_here, "keeps one of its tensors in last")
    assert (LAST, last) == (None, None)


def generator() -> Iterator[int]:
    yield from range(1, 9)


ITERATORS: dict[str, tuple[Callable[[], Iterator[Any]], str]] = {
    "a generator": (generator, "a generator"),
    "a count": (lambda: itertools.count(1), "a count"),
    "of a list": (lambda: iter([1, 2, 3]), "a list_iterator"),
    "pairs": (lambda: zip([1, 2], [3, 4], strict=True), "a zip"),
    "of a loader": (lambda: iter(DataLoader([1, 2, 3])), "a _SingleProcessDataLoaderIter"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", ITERATORS)
def test_iterators(name: str) -> None:
    make, described = ITERATORS[name]
    own, other = make(), make()
    refused(lambda _: next(own), f"advances own, {described}.*test_kept_containers")
    torch.testing.assert_close(next(own), next(other))


def test_iterators_in_other_places() -> None:
    held, listed = SimpleNamespace(batches=iter([1, 2])), [iter([1, 2])]

    def with_default(_: Tensor, own: Iterator[int] = iter([1, 2])) -> int:  # noqa: B008
        return next(own)

    refused(lambda _: next(COUNT), "advances COUNT")
    refused(lambda _: next(held.batches), r"advances held\.batches")
    refused(lambda _: list(listed[0]), r"advances listed\[0\]")
    refused(with_default, "advances a default of with_default")
    assert [next(COUNT), next(held.batches), next(listed[0]), with_default(torch.zeros(()))] == [1] * 4


def test_iterators_inside_of_other_values() -> None:
    own, pair, other, last = iter([1, 2]), (0, iter([1, 2])), iter([1, 2]), iter([1, 2])
    advance, call = own.__next__, partial(next, other)

    def loss_fn(factors: Iterator[int], out: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(out, targets) * next(factors)

    refused(lambda _: advance(), "advances advance, a list_iterator")
    refused(lambda _: next(pair[1]), r"advances pair\[1\], a list_iterator")
    refused(lambda _: call(), "advances call, a list_iterator")
    model = mlp()
    step = torchstone.compile_step(model, torch.optim.SGD(model.parameters(), lr=0.1), partial(loss_fn, last))
    for _ in range(2):
        with pytest.raises(CaptureError, match="advances loss_fn, a list_iterator"):
            step(*next(batches(1)))
    assert [advance(), next(pair[1]), call(), next(last)] == [1] * 4


def test_what_the_step_leaves_as_it_was() -> None:
    """An iterator that only other code advances, and features that hooks keep until the loss is computed."""
    models = [mlp(), mlp()]
    optimizers = [torch.optim.SGD(one.parameters(), lr=0.1) for one in models]
    held = SimpleNamespace(factor=2.0, unused=iter(range(9)))

    def loss_of(model: Any) -> Callable[[Tensor, Tensor], Tensor]:
        features: dict[str, Tensor] = {}
        model[0].register_forward_hook(lambda module, args, out: features.update(out=out))

        def loss_fn(out: Tensor, targets: Tensor) -> Tensor:
            return F.cross_entropy(out, targets) + features.pop("out").square().mean() * held.factor

        return loss_fn

    losses = [loss_of(model) for model in models]
    step = torchstone.compile_step(models[0], optimizers[0], losses[0])
    for place, batch in enumerate(batches(3)):
        wanted = eager_step(models[1], optimizers[1], *batch, losses[1])
        torch.testing.assert_close(step(*batch), wanted)
        assert next(held.unused) == place
    assert step.programs == 1
