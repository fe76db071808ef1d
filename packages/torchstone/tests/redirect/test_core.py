"""The scope: who is in it, what it leaves behind, which devices it maps, and what it refuses."""

from __future__ import annotations

import inspect
import pickle
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import FunctionType

import pytest
import torch

import torchstone
from torchstone import config
from torchstone.errors import RedirectError, RedirectTargetError, RedirectUnsupported, RedirectWarning
from torchstone.redirect import Event, Recorder, recorder
from torchstone.redirect.choice import resolve
from torchstone.redirect.targets import Target
from torchstone.torch_internals import redirection

ORIGINAL = torch.cuda.is_available


@pytest.fixture
def scope() -> Iterator[None]:
    with torchstone.redirected(target="cpu"):
        yield


def function_of_module(module: str, source: str) -> FunctionType:
    """Return a function ``ask`` that looks as if it were defined in ``module``."""
    space = {"__name__": module, "torch": torch}
    exec(compile(source, f"/x/site-packages/{module}/a.py", "exec"), space)
    found = space["ask"]
    assert isinstance(found, FunctionType)
    return found


# Devices ------------------------------------------------------------------------------


@pytest.mark.parametrize("device", ["cuda", "cuda:0", torch.device("cuda"), torch.device("cuda", 0), 0])
def test_every_way_to_name_a_device(scope: None, device: str | torch.device | int) -> None:
    x = torch.ones(2)
    made = [
        torch.zeros(2, device=device),
        torch.zeros_like(x, device=device),
        x.new_zeros(2, device=device),
        torch.tensor([1.0], device=device),
        torch.asarray([1.0], device=device),
        torch.arange(2, device=device),
        x.to(device),
        x.to(device=device),
        x.to(device, torch.float16),
        x.cuda(device),
        x.cuda(device=device, non_blocking=True),
        torch.nn.Linear(2, 2, device=device).weight,
        torch.nn.Linear(2, 2).to(device).weight,
        torch.nn.Linear(2, 2).cuda(device).weight,
    ]
    assert {one.device for one in made} == {torch.device("cuda:0")}
    assert made[8].dtype is torch.float16
    assert x.device == torch.device("cpu")
    assert torch.device(device).type == "cuda"


def test_a_tensor_where_cuda_tensors_lie_says_so(scope: None) -> None:
    x = torch.ones(2, device="cuda")
    assert x.is_cuda
    assert x.get_device() == 0
    assert torch.get_device(x) == 0
    assert x.device == torch.device("cuda:0")
    y = torch.ones(2)
    assert not y.is_cuda
    assert y.is_cpu
    assert (y.get_device(), y.device) == (-1, torch.device("cpu"))
    assert torch.nn.utils.rnn.pack_sequence([x]).is_cuda


def test_explicit_cpu_and_meta_stay(scope: None) -> None:
    assert torch.zeros(1, device="cpu").device == torch.device("cpu")
    assert torch.device("cpu") == torch.zeros(1, device="cuda").cpu().device
    assert torch.zeros(1, device="meta").is_meta


def test_an_index_that_is_not_there_is_told(scope: None) -> None:
    with pytest.warns(
        RedirectWarning, match=r"^cuda:3: cpu offers 1 device\(s\); the last one is used instead$"
    ):
        assert torch.zeros(1, device="cuda:3").device == torch.device("cuda:0")
    with pytest.raises(ValueError, match="Expected a cuda device, but got: meta"):
        torch.cuda.synchronize("meta")


@pytest.mark.parametrize(("visible", "count"), [("0", 1), ("", 0), ("-1", 0), ("0,1", 1)])
def test_visible_devices(monkeypatch: pytest.MonkeyPatch, visible: str, count: int) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with torchstone.redirected(target="cpu", policy="quiet"):
        assert torch.cuda.device_count() == count
        assert torch.cuda.is_available() is bool(count)
        if not count:
            with pytest.raises(RuntimeError, match="No CUDA GPUs are available: CUDA_VISIBLE_DEVICES hides"):
                torch.zeros(1, device="cuda")


def test_a_visible_device_that_is_not_there_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2")
    with (
        torchstone.redirected(target="cpu"),
        pytest.warns(RedirectWarning, match="CUDA_VISIBLE_DEVICES names 2, which cpu has not"),
    ):
        assert torch.cuda.device_count() == 1


def test_isinstance_annotations_and_pickles(scope: None) -> None:
    def takes(device: str | torch.device, generator: torch.Generator | None = None) -> None: ...

    assert inspect.signature(takes).parameters["device"].annotation == "str | torch.device"
    device, generator = torch.device("cuda:0"), torch.Generator("cuda")
    assert isinstance(device, torch.device)
    assert isinstance(generator, torch.Generator)
    assert pickle.loads(pickle.dumps(device)) == device
    x = torch.ones(2, device="cuda")
    assert pickle.loads(pickle.dumps(x)).is_cuda
    assert pickle.loads(pickle.dumps(torch.nn.Linear(1, 1).cuda())).weight.is_cuda


