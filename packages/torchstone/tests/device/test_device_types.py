"""PyTorch's own machinery for devices takes this one: tests written like PyTorch's, instantiated for it.

``instantiate_device_type_tests`` makes of each template a test for the device and its dtypes.
"""

# ruff: noqa: PT009, PT027  (in PyTorch's way)
from __future__ import annotations

import io
from typing import Any

import torch
from torch.testing import make_tensor
from torch.testing._internal.common_device_type import (
    deviceCountAtLeast,
    dtypes,
    instantiate_device_type_tests,
    onlyCPU,
    ops,
)
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_utils import TestCase

from .mirrored import computed

FLOATING = (torch.float32, torch.float64)
NUMBERS = (torch.float32, torch.float64, torch.int32, torch.int64)
EVERY = (*NUMBERS, torch.bool, torch.uint8, torch.complex64, torch.bfloat16)
SAMPLED = [one for one in op_db if one.name in ("add", "cumsum", "index_select", "matmul", "sort", "where")]


def made(shape: tuple[int, ...], *, device: str, dtype: torch.dtype, **bounds: float) -> torch.Tensor:
    return make_tensor(shape, device="cpu", dtype=dtype, **bounds).to(device)


class TestViews(TestCase):
    def is_view_of(self, base: torch.Tensor, other: torch.Tensor) -> bool:
        same = base.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()
        return other._is_view() and other._base is base and same and base.device == other.device

    @dtypes(*EVERY)
    def test_views_share_and_write_through(self, device: str, dtype: torch.dtype) -> None:
        base = torch.zeros(4, 6, device=device, dtype=dtype)
        for view in (base.view(6, 4), base.t(), base[1:3, ::2], base.unsqueeze(0), base.diagonal()):
            self.assertTrue(self.is_view_of(base, view))
        base.t()[2:4, 1].fill_(1)
        self.assertEqual(base[1, 2:4], torch.ones(2, device=device, dtype=dtype))
        self.assertEqual(base.sum(dtype=torch.int64 if not dtype.is_complex else dtype), 2, exact_dtype=False)

    def test_chunks_and_splits(self, device: str) -> None:
        base = torch.arange(12.0, device=device)
        for part in (*base.chunk(3), *base.split(5), *base.view(3, 4).unbind(1)):
            part += 1
        self.assertEqual(base, torch.arange(12.0, device=device) + 3)

    def test_real_and_imaginary_parts(self, device: str) -> None:
        x = torch.zeros(3, device=device, dtype=torch.complex64)
        x.imag.add_(2)
        torch.view_as_real(x)[:, 0].sub_(1)
        self.assertEqual(x, torch.full((3,), -1 + 2j, device=device))
        self.assertTrue(x.conj().is_conj())
        self.assertEqual(x.conj().resolve_conj(), torch.full((3,), -1 - 2j, device=device))

    def test_strides_of_a_view(self, device: str) -> None:
        x = torch.empty(2, 3, 4, 5, device=device).contiguous(memory_format=torch.channels_last)
        self.assertEqual(x.stride(), (60, 1, 15, 3))
        self.assertTrue(x.is_contiguous(memory_format=torch.channels_last))
        self.assertEqual((x + 1).stride(), x.stride())
        self.assertRaisesRegex(RuntimeError, "view size is not compatible", lambda: x.view(-1))


class TestInPlace(TestCase):
    @dtypes(*NUMBERS)
    def test_operators_return_themselves(self, device: str, dtype: torch.dtype) -> None:
        x = made((3, 4), device=device, dtype=dtype, low=1, high=5)
        expected = (x.clone() * 2 + 3) - x
        version = x._version
        y = x.clone()
        self.assertIs(y.mul_(2).add_(3).sub_(x), y)
        self.assertEqual(y, expected)
        self.assertEqual(x._version, version)
        self.assertEqual(y._version, 3)

    def test_a_result_that_does_not_fit_is_refused(self, device: str) -> None:
        x = torch.ones(2, device=device, dtype=torch.int64)
        message = "result type Float can't be cast to the desired output type (Long|long int)"
        self.assertRaisesRegex(RuntimeError, message, lambda: x.add_(torch.ones(2, device=device)))
        self.assertEqual(x, torch.ones(2, device=device, dtype=torch.int64))

    def test_out_is_resized_and_returned(self, device: str) -> None:
        out = torch.empty(0, device=device)
        x = torch.arange(4.0, device=device)
        self.assertIs(torch.exp(x, out=out), out)
        self.assertEqual(out, x.exp())


