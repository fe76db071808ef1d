"""``torch.compile`` in redirected code: PyTorch's compiler sees the target, the script sees CUDA."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import torchstone
from torchstone.errors import RedirectWarning

needs_a_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="Inductor compiles with g++")


@pytest.fixture(autouse=True)
def scope() -> Iterator[None]:
    torch._dynamo.reset()
    with torchstone.redirected(target="cpu", devices=2):
        yield


def _places_and_questions(x: torch.Tensor) -> Any:
    y = torch.zeros(3, device=x.device) + x.cuda() + torch.ones(3, device="cuda") + torch.arange(3, device=0)
    if x.device == torch.device("cuda:0") and x.is_cuda and x.device.type == "cuda":
        y = y + 1
    return y, y.cpu(), y.get_device(), x.to("cuda:1"), x.cpu().is_cuda, y.cpu() + torch.ones(3)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_devices_in_a_full_graph_are_what_they_are_outside(backend: str) -> None:
    x = torch.rand(3, device="cuda")
    found = torch.compile(_places_and_questions, fullgraph=True, backend=backend)(x)
    for one, other in zip(found, _places_and_questions(x), strict=True):
        if isinstance(one, torch.Tensor):
            assert one.device == other.device
            torch.testing.assert_close(one, other)
        else:
            assert one == other


def test_dynamo_warns_of_nothing_in_redirected_code() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        dtype = torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
        with (
            torch.autocast("cuda", dtype=dtype),
            torch.cuda.device(1),
            torch.cuda.stream(torch.cuda.Stream()),
        ):
            y = x.cuda() @ torch.rand(3, 3, device=torch.device("cuda:0")) + torch.ones(3, device=0)
        return y.to("cuda:0") + _places_and_questions(x)[0]

    compiled = torch.compile(function, fullgraph=True, backend="eager")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert compiled(torch.rand(3)).device == torch.device("cuda:0")


def test_a_compiled_transfer_is_a_copy() -> None:
    x = torch.zeros(3, device="cuda")
    kept = torch.compile(lambda x: x.cpu(), backend="eager")(x)
    x.fill_(1)
    assert kept.tolist() == [0, 0, 0]


@pytest.mark.conformance
@needs_a_compiler
@pytest.mark.parametrize("mode", [None, "default", "reduce-overhead", "max-autotune"])
def test_inductor_trains_with_every_mode(mode: str | None) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 1)).cuda()
    x = torch.randn(16, 4, device="cuda")
    expected = torch.autograd.grad(model(x).pow(2).sum(), list(model.parameters()))
    if mode in ("reduce-overhead", "max-autotune"):
        with pytest.warns(RedirectWarning, match=r"no CUDA graphs are used on cpu$"):
            compiled = torch.compile(model, mode=mode)
    else:
        compiled = torch.compile(model, mode=mode)
    output = compiled(x)
    assert output.device == torch.device("cuda:0")
    output.pow(2).sum().backward()
    for parameter, gradient in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)


# Streams, events and devices that are entered --------------------------------------------------


def _works_on_a_side_stream(x: torch.Tensor) -> Any:
    side, ready = torch.cuda.Stream(), torch.cuda.Event()
    ready.record()
    side.wait_event(ready)
    with torch.cuda.stream(side):
        inside = torch.cuda.current_stream() == side
        y = (x * 2).relu()
        done = side.record_event()
    y.record_stream(side)
    torch.cuda.current_stream().wait_stream(side)
    done.wait()
    side.synchronize()
    torch.cuda.synchronize()
    current = torch.cuda.current_stream()
    return y.sum(), inside, done.query(), side.query(), current == torch.cuda.default_stream(), side.device


def _works_on_a_generic_stream(x: torch.Tensor) -> Any:
    side, done = torch.Stream(device="cuda"), torch.Event(device="cuda")
    with side:
        y = x + 1
        done.record(side)
    done.wait()
    return y.sum(), torch.cuda.current_stream().cuda_stream


def _enters_a_device(x: torch.Tensor) -> Any:
    with torch.cuda.device(1):
        index, y = torch.cuda.current_device(), torch.ones(2, device="cuda")
    after = torch.cuda.current_device(), torch.ones(2, device="cuda").device
    return y.sum(), index, y.device, after, x.sum()


BACKENDS = ["eager", "aot_eager", pytest.param("inductor", marks=needs_a_compiler), "torchstone"]


@pytest.mark.kept(
    "_works_on_a_side_stream-eager",
    "_works_on_a_side_stream-torchstone",
    "_works_on_a_generic_stream-aot_eager",
    "_enters_a_device-torchstone",
    "_enters_a_device-aot_eager",
)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("function", [_works_on_a_side_stream, _works_on_a_generic_stream, _enters_a_device])
def test_streams_in_a_full_graph_behave_as_outside(function: Any, backend: str) -> None:
    compiled = torch.compile(function, fullgraph=True, backend=backend)
    x, y = (torch.tensor([1.0, 2.0], device="cuda", requires_grad=True) for _ in range(2))
    for _ in range(2):
        found, expected = compiled(x), function(y)
        assert found[0].item() == expected[0].item()
        assert found[0].device == expected[0].device
        for one, other in zip(found[1:], expected[1:], strict=True):
            assert one == other
    if found[0].requires_grad:
        found[0].backward()
        expected[0].backward()
        torch.testing.assert_close(x.grad, y.grad)


@pytest.mark.kept("torchstone", "aot_eager")
@pytest.mark.parametrize("backend", BACKENDS)
def test_events_in_a_full_graph_measure_its_work(backend: str) -> None:
    def timed(x: torch.Tensor) -> Any:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        y = x @ x
        end.record()
        return y, start, end

    x = torch.rand(200, 200, device="cuda")
    compiled = torch.compile(timed, fullgraph=True, backend=backend)
    for _ in range(2):
        y, start, end = compiled(x)
        end.synchronize()
        assert isinstance(start, torch.cuda.Event)
        assert start.elapsed_time(end) > 0
    torch.testing.assert_close(y, x @ x)


def test_a_stream_and_an_event_from_outside_are_used_inside() -> None:
    side, event = torch.cuda.Stream(), torch.cuda.Event(enable_timing=True)

    def uses(x: torch.Tensor) -> torch.Tensor:
        with torch.cuda.stream(side):
            y = x + 1
            event.record(side)
        return y

    compiled = torch.compile(uses, fullgraph=True, backend="aot_eager")
    assert compiled(torch.ones(2, device="cuda")).tolist() == [2, 2]
    first = event.recorded
    compiled(torch.ones(2, device="cuda"))
    assert first is not None
    assert event.recorded > first
    assert torch.cuda.current_stream() == torch.cuda.default_stream()


def test_streams_and_events_are_of_pytorch_s_general_classes() -> None:
    assert isinstance(torch.cuda.Stream(), torch.Stream)
    assert isinstance(torch.cuda.Event(), torch.Event)
    assert issubclass(torch.cuda.Stream, torch.Stream)
    assert not isinstance(torch.cuda.Event(), torch.Stream)


@pytest.mark.filterwarnings("ignore:Dynamo does not know how to trace")
def test_seeds_and_properties_break_the_graph_and_hold() -> None:
    def draws(x: torch.Tensor) -> Any:
        torch.cuda.manual_seed(1)
        return x + torch.rand(2, device="cuda"), torch.cuda.get_device_properties(0).name

    x = torch.ones(2, device="cuda")
    found, expected = torch.compile(draws, backend="eager")(x), draws(x)
    torch.testing.assert_close(found[0], expected[0])
    assert found[1] == expected[1]
