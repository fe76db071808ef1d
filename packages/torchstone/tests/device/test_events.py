"""Events and streams: one order of work, real times."""

from __future__ import annotations

import time

import pytest
import torch

from .mirrored import DEVICE


@pytest.mark.parametrize("how", ["named", "default", "module"])
def test_elapsed_time(how: str) -> None:
    """The time is in milliseconds, and includes the device's work and anything else in between."""
    first, last = (
        {
            "named": lambda: torch.Event(device=f"{DEVICE}:0", enable_timing=True),
            "default": lambda: torch.Event(enable_timing=True),
            "module": lambda: torch.pjrt.Event(enable_timing=True),
        }[how]()
        for _ in range(2)
    )
    assert isinstance(first, torch.Event)
    x = torch.ones(4, 4, device=DEVICE)
    started = time.perf_counter()
    first.record()
    x @ x
    time.sleep(0.01)
    last.record()
    last.synchronize()
    passed = (time.perf_counter() - started) * 1e3
    assert 10 <= first.elapsed_time(last) <= passed
    assert first.query()
    assert last.query()


def test_what_has_no_elapsed_time() -> None:
    timed, plain = torch.Event(DEVICE, enable_timing=True), torch.Event(DEVICE)
    timed.record()
    plain.record()
    for first, last in ((timed, plain), (plain, timed), (timed, torch.Event("cpu"))):
        with pytest.raises(ValueError, match="must be created with argument 'enable_timing=True'"):
            first.elapsed_time(last)
    with pytest.raises(ValueError, match="must be recorded"):
        timed.elapsed_time(torch.Event(DEVICE, enable_timing=True))


def test_events_of_other_devices_are_pytorch_s() -> None:
    assert type(torch.Event("cpu")) is torch.pjrt.Event.__bases__[0]


def test_the_one_stream() -> None:
    stream = torch.pjrt.current_stream()
    assert stream == torch.pjrt.default_stream() == torch.pjrt.Stream() == torch.accelerator.current_stream()
    with torch.pjrt.stream(stream), stream:
        x = torch.ones(2, device=DEVICE) + 1
    event = torch.accelerator.current_stream().record_event()
    stream.wait_event(event)
    event.wait()
    event.synchronize()
    stream.synchronize()
    assert event.query()
    assert x.tolist() == [2, 2]
    assert torch.pjrt.Event().query()  # an event that was never recorded counts as completed
    torch.pjrt.set_stream(stream)
    torch.accelerator.set_stream(stream)
    for ask in (torch.pjrt.current_stream, lambda index: torch.Stream(f"{DEVICE}:{index}")):
        with pytest.raises(RuntimeError, match='there is no device "pjrt:1"'):
            ask(1)


@pytest.mark.parametrize("device", [(), (DEVICE,), (f"{DEVICE}:0",)])
def test_a_stream_by_pytorch_s_name_is_the_device_s(device: tuple[str, ...]) -> None:
    stream = torch.Stream(*device)
    assert type(stream) is torch.pjrt.Stream
    assert isinstance(stream, torch.Stream)
    assert stream == torch.pjrt.current_stream()
    stream.record_event().synchronize()


def test_a_stream_by_its_number() -> None:
    stream = torch.pjrt.current_stream()
    parts = {
        "stream_id": stream.stream_id,
        "device_index": stream.device_index,
        "device_type": stream.device_type,
    }
    assert torch.Stream(**parts) == stream
    assert type(torch.Stream("cpu")) is torch.pjrt.Stream.__bases__[0]
