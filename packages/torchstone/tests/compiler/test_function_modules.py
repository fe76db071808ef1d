"""Methods and functions export with the state of the modules that they reach."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import torchstone
from torchstone.errors import CaptureError

Tensor = torch.Tensor


class Model(nn.Module):
    count: Tensor
    cache: Tensor | None

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(3))
        self.register_buffer("cache", None, persistent=False)
        self.norm = nn.BatchNorm1d(3)
        self.linear = nn.Linear(3, 3)
        self.last: Any = None

    def forward(self, x: Tensor) -> Tensor:
        self.count.add_(1)
        result: Tensor = self.linear(x) + self.count
        return result

    def encode(self, x: Tensor) -> Tensor:
        if self.cache is None:
            self.cache = torch.arange(3.0).cos()
        self.count = self.count + x
        self.last = self.norm(torch.stack([x, self.count]))
        self.linear.bias.data.mul_(0.5)
        result: Tensor = self(x) + self.last.sum(0) + self.cache
        return result


class Holder:
    def __init__(self, model: Model) -> None:
        self.inner = model
        self.other = Model()

    def run(self, x: Tensor) -> Tensor:
        return self.inner.encode(x)

    def __call__(self, x: Tensor) -> Tensor:
        return self.inner.encode(x)


def _twice(model: Model) -> Callable[[Tensor], Tensor]:
    def once(x: Tensor) -> Tensor:
        return model.encode(x)

    return lambda x: once(once(x))


def _applied(model: Model, x: Tensor) -> Tensor:
    return model.encode(x)


FORMS: dict[str, tuple[Callable[[Model], Callable[..., Tensor]], str]] = {
    "method": (lambda model: model.encode, ""),
    "forward": (lambda model: model.forward, ""),
    "partial of a method": (lambda model: functools.partial(model.encode), ""),
    "partial": (lambda model: functools.partial(_applied, model), "argument_0."),
    "closure": (lambda model: lambda x: model.encode(x), "model."),
    "nested closures": (_twice, "model."),
    "other object's method": (lambda model: Holder(model).run, "inner."),
    "callable object": (Holder, "inner."),
}


@pytest.mark.parametrize("form", FORMS)
def test_modules_that_a_function_reaches_are_state(form: str, tmp_path: Path) -> None:
    made, prefix = FORMS[form]
    model = Model()
    eager = copy.deepcopy(model)
    before = {**dict(model.named_buffers()), **dict(model.named_parameters())}
    values = copy.deepcopy(model.state_dict())
    program = torchstone.export(made(model), (torch.ones(3),))
    after = {**dict(model.named_buffers()), **dict(model.named_parameters())}
    assert after.keys() == before.keys()
    assert all(one is before[name] for name, one in after.items())
    torch.testing.assert_close(model.state_dict(), values)
    assert model.last is None
    loaded = torchstone.load(program.save(tmp_path / "model.stone"))
    reference = made(eager)
    for call in range(3):
        x = torch.full((3,), call + 1.0)
        with torch.no_grad():
            expected = reference(x)
        for one in (program, loaded):
            torch.testing.assert_close(one(x), expected)
            state = {name: torch.as_tensor(value.copy()) for name, value in one.state().items()}
            assert state.keys() == {prefix + name for name in eager.state_dict()}
            for name, tensor in eager.state_dict().items():
                torch.testing.assert_close(state[prefix + name], tensor)


def test_a_method_exports_like_the_module() -> None:
    class Wrapped(Model):
        def forward(self, x: Tensor) -> Tensor:
            return self.encode_only(x)

        def encode_only(self, x: Tensor) -> Tensor:
            self.count = self.count + x
            result: Tensor = self.linear(x) * self.count
            return result

    model = Wrapped()
    whole = torchstone.export(model, (torch.ones(3),)).signature
    method = torchstone.export(model.encode_only, (torch.ones(3),)).signature
    assert [(one.kind, one.target) for one in method.inputs if one.kind != "input"] == [
        (one.kind, one.target) for one in whole.inputs if one.kind != "input"
    ]
    assert [(one.kind, one.target) for one in method.outputs] == [
        (one.kind, one.target) for one in whole.outputs
    ]


def test_buffers_of_modules_out_of_reach_are_refused() -> None:
    class Far:
        def __init__(self, model: Model) -> None:
            self.holder = [Holder(model)]

        def __call__(self, x: Tensor) -> Tensor:
            holder = next(iter(self.__dict__.values()))[0]
            return holder.run(x)

    model = Model()
    before, values = dict(model.named_buffers()), copy.deepcopy(model.state_dict())
    with pytest.raises(
        CaptureError, match=rf"assigns the buffer cache of a Model outside.* at {__file__}:\d+\n.*its method"
    ):
        torchstone.export(Far(model), (torch.ones(3),))
    assert all(one is before[name] for name, one in model.named_buffers())
    torch.testing.assert_close(model.state_dict(), values)
