"""``torch.compile(backend="torchstone")``: values, gradients, mutation, random numbers, shapes, fallback."""

from __future__ import annotations

import copy
import gc
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

from torchstone.backend.records import recorded
from torchstone.errors import ConfigError, FallbackRefused, FallbackWarning

STRICT = {"fallback": False}


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compiled(function: Callable[..., Any], options: dict[str, Any] | None = None, **settings: Any) -> Any:
    return torch.compile(
        function, backend="torchstone", options=STRICT if options is None else options, **settings
    )


def gradients(model: nn.Module, forward: Any, *args: torch.Tensor) -> list[torch.Tensor]:
    model.zero_grad()
    forward(*args).square().sum().backward()
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


def small_model() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


def test_is_registered_without_an_import() -> None:
    assert "torchstone" in torch._dynamo.list_backends()


def test_forward_and_backward_agree_with_eager() -> None:
    model, x = small_model(), torch.randn(4, 6)
    with recorded() as records:
        fast = compiled(model)
        torch.testing.assert_close(fast(x), model(x))
        found = gradients(model, fast, x)
    for ours, eager in zip(found, gradients(model, model, x), strict=True):
        torch.testing.assert_close(ours, eager)
    assert [record.kind for record in records] == ["forward", "backward"]
    assert all(record.native and not record.fallbacks for record in records)


class TestGaussianLoss:
    """PyTorch's own implementation looks at the values of the variances, which would break the graph."""

    @pytest.mark.kept("mean")
    @pytest.mark.parametrize("reduction", ["none", "mean"])
    def test_belongs_to_the_graph(self, reduction: str) -> None:
        def losses(x: torch.Tensor, y: torch.Tensor, var: torch.Tensor) -> list[torch.Tensor]:
            given = (var, var.amax(1), 0.5)
            return [F.gaussian_nll_loss(x.sin(), y, one, reduction=reduction, full=True) for one in given]

        x, y, var = (torch.rand(3, 4, requires_grad=True) for _ in range(3))
        fast = compiled(losses, fullgraph=True)
        with recorded() as records:
            for _ in range(2):
                ours, eager = fast(x, y, var), losses(x, y, var)
                torch.testing.assert_close(ours, eager)
                found = (torch.autograd.grad(sum(o.sum() for o in one), (x, y, var)) for one in (ours, eager))
                torch.testing.assert_close(*found)
        assert [record.kind for record in records] == ["forward", "backward"]

    def test_keeps_its_errors_about_what_is_no_tensor(self) -> None:
        x = torch.ones(3, 4)
        for var, text in ((-1.0, "var has negative"), (torch.ones(2), "var is of incorrect size")):
            with pytest.raises(Exception, match=text):
                compiled(F.gaussian_nll_loss)(x, x, var)

    def test_is_left_alone_for_other_backends(self) -> None:
        x = torch.ones(3)
        for first, second in (("torchstone", "eager"), ("eager", "torchstone")):
            torch._dynamo.reset()
            torch.compile(lambda x: F.gaussian_nll_loss(x, x, x), backend=first)(x)
            other = torch.compile(lambda x: F.gaussian_nll_loss(x, x, -x), backend=second)
            if second == "eager":
                with pytest.raises(ValueError, match="var has negative"):
                    other(x)
            else:
                assert other(x).isfinite()