class TestReductions(TestCase):
    @dtypes(*NUMBERS)
    def test_against_the_cpu(self, device: str, dtype: torch.dtype) -> None:
        x = made((3, 4, 5), device=device, dtype=dtype, low=-4, high=4)
        for name in ("sum", "prod", "amax", "amin", "argmax", "any", "all", "count_nonzero"):
            function = getattr(torch, name)
            self.assertEqual(function(x, 1).cpu(), function(x.cpu(), 1))
        self.assertEqual(x.sum((0, 2), keepdim=True).cpu(), x.cpu().sum((0, 2), keepdim=True))

    @dtypes(*FLOATING)
    def test_statistics(self, device: str, dtype: torch.dtype) -> None:
        x = made((4, 7), device=device, dtype=dtype)
        for name in ("mean", "var", "std", "logsumexp", "nansum"):
            self.assertEqual(getattr(torch, name)(x, -1).cpu(), getattr(torch, name)(x.cpu(), -1))

    def test_of_nothing(self, device: str) -> None:
        x = torch.empty(0, 3, device=device)
        self.assertEqual(x.sum(0), torch.zeros(3, device=device))
        self.assertEqual(x.prod(), torch.ones((), device=device))
        self.assertRaisesRegex(IndexError, "Expected reduction dim", lambda: x.amax(0))


class TestIndexing(TestCase):
    @dtypes(*EVERY)
    def test_reading(self, device: str, dtype: torch.dtype) -> None:
        x = made((4, 5), device=device, dtype=dtype)
        index = torch.tensor([3, 0], device=device)
        for get in (
            lambda t, i: t[i],
            lambda t, i: t[:, i],
            lambda t, i: t[i, i],
            lambda t, i: t[t != t[0, 0]],
            lambda t, i: t[..., None, -2:],
            lambda t, i: t.index_select(1, i),
            lambda t, i: t.gather(0, i.view(1, 2)),
        ):
            self.assertEqual(get(x, index).cpu(), get(x.cpu(), index.cpu()))

    @dtypes(*NUMBERS)
    def test_writing(self, device: str, dtype: torch.dtype) -> None:
        x = torch.zeros(3, 4, device=device, dtype=dtype)
        index = torch.tensor([0, 2, 0], device=device)
        x[index, index] = torch.tensor([1, 2, 1], device=device, dtype=dtype)
        x.index_add_(0, index, torch.ones(3, 4, device=device, dtype=dtype))
        x[x == 0] = 7
        x.masked_fill_(x == 1, -1)
        expected = [[3, 2, 2, 2], [7, 7, 7, 7], [-1, -1, 3, -1]]
        self.assertEqual(x, torch.tensor(expected, device=device, dtype=dtype))

    def test_out_of_range(self, device: str) -> None:
        x = torch.arange(3, device=device)
        self.assertRaisesRegex(
            IndexError, "out of (bounds|range)", lambda: computed(x[torch.tensor([3], device=device)])
        )
        self.assertRaisesRegex(IndexError, "out of bounds for dimension 0", lambda: x[3])


class TestTypePromotion(TestCase):
    @dtypes(*[(one, other) for one in EVERY for other in (torch.int64, torch.float32, torch.complex64)])
    def test_two_tensors(self, device: str, dtypes: tuple[torch.dtype, torch.dtype]) -> None:
        first, second = (torch.ones(2, device=device, dtype=one) for one in dtypes)
        self.assertEqual((first + second).dtype, torch.promote_types(*dtypes))
        self.assertEqual((first + second[0]).dtype, torch.result_type(first, second[0]))

    @dtypes(*EVERY)
    def test_numbers(self, device: str, dtype: torch.dtype) -> None:
        x = torch.ones(2, device=device, dtype=dtype)
        for number in (2, 2.5, 1j, True):
            self.assertEqual((x * number).dtype, torch.result_type(x, number))
            self.assertEqual((x * number).cpu(), x.cpu() * number)


class TestAutograd(TestCase):
    def test_gradients(self, device: str) -> None:
        x = torch.rand(3, 4, device=device, dtype=torch.float64, requires_grad=True)
        weight = torch.rand(4, 2, device=device, dtype=torch.float64, requires_grad=True)
        functions = (
            lambda a, b: (a @ b).tanh(),
            lambda a, b: torch.softmax(a, 1) @ b,
            lambda a, b: a[:, [0, 2]] * b[:2].t().sum(),
        )
        for function in functions:
            self.assertTrue(torch.autograd.gradcheck(function, (x, weight), fast_mode=True))
        self.assertTrue(torch.autograd.gradgradcheck(functions[0], (x, weight), fast_mode=True))

    def test_a_saved_tensor_that_was_written(self, device: str) -> None:
        x = torch.ones(2, device=device, requires_grad=True)
        y = x.exp()
        y.add_(1)
        message = "modified by an inplace operation"
        self.assertRaisesRegex(RuntimeError, message, lambda: y.sum().backward())

    def test_hooks_and_accumulation(self, device: str) -> None:
        x = torch.ones(2, device=device, requires_grad=True)
        x.register_hook(lambda gradient: gradient * 10)
        for _ in range(2):
            (x * 3).sum().backward()
        self.assertEqual(x.grad, torch.full((2,), 60.0, device=device))


class TestSerialization(TestCase):
    @dtypes(*EVERY)
    def test_round_trip(self, device: str, dtype: torch.dtype) -> None:
        x = made((3, 4), device=device, dtype=dtype)
        stream = io.BytesIO()
        torch.save({"x": x, "row": x[1], "t": x.t()}, stream)
        for location, expected in ((None, x.device), ("cpu", torch.device("cpu")), (device, x.device)):
            stream.seek(0)
            loaded = torch.load(stream, map_location=location)
            self.assertEqual(loaded["t"].device, expected)
            self.assertEqual(loaded["t"].cpu(), x.t().cpu())
            loaded["row"].zero_()
            self.assertEqual(loaded["x"][1].cpu(), torch.zeros(4, dtype=dtype))


