"""Programs with collectives, and the ranks that run them, on several devices of the CPU."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path

import numpy
import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol

import torchstone
from rank_programs import columns, of_groups, rows, run, values, world
from torchstone.errors import ArtifactError, InputMismatch, ShardingError, UnsupportedOperators


@pytest.mark.parametrize("axis", ["a", "b"])
def test_groups_of_a_mesh_of_two_by_four(axis: str) -> None:
    xs = values(torch.float32, 8, 8)
    groups = columns(8, 4) if axis == "a" else rows(8, 4)
    with world(2, 4, rank=6) as mesh:
        results = run(
            lambda x: (
                funcol.all_reduce(x, "sum", mesh[axis]),
                funcol.all_gather_tensor(x, 0, mesh[axis]),
                funcol.reduce_scatter_tensor(x, "max", 0, mesh[axis]),
                funcol.all_to_all_single(x, None, None, mesh[axis]),
                funcol.broadcast(x, 1, mesh[axis]),
                funcol.all_reduce(x, "sum", dist.group.WORLD),
            ),
            xs,
        )
    for (place, group), found in zip(of_groups(groups, xs), results, strict=True):
        expected = (
            sum(group),
            torch.cat(group),
            functools.reduce(torch.maximum, group).chunk(len(group))[place],
            torch.cat([one.chunk(len(group))[place] for one in group]),
            group[1],
            sum(xs),
        )
        torch.testing.assert_close(found, expected)


def test_lists_and_other_dimensions() -> None:
    xs, ys = values(torch.float32, 4, 4, 6), values(torch.int64, 4, 4)
    with world(4) as mesh:
        results = run(
            lambda x, y: (
                funcol.all_reduce_coalesced([x, y], "sum", mesh),
                funcol.all_gather_into_tensor_coalesced([x, y], mesh),
                funcol.reduce_scatter_tensor_coalesced([x, y], "sum", [0, 0], mesh),
                funcol.all_gather_tensor(x, 1, mesh),
                torch.ops._dtensor.shard_dim_alltoall(x, 1, 0, dist.group.WORLD.group_name),
                torch.ops._c10d_functional.all_gather_into_tensor(x[0, 0], 4, dist.group.WORLD.group_name),
            ),
            xs,
            ys,
        )
    for rank, found in enumerate(results):
        expected = (
            [sum(xs), sum(ys)],
            [torch.cat(xs), torch.cat(ys)],
            [sum(xs)[rank : rank + 1], sum(ys)[rank : rank + 1]],
            torch.cat(xs, 1),
            torch.cat([x[rank : rank + 1] for x in xs], 1),
            torch.stack([x[0, 0] for x in xs]),
        )
        torch.testing.assert_close(found, expected)


def test_empty_tensors_and_single_numbers() -> None:
    xs, ys = values(torch.float32, 2, 0, 3), values(torch.float32, 2)
    with world(2) as mesh:
        results = run(
            lambda x, y: (
                funcol.all_reduce(x, "sum", mesh),
                funcol.all_gather_tensor(x, 0, mesh),
                funcol.reduce_scatter_tensor(x, "sum", 0, mesh),
                funcol.all_to_all_single(x, None, None, mesh),
                funcol.broadcast(x, 1, mesh),
                funcol.all_reduce(y, "sum", mesh),
                funcol.broadcast(y, 1, mesh),
                funcol.all_reduce(y.int(), "bxor", mesh),
            ),
            xs,
            ys,
        )
    empty = torch.zeros(0, 3)
    for found in results:
        numbers = (sum(ys), ys[1], ys[0].int() ^ ys[1].int())
        torch.testing.assert_close(found, (*[empty] * 5, *numbers))


def test_calls_of_torch_distributed() -> None:
    xs = values(torch.float32, 2, 4)

    def collectives(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        reduced, sent, gathered, exchanged = x * 2, x + 1, x.new_empty(8), torch.empty_like(x)
        dist.all_reduce(reduced, dist.ReduceOp.MAX)
        dist.broadcast(sent, 1)
        dist.all_gather_into_tensor(gathered, x)
        dist.all_to_all_single(exchanged, x)
        return reduced, sent, gathered, exchanged

    def in_place(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        name = dist.group.WORLD.group_name
        reduced, sent, gathered, scattered = x * 2, x + 1, x.new_empty(8), x.new_empty(2)
        torch.ops._c10d_functional.all_reduce_(reduced, "max", name)
        torch.ops._c10d_functional.broadcast_(sent, 1, name)
        torch.ops._c10d_functional.all_gather_into_tensor_out(x, 2, name, out=gathered)
        torch.ops._c10d_functional.reduce_scatter_tensor_out(x, "sum", 2, name, out=scattered)
        torch.ops._c10d_functional.all_reduce_coalesced_([x], "sum", name)
        return reduced, sent, gathered, scattered

    with world(2):
        results, written = run(collectives, xs), run(in_place, [x.clone() for x in xs])
    for rank in range(2):
        common = (torch.maximum(*xs) * 2, xs[1] + 1, torch.cat(xs))
        torch.testing.assert_close(results[rank][:3], common)
        torch.testing.assert_close(results[rank][3], torch.cat([x.chunk(2)[rank] for x in xs]))
        torch.testing.assert_close(written[rank][:3], common)
        torch.testing.assert_close(written[rank][3], sum(xs).chunk(2)[rank])


def test_dynamic_sizes() -> None:
    rows_of_each = 2 * torch.export.Dim("half", min=2)
    xs = values(torch.float32, 2, 6, 3)
    with world(2) as mesh:
        program = torchstone.export(
            lambda x: (
                funcol.all_reduce(x, "sum", mesh),
                funcol.all_gather_tensor(x, 0, mesh),
                funcol.reduce_scatter_tensor(x, "sum", 0, mesh),
                funcol.all_to_all_single(x, None, None, mesh),
                funcol.broadcast(x, 1, mesh),
            ),
            (torch.randn(4, 3),),
            dynamic_shapes=({0: rows_of_each},),
        )
    ranks = torchstone.Ranks(program)
    found = ranks([(x,) for x in xs])[1]
    expected = (sum(xs), torch.cat(xs), sum(xs)[3:], torch.cat([x[3:] for x in xs]), xs[1])
    torch.testing.assert_close(found, expected)
    assert ranks([(x[:4],) for x in xs])[0][0].shape == (4, 3)


# Programs ----------------------------------------------------------------------------------


class Running(torch.nn.Module):
    """Adds the weighted mean of all ranks' inputs to a buffer and to its input."""

    def __init__(self, weight: float) -> None:
        super().__init__()
        self.register_buffer("weight", torch.tensor(weight))
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total += self.weight * funcol.all_reduce(x, "avg", dist.group.WORLD)
        x += 1
        return self.total * 2


