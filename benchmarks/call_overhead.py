"""What one call of a compiled function costs, compared with eager, Inductor and an empty AOT backend."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd

from .measure import Row, paired


class ManyParameters(torch.nn.Module):
    """128 parameters and almost no arithmetic: XLA compiles it to one loop over 8 elements."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = torch.nn.ParameterList(torch.randn(8) for _ in range(128))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for weight in self.weights:
            x = x + weight
        return x


def rows() -> Iterator[Row]:
    x, y = torch.randn(64), torch.randn(64)

    def add(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a + b

    torch._dynamo.reset()
    ours = torch.compile(add, backend="torchstone")
    peer = torch.compile(add, backend="inductor")
    with torch.no_grad():
        seconds = paired(
            {"eager": lambda: add(x, y), "inductor": lambda: peer(x, y), "torchstone": lambda: ours(x, y)}
        )
    yield Row(
        "one add of 64 floats",
        seconds,
        "inductor",
        "torchstone ≤ 1.5 × inductor",
        seconds["torchstone"] <= 1.5 * seconds["inductor"],
    )

    model = ManyParameters()
    calls = {
        "eager": lambda: model,
        "empty AOT": lambda: torch.compile(model, backend=aot_autograd(fw_compiler=_empty)),
        "torchstone": lambda: torch.compile(model, backend="torchstone"),
    }
    seconds = {}
    for name, made in calls.items():  # one by one: Dynamo tries all that it compiled of a function
        torch._dynamo.reset()
        function = made()
        with torch.no_grad():
            seconds |= paired({name: lambda function=function: function(x[:8])})
    extra = seconds["torchstone"] - seconds["empty AOT"]
    yield Row(
        "module with 128 parameters",
        seconds,
        "empty AOT",
        "torchstone ≤ 30 µs over the empty AOT wrapper",
        extra <= 30e-6,
        {"over_empty_us": round(extra * 1e6, 1)},
    )


def _empty(module: torch.fx.GraphModule, inputs: list[object]) -> object:
    """An AOT compiler whose result does nothing: it returns a constant of the right form."""
    output = next(node for node in module.graph.nodes if node.op == "output")
    made = [torch.zeros(tuple(node.meta["val"].shape)) for node in output.args[0]]
    return make_boxed_func(lambda *_: made)