class TestStorage(TestCase):
    @dtypes(*EVERY)
    def test_bytes(self, device: str, dtype: torch.dtype) -> None:
        x = made((6,), device=device, dtype=dtype)
        storage = x.untyped_storage()
        self.assertEqual(storage.nbytes(), 6 * dtype.itemsize)
        self.assertEqual(storage.device, x.device)
        twin = torch.empty(0, device=device, dtype=dtype).set_(storage.clone(), 0, (2, 3))
        self.assertEqual(twin.view(6), x)
        kept = x.tolist()
        twin.zero_()
        self.assertEqual(x.tolist(), kept)

    def test_tensors_on_one_storage(self, device: str) -> None:
        x = torch.zeros(6, device=device)
        y = torch.empty(0, device=device).set_(x)
        self.assertTrue(x.is_set_to(y))
        y[2:].fill_(3)
        self.assertEqual(x, torch.tensor([0.0, 0, 3, 3, 3, 3], device=device))


class TestRandom(TestCase):
    @dtypes(*FLOATING)
    def test_seeds(self, device: str, dtype: torch.dtype) -> None:
        def draw() -> torch.Tensor:
            return torch.randn(50, device=device, dtype=dtype)

        torch.manual_seed(3)
        first, state = draw(), torch.pjrt.get_rng_state()
        second = draw()
        torch.pjrt.set_rng_state(state)
        self.assertEqual(draw(), second)
        torch.manual_seed(3)
        self.assertEqual(draw(), first)
        self.assertNotEqual(first, second)

    def test_distributions(self, device: str) -> None:
        torch.manual_seed(0)
        x = torch.rand(20000, device=device)
        self.assertEqual(x.mean().item(), 0.5, atol=0.02, rtol=0)
        self.assertTrue(((x >= 0) & (x < 1)).all().item())
        self.assertEqual(torch.randperm(100, device=device).sort()[0], torch.arange(100, device=device))
        dropped = torch.nn.functional.dropout(torch.ones(20000, device=device), 0.25)
        self.assertEqual(dropped.count_nonzero().item() / 20000, 0.75, atol=0.02, rtol=0)


class TestOptimizers(TestCase):
    def test_steps_are_the_cpu_s(self, device: str) -> None:
        for make in (
            lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True),
            lambda p: torch.optim.Adam(p, 0.1, amsgrad=True),
            lambda p: torch.optim.AdamW(p, 0.1, foreach=True),
            lambda p: torch.optim.RMSprop(p, 0.1, centered=True),
            lambda p: torch.optim.Adagrad(p, 0.1),
        ):
            ends = []
            for where in (device, "cpu"):
                parameter = torch.nn.Parameter(torch.linspace(-1, 1, 6, device=where))
                optimizer = make([parameter])
                for _ in range(4):
                    optimizer.zero_grad()
                    (parameter**2).sum().backward()
                    optimizer.step()
                ends.append(parameter.detach().cpu())
            self.assertEqual(*ends)


class TestSampledOperators(TestCase):
    @ops(SAMPLED, allowed_dtypes=FLOATING)
    def test_operator_samples(self, device: str, dtype: torch.dtype, op: Any) -> None:
        for sample in list(op.sample_inputs("cpu", dtype))[:4]:
            here = sample.transform(lambda one: one.to(device) if isinstance(one, torch.Tensor) else one)
            found = op(here.input, *here.args, **here.kwargs)
            if op.name == "matmul" and dtype == torch.float32:  # sums may cancel; rounding order differs
                self.assert_within_rounding(found.cpu(), sample.input, *sample.args)
                continue
            self.assertEqual(found, op(sample.input, *sample.args, **sample.kwargs), exact_device=False)

    def assert_within_rounding(self, found: torch.Tensor, one: torch.Tensor, other: torch.Tensor) -> None:
        """Each element is within the error bound of any summation order (Higham 2002, section 3.1)."""
        one, other = one.double(), other.double()
        bound = one.shape[-1] * torch.finfo(found.dtype).eps / 2 * (one.abs() @ other.abs())
        self.assertEqual(found.shape, bound.shape)
        self.assertTrue(((found - one @ other).abs() <= bound).all())


class TestMachinery(TestCase):
    @deviceCountAtLeast(1)
    def test_devices(self, devices: list[str]) -> None:
        self.assertEqual(devices, ["pjrt:0"])

    @onlyCPU
    def test_of_another_device(self, device: str) -> None:
        self.fail("this is a test of the CPU")


TEMPLATES = [one for one in list(globals().values()) if isinstance(one, type) and issubclass(one, TestCase)]
for template in TEMPLATES:
    if template is not TestCase:
        instantiate_device_type_tests(template, globals(), only_for="pjrt", allow_xpu=False)