def test_each_rank_has_weights_and_buffers_of_its_own() -> None:
    xs = [torch.full((3,), float(rank)) for rank in range(2)]
    with world(2):
        programs = [torchstone.export(Running(weight), (xs[0].clone(),)) for weight in (1.0, 10.0)]
    ranks = torchstone.Ranks(programs)
    assert (ranks.count, ranks.local) == (2, (0, 1))
    ranks([(x,) for x in xs])
    assert [x[0].item() for x in xs] == [1.0, 2.0]
    results = ranks([(x,) for x in xs])
    assert [result[0].item() for result in results] == [4.0, 40.0]  # the means are 0.5 and 1.5
    assert [ranks.state(rank)["total"][0] for rank in range(2)] == [2.0, 20.0]
    assert programs[0].state()["total"][0] == 0.0


CHILD = """
import sys
import numpy
import torchstone
ranks = torchstone.Ranks(torchstone.load(sys.argv[1]))
results = ranks([(numpy.full((2,), rank, numpy.float32),) for rank in range(4)])
assert [result.tolist() for result in results] == [[1.0] * 2, [1.0] * 2, [5.0] * 2, [5.0] * 2]
assert "torch" not in sys.modules
"""


def test_artifacts_run_without_torch(tmp_path: Path) -> None:
    with world(2, 2) as mesh:
        program = torchstone.export(lambda x: funcol.all_reduce(x, "sum", mesh["b"]), (torch.ones(2),))
    path = program.save(tmp_path / "sum.stone")
    loaded = torchstone.load(path)
    assert loaded.signature.ranks == 4
    results = torchstone.Ranks(loaded)([(numpy.ones(2, numpy.float32),)] * 4)
    assert all(isinstance(result, numpy.ndarray) for result in results)
    environment = {**os.environ, "TORCHSTONE_CPU_DEVICES": "4"}
    subprocess.run([sys.executable, "-c", CHILD, str(path)], env=environment, check=True)


