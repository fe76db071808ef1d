"""Operators: construction, copies, promotion, devices, errors, fallbacks, what PyTorch prints and copies."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from torchstone.config import override
from torchstone.device.engine import engine
from torchstone.device.operators import Operator, plan_count
from torchstone.device.storage import box_of
from torchstone.errors import ConfigError, FallbackRefused, FallbackWarning, IndexOutOfRange
from torchstone.runtime.counters import counters

from .mirrored import DEVICE, EXACT, computed, mirrored, refusals

DTYPES = (
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
    torch.complex128,
    torch.uint16,
    torch.uint32,
    torch.uint64,
    torch.float8_e4m3fn,
)


def test_construction() -> None:
    def make(device: str) -> Any:
        return {
            "zeros": torch.zeros(2, 3, device=device),
            "ones": torch.ones((), device=device),
            "full": torch.full((2, 2), 1.5, device=device),
            "full of bools": torch.full((2,), True, device=device),
            "tensor": torch.tensor([[1, 2], [3, 4]], device=device),
            "arange": torch.arange(2, 11, 3, device=device),
            "linspace": torch.linspace(0, 1, 5, device=device),
            "eye": torch.eye(3, device=device),
            "zeros_like": torch.zeros_like(torch.ones(2, 3).t().to(device)),
            "new_full": torch.ones(1, device=device).new_full((2,), 3),
            "empty": torch.empty(0, 3, device=device),
            "scalar": torch.scalar_tensor(2.5, device=device),
            "tril_indices": torch.tril_indices(3, 3, device=device),
            "strided": torch.empty_strided((2, 3), (1, 2), device=device).zero_(),
        }

    mirrored(make, **EXACT)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_values_go_there_and_back(dtype: torch.dtype) -> None:
    values = torch.tensor([0, 1, 2, 3, 1, 0], dtype=torch.float32).to(dtype).view(2, 3)
    there = values.to(DEVICE)
    assert (there.dtype, there.device.type, there.device.index) == (dtype, DEVICE, 0)
    for view in (lambda x: x, lambda x: x.t(), lambda x: x[:, 1:], lambda x: x[:, ::2]):
        back = view(there).cpu()
        assert back.dtype == dtype
        assert back.tolist() == view(values).tolist()
        assert view(values).to(DEVICE).cpu().tolist() == view(values).tolist()
    into = torch.zeros(4, 3, dtype=dtype).to(DEVICE)
    into[1:3] = values
    assert into.cpu().tolist()[1:3] == values.tolist()


def test_to_of_every_kind() -> None:
    def convert(device: str) -> Any:
        x = torch.arange(6.0).view(2, 3).to(device)
        y = torch.ones(1, 2, 2, 2, device=device)
        return [
            x.to(torch.float64),
            x.t().to(torch.int32),
            x.to(torch.float32, copy=True),
            x.t().to(torch.complex64, memory_format=torch.contiguous_format),
            y.to(torch.float16, memory_format=torch.channels_last),
            x[:, ::2].half(),
            x.bool(),
        ]

    mirrored(convert, **EXACT)
    x = torch.arange(6.0).view(2, 3).to(DEVICE)
    back = x.t().to("cpu", torch.float64, non_blocking=True)
    assert (back.stride(), back.tolist()) == ((1, 3), [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]])
    assert x.to("cpu", non_blocking=True).add_(1).tolist() != x.tolist()


def test_a_copy_from_the_cpu_is_a_copy() -> None:
    host = torch.ones(3)
    there = host.to(DEVICE)
    host.zero_()
    assert there.tolist() == [1, 1, 1]
    back = there.cpu()
    there.zero_()
    assert back.tolist() == [1, 1, 1]
    back.fill_(5)
    assert there.tolist() == [0, 0, 0]


COPIED: dict[torch.dtype, list[complex]] = {
    torch.float32: [2, 0.1, True, 2**40 + 1],
    torch.float64: [0.1, 2**60 + 1],
    torch.complex128: [0.1, 0.1j],
    torch.int64: [2, 2.7, 2**60 + 1],
    torch.bool: [0.1, 0, True],
}


@pytest.mark.parametrize(("dtype", "number"), [(dtype, one) for dtype in COPIED for one in COPIED[dtype]])
def test_a_number_is_copied_into_a_tensor(dtype: torch.dtype, number: complex) -> None:
    whole, part = (torch.ones(3, dtype=dtype, device=DEVICE) for _ in range(2))
    whole.copy_(number)  # type: ignore[arg-type]
    part[1:].copy_(number)  # type: ignore[arg-type]
    expected = torch.ones(3, dtype=dtype)
    expected[1:].copy_(number)  # type: ignore[arg-type]
    assert whole.tolist() == [expected[1].item()] * 3
    assert part.tolist() == expected.tolist()


def test_a_clone_is_its_own() -> None:
    x = torch.ones(2, 2, device=DEVICE)
    y = x.clone()
    x.add_(1)
    assert y.tolist() == [[1, 1], [1, 1]]


LIKE = {
    "zeros_like": torch.zeros_like,
    "ones_like": torch.ones_like,
    "empty_like": torch.empty_like,
    "full_like": lambda x, **options: torch.full_like(x, 2, **options),
    "rand_like": torch.rand_like,
    "randn_like": torch.randn_like,
    "randint_like": lambda x, **options: torch.randint_like(x, 2, 5, **options),
    "new_zeros": lambda x, **options: x.new_zeros((2, 3), **options),
    "new_ones": lambda x, **options: x.new_ones((2, 3), **options),
    "new_empty": lambda x, **options: x.new_empty((2, 3), **options),
    "new_full": lambda x, **options: x.new_full((2, 3), 7, **options),
    "new_empty_strided": lambda x, **options: x.new_empty_strided((2, 3), (1, 2), **options),
    "new_tensor": lambda x, **options: x.new_tensor([1, 2], **options),
    "to": lambda x, device, dtype: x.to(device, dtype),
    "linspace": lambda x, **options: torch.linspace(x[0, 0], x[0, 1], 4, **options),
}


@pytest.mark.parametrize("name", LIKE)
def test_a_result_is_on_the_device_that_the_call_names(name: str) -> None:
    x = torch.arange(6.0).view(3, 2).t()
    expected = LIKE[name](x, device="cpu", dtype=torch.float64)
    for source, wanted in (("cpu", DEVICE), (DEVICE, "cpu"), (DEVICE, DEVICE), (DEVICE, "meta")):
        found = LIKE[name](x.to(source), device=wanted, dtype=torch.float64)
        assert found.device.type == wanted
        assert (found.dtype, found.shape, found.stride()) == (
            expected.dtype,
            expected.shape,
            expected.stride(),
        )
        if wanted != "meta" and not name.startswith(("rand", "empty", "new_empty")):
            assert torch.equal(found.cpu(), expected)


def test_metadata_of_another_device_is_refused() -> None:
    with pytest.raises(RuntimeError, match="device"):
        torch.ops.aten._assert_tensor_metadata(torch.ones(2, device=DEVICE), device=torch.device("cpu"))


def test_a_tensor_of_the_cpu_is_not_written() -> None:
    x, y = torch.tensor(1.0), torch.tensor(2.0, device=DEVICE)
    for write in (lambda: x.add_(y), lambda: torch.sum(y.view(1), 0, out=x)):
        with pytest.raises(RuntimeError, match="cannot write into a tensor on the CPU"):
            write()
    assert x.item() == 1


def test_promotion() -> None:
    def compute(device: str) -> Any:
        i, f = torch.arange(3, device=device), torch.ones(3, device=device)
        zero_d = torch.tensor(2.5, dtype=torch.float64, device=device)
        half = torch.ones(3, dtype=torch.bfloat16, device=device)
        flag = torch.tensor([True, False, True], device=device)
        return [
            i + 1,
            i + 1.5,
            i * f,
            f + zero_d,
            i + zero_d,
            zero_d + 1,
            half + f,
            half * 0.1,
            flag + flag,
            flag + 1,
            i / 2,
            i // 2,
            i < 1.5,
            f == 1,
            i.to(torch.uint8) - 3,
            torch.where(flag, i, 0.5),
            torch.cat([i, f]),
            f**2,
            2**f,
            1 - f,
            f.float().add(half, alpha=0.3),
        ]

    mirrored(compute, **EXACT)


def test_numbers_are_arguments_of_one_program() -> None:
    x = torch.arange(3.0, device=DEVICE)
    x.mul_(2.0)
    before = plan_count()
    for value in (0.1, 0.2, -0.0, float("inf"), float("nan"), 1e-30):
        expected = torch.arange(3.0).mul(value)
        torch.testing.assert_close(x.mul(value).mul(1.0).cpu(), expected * 2, equal_nan=True)
        known = ~expected.isnan()  # the sign of a NaN depends on the processor
        assert torch.equal((x * value).cpu().signbit()[known], expected.signbit()[known])
    assert plan_count() <= before + 2


def test_an_integer_of_64_bits_without_a_sign() -> None:
    def add(device: str) -> Any:
        x = torch.ones(2, device=device)
        return x + 2**63, x * (2**64 - 1)

    mirrored(add)


def test_0d_tensors_of_the_cpu_take_part() -> None:
    x = torch.ones(3, device=DEVICE)
    number = torch.tensor(2.0, dtype=torch.float64)
    assert (x * number).dtype == torch.float32
    assert (number - x).tolist() == [1, 1, 1]
    number.fill_(5)
    assert (x * number).tolist() == [5, 5, 5]
    x[1] = torch.tensor(9)
    assert x.tolist() == [1, 9, 1]


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x + torch.ones(3),
        lambda x: torch.ones(3) + x,
        lambda x: torch.ones(3).add_(x),
        lambda x: torch.cat([x, torch.ones(3)]),
        lambda x: torch.mm(x.view(1, 3), torch.ones(3, 1)),
        lambda x: torch.add(x, 1, out=torch.empty(3)),
        lambda x: x + torch.ones(3, device="meta"),
        lambda x: torch.cat([torch.ones(3, device="meta"), x]),
    ],
)
def test_mixed_devices_are_refused(call: Any) -> None:
    with pytest.raises(RuntimeError, match=r"same device.*pjrt:0 and cpu|expected device|cannot write into"):
        call(torch.ones(3, device=DEVICE))


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x + torch.ones(5, device=x.device),
        lambda x: x @ x,
        lambda x: x.add_(1j),
        lambda x: x.long().add_(0.5),
        lambda x: torch.cat([x, torch.ones(2, 2, 2, device=x.device)]),
        lambda x: x.sum(7),
        lambda x: x.view(5),
        lambda x: x.view(-1).as_strided((3,), (4,)),
        lambda x: torch.add(x, 1, out=torch.empty(3, dtype=torch.int32, device=x.device)),
        lambda x: x.index_select(0, torch.tensor([0.5], device=x.device)),
        lambda x: x % 1j,
        lambda x: x.clamp_min(1j),
        lambda x: torch.sort(x, 0, out=(torch.empty_like(x), torch.empty_like(x))),
        lambda x: x.random_(3, 3),
        lambda x: x.random_(-3),
        lambda x: x.to(torch.uint8).random_(0, 300),
        lambda x: torch.randint(0, 1000, (2,), dtype=torch.uint8, device=x.device),
        lambda x: torch.randint_like(x.int(), 2, 2),
    ],
)
def test_wrong_calls_raise_what_they_raise_on_the_cpu(call: Any) -> None:
    cpu, device = refusals(lambda device: call(torch.ones(2, 3, device=device)))
    assert type(device) is type(cpu)
    assert str(device).replace("pjrt:0", "cpu") == str(cpu)


def test_a_wrong_call_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(RuntimeError, match="expects a tensor with <= 2 dimensions"):
        torch.ops.aten.t_copy(torch.ones(2, 2, 2, device=DEVICE))
    assert caplog.records == []


def test_an_index_out_of_range_is_an_error_and_writes_nothing() -> None:
    x = torch.arange(3.0, device=DEVICE)
    where = torch.tensor([0, 3], device=DEVICE)
    with pytest.raises(IndexOutOfRange, match=r"aten\.index\.Tensor: indices") as caught:
        computed(x[where])
    assert "config" not in str(caught.value)  # the check is always on, so the message names no setting
    with pytest.raises(IndexOutOfRange, match="index out of range"):
        computed(x.index_add_(0, where, torch.ones(2, device=DEVICE)))
    assert x.tolist() == [0, 1, 2]


def test_another_index_is_refused() -> None:
    x = torch.ones(2)
    for call in (
        lambda device: torch.empty(2, device=device),
        lambda device: torch.full((2,), 1.0, device=device),
        lambda device: x.to(device),
        lambda device: x.to(DEVICE).to(device),
        lambda device: torch.nn.Linear(1, 1).to(device),
        lambda device: torch.empty_like(x, device=device),
        lambda device: torch.UntypedStorage(8, device=device),
        torch.Generator,
        torch.Event,
        torch.pjrt.set_device,
        torch.pjrt.device,
        torch.pjrt.synchronize,
        torch.pjrt.current_stream,
        torch.pjrt.memory_allocated,
        torch.pjrt.memory_stats,
        torch.pjrt.get_rng_state,
        torch.pjrt.get_device_name,
        torch.accelerator.set_device_index,
    ):
        with pytest.raises(RuntimeError, match=r'there is no device "pjrt:9".*\n  next: use "pjrt"'):
            call("pjrt:9")


@pytest.mark.parametrize(
    "call",
    [
        lambda: torch.eye(2).to_sparse().to(DEVICE),
        lambda: torch.eye(2).to_sparse_csr().to(DEVICE) @ torch.ones(2, device=DEVICE),
        lambda: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.quint8).to(DEVICE),
        lambda: torch.empty(2, dtype=torch.quint8, device=DEVICE),
        lambda: torch.nested.nested_tensor([torch.ones(2)]).to(DEVICE),
    ],
)
def test_tensors_of_another_kind_are_refused(call: Any) -> None:
    with pytest.raises(
        NotImplementedError, match=r"tensors are strided.*\n  next: keep such a tensor on the CPU"
    ):
        call()


@pytest.mark.parametrize("dtype", [torch.int4, torch.uint4, torch.bits8], ids=str)
def test_dtypes_that_eager_cannot_copy_are_refused_as_on_the_cpu(dtype: torch.dtype) -> None:
    cpu, device = refusals(lambda device: torch.ones(3, device=device).to(dtype))
    assert type(device) is type(cpu)
    assert str(device) == str(cpu)


def test_printing_and_copying() -> None:
    x = torch.arange(4.0, device=DEVICE).view(2, 2)
    assert repr(x) == "tensor([[0., 1.],\n        [2., 3.]], device='pjrt:0')"
    assert repr(x.requires_grad_().sum()) == "tensor(6., device='pjrt:0', grad_fn=<SumBackward0>)"
    y, z = copy.deepcopy([x, x.detach()[0]])
    y.data.add_(1)
    assert x.tolist() == [[0, 1], [2, 3]]
    assert (y.tolist(), z.tolist()) == ([[1, 2], [3, 4]], [1, 2])
    assert torch.arange(3, device=DEVICE).numpy(force=True).tolist() == [0, 1, 2]


@pytest.mark.parametrize("loss", [F.multi_margin_loss, F.multilabel_margin_loss])
def test_a_single_score_is_one_class(loss: Any) -> None:
    mirrored(lambda device: loss(torch.tensor(0.5, device=device), torch.tensor(0, device=device)), **EXACT)
    _, device = refusals(
        lambda device: loss(torch.tensor(0.5, device=device), torch.tensor(1, device=device))
    )
    assert "out of range" in str(device)


def test_a_missing_program_is_an_error_that_says_what_to_do() -> None:
    with pytest.raises(FallbackRefused) as caught:
        torch.eye(3, device=DEVICE).chalf()
    text = str(caught.value)
    assert "aten._to_copy.default cannot run on pjrt with dtypes float32" in text
    assert 'config.device_fallback = "warn"' in text


def test_a_fallback_computes_warns_once_and_is_counted(falls_back: None) -> None:
    x = torch.tensor([[2.0, 0.0], [0.0, 4.0]], device=DEVICE)

    def select() -> list[Tensor]:
        return [x.chalf() for _ in range(3)]

    with override(device_fallback="warn"), pytest.warns(FallbackWarning, match="runs on the CPU") as caught:
        found = select()
    assert len([one for one in caught if one.category is FallbackWarning]) == 1
    assert found[2].cpu().cfloat().tolist() == [[2, 0], [0, 4]]
    assert torch.pjrt.fallbacks() == {"aten._to_copy.default": 3}


def test_an_unknown_way_to_fall_back_is_refused(falls_back: None) -> None:
    x = torch.ones(2, 2, device=DEVICE)
    with override(device_fallback="never"), pytest.raises(ConfigError, match="use warn, silent, error"):
        x.chalf()


def test_plans_are_bounded() -> None:
    with override(device_plans=5):
        for size in range(1, 12):
            assert torch.ones(size, device=DEVICE).neg().sum().item() == -size
        assert plan_count() <= 5


@pytest.mark.parametrize("count", [100, pytest.param(1000, marks=pytest.mark.conformance)])
def test_many_shapes_stay_within_the_bounds_of_plans_and_of_executables(count: int) -> None:
    """Slicing makes no program, so each shape compiles exactly one program, for ``neg``."""
    x = torch.arange(float(count), device=DEVICE)
    with override(device_plans=16, memory_cache_entries=16, cache=False):
        before = counters.snapshot().compiles
        for size in range(1, count + 1):
            computed(x[:size].neg())
        assert counters.snapshot().compiles - before == count
        assert plan_count() <= 16
        assert len(engine()._loaded._values) <= 16


def test_a_storage_of_another_device_is_not_taken_for_one() -> None:
    with pytest.raises(RuntimeError, match="same device, but found at least two devices, pjrt:0 and cpu"):
        box_of(torch.ones(2))


def test_an_operator_looks_its_overload_up() -> None:
    operator = Operator("add.Tensor")
    assert operator.overload is torch.ops.aten.add.Tensor
    assert torch.equal(operator(torch.ones(2, device=DEVICE), 1).cpu(), torch.full((2,), 2.0))


def test_a_tensor_and_its_storage() -> None:
    x: Tensor = torch.ones(2, 3, device=DEVICE)
    assert x.untyped_storage().nbytes() == 24
    assert torch.UntypedStorage(8, device=DEVICE).device == x.device
    copied = x.untyped_storage().clone()
    x.zero_()
    assert torch.empty(0, device=DEVICE).set_(copied).tolist() == [1.0] * 6
    assert copied.cpu().tolist() == torch.ones(6).untyped_storage().tolist()
    with pytest.raises(RuntimeError, match="a storage on pjrt keeps its size: 24 bytes, asked for 8"):
        x.untyped_storage().resize_(8)
    assert x.is_contiguous()
    assert not x.is_cpu
    assert x.device == torch.device(DEVICE, 0)
    assert x.new_zeros(2).device == x.device


def test_questions_about_all_elements() -> None:
    for name in ("_is_all_true", "_is_any_true"):
        ask = getattr(torch.ops.aten, name)
        mirrored(
            lambda device, ask=ask: [ask(torch.tensor(one).to(device)) for one in ([True, False], [True])]
        )
