"""CUDA graphs on a redirected device: ``replay()`` reruns the recorded work, into the same storages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
import torch

import torchstone
from torchstone.errors import RedirectUnsupported


@pytest.fixture(autouse=True)
def scope() -> Iterator[None]:
    with torchstone.redirected(target="cpu"):
        yield


def test_replay_reruns_the_work_on_new_inputs_into_the_same_storage() -> None:
    static = torch.zeros(4, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        doubled = static * 2
        view = doubled.view(2, 2)
        total = view.sum(0)
    where = total.data_ptr()
    for value in (1.0, 5.0):
        static.copy_(torch.arange(4.0) * value)
        graph.replay()
        torch.testing.assert_close(view.cpu(), torch.tensor([[0.0, 2.0], [4.0, 6.0]]) * value)
        torch.testing.assert_close(total.cpu(), torch.tensor([4.0, 8.0]) * value)
    assert total.data_ptr() == where


def test_capturing_executes_nothing_that_lasts() -> None:
    counter, noise = torch.zeros(3, device="cuda"), torch.zeros(3, device="cuda")
    norm = torch.nn.BatchNorm1d(3).cuda()
    before = torch.cuda.get_rng_state()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        counter.add_(1)
        counter[1:].mul_(2)
        noise.normal_()
        norm(torch.ones(2, 3, device="cuda"))
    torch.testing.assert_close(counter.cpu(), torch.zeros(3))
    torch.testing.assert_close(noise.cpu(), torch.zeros(3))
    torch.testing.assert_close(norm.running_mean.cpu(), torch.zeros(3))
    assert torch.equal(torch.cuda.get_rng_state(), before)
    for _ in range(2):
        graph.replay()
    torch.testing.assert_close(counter.cpu(), torch.tensor([2.0, 6.0, 6.0]))
    torch.testing.assert_close(norm.running_mean.cpu(), torch.full((3,), 0.19))


def test_replayed_random_numbers_are_new_and_follow_the_seed() -> None:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        drawn = torch.rand(4, device="cuda")
    torch.cuda.manual_seed(3)
    seen = []
    for _ in range(2):
        graph.replay()
        seen.append(drawn.clone())
    torch.cuda.manual_seed(3)
    torch.testing.assert_close(torch.stack(seen).cpu(), torch.stack([torch.rand(4), torch.rand(4)]))


OPTIMIZERS: dict[str, Callable[[Iterable[torch.nn.Parameter]], torch.optim.Optimizer]] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.1, capturable=True),
}


def training(make: str, captured: bool) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Three training steps in a whole-network graph, or the same steps in eager PyTorch."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1)).cuda()
    optimizer = OPTIMIZERS[make](model.parameters())
    batches = [torch.randn(5, 3) for _ in range(4)]
    static = batches[0].cuda()

    def step() -> torch.Tensor:
        loss = model(static).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss

    optimizer.zero_grad(set_to_none=True)
    step()  # the warm-up that makes gradients and the optimizer's state
    optimizer.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    if captured:
        with torch.cuda.graph(graph):
            loss = step()
    losses = []
    for batch in batches[1:]:
        static.copy_(batch)
        if captured:
            graph.replay()
        else:
            optimizer.zero_grad(set_to_none=True)
            loss = step()
        losses.append(loss.detach().clone())
    return losses, model[0].weight.detach()


@pytest.mark.parametrize("make", OPTIMIZERS)
def test_a_training_step_in_a_graph_equals_eager_steps(make: str) -> None:
    torch.testing.assert_close(training(make, captured=True), training(make, captured=False))


def test_graphed_callables_train_like_the_module() -> None:
    def train(graphed: bool) -> torch.Tensor:
        torch.manual_seed(1)
        model = torch.nn.Linear(3, 2).cuda()
        run = (
            torch.cuda.make_graphed_callables(model, (torch.randn(4, 3, device="cuda"),))
            if graphed
            else model
        )
        torch.manual_seed(2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        for _ in range(3):
            optimizer.zero_grad()
            run(torch.randn(4, 3, device="cuda")).pow(2).mean().backward()
            optimizer.step()
        return model.weight.detach()

    torch.testing.assert_close(train(graphed=True), train(graphed=False))


def test_replay_is_invisible_to_autograd() -> None:
    static = torch.ones(2, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        factor = static * 3
    weight = torch.ones(2, device="cuda", requires_grad=True)
    product = weight * factor
    version = factor._version
    graph.replay()
    assert factor._version == version
    product.sum().backward()
    torch.testing.assert_close(weight.grad.cpu(), torch.full((2,), 3.0))


def test_what_no_graph_can_hold_is_refused_and_the_capture_ends() -> None:
    x = torch.ones(2, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with (
        pytest.raises(RuntimeError, match=r"operation not permitted when stream is capturing: aten\._local"),
        torch.cuda.graph(graph),
    ):
        x.sum().item()
    assert not torch.cuda.is_current_stream_capturing()
    assert x.sum().item() == 2


def test_misuse_is_refused() -> None:
    graph = torch.cuda.CUDAGraph()
    with pytest.raises(RuntimeError, match="without a preceding successful capture"):
        graph.replay()
    with pytest.raises(RuntimeError, match="without a capture_begin"):
        graph.capture_end()
    with torch.cuda.graph(graph):
        assert torch.cuda.is_current_stream_capturing()
        with pytest.raises(RuntimeError, match="do not nest"):
            torch.cuda.CUDAGraph().capture_begin()
    with pytest.raises(RedirectUnsupported, match="no cudaGraph_t"):
        graph.raw_cuda_graph()
    graph.reset()
    with pytest.raises(RuntimeError, match="without a preceding successful capture"):
        graph.replay()


def test_a_graph_can_be_dumped_and_shares_pools(tmp_path: Path) -> None:
    first, second = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    x = torch.ones(2, device="cuda")
    with torch.cuda.graph(first, pool=torch.cuda.graph_pool_handle()):
        y = x + 1
    with torch.cuda.graph(second, pool=first.pool(), stream=torch.cuda.Stream()):
        z = y * 2
    x.fill_(4)
    first.replay()
    second.replay()
    torch.testing.assert_close(z.cpu(), torch.full((2,), 10.0))
    first.enable_debug_mode()
    first.debug_dump(str(tmp_path / "graph.txt"))
    assert (tmp_path / "graph.txt").read_text() == "aten.add.Tensor\n"
