"""Programs for a mesh over several processes, which ``jax.distributed`` joins."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
import torch.distributed._functional_collectives as funcol
from torch.nn import functional as F

import torchstone
from rank_programs import world
from torchstone.parity.zoo.families import llama
from training_loops import batches, eager_step

START = """
import sys
import jax

number, port, path = int(sys.argv[1]), sys.argv[2], sys.argv[3]
jax.distributed.initialize(f"127.0.0.1:{port}", 2, number, heartbeat_timeout_seconds=10)

import numpy
import torch
import torchstone
from torchstone.errors import TorchstoneError
"""


def run_together(script: str, path: Path, devices: int = 2) -> list[subprocess.CompletedProcess[str]]:
    """Run ``script`` in two processes with that many CPU devices each; it can use ``number`` and ``path``."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
    }
    started = [
        subprocess.Popen(
            [sys.executable, "-c", START + textwrap.dedent(script), str(number), port, str(path)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(2)
    ]
    done = []
    for one in started:
        out, err = one.communicate(timeout=240)
        done.append(subprocess.CompletedProcess(one.args, one.returncode, out, err))
    return done


def network() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4))


def adam(model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=0.01)


def exported_step(shardings: dict[str, Any], axes: dict[str, int]) -> torchstone.Program:
    model = network()
    mesh = torchstone.Mesh(axes)
    batch = next(batches(1))
    return torchstone.export_step(model, adam(model), F.cross_entropy, batch, mesh=mesh, shardings=shardings)


TRAIN = """
from torchstone.runtime import stats

data = numpy.load(path + "/data.npz")
step = torchstone.load(path + "/step.stone")
alone = torchstone.load(path + "/alone.stone")
for inputs, targets in zip(data["inputs"], data["targets"]):
    if number == 0:
        alone(inputs)  # a program without a mesh runs in one process, whatever the others do
    # The axis data goes over the processes: each has its half of the targets only.
    half = targets.reshape(2, -1)[number]
    loss = step(torch.from_numpy(inputs), torchstone.LocalPart(torch.from_numpy(half), targets.shape))
print(type(loss).__name__, float(loss))
try:
    step(torch.from_numpy(inputs), torchstone.LocalPart(half[1:], targets.shape))
except TorchstoneError as error:
    print(str(error).replace("\\n", " "))
step.save(f"{path}/trained{number}.stone")
"""


@pytest.mark.conformance
def test_a_step_over_two_processes_equals_that_of_one_device(tmp_path: Path) -> None:
    """Data and tensor parallelism are combined; both processes have parts of the weights and the state."""
    program = exported_step(
        {"inputs": "data", "targets": "data", "0.weight": ("model",), "2.weight": ("data", "model")},
        {"data": 2, "model": 2},
    )
    data = list(batches(5))
    program.save(tmp_path / "step.stone")
    torchstone.export(network(), (data[0][0],)).save(tmp_path / "alone.stone")
    numpy.savez(
        tmp_path / "data.npz",
        inputs=[inputs.numpy() for inputs, _ in data],
        targets=[targets.numpy() for _, targets in data],
    )
    done = run_together(TRAIN, tmp_path)
    assert [one.returncode for one in done] == [0, 0], done[0].stderr[-3000:] + done[1].stderr[-3000:]
    model = network()
    optimizer = adam(model)
    losses = [eager_step(model, optimizer, *batch) for batch in data]
    for number, one in enumerate(done):
        result, refusal = one.stdout.splitlines()[-2:]
        kind, loss = result.split()
        assert (kind, float(loss)) == ("Tensor", pytest.approx(losses[-1].item(), abs=2e-6))
        rows = len(data[0][1]) // 2
        assert f"this process has must be int64[{rows}], found int64[{rows - 1}]" in refusal
        assert f"its devices compute with [{number * rows}:{(number + 1) * rows}] of the whole" in refusal
        state = torchstone.load(tmp_path / f"trained{number}.stone").state()
        for name, weight in model.named_parameters():
            numpy.testing.assert_allclose(state[name], weight.detach().numpy(), rtol=1e-4, atol=1e-6)
            for key in ("exp_avg", "exp_avg_sq"):
                found = state[f"optimizer.state.{name}.{key}"]
                expected = optimizer.state[weight][key].numpy()
                numpy.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-7)