def test_it_works_inside_a_compiled_graph() -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        y = x.cuda() + torch.ones(3, device="cuda") + x.new_ones(3, device=torch.device("cuda:0"))
        if torch.cuda.is_available() and y.is_cuda:
            y = y + torch.arange(torch.cuda.device_count() + 2, device=0)
        return y.to("cuda:0")

    with torchstone.redirected(target="cpu"):
        x = torch.rand(3, device="cuda")
        compiled = torch.compile(step, fullgraph=True, backend="eager")
        torch.testing.assert_close(compiled(x), step(x))
        torch.testing.assert_close(step(x).cpu(), x.cpu() + 2 + torch.arange(3))
    torch._dynamo.reset()
    outside = torch.compile(
        lambda x: x + int(torch.cuda.is_available()) + int(x.is_cuda), fullgraph=True, backend="eager"
    )
    torch.testing.assert_close(outside(x), x)


def test_user_code_inside_backward(scope: None) -> None:
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: object, gradient: torch.Tensor) -> torch.Tensor:
            return gradient * torch.full((1,), 2.0, device="cuda")

    x = torch.ones(3, device="cuda", requires_grad=True)
    Double.apply(x).sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad.cpu(), torch.full((3,), 2.0))
    (gradient,) = torch.autograd.grad(Double.apply(x).sum(), x)
    torch.testing.assert_close(gradient, x.grad)


# Scopes -------------------------------------------------------------------------------


def test_importing_changes_nothing() -> None:
    assert torch.cuda.is_available is ORIGINAL
    assert not torch.cuda.is_available()
    assert torch._C._len_torch_function_stack() == 0


def test_scopes_nest_and_are_entered_again() -> None:
    redirection = torchstone.redirected(target="cpu")
    with redirection as outer:
        with redirection as inner:
            assert inner is not outer
            assert torch.cuda.is_available()
        assert torch.cuda.is_available()
        assert torch.ones(1, device="cuda").is_cuda
    test_importing_changes_nothing()


@pytest.mark.parametrize("raises", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_exception_inside_restores_everything(raises: type[BaseException]) -> None:
    @torchstone.redirected(target="cpu")
    def fails() -> None:
        torch.set_default_device("cuda")
        raise raises

    with pytest.raises(raises):
        fails()
    test_importing_changes_nothing()
    assert torch.get_default_device() == torch.device("cpu")


def test_it_decorates_functions() -> None:
    @torchstone.redirected(target="cpu")
    def deep(depth: int) -> int:
        assert torch.ones(1, device="cuda").is_cuda
        return depth if depth == 0 else deep(depth - 1)

    assert deep(3) == 0
    assert deep.__name__ == "deep"
    test_importing_changes_nothing()


def test_threads_started_inside_are_inside() -> None:
    with torchstone.redirected(target="cpu"), ThreadPoolExecutor(2) as pool:
        found = list(
            pool.map(lambda _: (torch.cuda.is_available(), torch.ones(1, device="cuda").is_cuda), range(4))
        )
    assert found == [(True, True)] * 4


def test_threads_started_before_are_outside_and_those_that_outlive_the_scope_leave_it() -> None:
    entered, left = threading.Event(), threading.Event()
    seen: dict[str, bool] = {}

    def watch(name: str) -> None:
        entered.wait(30)
        seen[f"{name} inside"] = torch.cuda.is_available()
        left.wait(30)
        seen[f"{name} after"] = torch.cuda.is_available()

    early = threading.Thread(target=watch, args=("early",))
    early.start()
    with torchstone.redirected(target="cpu"):
        late = threading.Thread(target=watch, args=("late",))
        late.start()
        entered.set()
        while len(seen) < 2:
            threading.Event().wait(0.001)
    left.set()
    early.join(), late.join()
    assert seen == {"early inside": False, "late inside": True, "early after": False, "late after": False}


def test_scopes_of_two_threads_overlap() -> None:
    barrier = threading.Barrier(2, timeout=30)

    def work(_: int) -> bool:
        barrier.wait()
        with torchstone.redirected(target="cpu"):
            barrier.wait()
            return torch.cuda.is_available() and torch.ones(1, device="cuda").is_cuda

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(work, range(2))) == [True, True]
    test_importing_changes_nothing()


