"""The device of a tensor: it is recorded for every tensor, on one device and on several."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable, Iterator
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.distributed import tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module
from torch.nn.utils.rnn import pack_padded_sequence

import torchstone
from torchstone.errors import RedirectTargetError
from torchstone.redirect import places

ZERO, ONE, HOST = torch.device("cuda:0"), torch.device("cuda:1"), torch.device("cpu")


@pytest.fixture(autouse=True)
def scope() -> Iterator[None]:
    with torchstone.redirected(target="cpu", devices=2):
        yield


# Transfers are copies -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "move",
    [
        lambda x: x.cuda(),
        lambda x: x.to("cuda"),
        lambda x: x.to(device="cuda:1"),
        lambda x: x.to(torch.zeros(1, device="cuda")),
        lambda x: x.type_as(torch.zeros(1, device="cuda")),
        lambda x: torch.as_tensor(x, device="cuda"),
        lambda x: torch.asarray(x, device="cuda"),
        lambda x: x.cuda().cpu(),
        lambda x: x.cuda().to("cpu"),
        lambda x: x.cuda(0).cuda(1),
        lambda x: x.type("torch.cuda.FloatTensor"),
        lambda x: x.pin_memory(),
    ],
)
def test_a_transfer_between_two_devices_is_a_copy(move: Callable[[torch.Tensor], torch.Tensor]) -> None:
    x = torch.zeros(3)
    moved = move(x)
    x.fill_(1)
    assert moved.tolist() == [0, 0, 0]


def test_a_transfer_to_where_a_tensor_is_is_the_tensor() -> None:
    x, y = torch.zeros(3), torch.zeros(3, device="cuda:1")
    assert x.cpu() is x
    assert x.to("cpu") is x
    assert y.cuda(1) is y
    assert y.to("cuda:1") is y
    assert y.to(y) is y


def test_arrays_of_numpy_are_copied_to_cuda() -> None:
    array = np.zeros(3, np.float32)
    moved = [
        torch.from_numpy(array).cuda(),
        torch.as_tensor(array, device="cuda"),
        torch.tensor(array).cuda(),
    ]
    array[:] = 1
    assert [one.tolist() for one in moved] == [[0, 0, 0]] * 3
    assert {one.device for one in moved} == {ZERO}


def test_early_stopping_restores_the_best_weights() -> None:
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=50.0)  # diverges after the first steps
    x = torch.randn(32, 4, device="cuda")
    y = x.sum(1, keepdim=True)
    best, kept = float("inf"), {}
    for _ in range(10):
        loss = (model(x) - y).pow(2).mean()
        if loss.item() < best:
            best, kept = loss.item(), {name: value.cpu() for name, value in model.state_dict().items()}
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.load_state_dict(kept)
    assert (model(x) - y).pow(2).mean().item() == pytest.approx(best)
    assert model.weight.device == ZERO


# Where results are ------------------------------------------------------------------------------


def test_results_are_where_their_inputs_are() -> None:
    x = torch.randn(4, 4, device="cuda:1", requires_grad=True)
    made = [
        *(x + 1, x @ x, x[0], x.T, x.detach(), x.data, x.clone(), x.view(-1), x.new_zeros(2), *x.split(2)),
        *(torch.zeros_like(x), torch.cat([x, x]), torch.nn.functional.dropout(x), torch.linalg.inv(x)),
        *(torch.nn.Parameter(x.detach()), *torch.sort(x), torch.ops.aten.mul(x, 2), x.sum(), x.to_sparse()),
        *(torch.autograd.grad(x.sum(), x)[0], copy.deepcopy(x), pickle.loads(pickle.dumps(x))),
        *(torch.utils.checkpoint.checkpoint(torch.sin, x, use_reentrant=False), torch.vmap(torch.sin)(x)),
    ]
    assert {one.device for one in made} == {ONE}
    assert (torch.zeros(3) + 1).device == HOST


@pytest.mark.parametrize("device", ["cuda", "cuda:1", 1, torch.device("cuda", 1)], ids=str)
def test_a_module_moves_wherever_its_device_is_written(device: Any) -> None:
    place = torch.empty(0, device=device).device
    moved = [
        torch.nn.Conv2d(2, 3, 2).to(device),
        torch.nn.Conv2d(2, 3, 2).to(device=device),
        torch.nn.Conv2d(2, 3, 2).to(device=device, dtype=torch.float64, non_blocking=True),
        torch.nn.Conv2d(2, 3, 2).to(device, memory_format=torch.channels_last),
        torch.nn.Conv2d(2, 3, 2).to(device=device, memory_format=torch.channels_last),
    ]
    assert {parameter.device for model in moved for parameter in model.parameters()} == {place}
    assert moved[2].weight.dtype == torch.float64
    assert moved[4].weight.is_contiguous(memory_format=torch.channels_last)
    assert {parameter.device for parameter in moved[1].to(device="cpu").parameters()} == {HOST}
    packed = pack_padded_sequence(torch.ones(4, 2, 3), torch.tensor([4, 2]))
    assert packed.to(device=device).data.device == packed.to(device).data.device == place


def test_models_optimizers_and_gradients() -> None:
    model = torch.nn.Sequential(torch.nn.LSTM(4, 4, batch_first=True)).to("cuda:1")
    optimizer = torch.optim.AdamW(model.parameters())
    seen = []
    x = torch.randn(2, 3, 4, device="cuda:1", requires_grad=True)
    x.register_hook(lambda gradient: seen.append(gradient.device))
    model(x)[0].sum().backward()
    optimizer.step()
    weight = next(model.parameters())
    assert seen == [ONE]
    assert {weight.device, weight.grad.device, optimizer.state[weight]["exp_avg"].device} == {ONE}
    assert {value.device for value in model.state_dict().values()} == {ONE}
    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    optimizer.step()
    assert model.to(torch.float64)[0].weight_ih_l0.device == ONE
    assert model[0].weight_ih_l0.dtype is torch.float64
    assert model.cpu()[0].weight_ih_l0.device == HOST


def test_gradients_of_custom_functions_have_a_device() -> None:
    seen = []

    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            seen.append(gradient.device)
            return gradient * torch.full((3,), 2.0, device=gradient.device) + 0 * ctx.saved_tensors[0]

    Twice.apply(torch.ones(3, device="cuda:1", requires_grad=True)).sum().backward()
    assert seen == [ONE]


@pytest.mark.parametrize(
    ("map_location", "device"),
    [
        (None, ONE),
        ("cpu", HOST),
        ("cuda:0", ZERO),
        ({"cuda:1": "cuda:0"}, ZERO),
        (lambda s, at: s.cuda(0), ZERO),
    ],
)
def test_files_keep_the_device(map_location: Any, device: torch.device) -> None:
    file = io.BytesIO()
    torch.save({"x": torch.ones(2, device="cuda:1")}, file)
    file.seek(0)
    assert torch.load(file, map_location=map_location)["x"].device == device


def test_the_current_and_the_default_device() -> None:
    torch.cuda.set_device(1)
    assert torch.zeros(1, device="cuda").device == torch.ones(1).cuda().device == ONE
    with torch.cuda.device(0):
        assert torch.cuda.current_device() == 0
        assert torch.zeros(1, device="cuda").device == ZERO
    torch.cuda.set_device(0)
    with torch.device("cuda:1"):
        assert (
            torch.zeros(1).device == torch.nn.Linear(1, 1).weight.device == torch.get_default_device() == ONE
        )
    torch.set_default_device("cuda")
    assert torch.zeros(1).device == torch.nn.LSTM(2, 2)(torch.ones(1, 1, 2))[0].device == ZERO


def test_a_tensor_says_its_device() -> None:
    assert repr(torch.ones(1, device="cuda:1")) == "tensor([1.], device='cuda:1')"
    assert repr(torch.ones(1)) == "tensor([1.])"
    assert torch.ones(1, device="cuda").type() == "torch.cuda.FloatTensor"


# Tensors on different devices ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mix", "message"),
    [
        (lambda x, y: x + y, "found at least two devices, cuda:0 and cpu!"),
        (lambda x, y: torch.cat([y, x]), "found at least two devices, cpu and cuda:0!"),
        (
            lambda x, y: torch.nn.functional.linear(y, x),
            "got mat2 is on cuda:0, different from other tensors on",
        ),
        (lambda x, y: torch.where(x > 0, x, y), "found at least two devices"),
        (lambda x, y: y[x.long()], "indices should be either on cpu or on the same device .* \\(cpu\\)"),
        (lambda x, y: x.numpy(), "can't convert cuda:0 device type tensor to numpy"),
        (lambda x, y: np.asarray(x), "can't convert cuda:0 device type tensor to numpy"),
        (lambda x, y: x.pin_memory(), "cannot pin 'torch.cuda.FloatTensor'"),
        (lambda x, y: torch.nn.functional.embedding(y.long(), x), "Expected all tensors to be on the same"),
    ],
)
def test_mixing_devices_fails_as_on_cuda(mix: Callable[..., Any], message: str) -> None:
    with pytest.raises((RuntimeError, TypeError), match=message):
        mix(torch.ones(2, 2, device="cuda"), torch.ones(2, 2))


def test_what_may_be_mixed_is() -> None:
    x, y = torch.ones(4, 2, device="cuda"), torch.zeros(4, 2)
    assert (x * torch.tensor(2.0)).device == ZERO
    assert x[torch.tensor([0, 1])].device == ZERO
    assert x[torch.tensor([True, False, True, False])].shape == (2, 2)
    assert y.copy_(x).device == HOST
    assert x.expand_as(y).device == ZERO
    x[torch.tensor([0])] = torch.tensor(3.0)
    packed = pack_padded_sequence(torch.ones(4, 2, 3, device="cuda"), torch.tensor([4, 2]))
    assert torch.nn.LSTM(3, 3).cuda()(packed)[0].data.device == ZERO
    scores = torch.randn(10, 2, 5).log_softmax(2).cuda().requires_grad_()
    targets, lengths = (
        torch.tensor([[1, 2], [3, 4]], device="cuda"),
        (torch.tensor([10, 9]), torch.tensor([2, 1])),
    )
    torch.nn.functional.ctc_loss(scores, targets, *lengths).backward()
    assert scores.grad.device == ZERO
    torch.autograd.backward([x.requires_grad_().sum(), y.requires_grad_().sum()])
    assert (x.grad.device, y.grad.device) == (ZERO, HOST)


def test_what_cannot_be_told_is_on_any_device() -> None:
    with torch._C.DisableTorchFunction():  # C++ makes tensors this way, for example in a scripted function
        untold = torch.ones(2)
    assert (untold + torch.ones(2, device="cuda")).device == ZERO
    assert (untold + torch.ones(2)).device == HOST


# Several devices --------------------------------------------------------------------------------


def test_each_device_has_its_random_numbers() -> None:
    torch.manual_seed(5)
    first = torch.rand(3, device="cuda:1")
    torch.manual_seed(5)
    torch.rand(9, device="cuda:0")
    assert torch.equal(torch.rand(3, device="cuda:1"), first)
    states = torch.cuda.get_rng_state_all()
    with torch.random.fork_rng(devices=[0, 1]):
        torch.nn.functional.dropout(first)
    assert all(map(torch.equal, states, torch.cuda.get_rng_state_all()))
    with torch.cuda.device(1):
        torch.cuda.manual_seed(7)
    assert [one.initial_seed() for one in torch.cuda.default_generators] == [5, 7]


def test_each_device_has_its_streams_and_memory() -> None:
    stream = torch.cuda.Stream(1)
    with torch.cuda.stream(stream):
        assert torch.cuda.current_device() == 1
        assert torch.cuda.current_stream() == stream
        assert torch.cuda.current_stream(0) == torch.cuda.default_stream(0) != torch.cuda.default_stream(1)
    assert torch.cuda.current_device() == 0
    assert stream.device == ONE
    assert torch.cuda.default_stream().cuda_stream == 0
    before = [torch.cuda.memory_allocated(index) for index in range(2)]
    kept = torch.zeros(100, device="cuda:1")
    assert [torch.cuda.memory_allocated(index) for index in range(2)] == [before[0], before[1] + kept.nbytes]


def test_data_parallel_runs_on_every_device() -> None:
    seen = set()

    class Spy(torch.nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.add((x.device, x.shape[0], self.weight.device, torch.cuda.current_device()))
            return super().forward(x)

    torch.manual_seed(0)
    plain = torch.nn.Sequential(Spy(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)).cuda()
    parallel = torch.nn.DataParallel(copy.deepcopy(plain))
    x = torch.randn(10, 4)
    parallel(x).pow(2).sum().backward()
    assert seen == {(ZERO, 5, ZERO, 0), (ONE, 5, ONE, 1)}
    plain(x.cuda()).pow(2).sum().backward()
    for ours, theirs in zip(parallel.parameters(), plain.parameters(), strict=True):
        assert ours.grad.device == ZERO
        torch.testing.assert_close(ours.grad, theirs.grad)


def test_data_parallel_under_autocast_gathers_what_its_replicas_return() -> None:
    """PyTorch's replicas use autocast's default dtype, whatever dtype the caller chose."""
    parallel = torch.nn.DataParallel(torch.nn.Linear(4, 2).cuda())
    with torch.autocast("cuda", dtype=torch.float16):
        y = parallel(torch.ones(6, 4))
    assert (y.device, y.shape, y.dtype) == (ZERO, (6, 2), torch.get_autocast_dtype("cuda"))
    y.float().sum().backward()


def test_communication_between_devices() -> None:
    from torch.cuda import comm

    x = torch.arange(6.0, device="cuda").view(3, 2)
    copies = comm.broadcast(x, (0, 1))
    assert [one.device for one in copies] == [ZERO, ONE]
    assert comm.reduce_add(copies, 0).tolist() == (x * 2).tolist()
    chunks = comm.scatter(x, (0, 1), (1, 2))
    assert [(one.device, len(one)) for one in chunks] == [(ZERO, 1), (ONE, 2)]
    assert comm.gather(chunks, destination=1).device == ONE
    assert comm.gather(chunks, destination="cpu").tolist() == x.tolist()
    (total,) = comm.reduce_add_coalesced([[copies[0]], [copies[1]]], 1)
    assert (total.device, total.tolist()) == (ONE, (x * 2).tolist())
    assert torch.cuda.can_device_access_peer(0, 1)


def test_the_accelerator_is_cuda() -> None:
    assert torch.accelerator.is_available()
    assert torch.accelerator.current_accelerator() == torch.device("cuda")
    assert torch.accelerator.device_count() == 2
    torch.accelerator.set_device_index(1)
    assert torch.accelerator.current_device_index() == torch.cuda.current_device() == 1
    with torch.accelerator.device_index(0):
        assert torch.cuda.current_device() == 0
    assert torch.get_device_module() is torch.get_device_module("cuda") is torch.cuda
    torch.accelerator.synchronize()


@pytest.mark.parametrize("devices", [0, 64])
def test_a_number_of_devices_that_cannot_be(devices: int) -> None:
    with pytest.raises(
        RedirectTargetError,
        match=f"^devices={devices} cannot be offered\n  next: ask for 1 to 63 CUDA devices$",
    ):
        torchstone.redirected(target="cpu", devices=devices).__enter__()


@pytest.mark.parametrize("device", ["cuda:-1", "cuda:x", "cuda:"])
def test_devices_that_cannot_be(device: str) -> None:
    with pytest.raises(RuntimeError, match="Invalid device string"):
        torch.zeros(1, device=device)


def test_lengths_of_packed_sequences_stay_on_the_cpu() -> None:
    x = torch.ones(2, 3, 4, device="cuda:1")
    packed = pack_padded_sequence(x, torch.tensor([3, 1]), batch_first=True)
    assert (packed.data.device, packed.batch_sizes.device) == (ONE, HOST)
    padded, lengths = torch.nn.utils.rnn.pad_packed_sequence(packed)
    assert (padded.device, lengths.device) == (ONE, HOST)
    with pytest.raises(RuntimeError, match="1D CPU int64 tensor, but got 1D cuda:1 Long tensor"):
        pack_padded_sequence(x, torch.tensor([3, 1], device="cuda:1"), batch_first=True)


def test_a_generator_is_on_its_device() -> None:
    generator = torch.Generator("cuda:1")
    assert isinstance(generator, torch.Generator)
    assert (generator.device, torch.Generator().device) == (ONE, HOST)
    assert torch.cuda.default_generators[1].device == ONE
    generator.manual_seed(3)
    drawn = torch.rand(3, device="cuda:1", generator=generator)
    assert torch.equal(torch.rand(3, device=ONE, generator=generator.manual_seed(3)), drawn)
    with pytest.raises(RuntimeError, match="Expected a 'cpu' device type for generator but found 'cuda'"):
        torch.rand(3, generator=generator)
    with pytest.raises(RuntimeError, match="Expected a 'cuda' device type for generator but found 'cpu'"):
        torch.ones(3, device="cuda").normal_(generator=torch.Generator())


def test_tensors_that_are_sent_keep_their_device() -> None:
    for device in (HOST, ONE):
        sent = ForkingPickler.dumps(torch.ones(2, device=device))
        assert pickle.loads(sent).device == device


@pytest.fixture
def group() -> Iterator[None]:
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.fixture
def mesh(group: None) -> Any:
    torch.cuda.set_device(1)
    return init_device_mesh("cuda", (1,))


def test_what_is_spread_over_a_mesh_is_on_its_devices(mesh: Any) -> None:
    assert mesh.device_type == "cuda"
    for made in (
        tensor.distribute_tensor(torch.ones(2), mesh, [Shard(0)]),
        DTensor.from_local(torch.ones(2), mesh, [Replicate()]),
        tensor.zeros(2, device_mesh=mesh),
    ):
        results = (
            made,
            made * 2,
            (made + made).full_tensor(),
            made.to_local(),
            made.redistribute(mesh, [Replicate()]),
        )
        assert {one.device for one in results} == {ONE}
    model = parallelize_module(torch.nn.Linear(2, 2), mesh, ColwiseParallel())
    model(torch.ones(1, 2, device="cuda")).sum().backward()
    assert model.weight.grad.to_local().device == ONE


def test_fully_sharded_parameters_are_on_the_mesh_s_device(mesh: Any) -> None:
    model = fully_shard(torch.nn.Linear(2, 2), mesh=mesh)
    model(torch.ones(1, 2, device="cuda")).sum().backward()
    assert {model.weight.to_local().device, model.weight.grad.to_local().device} == {ONE}


@pytest.mark.parametrize(("rank", "chosen", "device"), [("1", None, ONE), ("1", 0, ZERO)])
def test_a_mesh_chooses_the_device_of_its_rank(
    rank: str, chosen: int | None, device: torch.device, group: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCAL_RANK", rank)
    for account in places.ACCOUNTS:
        monkeypatch.setattr(account.all, "number_ever", 0)
    if chosen is not None:
        torch.cuda.set_device(chosen)
    DeviceMesh("cuda", [0])
    assert torch.cuda.current_device() == device.index


def test_the_summary_of_memory_and_the_priorities_of_streams_are_cuda_s() -> None:
    kept = torch.zeros(1 << 20, device="cuda:1")
    summary = torch.cuda.memory_summary(1)
    assert "CUDA memory summary, device ID 1" in summary.replace("PyTorch ", "")
    assert "Allocated memory" in summary
    assert kept.is_cuda
    assert torch.cuda.Stream.priority_range() == torch.cuda.Stream().priority_range() == (0, -1)


def test_a_library_of_cuda_that_is_preferred_is_asked_for_in_vain() -> None:
    with pytest.warns(UserWarning, match="preferred_linalg_library.*cpu has no cusolver; it uses its own"):
        found = torch.backends.cuda.preferred_linalg_library("cusolver")
    assert found == torch.backends.cuda.preferred_linalg_library()
    with pytest.raises(RuntimeError, match="Unknown input value"):
        torch.backends.cuda.preferred_linalg_library("nothing")