# Errors ------------------------------------------------------------------------------------


def of_two() -> torchstone.Program:
    with world(2) as mesh:
        return torchstone.export(lambda x: funcol.all_reduce(x, "sum", mesh), (torch.ones(2),))


def test_more_ranks_than_devices() -> None:
    with world(16) as mesh:
        program = torchstone.export(lambda x: funcol.all_reduce(x, "sum", mesh), (torch.ones(2),))
    with pytest.raises(ShardingError, match="for 16 ranks, each on a device, and cpu has 8") as caught:
        torchstone.Ranks(program)
    assert caught.value.hint == "set TORCHSTONE_CPU_DEVICES=16 before the process starts"


def test_wrong_calls() -> None:
    ranks = torchstone.Ranks(of_two())
    good = (torch.ones(2),)
    with pytest.raises(InputMismatch, match="args has 1 entries, and there are 2 ranks"):
        ranks([good])
    with pytest.raises(InputMismatch, match="kwargs has 3 entries"):
        ranks([good, good], [{}] * 3)
    with pytest.raises(
        InputMismatch, match=r"rank 1: argument 0 .* must be float32\[2\], found float64\[2\]"
    ):
        ranks([good, (torch.ones(2, dtype=torch.float64),)])
    with pytest.raises(InputMismatch, match=r"rank 1: .*3"):
        ranks([good, (torch.ones(3),)])
    with pytest.raises(ShardingError, match=r"rank 2 is not among those of this process: \[0, 1\]"):
        ranks.state(2)


def test_dynamic_sizes_that_differ() -> None:
    with world(2) as mesh:
        program = torchstone.export(
            lambda x: funcol.all_reduce(x, "sum", mesh),
            (torch.ones(4),),
            dynamic_shapes=({0: torch.export.Dim("n", min=2)},),
        )
    with pytest.raises(InputMismatch, match=r"rank 1 has arguments of the shapes \[4\], and rank 0 \[3\]"):
        torchstone.Ranks(program)([(torch.ones(3),), (torch.ones(4),)])


def test_programs_that_differ() -> None:
    one = of_two()
    with world(2) as mesh:
        other = torchstone.export(lambda x: funcol.all_reduce(x, "max", mesh), (torch.ones(2),))
    with pytest.raises(ShardingError, match="ranks 0 and 1 differ in their operations"):
        torchstone.Ranks([one, other])
    with pytest.raises(ShardingError, match="3 programs were given, and this process runs 2 ranks of 2"):
        torchstone.Ranks([one] * 3)


def test_dtypes_without_a_reduction() -> None:
    with world(2) as mesh, pytest.raises(UnsupportedOperators, match="int64 has no reduction 'avg'"):
        torchstone.export(lambda x: funcol.all_reduce(x, "avg", mesh), (torch.ones(2).long(),))


def test_damage(tmp_path: Path) -> None:
    path = of_two().save(tmp_path / "two.stone")
    content = path.read_bytes()
    path.write_bytes(content.replace(b'"ranks": 2', b'"ranks": 1'))
    with pytest.raises(ArtifactError):
        torchstone.load(path)