# Targets and settings ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (
            "gpu",
            (
                r"^target 'gpu' is not a device type that this PyTorch knows\n"
                r"  next: use auto or one of: cpu, cuda"
            ),
        ),
        (
            "xpu",
            r"^target 'xpu' is not available here: PyTorch finds no such device\n  next: use target='auto'",
        ),
        ("cuda", r"^target 'cuda' is not available here"),
        (
            "cpu:1",
            r"^target 'cpu:1' is absent: there are 1 cpu device\(s\), counted from 0\n  next: use 'cpu'",
        ),
        (
            "cpu:x",
            r"^target 'cpu:x' is not a device\n  next: write a device type with an optional index",
        ),
    ],
)
def test_targets_that_cannot_be(target: str, message: str) -> None:
    with pytest.raises(RedirectTargetError, match=message), torchstone.redirected(target=target):
        pass
    test_importing_changes_nothing()


def test_other_sources_and_policies_are_refused() -> None:
    with (
        pytest.raises(RedirectError, match=r"^source='rocm' cannot be redirected"),
        torchstone.redirected("rocm"),
    ):
        pass
    with (
        pytest.raises(RedirectError, match=r"^policy='loud' is unknown"),
        torchstone.redirected(policy="loud"),
    ):
        pass


def test_auto_follows_the_setting_and_off_is_off() -> None:
    with torchstone.redirected() as scope:
        assert scope is not None
        assert scope.device.type == "cpu"
    with config.override(redirect="gpu"), pytest.raises(RedirectTargetError), torchstone.redirected():
        pass
    with config.override(redirect="off"), torchstone.redirected(target="cpu") as scope:
        assert scope is None
        test_importing_changes_nothing()


def test_auto_inside_a_scope_does_not_take_it_for_real_cuda() -> None:
    with torchstone.redirected(target="cpu"):
        with torchstone.redirected() as inner:
            assert inner is not None
        with pytest.raises(RedirectTargetError, match="'cuda' is not available here"):
            torchstone.redirected(target="cuda").__enter__()


def test_real_cuda_is_left_alone_unless_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert resolve("cuda", "auto") is None
    assert resolve("cuda", "cuda:0") is None
    assert resolve("cuda", "cpu") == Target("cpu", (0,))


# Callers, policies and the log --------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "told"),
    [
        ("accelerate.state", True),
        ("triton.runtime", False),
        ("flash_attn", False),
        ("bitsandbytes.nn", False),
        ("torch._inductor.scheduler", False),
        ("unheard_of", False),
    ],
)
def test_each_caller_is_told_its_own_truth(scope: None, module: str, told: bool) -> None:
    ask = function_of_module(module, "def ask(x): return torch.cuda.is_available(), x.is_cuda")
    assert ask(torch.ones(1, device="cuda")) == (told, told)


def test_the_user_may_trust_and_distrust_packages() -> None:
    ask = function_of_module("unheard_of.inner", "def ask(): return torch.cuda.device_count()")
    with torchstone.redirected(target="cpu", trust={"unheard_of"}):
        assert ask() == 1
    with torchstone.redirected(target="cpu", trust={"unheard_of": True, "unheard_of.inner": False}):
        assert ask() == 0


def test_policies() -> None:
    no_meaning = pytest.raises(RedirectUnsupported, match=r"^torch.cuda.get_device_capability has no meaning")
    with torchstone.redirected(target="cpu", policy="strict"), no_meaning:
        torch.cuda.get_device_capability()
    with torchstone.redirected(target="cpu", policy="warn"), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert [torch.cuda.get_device_capability() for _ in range(2)] == [(0, 0)] * 2
    assert [one.filename for one in caught] == [__file__]
    with torchstone.redirected(target="cpu", policy="quiet"), warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.cuda.get_device_capability() == (0, 0)


def test_the_log_says_what_was_redirected_and_where() -> None:
    log = Recorder()
    with torchstone.redirected(target="cpu", log=log):
        line = inspect.currentframe().f_lineno + 1  # type: ignore[union-attr]
        torch.cuda.synchronize()
    assert Event("torch.cuda.synchronize", __file__, line, "waits for the target") in log.counts


def test_the_logger_writes_each_event_once(caplog: pytest.LogCaptureFixture) -> None:
    write = recorder.to_logger()
    with caplog.at_level("INFO", logger="torchstone.redirect"):
        for _ in range(2):
            write(Event("torch.cuda.seed", "a.py", 7, "the target's generator"))
    assert caplog.messages == ["a.py:7: torch.cuda.seed: the target's generator"]


def test_devices_are_exchanged_by_what_is_there_now() -> None:
    """A name looked up outside a redirection is the redirection's inside it, and PyTorch's after it."""
    theirs = redirection.exchange_device.get()
    with torchstone.redirected(target="cpu", devices=2):
        assert redirection.exchange_device(1) == 0
        assert redirection.exchange_device(0) == 1
    assert redirection.exchange_device.get() is theirs
