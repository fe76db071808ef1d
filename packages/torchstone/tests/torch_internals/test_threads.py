"""Exports, compiles and lowerings from many threads, beside threads that use PyTorch alone."""

from __future__ import annotations

import itertools
import queue
import threading
import traceback
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch._inductor.decomposition  # PyTorch registers kernels when something imports it
from torch import Tensor, nn
from torch._dispatch.python import enable_python_dispatcher
from torch._library import simple_registry
from torch._subclasses import FakeTensorMode
from torch._subclasses.fake_impls import op_implementations_checks, op_implementations_dict
from torch.export import exported_program
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

import torchstone
from torchstone.compiler import normalize
from torchstone.compiler.capture import capture
from torchstone.compiler.operators.tracing import mended_operators, passing_value_checks, standing_in
from torchstone.compiler.overrides import overriding, quick_overrides
from torchstone.torch_internals.patches import tracing

aten = torch.ops.aten
WORKERS, EAGER = 8, 2


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.network = kind(3, 4, batch_first=True)
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.network(x)[0][:, -1])


class Covariances(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        rows = x.flatten(1) * self.scale
        return torch.cov(rows) + torch.corrcoef(rows.exp())


class Masked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.filler = nn.Parameter(torch.tensor(2.0))

    def forward(self, x: Tensor) -> Tensor:
        y = x.clone()
        y[x > 0] = self.filler
        return y * 2


class Alignment(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(3, 5)

    def forward(self, x: Tensor) -> Tensor:
        scores = self.project(x).transpose(0, 1).log_softmax(2)
        return F.ctc_loss(scores, torch.ones(x.shape[0], 2, dtype=torch.long), [6, 6], [2, 1])


def solve(x: Tensor) -> Tensor:
    return torch.linalg.lstsq(x.transpose(1, 2) @ x + torch.eye(3), x[:, :3]).solution


def attend(x: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(x, x, x)


def models() -> list[Callable[[Tensor], Tensor]]:
    torch.manual_seed(0)
    return [
        Recurrent(nn.LSTM),
        Recurrent(nn.GRU),
        Covariances(),
        Masked(),
        Alignment(),
        solve,
        attend,
        nn.Sequential(nn.Flatten(), nn.Linear(18, 4), nn.GELU()),
    ]


def example() -> Tensor:
    return torch.linspace(-1, 1, 36).sin().reshape(2, 6, 3)


def export(model: Any, x: Tensor) -> Tensor:
    return torchstone.export(model, (x,))(x)


def compile_and_differentiate(model: Any, x: Tensor) -> Tensor:
    compiled = torch.compile(model, backend="torchstone", dynamic=False)
    leaf = x.clone().requires_grad_()
    result = compiled(leaf)
    result.sum().backward()
    assert leaf.grad is not None
    return result.detach()


def lower(model: Any, x: Tensor) -> Tensor:
    return normalize(capture(model, (x,))).module()(x)


TASKS = (export, compile_and_differentiate, lower)


def eager_calls(network: nn.LSTM, x: Tensor) -> dict[str, Any]:
    """Return the results of PyTorch alone for the operators that have stand-ins."""
    x = x.detach()
    values = x.clone().requires_grad_()
    written = torch.zeros_like(x).index_put((x > 0,), values.sum())
    written.sum().backward()
    assert values.grad is not None
    lengths = torch.full((2,), 6), torch.tensor([2, 1])
    scores = x.new_zeros(6, 2, 5).log_softmax(2)
    found: dict[str, Any] = {
        "lstm": network(x)[0].detach(),
        "cov": torch.cov(x[0]),
        "mask": x[x > 0],
        "gradient": values.grad,
        "ctc_loss": F.ctc_loss(scores, torch.ones(2, 2, dtype=torch.long), *lengths),
    }
    for name, call in FAKE_CALLS.items():
        with FakeTensorMode() as mode:
            try:
                result = call(mode.from_tensor(x))
                found[name] = [(type(one).__name__, one.shape, one.dtype) for one in result]
            except Exception as error:  # noqa: BLE001  # what PyTorch raises by itself is part of the answer
                found[name] = type(error).__name__
    return found


FAKE_CALLS: dict[str, Callable[[Tensor], Any]] = {
    "fake lstsq": lambda x: torch.linalg.lstsq(x, x, driver="gelsd"),
    "fake _ctc_loss": lambda x: aten._ctc_loss(
        x.new_zeros(6, 2, 5), torch.ones(2, 2, dtype=torch.long), [6, 6], [2, 1]
    ),
    "fake equal": lambda x: [torch.equal(x, x)],
}


def same(found: Any, expected: Any) -> bool:
    if isinstance(expected, Tensor):
        return torch.allclose(found, expected, rtol=1e-4, atol=1e-5)
    return bool(found == expected)


def tables() -> dict[str, Any]:
    """Every table of PyTorch that is changed while something is traced, entry by entry."""
    overloads = [
        getattr(getattr(aten, name.removeprefix("aten::")), schema.overload_name or "default")
        for schema in torch._C._jit_get_all_schemas()
        if (name := schema.name).startswith("aten::") and hasattr(aten, name.removeprefix("aten::"))
    ]
    return {
        "kernels": {overload: dict(overload.py_kernels) for overload in overloads},
        "rules": dict(op_implementations_dict),
        "checks": list(op_implementations_checks),
        "export": dict(vars(exported_program)),
        "effect": simple_registry.singleton.find("aten::_linalg_check_errors").effect,
        "fake": FakeTensorMode._validate_cache_key,
        "module": (nn.Module.__call__, nn.Module.__getattr__),
        "rnn": dict(vars(nn.RNNBase)),
        "polyfills": dict(torch._dynamo.variables.PolyfilledFunctionVariable._get_polyfill_handlers()),
        "polyfilled": set(torch._dynamo.trace_rules._polyfilled_function_ids()),
        "flags": (torch.compiler.is_compiling(), torch.compiler.is_exporting()),
    }


def differences(before: Any, after: Any, path: str = "") -> list[str]:
    """Return the paths at which two tables are not the identical objects."""
    if isinstance(before, dict):
        keys = before.keys() | after.keys()
        return [
            text
            for key in keys
            for text in (
                [f"{path}/{key}"]
                if (key in before) != (key in after)
                else differences(before[key], after[key], f"{path}/{key}")
            )
        ]
    same = before == after if isinstance(before, (list, set, tuple)) else before is after
    return [] if same else [path]


def run_beside_eager(count: int) -> list[str]:
    """Run ``count`` tasks in eight threads, beside two threads of eager PyTorch; return what went wrong."""
    x = example()
    network = nn.LSTM(3, 4)
    expected_eager = eager_calls(network, x)
    expected = [model(x).detach() for model in models()]
    made = [models() for _ in range(WORKERS)]
    tasks: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in range(count):
        tasks.put(number)
    problems: list[str] = []
    finished = threading.Event()

    def work(own: list[Any]) -> None:
        while True:
            try:
                number = tasks.get_nowait()
            except queue.Empty:
                return
            which, task = number % len(own), TASKS[number // len(own) % len(TASKS)]
            try:
                found = task(own[which], x)
                if not same(found.detach(), expected[which]):
                    problems.append(f"{task.__name__} of model {which}: wrong result")
            except Exception as error:  # noqa: BLE001  # reported with the others
                problems.append(
                    f"{task.__name__} of model {which}: {''.join(traceback.format_exception(error))}"
                )

    def use_eager() -> None:
        for _ in itertools.takewhile(lambda _: not finished.is_set(), itertools.count()):
            try:
                found = eager_calls(network, x)
            except Exception as error:  # noqa: BLE001  # reported with the others
                problems.append(f"eager: {type(error).__name__}: {error}")
                continue
            problems.extend(
                f"eager {name}: {found[name]}"
                for name in found
                if not same(found[name], expected_eager[name])
            )

    workers = [threading.Thread(target=work, args=(own,)) for own in made]
    eager = [threading.Thread(target=use_eager) for _ in range(EAGER)]
    for thread in (*workers, *eager):
        thread.start()
    for thread in workers:
        thread.join()
    finished.set()
    for thread in eager:
        thread.join()
    return problems


@pytest.mark.parametrize(
    "count", [4, *(pytest.param(count, marks=pytest.mark.conformance) for count in (12, 200))]
)
@pytest.mark.filterwarnings("ignore:The tensor attributes:UserWarning")
def test_many_threads_trace_beside_eager_pytorch(count: int) -> None:
    before = tables()
    assert run_beside_eager(count) == []
    assert differences(before, tables()) == []


def in_other_thread(function: Callable[[], Any]) -> Any:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(function()))
    thread.start()
    thread.join()
    return found[0]


def traced_calls(network: nn.LSTM, x: Tensor) -> str:
    """A graph of operators that have stand-ins, as PyTorch itself traces them."""

    def calls(x: Tensor) -> Tensor:
        (gradient,) = torch.autograd.grad(x.index_put((x > 0,), x.sum()).sum(), x)
        return network(x)[0].sum() + gradient.sum()

    with enable_python_dispatcher():
        return str(make_fx(calls)(x).code)


def test_other_threads_never_meet_a_stand_in() -> None:
    x, network = example().requires_grad_(), nn.LSTM(3, 4)
    eager, traced = eager_calls(network, x), traced_calls(network, x)
    assert "lstm" not in traced
    kept = overriding({aten.linear.default: lambda *_: NotImplemented})
    with standing_in(), mended_operators(), passing_value_checks(), quick_overrides(), kept:
        found = in_other_thread(lambda: eager_calls(network, x))
        assert in_other_thread(lambda: traced_calls(network, x)) == traced
        assert traced_calls(network, x) != traced
    assert [name for name in eager if not same(found[name], eager[name])] == []
    assert traced_calls(network, x) == traced


def test_the_thread_that_traces_has_rules_for_fake_tensors() -> None:
    with mended_operators(), passing_value_checks(), FakeTensorMode() as mode:
        assert FAKE_CALLS["fake equal"](mode.from_tensor(example())) == [False]
        assert len(FAKE_CALLS["fake _ctc_loss"](mode.from_tensor(example()))) == 2


def test_another_thread_compiles_during_an_export() -> None:
    found: list[Any] = []

    def model(x: Tensor) -> Tensor:
        assert torch.compiler.is_exporting()
        function = in_other_thread(lambda: (torch.compiler.is_exporting(), torch.compile(solve)))
        found.append((function[0], function[1] is solve))
        return x + 1

    torchstone.export(model, (example(),))
    assert found == [(False, False)]


def test_a_branch_of_an_export_knows_that_it_is_exported() -> None:
    def model(x: Tensor) -> Tensor:
        return torch.cond(
            x.sum() > 0, lambda x: x * (2 if torch.compiler.is_exporting() else 3), torch.neg, (x,)
        )

    x = torch.ones(2)
    assert torchstone.export(model, (x,))(x).tolist() == [2, 2]


def test_a_compiled_function_runs_while_another_thread_traces() -> None:
    compiled = torch.compile(lambda x: x + 1, backend="eager")
    compiled(torch.ones(2))

    def model(x: Tensor) -> Tensor:
        in_other_thread(lambda: compiled(torch.ones(2)))
        return x * 2

    with tracing():
        make_fx(model)(torch.ones(2))