@pytest.mark.conformance
def test_a_llama_style_model_over_two_processes(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, (tokens,) = llama(2)
    split = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj")
    shardings: dict[str, Any] = {f"*.{name}.weight": ("model", None) for name in split}
    shardings |= {"*.o_proj.weight": (None, "model"), "*.down_proj.weight": (None, "model")}
    program = torchstone.export(
        model,
        (tokens,),
        mesh=torchstone.Mesh({"data": 2, "model": 2}),
        shardings={**shardings, "input_ids": "data"},
    )
    program.save(tmp_path / "llama.stone")
    numpy.save(tmp_path / "tokens.npy", tokens.numpy())
    done = run_together(
        """
        program = torchstone.load(path + "/llama.stone")
        result = program(torch.from_numpy(numpy.load(path + "/tokens.npy")))
        numpy.save(f"{path}/result{number}.npy", result.logits.numpy())
        """,
        tmp_path,
    )
    assert [one.returncode for one in done] == [0, 0], done[0].stderr[-3000:]
    with torch.no_grad():
        expected = model(tokens).logits.numpy()
    for number in range(2):
        numpy.testing.assert_allclose(
            numpy.load(tmp_path / f"result{number}.npy"), expected, rtol=1e-4, atol=1e-4
        )


RANKS = """
programs = [torchstone.load(f"{path}/{one}.stone") for one in (2 * number, 2 * number + 1)]
ranks = torchstone.Ranks(programs)
for _ in range(2):  # the second call has the sums of the first in its buffers
    results = ranks([(torch.full((2,), float(rank)),) for rank in ranks.local])
print(ranks.local, [result.tolist() for result in results])
"""


class Kept(torch.nn.Module):
    """Adds the inputs of all ranks of a group, each weighted by its rank's weight, to a buffer."""

    def __init__(self, weight: float, group: Any) -> None:
        super().__init__()
        self.group = group
        self.register_buffer("weight", torch.tensor(weight))
        self.register_buffer("total", torch.zeros(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total += funcol.all_reduce(self.weight * x, "sum", self.group)
        return self.total * 1


def test_ranks_in_two_processes(tmp_path: Path) -> None:
    for rank, weight in enumerate((1.0, 10.0, 100.0, 1000.0)):
        with world(2, 2, rank=rank) as mesh:
            program = torchstone.export(Kept(weight, mesh["a"]), (torch.ones(2),))
        program.save(tmp_path / f"{rank}.stone")
    done = run_together(RANKS, tmp_path)
    assert [one.returncode for one in done] == [0, 0], done[0].stderr[-3000:] + done[1].stderr[-3000:]
    # in each call, ranks 0 and 2 add 0 * 1 + 2 * 100, ranks 1 and 3 add 1 * 10 + 3 * 1000
    totals = [[400.0, 400.0], [6020.0, 6020.0]]
    assert [one.stdout.splitlines()[-1] for one in done] == [f"(0, 1) {totals}", f"(2, 3) {totals}"]


@pytest.mark.conformance
def test_errors_name_the_processes(tmp_path: Path) -> None:
    """The mesh does not have the size of all devices together, or a process ends in the middle."""
    exported_step({"inputs": "data", "targets": "data"}, {"data": 4}).save(tmp_path / "four.stone")
    exported_step({"inputs": "data", "targets": "data"}, {"data": 2}).save(tmp_path / "two.stone")
    done = run_together(
        """
        import os

        batch = torch.zeros(32, 8), torch.zeros(32, dtype=torch.int64)
        try:
            torchstone.load(path + "/four.stone")(*batch)
        except TorchstoneError as error:
            print(error)
        step = torchstone.load(path + "/two.stone")
        step(*batch)
        if number == 1:
            os._exit(3)
        try:
            step(*batch)
        except TorchstoneError as error:
            print(error)
            sys.stdout.flush()
        os._exit(4)
        """,
        tmp_path,
        devices=1,
    )
    for one in done:
        assert "the mesh data=4 has 4 devices, and the 2 processes have 2" in one.stdout, one.stderr[-3000:]
    assert done[1].returncode == 3
    assert done[0].returncode == 4
    assert "the program failed on the mesh data=2" in done[0].stdout