@pytest.mark.skipif(not hasattr(F, "linear_cross_entropy"), reason="PyTorch has it since 2.13")
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
def test_losses_in_chunks(reduction: str) -> None:
    """Their expansion calls ``nll_loss``, whose reference takes other arguments than the operator."""
    from torch.nn.modules.linear_cross_entropy_options import LinearCrossEntropyOptions

    def loss(x: torch.Tensor, w: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        options = LinearCrossEntropyOptions(batch_chunk_size=2)
        return F.linear_cross_entropy(x, w, y, reduction=reduction, options=options)

    inputs = torch.randn(4, 3), torch.randn(5, 3), torch.tensor([1, 0, 4, 1])
    torch.testing.assert_close(compiled(loss)(*inputs), loss(*inputs))


@pytest.mark.parametrize("repeat", [False, True])
def test_the_number_of_combinations_follows_from_a_length(repeat: bool) -> None:
    def choose(x: torch.Tensor) -> list[torch.Tensor]:
        return [torch.combinations(x.exp(), r=r, with_replacement=repeat) for r in (0, 2, 3)]

    x = torch.randn(4)
    torch.testing.assert_close(compiled(choose, fullgraph=True)(x), choose(x))


@pytest.mark.parametrize("train", [False, True])
def test_a_tensor_made_of_numbers(train: bool) -> None:
    def picked(x: torch.Tensor) -> torch.Tensor:
        return x[:, torch.tensor([2, 0])] * torch.tensor([1.0, 2.0])

    x = torch.randn(2, 3, requires_grad=train)
    torch.testing.assert_close(compiled(picked)(x), picked(x))


def test_no_size_depends_on_values() -> None:
    """PyTorch's own code for these calls looks at values, or takes as many elements as a mask selects."""

    def everything(x: torch.Tensor, mask: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        written = x * 1.5
        written[mask] = value
        written[:, mask[1:]] = value[:2]
        filled = x.index_fill(1, torch.tensor([0, 2]), value[0])
        solved = torch.linalg.lstsq(x, filled[:, :2]).solution
        return torch.cov(written) @ torch.corrcoef(x) @ filled @ solved

    x = torch.tensor([[0.5, -1.0, 2.0], [1.0, 3.0, -2.0], [2.0, 0.0, 1.0], [0.0, 1.0, 0.25]])
    mask, value = torch.tensor([True, False, True, True]), torch.tensor([0.5, -0.25, 1.0])
    eager, ours = ([one.clone().requires_grad_() for one in (x, value)] for _ in range(2))
    fast = compiled(everything, fullgraph=True)
    result, expected = fast(ours[0], mask, ours[1]), everything(eager[0], mask, eager[1])
    torch.testing.assert_close(result, expected)
    for one, other in zip(ours, eager, strict=True):
        [found] = torch.autograd.grad(result.sum(), one, retain_graph=True)
        torch.testing.assert_close(found, torch.autograd.grad(expected.sum(), other, retain_graph=True)[0])


def test_what_a_gradient_asks_of_values_breaks_no_graph() -> None:
    """A complex decomposition's gradient checks whether the loss depends on the phases of its vectors."""

    def loss(x: torch.Tensor) -> torch.Tensor:
        left, values, right = torch.linalg.svd(x, full_matrices=False)
        return left.abs().sum() + (left * values @ right).abs().square().sum()

    eager, ours = (torch.randn(3, 4, dtype=torch.complex128, requires_grad=True) for _ in range(2))
    ours.data.copy_(eager)
    compiled(loss, fullgraph=True)(ours).backward()
    loss(eager).backward()
    torch.testing.assert_close(ours.grad, eager.grad)


def test_what_a_user_asks_of_values_is_not_answered_for_them() -> None:
    def shifted(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if torch.allclose(x, torch.zeros_like(x)) else x - 1

    x = torch.full((2,), 2.0, requires_grad=True)
    torch.testing.assert_close(compiled(shifted, {"fallback": True})(x), x - 1)
    with FakeTensorMode() as mode, pytest.raises(DataDependentOutputException):
        torch.allclose(mode.from_tensor(x), torch.zeros(2))


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_gradients(mode: Any) -> None:
    model, x = small_model(), torch.randn(4, 6)
    fast = compiled(model)
    with recorded() as records, mode():
        torch.testing.assert_close(fast(x), model(x))
    assert [record.kind for record in records] == ["inference"]


def test_autocast_bfloat16() -> None:
    model, x = small_model(), torch.randn(4, 6)
    fast = compiled(model)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        ours, eager = fast(x), model(x)
    assert ours.dtype is torch.bfloat16
    torch.testing.assert_close(ours, eager)


def test_input_mutation_reaches_the_caller() -> None:
    def bump(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(y)
        y.mul_(x)
        return x + y

    x, y = torch.ones(3), torch.full((3,), 2.0)
    result = compiled(bump)(x, y)
    assert x.tolist() == [3.0] * 3
    assert y.tolist() == [6.0] * 3
    assert result.tolist() == [9.0] * 3


@pytest.mark.parametrize("form", [lambda x: x.conj().imag, torch.conj], ids=["negative", "conjugate"])
def test_inputs_with_a_lazy_bit_are_written(form: Callable[[torch.Tensor], torch.Tensor]) -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        y.add_(1)
        return x.mul_(3)

    compiled = torch.compile(function, backend="torchstone")
    bases = [torch.complex(torch.arange(4.0), torch.arange(1.0, 5.0)) for _ in range(2)]
    plain = [torch.zeros(4) for _ in range(2)]
    there, here = [
        one(form(base), y) for one, base, y in zip((function, compiled), bases, plain, strict=True)
    ]
    assert torch.equal(here, there)
    assert torch.equal(bases[1], bases[0])
    assert torch.equal(plain[1], plain[0])


def test_what_an_expansion_computes_is_written() -> None:
    def rank(x: torch.Tensor) -> torch.Tensor:
        target = torch.zeros((), dtype=torch.int64)
        torch.linalg.matrix_rank(x, out=target)
        return target

    assert compiled(rank)(torch.eye(4)) == 4


def test_buffers_are_updated_in_training() -> None:
    eager = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4))
    ours = copy.deepcopy(eager)
    fast = compiled(ours)
    for _ in range(3):
        x = torch.randn(7, 5)
        torch.testing.assert_close(fast(x), eager(x))
    for name, buffer in eager.named_buffers():
        torch.testing.assert_close(dict(ours.named_buffers())[name], buffer)


@pytest.mark.kept(
    "Parameter-transposed",
    "Parameter-smaller",
    "Parameter-constant",
    "Buffer-bits",
    "Buffer-conjugated",
    "Buffer-other address",
)
@pytest.mark.parametrize(
    ("dtype", "change"),
    [
        (torch.float32, torch.t),
        (torch.float32, lambda data: data.view(torch.int32)),
        (torch.float32, lambda data: data.resize_(2, 2)),
        (torch.complex64, torch.conj),
        (torch.complex64, lambda data: data.imag),
        (torch.complex64, lambda data: torch.conj(data).imag),
        (torch.float32, lambda data: data + 1),
        (torch.float32, torch.ones_like),
    ],
    ids=["transposed", "bits", "smaller", "conjugated", "strided", "negated", "other address", "constant"],
)
@pytest.mark.parametrize("kind", [nn.Parameter, nn.Buffer])
def test_what_a_module_holds_may_be_replaced(kind: Any, dtype: torch.dtype, change: Any) -> None:
    """Most of these changes keep the tensor's address; Dynamo's guards notice the others."""

    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            data = torch.arange(9).to(dtype).view(3, 3) * (2 + (1j if dtype.is_complex else 0))
            self.weight = kind(data) if kind is nn.Buffer else kind(data, requires_grad=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.weight.sum(0)[:2] + self.weight.reshape(-1)[:2]

    model, x = Scaled(), torch.tensor([2.0, 3.0])
    compiled = torch.compile(model, backend="torchstone", fullgraph=True)
    for _ in range(3):
        assert torch.equal(compiled(x), model(x))
    model.weight.data = change(model.weight.data)
    for _ in range(3):
        assert torch.equal(compiled(x), model(x))


@pytest.mark.kept("SGD")
@pytest.mark.parametrize(
    "optimizer",
    [
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
        lambda p: torch.optim.AdamW(p, lr=torch.tensor(1e-2), capturable=False),
    ],
    ids=["SGD", "AdamW"],
)
def test_compiled_optimizer_step(optimizer: Any) -> None:
    eager, x = small_model(), torch.randn(4, 6)
    ours = copy.deepcopy(eager)
    plain, fast = optimizer(eager.parameters()), optimizer(ours.parameters())
    step = compiled(fast.step)
    for _ in range(3):
        gradients(eager, eager, x)
        plain.step()
        gradients(ours, ours, x)
        step()
    for a, b in zip(ours.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(a, b)


class TestRandomNumbers:
    def test_manual_seed_repeats_and_calls_differ(self) -> None:
        fast = compiled(lambda x: F.dropout(x, 0.5))
        x = torch.ones(256)
        torch.manual_seed(3)
        first, second = fast(x), fast(x)
        torch.manual_seed(3)
        assert torch.equal(fast(x), first)
        assert not torch.equal(first, second)
        assert 0.3 < (first == 0).float().mean() < 0.7

    def test_forward_and_backward_use_one_mask(self) -> None:
        x = torch.ones(512, requires_grad=True)
        result = compiled(lambda v: F.dropout(v * 1.0, 0.5))(x)
        result.sum().backward()
        assert torch.equal(x.grad, result.detach())

    def test_two_operators_draw_different_numbers(self) -> None:
        a, b = compiled(lambda x: (torch.rand_like(x), torch.rand_like(x)))(torch.empty(64))
        assert not torch.equal(a, b)

    def test_checkpointing_recomputes_the_same_mask(self) -> None:
        from torch.utils.checkpoint import checkpoint

        def forward(v: torch.Tensor) -> torch.Tensor:
            return checkpoint(lambda w: F.dropout(w.sin(), 0.5).cos(), v, use_reentrant=False)

        x = torch.full((512,), 0.7, requires_grad=True)
        result = compiled(forward)(x)
        result.sum().backward()
        dropped = result.detach() == 1.0  # cos(0)
        assert 0.3 < dropped.float().mean() < 0.7
        assert torch.equal(x.grad == 0, dropped)


class TestShapes:
    def test_dynamic_specialises_and_stays_bounded(self) -> None:
        model = small_model()
        fast = compiled(model, {**STRICT, "specializations": 2}, dynamic=True)
        with recorded() as records:
            for size in (2, 3, 4, 5, 2):
                x = torch.randn(size, 6)
                torch.testing.assert_close(fast(x), model(x))
        assert len([record for record in records if record.kind == "forward"]) == 1

    def test_dynamic_gradients(self) -> None:
        model = small_model()
        fast = compiled(model, dynamic=True)
        for size in (2, 5):
            x = torch.randn(size, 6)
            ours = gradients(model, fast, x)
            for a, b in zip(ours, gradients(model, model, x), strict=True):
                torch.testing.assert_close(a, b)

    def test_sizes_in_arithmetic(self) -> None:
        fast = compiled(lambda x: x * x.shape[0] + x.shape[1], dynamic=True)
        for shape in ((2, 3), (4, 5)):
            x = torch.randn(shape)
            torch.testing.assert_close(fast(x), x * shape[0] + shape[1])

    def test_channels_last_keeps_its_strides(self) -> None:
        x = torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
        result = compiled(lambda v: v + 1)(x)
        torch.testing.assert_close(result, x + 1)
        assert result.stride() == (x + 1).stride()

    def test_transposed_input_is_not_copied(self) -> None:
        from torchstone import runtime

        x = torch.randn(64, 32).t()
        fast = compiled(lambda v: v * 2)
        fast(x)
        runtime.reset_stats()
        torch.testing.assert_close(fast(x), x * 2)
        assert not runtime.stats().copies_in

    def test_empty_and_zero_dimensional(self) -> None:
        fast = compiled(lambda a, b: (a * 2, b + 1))
        a, b = fast(torch.empty(0, 3), torch.tensor(2.0))
        assert a.shape == (0, 3)
        assert b.item() == 3.0


class TestOutputs:
    def test_inputs_constants_and_repeats(self) -> None:
        def function(x: torch.Tensor) -> Any:
            y = x * 2
            return y, y, None, 3, x

        x = torch.ones(2)
        a, b, nothing, three, same = compiled(function)(x)
        assert a.tolist() == b.tolist() == [2.0, 2.0]
        assert nothing is None
        assert three == 3
        assert same is x

    def test_nested(self) -> None:
        fast = compiled(lambda d: {"sum": d["a"] + d["b"][0], "list": [d["a"] * 2]})
        found = fast({"a": torch.ones(2), "b": (torch.ones(2),)})
        assert found["sum"].tolist() == [2.0, 2.0]
        assert found["list"][0].tolist() == [2.0, 2.0]

    @pytest.mark.parametrize("dynamic", [False, True])
    def test_views_of_another_output_share_its_memory(self, dynamic: bool) -> None:
        def function(x: torch.Tensor) -> list[torch.Tensor]:
            y = x.sin()
            whole = x.t() * 2
            return [y[1], y.t(), y, y.detach(), whole[1:, ::2], whole]

        x = torch.rand(4, 6)
        ours, eager = compiled(function, dynamic=dynamic)(x), function(x)
        torch.testing.assert_close(ours, eager)
        for outputs in (ours, eager):
            outputs[2].mul_(3)
            outputs[5].add_(1)
        for place in (0, 1, 3, 4):
            torch.testing.assert_close(ours[place], eager[place])
            assert ours[place].stride() == eager[place].stride()


@torch.library.custom_op("torchstone_tests::opaque", mutates_args=())
def opaque(x: torch.Tensor) -> torch.Tensor:
    return x.flip(0) + 1


@opaque.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


class TestFallback:
    @staticmethod
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x.sin() * 2
        return opaque(y).cos() + y

    def test_runs_between_compiled_parts_with_one_warning(self) -> None:
        x = torch.randn(5)
        with recorded() as records, warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = compiled(self.function, {"fallback": True})(x)
        torch.testing.assert_close(found, self.function(x))
        texts = [str(w.message) for w in caught if issubclass(w.category, FallbackWarning)]
        assert len(texts) == 1
        assert "torchstone_tests.opaque.default (1×)" in texts[0]
        assert [node.overload for node in records[0].fallbacks] == ["torchstone_tests.opaque.default"]
        assert "aten.sin.default" in records[0].native

    def test_can_be_refused(self) -> None:
        with pytest.raises(Exception, match="would run in eager PyTorch") as caught:
            compiled(self.function)(torch.randn(5))
        text = str(caught.value)
        assert "torchstone_tests.opaque.default" in text
        assert "test_backend.py:" in text
        assert FallbackRefused.__name__ in text


class TestOptions:
    def test_unknown_option(self) -> None:
        with pytest.raises(Exception, match="unknown option 'fallbck' for the torchstone backend") as caught:
            compiled(lambda x: x + 1, {"fallbck": True})(torch.ones(1))
        assert ConfigError.__name__ in str(caught.value)

    def test_wrong_type(self) -> None:
        with pytest.raises(Exception, match="option fallback='no' is not a bool"):
            compiled(lambda x: x + 1, {"fallback": "no"})(torch.ones(1))


def test_threads_share_one_compiled_function() -> None:
    from concurrent.futures import ThreadPoolExecutor

    model = small_model()
    fast = compiled(model)
    batches = [torch.randn(4, 6) for _ in range(16)]
    with torch.no_grad():
        fast(batches[0])
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(fast, batches))
        for ours, x in zip(found, batches, strict=True):
            torch.testing.assert_close(ours, model(x))


def test_what_was_compiled_is_freed() -> None:
    def used() -> tuple[weakref.ref[Any], torch.Tensor]:
        with recorded() as records:
            fast = compiled(small_model(), {"tuning": False})
            result = fast(torch.randn(4, 6))
            result.sum().backward()
        return weakref.ref(records[0]), result.detach()

    reference, result = used()
    torch._dynamo.reset()
    gc.collect()
    assert reference() is None
    assert result.isfinite().all()  # the result outlives the code that computed it
