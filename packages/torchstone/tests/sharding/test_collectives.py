"""Programs with collectives, as far as one device shows them: groups, what is refused, signatures."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol

import torchstone
from operator_samples.collectives import alone
from rank_programs import world
from torchstone.compiler import lower_program, normalize
from torchstone.errors import CaptureError, FallbackRefused, ShardingError, UnsupportedOperators
from torchstone.lowering.groups import tiling
from torchstone.signature import Damage, describe, parse_json, parse_signature
from torchstone.torch_internals.distributed import ranks_of_group

X = torch.ones(4)


def summed(x: torch.Tensor) -> torch.Tensor:
    return funcol.all_reduce(x, "sum", dist.group.WORLD)


@pytest.fixture(scope="module")
def of_two() -> torchstone.Program:
    with world(2):
        return torchstone.export(summed, (X,))


# Groups ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ranks", "count", "groups"),
    [
        ([0, 1], 2, [[0, 1]]),
        ([2, 3], 4, [[0, 1], [2, 3]]),
        ([1, 3], 4, [[0, 2], [1, 3]]),
        ([1, 5], 8, [[0, 4], [1, 5], [2, 6], [3, 7]]),
        ([4, 6], 8, [[0, 2], [1, 3], [4, 6], [5, 7]]),  # along the middle axis of three
        ([2], 3, [[0], [1], [2]]),
    ],
)
def test_groups_of_all_ranks(ranks: list[int], count: int, groups: list[list[int]]) -> None:
    assert tiling(ranks, count) == groups


@pytest.mark.parametrize(
    ("ranks", "count"),
    [
        ([0, 1, 3], 4),  # unevenly spaced
        ([1, 2], 4),  # between two groups
        ([0, 1], 3),  # leaves one over
        ([3, 1], 4),  # in another order
        ([0, 1, 4, 5], 8),  # two axes that are not neighbors
        ([2, 4], 8),
    ],
)
def test_no_groups_of_all_ranks(ranks: list[int], count: int) -> None:
    assert tiling(ranks, count) is None


@pytest.mark.parametrize("rank", [0, 5])
def test_ranks_of_groups(rank: int) -> None:
    with world(2, 4, rank=rank) as mesh:
        row, column = mesh.get_group("b"), mesh.get_group("a").group_name
        assert ranks_of_group(row) == ([*range(rank // 4 * 4, rank // 4 * 4 + 4)], 8)
        assert ranks_of_group(column) == ([rank % 4, rank % 4 + 4], 8)
    assert ranks_of_group("no such group") is None


def test_the_program_does_not_depend_on_the_rank() -> None:
    texts = []
    for rank in (0, 3):
        with world(2, 2, rank=rank) as mesh:
            texts.append(
                torchstone.export(lambda x: funcol.all_reduce(x, "sum", mesh["a"]), (X,)).mlir_text()
            )
    assert texts[0] == texts[1]
    assert "replica_groups = dense<[[0, 2], [1, 3]]>" in texts[0]


def test_a_group_of_one_rank_needs_no_others() -> None:
    with world(1) as mesh:
        program = torchstone.export(lambda x: funcol.all_reduce(x, "sum", mesh) + 1, (X,))
    assert program.signature.ranks is None
    torch.testing.assert_close(program(X), X + 1)


# What is refused ---------------------------------------------------------------------------


def refusal(function: Any, *args: Any) -> str:
    with pytest.raises(UnsupportedOperators) as caught:
        torchstone.export(function, args or (X,))
    [reason] = {node.reason for node in caught.value.nodes}
    return str(reason)


def test_reductions_that_there_are_not() -> None:
    with world(2):
        name = dist.group.WORLD.group_name
        reason = refusal(lambda x: torch.ops._c10d_functional.all_reduce(x, "premul_sum", name))
        assert reason == (
            "the reduction 'premul_sum' is not one of sum, avg, product, min, max, band, bor, bxor"
        )
        assert refusal(lambda x: funcol.all_reduce(x, "bxor", name)) == "float32 has no reduction 'bxor'"


def test_uneven_splits() -> None:
    with world(2) as mesh:
        reason = refusal(lambda x: funcol.all_to_all_single(x, [2, 2], [1, 3], mesh))
    assert reason == (
        "input_split_sizes is [1, 3]: a program exchanges parts of one size only; pad them to the largest"
    )


def test_what_does_not_fit_the_group() -> None:
    with world(2):
        name, c10d = dist.group.WORLD.group_name, torch.ops._c10d_functional
        assert refusal(lambda x: c10d.broadcast(x, 2, name)) == "src is 2, and the group has 2 ranks"
        assert refusal(lambda x: c10d.all_gather_into_tensor(x, 3, name)) == (
            "group_size is 3, and the group has 2 ranks"
        )
        assert refusal(lambda x: c10d.all_to_all_single(x, [2, 2], [1, 1], name)).startswith(
            "output_split_sizes is [2, 2]"
        )
        assert refusal(lambda x: c10d.all_to_all_single(x, [1] * 4, [1] * 4, name)) == (
            "group_size is 4, and the group has 2 ranks"
        )
        assert refusal(lambda x: c10d.reduce_scatter_tensor(x[1:], "sum", 2, name)) == (
            "[3] does not split into 2 equal parts"
        )


def test_groups_that_no_mesh_has() -> None:
    with world(4):
        group = dist.new_group([0, 1, 3])
        reason = refusal(lambda x: funcol.all_reduce(x, "sum", group))
        name = group.group_name
    assert reason == (
        f"group {name!r} has the ranks [0, 1, 3] of 4, and is not a group along one axis of a device mesh, "
        "whose ranks are evenly spaced and which fills all ranks when it is shifted"
    )


def test_a_group_of_another_process() -> None:
    with world(2):
        captured = torch.export.export(_Summed(), (X,))
        name = dist.group.WORLD.group_name
    with pytest.raises(UnsupportedOperators, match=f"this process has no process group '{name}': export"):
        torchstone.export(captured)


class _Summed(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return summed(x)


def test_messages_to_one_rank() -> None:
    with world(2):
        name = dist.group.WORLD.group_name
        with pytest.raises((UnsupportedOperators, CaptureError)):
            torchstone.export(lambda x: torch.ops._c10d_functional.isend(x, 1, 0, name) + x, (X,))


def test_broadcasts_that_are_not_waited_for() -> None:
    def later(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        dist.broadcast(y, 1, async_op=True).wait()
        return y

    with world(2), pytest.raises(CaptureError, match="async_op=True returns work to wait for"):
        torchstone.export(later, (X,))


def test_a_mesh_beside_collectives() -> None:
    with world(2), pytest.raises(ShardingError, match="the model calls collectives") as caught:
        torchstone.export(summed, (X,), mesh=torchstone.Mesh({"data": 2}))
    assert caught.value.hint == "leave mesh= out, or the collectives"


def test_what_runs_on_one_rank_leaves_collectives_to_pytorch() -> None:
    with world(2):
        compiled = torch.compile(summed, backend="torchstone", options={"fallback": False})
        with pytest.raises(Exception, match="export the model and run it with") as caught:
            compiled(X)
        assert FallbackRefused.__name__ in str(caught.value)
        with pytest.raises(UnsupportedOperators, match="leave it to PyTorch"):
            lower_program(normalize(torch.export.export(_Summed(), (X,))))


def test_explanations_know_the_groups() -> None:
    with world(2):
        assert torchstone.explain(summed, (X,)).compiles
    with world(4):
        group = dist.new_group([0, 1, 3])
        found = torchstone.explain(lambda x: funcol.all_reduce(x, "sum", group), (X,))
    assert "evenly spaced" in found.unsupported[0].reason


# Programs ----------------------------------------------------------------------------------


def test_a_call_with_the_arguments_of_one_rank(of_two: torchstone.Program) -> None:
    with pytest.raises(ShardingError, match="collectives of 2 ranks, and a call of it has the arg") as caught:
        of_two(X)
    assert caught.value.hint == (
        "run the ranks together: torchstone.Ranks(program)([arguments of each rank])"
    )


def test_what_has_no_ranks(of_two: torchstone.Program) -> None:
    plain = torchstone.export(lambda x: x + 1, (X,))
    with pytest.raises(
        ShardingError, match="calls no collectives of several ranks\n  next: call the program"
    ):
        torchstone.Ranks(plain)
    for wrong in ([], summed, [summed]):
        with pytest.raises(ShardingError, match=r"Ranks takes programs? of torchstone\.export"):
            torchstone.Ranks(wrong)  # type: ignore[arg-type]


def test_too_few_devices() -> None:
    with world(64):
        program = torchstone.export(summed, (X,))
    with pytest.raises(ShardingError, match=r"for 64 ranks, each on a device, and cpu has \d+\n") as caught:
        torchstone.Ranks(program)
    assert caught.value.hint == "set TORCHSTONE_CPU_DEVICES=64 before the process starts"


def test_another_engine(of_two: torchstone.Program) -> None:
    with pytest.raises(ShardingError, match="for 2 ranks, and the engine 'reference' runs one") as caught:
        torchstone.Ranks(of_two, engine="reference")
    assert caught.value.hint == 'use engine="pjrt"'


@pytest.mark.conformance
def test_generators_run_on_one_rank() -> None:
    transformers = pytest.importorskip("transformers", reason="the extra torchstone[models] is not installed")
    from artifact_fixtures import language_model

    assert transformers
    model = language_model()
    model.lm_head.register_forward_hook(lambda _, __, result: summed(result))
    with world(2), pytest.raises(ShardingError, match="a generator runs on one rank"):
        torchstone.export_generation(model, max_length=8, buckets=(4,), tokens_per_call=2)


# Signatures --------------------------------------------------------------------------------


def test_signatures_say_the_ranks(of_two: torchstone.Program) -> None:
    description = describe(of_two.signature, {}, {})
    assert (description["format_version"], description["ranks"]) == (5, 2)
    assert parse_signature(description).ranks == 2
    without = describe(replace(of_two.signature, ranks=None), {}, {})
    assert without["format_version"] == 1
    assert "ranks" not in without


@pytest.mark.parametrize("ranks", [1, 0, -2, 1 << 21, "2", 2.0, None, True])
def test_wrong_ranks(of_two: torchstone.Program, ranks: Any) -> None:
    with pytest.raises(Damage, match="ranks"):
        parse_signature({**describe(of_two.signature, {}, {}), "ranks": ranks})


def test_ranks_in_an_older_format(of_two: torchstone.Program) -> None:
    description = {**describe(of_two.signature, {}, {}), "format_version": 4}
    with pytest.raises(Damage, match="format version 4 has no ranks"):
        parse_json(json.dumps(description).encode())


def test_a_group_without_a_world() -> None:
    assert not dist.is_initialized()
    assert ranks_of_group(alone()) == ([0], 1)
