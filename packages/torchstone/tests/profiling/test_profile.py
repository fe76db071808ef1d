"""``torchstone.profile()``: what it records, where it says it comes from, and what it leaves behind."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity

import torchstone
from torchstone import spans
from torchstone.config import override
from torchstone.errors import ProfilingError
from torchstone.profiling import Peaks, chrome
from torchstone.runtime.decisions import Decision, Decisions


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = torch.nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(self.fc(x), -1)


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = torch.nn.ModuleList([Block(), Block()])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x.tanh()


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture(scope="session")
def recorded() -> Any:
    """A profile of a model's compilation, a recompilation, and five calls that count.

    It has session scope: a worker may return to this file, and would then find its programs compiled.
    """
    torch._dynamo.reset()
    compiled = torch.compile(Net(), backend="torchstone", dynamic=False)
    x = torch.randn(64, 32)
    with torch.no_grad(), torchstone.profile(peaks=Peaks(1e11, 1e10)) as found:
        compiled(x)
        compiled(x[:40].clone())
        found.settle()
        for _ in range(5):
            compiled(x)
    return found


def test_operators_add_up_to_the_kernels_and_kernels_to_the_calls(recorded: Any) -> None:
    data = recorded.to_dict()
    operators = sum(one["seconds"] for one in data["operators"])
    kernels = sum(one["seconds"] for one in data["kernels"])
    assert operators == pytest.approx(kernels)
    assert 0 < kernels <= data["seconds"]
    assert kernels + data["outside_kernels"] == pytest.approx(data["seconds"])
    assert sum(one["share"] for one in data["operators"]) == pytest.approx(kernels / data["seconds"])


def test_operators_are_found_in_their_modules(recorded: Any) -> None:
    data = recorded.to_dict()
    operators = {one["name"]: one for one in data["operators"]}
    assert operators["aten.addmm.default"]["calls"] == 2 * 5
    assert {"aten._softmax.default", "aten.tanh.default"} <= set(operators)
    modules = {one["name"]: one for one in data["modules"]}
    assert {"", "blocks", "blocks.0", "blocks.0.fc", "blocks.1", "blocks.1.fc"} == set(modules)
    for block in ("blocks.0", "blocks.1"):
        inside = modules[f"{block}.fc"]["seconds"] + modules[block]["own_seconds"]
        assert modules[block]["seconds"] == pytest.approx(inside)
        assert modules[block]["own_seconds"] > 0  # each block's own softmax, although they are alike
        assert modules[f"{block}.fc"]["flops"] >= 5 * 2 * 64 * 32 * 32
    assert modules[""]["seconds"] == pytest.approx(sum(one["seconds"] for one in data["operators"]))


def test_each_node_has_its_module_and_operator(recorded: Any) -> None:
    nodes = recorded.to_dict()["nodes"]
    found = {(one["module"], one["operator"], one["node"]) for one in nodes}
    for number, name in enumerate(("addmm", "addmm_1")):
        assert (f"blocks.{number}.fc", "aten.addmm.default", name) in found
    whole = sum(one["seconds"] for one in recorded.to_dict()["operators"])
    assert sum(one["seconds"] for one in nodes) == pytest.approx(whole)


def test_every_row_has_its_place_on_the_roofline(recorded: Any) -> None:
    product = {one["name"]: one for one in recorded.to_dict()["operators"]}["aten.addmm.default"]
    least = max(product["flops"] / 1e11, product["bytes"] / 1e10)
    assert product["of_limit"] == pytest.approx(least / product["seconds"], rel=1e-3)
    assert product["bound"] == ("compute" if product["flops_per_byte"] > 10 else "memory")


def test_phases_name_what_compiles(recorded: Any) -> None:
    names = {one["name"]: one["count"] for one in recorded.to_dict()["phases"]}
    traced = {"Dynamo: trace", "AOTAutograd: trace and partition"}
    assert traced | {"pass: lower", "pass: survey", "engine: read the module"} <= set(names)
    assert names["Dynamo: trace"] == 2


def test_a_recompilation_names_the_guard_and_the_place(recorded: Any) -> None:
    (one,) = recorded.to_dict()["recompiles"]
    assert "size mismatch at index 0. expected 64, actual 40" in one["reason"]
    assert one["place"].startswith(__file__)
    assert one["seconds"] > 0


def test_cache_copies_and_memory_are_of_the_block_alone(recorded: Any) -> None:
    data = recorded.to_dict()
    assert data["cache"]["compiles"] + data["cache"]["disk_hits"] == 2
    assert set(data["copies"]) == {"in", "out"}
    times = [at for at, _ in data["memory"]["samples"]]
    assert times == sorted(times)
    assert data["memory"]["peak_bytes"] >= data["memory"]["start_bytes"] > 0
    assert all(program["memory"]["arguments"] > 0 for program in data["programs"])
    json.dumps(data)


def test_copies_are_counted() -> None:
    program = torchstone.export(torch.nn.Tanh(), (torch.randn(8, 8),))
    with torchstone.profile() as found:
        program(torch.randn(8, 16)[:, ::2])
    assert found.to_dict()["copies"]["in"] == {"strided": {"count": 1, "bytes": 256}}


def test_a_loaded_artifact_still_knows_its_modules(tmp_path: Path) -> None:
    program = torchstone.load(torchstone.export(Net(), (torch.randn(4, 32),)).save(tmp_path / "net.stone"))
    with torchstone.profile() as found:
        program(torch.randn(4, 32))
    assert "blocks.1.fc" in {one["name"] for one in found.to_dict()["modules"]}


def test_gradients_belong_to_the_modules_of_their_forward() -> None:
    compiled = torch.compile(Net(), backend="torchstone")
    with torchstone.profile() as found:
        compiled(torch.randn(4, 32)).sum().backward()
    data = found.to_dict()
    assert [one["name"].partition(": ")[2] for one in data["programs"]] == ["forward", "backward"]
    products = {one["name"] for one in data["operators"] if "mm" in one["name"]}
    assert products == {"aten.addmm.default", "aten.mm.default"}
    assert {"blocks.0.fc", "blocks.1.fc"} <= {one["name"] for one in data["modules"]}


def test_the_trace_is_in_chromes_format(recorded: Any, tmp_path: Path) -> None:
    path = recorded.save_chrome_trace(tmp_path / "trace.json")
    trace = json.loads(path.read_text())
    by_kind: dict[str, list[dict[str, Any]]] = {}
    for event in trace["traceEvents"]:
        assert {"name", "cat", "ph", "ts", "pid", "tid", "args"} <= set(event)
        assert isinstance(event["ts"], (int, float))
        by_kind.setdefault(event["ph"], []).append(event)
    assert set(by_kind) <= {"X", "C", "M"}
    assert all(event["dur"] >= 0 for event in by_kind["X"])
    categories = {event["cat"] for event in by_kind["X"]}
    assert categories == {"compile", "run", "kernel"}
    calls = {event["args"]["call"]: event for event in by_kind["X"] if event["cat"] == "run"}
    slack = 100.0  # microseconds: the engine and Python read their clocks separately
    for event in by_kind["X"]:
        if event["cat"] == "kernel":
            call = calls[event["args"]["call"]]
            assert call["ts"] - slack <= event["ts"]
            assert event["ts"] + event["dur"] <= call["ts"] + call["dur"] + slack
    assert all(event["args"]["bytes"] > 0 for event in by_kind["C"])


def test_events_appear_in_pytorchs_profiler() -> None:
    compiled, x = torch.compile(Net(), backend="torchstone"), torch.randn(8, 32)
    with torch.no_grad(), torch.profiler.profile(activities=[ProfilerActivity.CPU]) as theirs:
        compiled(x)
    names = {event.key for event in theirs.key_averages()}
    assert {"torchstone::inference", "torchstone::pass: lower"} <= names


def test_nothing_is_recorded_outside_of_a_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled, x = torch.compile(Net(), backend="torchstone"), torch.randn(8, 32)
    compiled(x)
    monkeypatch.setattr(spans, "_recorded", None)
    compiled(x)
    assert not spans.recorders
    assert not spans.torch_records()


def test_a_profile_inside_another_is_refused() -> None:
    with torchstone.profile() as outer:
        with pytest.raises(ProfilingError, match="a profile is being recorded already"), torchstone.profile():
            pass
        assert len(spans.recorders) == 1
    assert outer.end_ns > outer.start_ns
    with torchstone.profile():
        pass


def test_an_error_inside_ends_the_profile_and_passes_through() -> None:
    threads = threading.active_count()
    program = torchstone.export(torch.nn.Tanh(), (torch.randn(4),))
    profiles = []

    def block() -> None:
        with torchstone.profile() as found:
            profiles.append(found)
            program(torch.randn(4))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        block()
    (found,) = profiles
    assert len(found.calls()) == 1
    assert found.end_ns
    assert not spans.recorders
    assert threading.active_count() == threads


def test_calls_of_several_threads_are_told_apart() -> None:
    program = torchstone.export(torch.nn.Linear(32, 32), (torch.randn(64, 32),))
    x = torch.randn(64, 32)
    program(x)
    with torchstone.profile() as found:
        threads = [threading.Thread(target=lambda: [program(x) for _ in range(5)]) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(found.calls()) == 15
    assert len({span.thread for span in found.calls()}) == 3
    assert {event.call for event in found.events} == {span.call for span in found.calls()}


def test_the_text_has_every_table(recorded: Any) -> None:
    shown = str(recorded)
    for part in ("operators", "modules, with", "kernels", "phases of compilation", "recompilations"):
        assert f"\n{part}" in f"\n{shown}"
    assert "aten.addmm.default" in shown
    assert "5 calls of programs took" in shown
    assert "peaks measured here: 100.0 GFLOP/s, 10.0 GB/s" in shown


def test_functions_that_eager_pytorch_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """These calls run no program, so they have a table of their own, with number and time."""

    def best(*_: Any, **__: Any) -> Decision:
        return Decision("eager PyTorch")

    monkeypatch.setattr(Decisions, "best", best)
    model, x = Net(), torch.randn(4, 32)
    compiled = torch.compile(model, backend="torchstone")

    def step() -> None:
        compiled(x).sum().backward()

    with override(tuning=True), torchstone.profile() as found:
        step()
        found.settle()
        for _ in range(3):
            step()
    data = found.to_dict()
    assert data["programs"] == [] or not any(one["calls"] for one in data["programs"])
    (one,) = data["in_eager"]
    assert one["count"] == 3
    assert 0 < one["seconds"] < found.end_ns - found.start_ns
    assert f"{__file__}:" in one["name"]
    assert "functions that eager PyTorch runs" in str(found)
    assert "3 calls of functions ran in eager PyTorch" in str(found)
    names = {event["name"] for event in chrome.trace(found)["traceEvents"] if event["cat"] == "eager"}
    assert names == {one["name"]}
