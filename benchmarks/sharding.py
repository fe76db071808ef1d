"""Programs on 1, 2 and 4 devices of the CPU, compared with JAX's own program for the same block and mesh.

The devices share the machine's cores, so more devices show what splitting costs, not what it gains.
``python -m benchmarks.sharding DEVICES`` measures in a process with that many devices.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy
import torch
from jax.sharding import NamedSharding, PartitionSpec
from torch.nn import functional as F

import torchstone

from .measure import Row, paired

DEVICES = (1, 2, 4)
BATCH, LENGTH, WIDTH, HEADS = 8, 128, 256, 8
RATE = 0.01

WAYS: dict[str, dict[str, tuple[str | None, ...]]] = {
    "data": {"x": ("d",)},
    "tensor": {
        **{f"{name}.weight": ("d", None) for name in ("q", "k", "v", "up")},
        **{f"{name}.weight": (None, "d") for name in ("out", "down")},
    },
}
"""How each tensor is split over the axis ``d``; the others are whole."""


class Block(torch.nn.Module):
    """Attention and a multilayer perceptron, without biases, for ``x`` [batch, length, width]."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.up = torch.nn.Linear(WIDTH, 4 * WIDTH, bias=False)
        self.down = torch.nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = [one(x).unflatten(-1, (HEADS, -1)).transpose(1, 2) for one in (self.q, self.k, self.v)]
        mixed = F.scaled_dot_product_attention(heads[0], heads[1], heads[2], is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        result: torch.Tensor = x + self.down(F.relu(self.up(x)))
        return result


def in_jax(weights: dict[str, Any], x: Any) -> Any:
    """The same block as JAX code."""

    def linear(name: str, value: Any) -> Any:
        return value @ weights[f"{name}.weight"].T

    def split(value: Any) -> Any:
        return value.reshape(*value.shape[:2], HEADS, -1)

    mixed = jax.nn.dot_product_attention(*(split(linear(name, x)) for name in "qkv"), is_causal=True)
    x = x + linear("out", mixed.reshape(x.shape))
    return x + linear("down", jax.nn.relu(linear("up", x)))


def step_in_jax(weights: dict[str, Any], x: Any) -> Any:
    def loss_of(given: dict[str, Any]) -> Any:
        return (in_jax(given, x) ** 2).mean()

    loss, gradients = jax.value_and_grad(loss_of)(weights)
    return loss, {name: weights[name] - RATE * gradients[name] for name in weights}


def rows() -> Iterator[Row]:
    for devices in DEVICES:
        flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.sharding", str(devices)],
            env={**os.environ, "XLA_FLAGS": flags, "TORCHSTONE_CPU_DEVICES": str(devices)},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{devices} devices: {done.stderr[-2000:]}")
        for line in done.stdout.splitlines():
            yield Row(**json.loads(line))


def measure(devices: int) -> Iterator[Row]:
    for way in WAYS:
        for name, run in (("forward", _forward), ("training step", _step)):
            torch.manual_seed(0)
            candidates = run(devices, WAYS[way])
            ours, theirs = (numpy.asarray(call()) for call in candidates.values())
            agree = bool(numpy.allclose(ours, theirs, rtol=1e-3, atol=1e-4))
            seconds = paired(candidates)
            notes: dict[str, float | int | str] = {
                f"tokens_per_s_{candidate}": round(BATCH * LENGTH / value)
                for candidate, value in seconds.items()
            }
            yield Row(f"{name}, {way}, {devices} device(s)", seconds, "jax", "the same result", agree, notes)


def _forward(devices: int, specs: dict[str, tuple[str | None, ...]]) -> dict[str, Callable[[], Any]]:
    model, x = Block().eval(), torch.randn(BATCH, LENGTH, WIDTH)
    mesh = torchstone.Mesh({"d": devices})
    program = torchstone.export(model, (x,), mesh=mesh, shardings=specs)
    weights, place = _placed(model, devices, specs)
    function, array = jax.jit(in_jax), x.numpy()
    return {
        "torchstone": lambda: program(array),
        "jax": lambda: numpy.asarray(function(weights, place("x", array))),
    }


def _step(devices: int, specs: dict[str, tuple[str | None, ...]]) -> dict[str, Callable[[], Any]]:
    model, x = Block(), torch.randn(BATCH, LENGTH, WIDTH)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    shardings = {"batch" if name == "x" else name: spec for name, spec in specs.items()}
    program = torchstone.export_step(
        model,
        optimizer,
        lambda model, x: (model(x) ** 2).mean(),
        (x,),
        mesh=torchstone.Mesh({"d": devices}),
        shardings=shardings,
    )
    weights, place = _placed(model, devices, specs)
    function, array = jax.jit(step_in_jax, donate_argnums=0), x.numpy()

    def step() -> Any:
        nonlocal weights
        loss, weights = function(weights, place("x", array))
        return numpy.asarray(loss)

    return {"torchstone": lambda: program(array), "jax": step}


def _placed(
    model: torch.nn.Module, devices: int, specs: dict[str, tuple[str | None, ...]]
) -> tuple[dict[str, Any], Callable[[str, Any], Any]]:
    """Return the weights on JAX's devices, and a function that puts another array there."""
    mesh = jax.make_mesh((devices,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))

    def place(name: str, array: Any) -> Any:
        return jax.device_put(array, NamedSharding(mesh, PartitionSpec(*specs.get(name, ()))))

    weights = {name: place(name, jnp.asarray(p.detach().numpy())) for name, p in model.named_parameters()}
    return weights, place


if __name__ == "__main__":
    for row in measure(int(sys.argv[1])):
        print(json.dumps(row.__dict__))
