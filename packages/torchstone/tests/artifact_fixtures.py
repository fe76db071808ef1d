"""Writes the artifacts that are kept of the released formats: ``python artifact_fixtures.py FOLDER``.

Each artifact is written once, when its format is new. ``test_formats.py`` reads it from then on and compares
it with the model here, so these models must not change. Locations in the programs contain the path of this
file: write the artifacts from a checkout whose path may be public.
"""

from __future__ import annotations

import sys
from collections import namedtuple
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

import torchstone
from rank_programs import world

Pair = namedtuple("Pair", ["scaled", "rest"])


class Everything(torch.nn.Module):
    """A model with a symbolic batch, mutated tensors, checks, a seed, odd dtypes and nested results."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, 3)
        self.register_buffer("calls", torch.tensor(2))
        self.register_buffer("turn", torch.tensor([1 + 2j, -1j], dtype=torch.complex128))
        set_weights(self)

    def forward(self, x: torch.Tensor, counts: torch.Tensor, rows: torch.Tensor, *, divisor: Any) -> Any:
        self.calls.add_(1)
        counts.add_(1)
        drawn = torch.rand(x.shape[0])
        scaled = self.layer(x)[:, rows] * self.calls
        rest = {"quotient": counts // divisor, "turned": x[:, :2] * self.turn, "size": x.shape[0]}
        return Pair(scaled, [rest, None, "text", (drawn >= 0) & (drawn < 1)])


class Sharded(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, 2)
        set_weights(self)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x).relu()


class Tied(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)
        self.other.weight = self.one.weight
        set_weights(self)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.other(self.one(x))


def set_weights(model: torch.nn.Module) -> None:
    with torch.no_grad():
        for number, one in enumerate(model.parameters()):
            one.copy_(torch.arange(one.numel()).reshape(one.shape) / 4 - number)


def everything_given(batch: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    x = torch.arange(3.0 * batch).reshape(batch, 3)
    counts = torch.arange(batch, dtype=torch.int32)
    return (x, counts, torch.tensor([2, 0])), {"divisor": torch.tensor(2, dtype=torch.int32)}


def _everything() -> Any:
    args, kwargs = everything_given(2)
    batch = torch.export.Dim("batch", min=1, max=64)
    sizes = {"x": {0: batch}, "counts": {0: batch}, "rows": None, "divisor": None}
    with torchstone.config.override(check_indices=True, check_values=True):
        return torchstone.export(Everything(), args, kwargs, dynamic_shapes=sizes)


def _sharded() -> Any:
    mesh = torchstone.Mesh({"data": 1})
    return torchstone.export(Sharded(), (torch.ones(2, 3),), mesh=mesh, shardings={"x": ("data", None)})


def _tied() -> Any:
    return torchstone.export(Tied(), (torch.ones(2, 3),))


class Related(torch.nn.Module):
    """Multiplies by 2 for an even number of rows, and by 3 for an odd one."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.shape[0] % 2 == 0 else x * 3


def _related() -> Any:
    sizes = ({0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO},)
    return torchstone.export(Related(), (torch.ones(6, 3),), dynamic_shapes=sizes)


class Joined(torch.nn.Module):
    """The sum of the inputs of two ranks, each weighted."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.tensor([2.0, -1.0, 0.5]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        from torch.distributed import _functional_collectives, group

        return _functional_collectives.all_reduce(self.weight * x, "sum", group.WORLD)


def _joined() -> Any:
    with world(2):
        return torchstone.export(Joined(), (torch.ones(3),))


class Selecting(torch.nn.Module):
    """The elements above a threshold, their places and their number."""

    def forward(self, x: torch.Tensor) -> Any:
        chosen = x[x > 0]
        torch._check(chosen.shape[0] <= 9)
        return chosen * 2, x.nonzero(), x.nonzero().shape[0], chosen.sum()


def _selecting() -> Any:
    return torchstone.export(
        Selecting(), (torch.ones(2, 3),), dynamic_shapes=({0: torch.export.Dim("rows", max=9)},)
    )


def language_model() -> Any:
    import transformers

    torch.manual_seed(0)
    options = transformers.LlamaConfig(
        vocab_size=11,
        hidden_size=4,
        intermediate_size=4,
        num_hidden_layers=1,
        num_attention_heads=1,
        max_position_embeddings=8,
        bos_token_id=None,
        eos_token_id=None,
    )
    model = transformers.LlamaForCausalLM(options).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for one in model.parameters():
            one.copy_(torch.randint(-8, 9, one.shape, generator=generator) / 8)
    return model


def _generator(*decode_lengths: int) -> Any:
    return torchstone.export_generation(
        language_model(), max_length=8, buckets=(4,), decode_lengths=decode_lengths, tokens_per_call=2
    )


WRITTEN: Mapping[str, Callable[[], Any]] = {
    "format-1": _everything,
    "format-2": _sharded,
    "format-3": _tied,
    "format-4": _related,
    "format-5": _joined,
    "format-6": _selecting,
    "generator-1": lambda: _generator(8),
    "generator-2": lambda: _generator(5, 8),
}

if __name__ == "__main__":
    for name, make in WRITTEN.items():
        path = Path(sys.argv[1]) / f"{name}.stone"
        if not path.exists():
            make().save(path)
