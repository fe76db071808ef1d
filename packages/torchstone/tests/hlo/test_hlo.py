"""``torchstone.hlo``: strictness, constants, symbolic dimensions, composites, portability, random bits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy
import pytest
import torch

from torchstone import dtypes, hlo
from torchstone.dtypes import BOOL, FLOAT32, FLOAT64, INT32, INT64, UINT64, DType
from torchstone.errors import ConfigError, LoweringBug, UnsupportedShape, VerificationError
from torchstone.hlo.portable import text_of
from torchstone.runtime import get_engine

Body = Callable[[list[hlo.Value]], Sequence[hlo.Value]]


def build(body: Body, *arguments: tuple[tuple[Any, ...], DType]) -> hlo.Module:
    module = hlo.Module("test")
    described = [hlo.Argument(shape, dtype, f"x{i}") for i, (shape, dtype) in enumerate(arguments)]
    module.build(described, body)
    return module


def run(body: Body, *arrays: Any) -> list[Any]:
    arrays = tuple(map(numpy.asarray, arrays))
    module = build(body, *((a.shape, dtypes.from_numpy(a.dtype)) for a in arrays))
    executable = get_engine().compile(module.serialize(hlo.resolve_version("current")))
    return [buffer.to_numpy() for buffer in executable(*arrays)]


class TestStrictness:
    def test_dtypes_must_agree(self) -> None:
        with pytest.raises(LoweringBug, match=r"operands differ: .*tensor<2xf32>.* and .*tensor<2xf64>"):
            build(lambda v: [v[0] + v[1]], ((2,), FLOAT32), ((2,), FLOAT64))

    def test_shapes_must_agree(self) -> None:
        with pytest.raises(LoweringBug, match="broadcast and convert explicitly"):
            build(lambda v: [v[0] + v[1]], ((2, 3), FLOAT32), ((3,), FLOAT32))

    def test_reshape_keeps_the_count(self) -> None:
        with pytest.raises(LoweringBug, match="cannot reshape"):
            build(lambda v: [hlo.reshape(v[0], (5,))], ((2, 3), FLOAT32))

    def test_broadcast_refuses_what_does_not_fit(self) -> None:
        with pytest.raises(LoweringBug, match="does not broadcast"):
            build(lambda v: [hlo.broadcast_to(v[0], (2, 4))], ((2, 3), FLOAT32))

    def test_while_keeps_its_state(self) -> None:
        with pytest.raises(LoweringBug, match="while body changed its state"):
            build(
                lambda v: hlo.while_(
                    lambda x: hlo.scalar(True, BOOL), lambda x: [hlo.convert(x, FLOAT64)], v
                ),
                ((), FLOAT32),
            )

    def test_mlir_verifies_the_module(self) -> None:
        # A scalar predicate of the wrong shape passes hlo.if_, but not MLIR's verifier.
        with pytest.raises((VerificationError, LoweringBug)):
            build(
                lambda v: hlo.if_(v[0], lambda: [v[1]], lambda: [v[1]], [((2,), FLOAT32)]),
                ((2,), BOOL),
                ((2,), FLOAT32),
            )


@pytest.mark.parametrize("dtype", sorted(dtypes.EVERY - dtypes.SUB_BYTE, key=str), ids=str)
def test_constants_of_every_dtype(dtype: DType) -> None:
    """Splat and dense constants survive the artifact bit for bit."""
    if dtype.is_bool:
        dense = numpy.array([[True, False, True], [False, False, True]])
    else:
        dense = numpy.arange(1, 7).reshape(2, 3).astype(dtype.numpy)
    splat, array = run(lambda _: [hlo.full((3,), 1, dtype), hlo.constant(dense, dtype)])
    assert array.dtype == dense.dtype == splat.dtype
    assert array.tobytes() == dense.tobytes()
    assert splat.tobytes() == numpy.ones(3).astype(dtype.numpy).tobytes()


@pytest.mark.parametrize(
    ("number", "dtype", "expected"),
    [
        (300, dtypes.UINT8, 44),
        (-1, dtypes.UINT64, 2**64 - 1),
        (2**31, INT32, -(2**31)),
        (2**63, INT64, -(2**63)),
        (float("inf"), FLOAT32, float("inf")),
        (-0.0, FLOAT32, -0.0),
    ],
)
def test_scalars_wrap_as_casts_do(number: Any, dtype: DType, expected: Any) -> None:
    (found,) = run(lambda _: [hlo.scalar(number, dtype)])
    assert found == expected
    assert numpy.signbit(found) == numpy.signbit(numpy.array(expected, dtype=dtype.numpy))


class TestControlFlow:
    def test_fori_and_if_and_case(self) -> None:
        def body(v: list[hlo.Value]) -> list[hlo.Value]:
            n, x = v
            (total,) = hlo.fori(n, lambda i, a: [a + hlo.convert(i, FLOAT32)], [x])
            (chosen,) = hlo.if_(n > 3, lambda: [x * 10.0], lambda: [x], [((), FLOAT32)])
            (third,) = hlo.case(n, [lambda: [x], lambda: [x + 1.0], lambda: [x + 2.0]], [((), FLOAT32)])
            return [total, chosen, third]

        assert [float(r) for r in run(body, numpy.int64(5), numpy.float32(1))] == [11.0, 10.0, 3.0]
        assert [float(r) for r in run(body, numpy.int64(0), numpy.float32(1))] == [1.0, 1.0, 1.0]

    def test_sort_by_a_python_comparator(self) -> None:
        keys, places = run(
            lambda v: hlo.sort([v[0], hlo.iota((4,), 0, INT64)], 0, lambda a, b, i, j: a > b, stable=True),
            numpy.array([2.0, 9.0, 2.0, 5.0], numpy.float32),
        )
        assert keys.tolist() == [9.0, 5.0, 2.0, 2.0]
        assert places.tolist() == [1, 3, 0, 2]

    @pytest.mark.parametrize("size", [0, 1, 2, 7, 64])
    def test_associative_scan(self, size: int) -> None:
        x = numpy.arange(size, dtype=numpy.float64).reshape(1, size)
        (found,) = run(lambda v: hlo.associative_scan(v, 1, lambda a, b: a + b), x)
        assert found.tolist() == numpy.cumsum(x, axis=1).tolist()

    @pytest.mark.parametrize("shape", [(1, 1500, 1), (100, 20, 1), (3, 70, 2), (2, 17, 300), (5, 333, 2)])
    def test_associative_scan_in_tiles(self, monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...]) -> None:
        """Tiles hold rows or parts of one, and the last ones overlap those before; the order matters here."""
        monkeypatch.setattr(hlo.scan, "_TILE", 256)
        monkeypatch.setattr(hlo.scan, "_LANES", 16)

        def combine(a: hlo.Value, b: hlo.Value, c: hlo.Value, d: hlo.Value) -> list[hlo.Value]:
            """(a, b) then (c, d): the affine maps x → a·x + b composed."""
            return [a * c, b * c + d]

        rng = numpy.random.default_rng(0)
        a, b = (rng.integers(0, 1 << 32, shape, numpy.uint64) for _ in range(2))
        found = run(lambda v: hlo.associative_scan(v, 1, combine), a, b)
        wanted = [a.copy(), b.copy()]
        for i in range(1, shape[1]):
            wanted[1][:, i] += wanted[1][:, i - 1] * a[:, i]
            wanted[0][:, i] *= wanted[0][:, i - 1]
        assert all(map(numpy.array_equal, found, wanted))

    def test_gather_and_scatter_along_an_axis(self) -> None:
        x = numpy.arange(12.0).reshape(3, 4)
        indices = numpy.array([[0, 2, 2, 1], [1, 1, 0, 0]])
        (taken,) = run(lambda v: [hlo.take_along(v[0], v[1], 0)], x, indices)
        assert numpy.array_equal(taken, numpy.take_along_axis(x, indices, 0))
        (put,) = run(
            lambda v: [hlo.put_along(v[0], v[1], hlo.full((2, 4), 1.0, FLOAT64), 0, lambda a, b: a + b)],
            x,
            indices,
        )
        wanted = torch.from_numpy(x).scatter_add(
            0, torch.from_numpy(indices), torch.ones(2, 4, dtype=torch.float64)
        )
        assert numpy.array_equal(put, wanted.numpy())


@pytest.mark.parametrize("axes", [(0, 1, 2, 3), (0, 2, 3), (1, 2), (0, 3), (2,), ()])
def test_sums_over_several_axes_do_not_add_up_rounding_errors(axes: tuple[int, ...]) -> None:
    """A row of n additions of the same number is wrong by n half ULPs."""
    x = numpy.full((30, 3, 30, 29), 0.1, numpy.float32)
    (found,) = run(lambda v: [hlo.reduce_sum(v[0], axes)], x)
    wanted = x.astype(numpy.float64).sum(axis=axes)
    assert found.shape == wanted.shape
    assert numpy.abs(found / wanted - 1).max() < 3e-6


def test_sums_over_short_axes_do_not_add_up_rounding_errors() -> None:
    """XLA would join the axes and add all elements in one row. The operand is a product of slices."""
    x = numpy.full((2, 1, 10, 11, 12), 0.1, numpy.float32)

    def total(v: Any) -> Any:
        parts = [hlo.slice_(v[0], [i, 0, 0, 0, 0], [i + 1, 1, 10, 11, 12]) for i in range(2)]
        return [hlo.reduce_sum(parts[0] * parts[1], [0, 2, 3, 4])]

    (found,) = run(total, x)
    assert abs(found[0] / (numpy.float64(x[0, 0, 0, 0, 0]) ** 2 * 1320) - 1) < 3e-6


class TestSymbolicDimensions:
    """``?`` in the type, ``dynamic_*`` operations where they are needed, one module for all sizes."""

    @staticmethod
    def symbol() -> Any:
        exported = torch.export.export(
            torch.nn.ReLU(), (torch.ones(5, 3),), dynamic_shapes=({0: torch.export.Dim("n", min=2)},)
        )
        placeholder = next(iter(exported.graph.nodes))
        return placeholder.meta["val"].shape[0]

    def test_operations_choose_their_dynamic_form(self) -> None:
        n = self.symbol()

        def body(v: list[hlo.Value]) -> list[hlo.Value]:
            (x,) = v
            flat = hlo.reshape(x, (n * 3,))
            return [
                flat + 1.0,
                hlo.slice_axis(x, 0, 1, n),
                hlo.iota((n,), 0, INT64),
                hlo.pad_axis(x, 0.0, 1, 0, n),
            ]

        module = build(body, ((n, 3), FLOAT32))
        text = module.text()
        assert "tensor<?x3xf32>" in text
        for name in ("dynamic_reshape", "real_dynamic_slice", "dynamic_iota", "dynamic_pad"):
            assert f"stablehlo.{name}" in text
        from torchstone.runtime import refine

        portable = module.serialize(hlo.resolve_version("current"))
        for size in (2, 4):
            executable = get_engine().compile(refine(portable, [(size, 3)]))
            flat, tail, counted, padded = (
                b.to_numpy() for b in executable(numpy.ones((size, 3), numpy.float32))
            )
            assert flat.tolist() == [2.0] * (3 * size)
            assert tail.shape == (size - 1, 3)
            assert counted.tolist() == list(range(size))
            assert padded.shape == (size, 3 + size)

    def test_sums_over_axes_of_any_length(self) -> None:
        n = self.symbol()
        module = build(lambda v: [hlo.reduce_sum(v[0], [0, 1])], ((n, 30), FLOAT32))
        from torchstone.runtime import refine

        portable = module.serialize(hlo.resolve_version("current"))
        executable = get_engine().compile(refine(portable, [(40, 30)]))
        assert executable(numpy.ones((40, 30), numpy.float32))[0].to_numpy() == 1200

    def test_unknown_symbols_are_an_error(self) -> None:
        n = self.symbol()
        with pytest.raises(UnsupportedShape, match="cannot be computed from the inputs' shapes"):
            build(lambda v: [hlo.iota((n,), 0, INT64)], ((3,), FLOAT32))


class TestComposites:
    @staticmethod
    def body(v: list[hlo.Value]) -> list[hlo.Value]:
        def decomposition(x: hlo.Value) -> hlo.Value:
            return hlo.erf(x) * 2.0

        given = {"k": 1, "axes": [0, 1], "by": 1 - 2j}
        twice = [hlo.composite("torchstone.test", [v[0]], decomposition, given, 3)[0] for _ in range(2)]
        return [twice[0] + twice[1]]

    def test_name_version_attributes_and_one_decomposition(self) -> None:
        text = build(self.body, ((2, 2), FLOAT32)).text()
        assert text.count('stablehlo.composite "torchstone.test"') == 2
        assert "version = 3 : i32" in text
        assert "axes = [0, 1], by = [1.000000e+00, -2.000000e+00], k = 1" in text
        assert text.count("func.func private") == 1

    def test_old_targets_get_them_inlined(self) -> None:
        module = build(self.body, ((2, 2), FLOAT32))
        old, new = (module.serialize(hlo.resolve_version(v)) for v in ("minimum", "0.19.0"))
        assert "composite" not in text_of(old)
        assert "chlo" not in text_of(old)
        assert 'composite "torchstone.test"' in text_of(new)
        x = numpy.full((2, 2), 0.5, numpy.float32)
        results = [get_engine().compile(code)(x)[0].to_numpy() for code in (old, new)]
        assert numpy.allclose(results[0], results[1], rtol=1e-6)


class TestPortable:
    def test_named_versions(self) -> None:
        assert hlo.resolve_version("minimum") == "0.9.0"
        assert hlo.resolve_version("0.19.0") == "0.19.0"
        assert hlo.resolve_version("week_12") <= hlo.resolve_version("current")

    @pytest.mark.parametrize(
        ("text", "message"), [("soon", "is not a StableHLO version"), ("99.0.0", "cannot be written")]
    )
    def test_wrong_versions(self, text: str, message: str) -> None:
        with pytest.raises(ConfigError, match=message) as caught:
            hlo.resolve_version(text)
        assert "0.9.0" in str(caught.value)

    def test_locations_carry_the_source_line(self) -> None:
        def body(v: list[hlo.Value]) -> list[hlo.Value]:
            with hlo.location("twice", "model.py", 12):
                return [v[0] * 2.0]

        text = build(body, ((2,), FLOAT32)).text(debug_info=True)
        assert '"model.py":12' in text
        assert '"twice"' in text

    def test_foreign_bytes(self) -> None:
        with pytest.raises(VerificationError, match="not a portable StableHLO artifact"):
            text_of(b"not bytecode")


class TestRng:
    SEED = numpy.array([1, 2], dtype=numpy.uint64)

    def draw(self, stream: int, count: int, seed: Any = None) -> Any:
        return run(lambda v: [hlo.Rng(v[0], stream).uniform((count,))], self.SEED if seed is None else seed)[
            0
        ]

    def test_bits_are_splitmix64(self) -> None:
        """The published constants, computed independently in Python integers."""
        mask = 2**64 - 1

        def mix(z: int) -> int:
            z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & mask
            z = (z ^ (z >> 27)) * 0x94D049BB133111EB & mask
            return z ^ (z >> 31)

        golden, stream = 0x9E3779B97F4A7C15, (5 << 16) + 1
        key = mix(mix((1 + stream * golden) & mask) ^ 2)
        expected = [mix((key + (i + 1) * golden) & mask) for i in range(4)]
        (bits,) = run(lambda v: [hlo.Rng(v[0], 5).bits((4,))], self.SEED)
        assert bits.dtype == numpy.uint64
        assert bits.tolist() == expected

    def test_uniform_is_uniform(self) -> None:
        from scipy import stats

        sample = self.draw(0, 20_000)
        assert sample.min() >= 0
        assert sample.max() < 1
        assert stats.kstest(sample, "uniform").pvalue > 1e-3

    def test_normal_is_normal(self) -> None:
        from scipy import stats

        (sample,) = run(lambda v: [hlo.Rng(v[0], 0).normal((20_000,), FLOAT64)], self.SEED)
        assert stats.kstest(sample, "norm").pvalue > 1e-3

    def test_streams_and_seeds_are_independent(self) -> None:
        base = self.draw(0, 5_000)
        for other in (self.draw(1, 5_000), self.draw(0, 5_000, self.SEED + numpy.uint64(1))):
            assert abs(numpy.corrcoef(base, other)[0, 1]) < 0.05
        assert numpy.array_equal(base, self.draw(0, 5_000))

    def test_saved_state_goes_on(self) -> None:
        def body(v: list[hlo.Value]) -> list[hlo.Value]:
            rng = hlo.Rng(v[0], 7)
            rng.bits((3,))
            state = rng.state(40)
            return [state, rng.bits((3,)), hlo.Rng.restored(state).bits((3,))]

        state, went_on, restored = run(body, self.SEED)
        assert state.shape == (40,)
        assert state.dtype == numpy.uint8
        assert went_on.tolist() == restored.tolist()


def test_uint64_constants_above_int64() -> None:
    (found,) = run(lambda _: [hlo.full((2,), 2**64 - 3, UINT64)])
    assert found.tolist() == [2**64 - 3] * 2
