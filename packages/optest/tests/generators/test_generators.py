"""Generators: determinism, domains, special values, layouts, dotted paths."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optest.core.case import BackendTarget, TestCase
from optest.errors import UnknownName, UsageError
from optest.generators import (
    EdgeGenerator,
    HypothesisGenerator,
    RandomTensorGenerator,
    inputs_strategy,
    load_generator,
)
from optest.generators.base import inputs_of
from optest.generators.distributions import FINITE_SPECIALS, SPECIAL_FLOATS, draw, draw_indices, sprinkle
from optest.generators.random import specials_for
from optest.operators import Domain, OperatorDescriptor, operator_registry

GENERATORS = [RandomTensorGenerator(), EdgeGenerator(), HypothesisGenerator()]
every_generator = pytest.mark.parametrize("generator", GENERATORS, ids=lambda one: type(one).__name__)


def case(name: str, *shapes: tuple[int, ...], dtype: str = "float32", **attributes: Any) -> TestCase:
    descriptor = operator_registry.get(name)
    dtypes = descriptor.match_dtypes([dtype])[0]
    return case_of(descriptor, dtypes, *shapes, **attributes)


def case_of(
    descriptor: OperatorDescriptor, dtypes: tuple[str, ...], *shapes: tuple[int, ...], **attributes: Any
) -> TestCase:
    named = dict(zip(descriptor.inputs, shapes, strict=True))
    complete = descriptor.complete_attributes(attributes)
    return TestCase(descriptor, dtypes, named, complete, BackendTarget("stub"), None, 0)


def generate(generator: Any, one: TestCase, seed: int = 0) -> tuple[np.ndarray, ...]:
    inputs, expected = generator.generate(one, np.random.default_rng(seed))
    assert expected is None
    assert tuple(each.dtype.name for each in inputs) == one.dtypes
    assert [each.shape for each in inputs] == list(one.shapes.values())
    return inputs


SAMPLES = [
    case("add", (8, 5), (5,)),
    case("add", (40,), (40,), dtype="uint8"),
    case("relu", (), dtype="bfloat16"),
    case("log", (0, 3), dtype="float64"),
    case("matmul", (3, 4), (4, 2), dtype="complex64"),
    case("gather", (4, 5), (3, 5), dim=0),
    case("scatter", (4, 9), (4, 6), (4, 6), dim=1),
    case("index_put", (9, 33), (9, 1), (20,), (9, 1)),
    case("where", (4, 5), (4, 5), (4, 5), dtype="bool"),
    case("searchsorted", (9,), (4, 3)),
    case("topk", (4, 17), k=3, dtype="uint8"),
    case("flatten", (4, 5), dtype="float8_e4m3fn"),
    case("fft", (4, 6), dtype="complex128"),
]


@every_generator
@pytest.mark.parametrize("sample", SAMPLES, ids=TestCase.describe)
def test_the_seed_decides_everything(generator: Any, sample: TestCase) -> None:
    first, again, other = (generate(generator, sample, seed) for seed in (5, 5, 6))
    assert [one.tobytes() for one in first] == [one.tobytes() for one in again]
    if sum(one.size for one in first) > 4 and not isinstance(generator, HypothesisGenerator):
        assert [one.tobytes() for one in first] != [one.tobytes() for one in other]


@every_generator
def test_indices_are_valid(generator: Any) -> None:
    for seed in range(8):
        _, index = generate(generator, case("gather", (4, 5), (3, 5), dim=0), seed)
        assert 0 <= index.min() <= index.max() < 4
        _, rows, columns = generate(generator, case("index", (4, 5, 6), (7,), (7,)), seed)
        assert -4 <= rows.min() <= rows.max() < 4
        assert -5 <= columns.min() <= columns.max() < 5


@every_generator
def test_scattered_places_are_distinct(generator: Any) -> None:
    for seed in range(8):
        _, index, _ = generate(generator, case("scatter", (4, 9), (4, 6), (4, 6), dim=1), seed)
        assert all(len(set(row)) == 6 for row in index.tolist())
        _, rows, columns, _ = generate(generator, case("index_put", (9, 33), (9, 1), (20,), (9, 1)), seed)
        assert sorted(rows.ravel().tolist()) == list(range(9))
        assert len(set(columns.tolist())) == 20


@every_generator
def test_values_that_must_be_sorted_or_distinct(generator: Any) -> None:
    ordered, _ = generate(generator, case("searchsorted", (3, 9), (3, 2)))
    assert (np.diff(ordered, axis=-1) >= 0).all()
    (values,) = generate(generator, case("topk", (4, 17), k=3, dtype="bfloat16"))
    assert len(np.unique(values.astype(float))) == 68


@pytest.mark.parametrize("dtype", ["float16", "float64", "int8", "uint8", "int64"])
@pytest.mark.parametrize(
    ("domain", "holds"),
    [
        (Domain(low=-2, high=3), lambda x: (x >= -2) & (x <= 3)),
        (Domain(low=1), lambda x: x >= 1),
        (Domain(high=2), lambda x: x <= 2),
        (Domain(positive=True), lambda x: x > 0),
        (Domain(nonzero=True), lambda x: x != 0),
        (Domain(low=-1, high=1, integers=True, nonzero=True), lambda x: np.abs(x) == 1),
        (Domain(integers=True), lambda x: x == np.trunc(x)),
    ],
    ids=lambda value: repr(value) if isinstance(value, Domain) else "holds",
)
def test_domains(dtype: str, domain: Domain, holds: Any) -> None:
    values = draw((400,), dtype, domain, np.random.default_rng(3)).astype(np.longdouble)
    assert holds(values).all()
    assert len(np.unique(values)) > 1 or dtype == "uint8"


def test_simplex() -> None:
    values = draw((6, 5), "float64", Domain(simplex=True), np.random.default_rng(3))
    np.testing.assert_allclose(values.sum(axis=-1), 1)
    assert (values >= 0).all()


def test_distinct_along_an_axis() -> None:
    values = draw((6, 5), "int32", Domain(distinct=True, axis=0), np.random.default_rng(3))
    assert all(len(set(column)) == 6 for column in values.T.tolist())


def test_too_many_distinct_indices() -> None:
    with pytest.raises(ValueError, match="5 distinct indices cannot be drawn from 4"):
        draw_indices((5,), "int64", 4, np.random.default_rng(0), distinct=True)


def test_free_integers_wrap_when_added() -> None:
    """One in four integers comes from the whole range, so that saturating arithmetic is noticed."""
    left, right = generate(RandomTensorGenerator(), case("add", (200,), (200,), dtype="int8"))
    exact = left.astype(int) + right.astype(int)
    assert (exact != (left + right)).any()


def test_specials_where_an_operator_takes_them() -> None:
    (values,) = generate(RandomTensorGenerator(), case("exp", (64,)))
    assert np.isnan(values).sum() == 1
    assert np.isinf(values).sum() == 2
    assert np.signbit(values[values == 0]).any()
    (finite,) = generate(RandomTensorGenerator(), case("gelu", (64,)))
    assert np.isnan(finite).sum() == 1
    assert not np.isinf(finite).any()
    plain, *_ = generate(RandomTensorGenerator(), case("conv1d", (1, 1, 64), (1, 1, 2), (1,)))
    assert np.isfinite(plain).all()


def test_reductions_get_specials_now_and_then() -> None:
    sizes = range(20, 80)
    spoiled = sum(
        not np.isfinite(generate(RandomTensorGenerator(), case("sum", (n,)))[0]).all() for n in sizes
    )
    assert 0 < spoiled < len(sizes) / 2


def test_specials_leave_most_values_alone() -> None:
    values = np.ones(16, np.float32)
    sprinkle(values, np.float32(SPECIAL_FLOATS), np.random.default_rng(0))
    assert (values == 1).sum() == 12
    assert values[-1] != 1


def specials(name: str, *shapes: tuple[int, ...], **attributes: Any) -> list[tuple[float, ...]]:
    one = case(name, *shapes, **attributes)
    return [specials_for(one, each) for each in inputs_of(one)]


def test_formats_without_infinity_get_none() -> None:
    one = case("exp", (3,))
    narrow = replace(one, dtypes=("float8_e4m3fn",))
    for each, wanted in ((one, True), (narrow, False)):
        (found,) = (specials_for(each, values) for values in inputs_of(each))
        assert any(map(math.isinf, found)) is wanted
        assert any(map(math.isnan, found))


def test_specials_are_where_they_are_defined() -> None:
    """Elementwise functions and moves get all special values, sums get no infinities, others get none."""
    everything, finite = SPECIAL_FLOATS, FINITE_SPECIALS
    assert specials("exp", (3,)) == specials("flip", (3,), dims=[0]) == [everything]
    assert specials("mm", (2, 2), (2, 2)) == [finite, finite]
    assert specials("conv1d", (1, 1, 3), (1, 1, 2), (1,)) == [(), (), ()]
    assert specials("div", (3,), (3,)) == [everything, ()]
    assert specials("gather", (4, 5), (3, 5), dim=0) == [everything, ()]
    assert specials("add", (3,), (3,), dtype="int32") == [(), ()]


def test_some_cases_have_specials_in_the_same_places() -> None:
    """This way NaN meets NaN, and infinity meets infinity."""
    together = []
    for size in range(40, 60):
        left, right = generate(RandomTensorGenerator(), case("eq", (size,), (size,)))
        together.append(np.array_equal(np.isnan(left), np.isnan(right)))
    assert 5 <= sum(together) <= 15


def test_ties_are_equal_across_inputs_and_hard_to_round() -> None:
    left, right = generate(RandomTensorGenerator(), case("lt", (99,), (99,)))
    assert len(np.intersect1d(left, right)) >= 5
    assert (left * 3 == np.rint(left * 3)).sum() >= 80
    assert (left != np.rint(left)).any()
    whole, _ = generate(RandomTensorGenerator(), case("lt", (99,), (99,), dtype="int32"))
    assert set(whole.tolist()) == set(range(-3, 4))


def test_bounds_of_floats_leave_integers_free() -> None:
    (floats,) = generate(
        RandomTensorGenerator(), case_of(operator_registry.get("cast"), ("float32",), (200,), dtype="int8")
    )
    (integers,) = generate(
        RandomTensorGenerator(), case_of(operator_registry.get("cast"), ("int32",), (200,), dtype="int8")
    )
    assert 0 <= floats.min() <= floats.max() <= 100
    assert integers.min() < -1000 < 1000 < integers.max()


def test_wide_domains_have_values_of_many_bits() -> None:
    (values,) = generate(RandomTensorGenerator(), case("floor", (400,)))
    values = values[np.isfinite(values)]
    assert (np.abs(values) > 1024).any()
    assert (np.abs(values) < 4).any()


def test_edges_of_floats() -> None:
    (values,) = generate(EdgeGenerator(), case("exp", (40, 40)))
    info = np.finfo(np.float32)
    assert {info.max, info.min, info.smallest_subnormal, math.inf, -math.inf} <= set(values.ravel().tolist())
    assert np.isnan(values).any()
    assert np.signbit(values[values == 0]).any()


def test_edges_stay_in_the_domain() -> None:
    (values,) = generate(EdgeGenerator(), case("lp_pool2d", (1, 2, 9, 7), norm_type=2, kernel_size=2))
    assert not (values < 0).any()
    assert np.nanmax(values) == 4


def test_edges_of_integers() -> None:
    left, _ = generate(EdgeGenerator(), case("maximum", (20, 20), (20, 20), dtype="int16"))
    assert {-32768, 32767, 0} <= set(left.ravel().tolist())


def test_edges_repeat_indices() -> None:
    _, index, _ = generate(EdgeGenerator(), case("scatter_add", (33,), (20,), (20,), dim=0))
    assert set(index.tolist()) == {0, 32}


def test_edges_are_not_contiguous() -> None:
    layouts = [generate(EdgeGenerator(), case("exp", (6, 5)), seed)[0] for seed in range(12)]
    assert not any(one.flags.c_contiguous for one in layouts)
    assert {one.strides[-1] > 0 for one in layouts} == {True, False}


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_the_strategy_keeps_out_zeros(dtype: str) -> None:
    for seed in range(20):
        _, divisor = generate(HypothesisGenerator(), case("div", (9,), (9,), dtype=dtype), seed)
        assert (divisor != 0).all()
        assert (np.abs(divisor) <= 100).all()
    for seed in range(20):
        _, target = generate(HypothesisGenerator(), case("soft_margin_loss", (9,), (9,)), seed)
        assert (np.abs(target) == 1).all()


@settings(max_examples=20)
@given(st.data())
def test_the_strategy_respects_the_case(data: st.DataObject) -> None:
    sample = data.draw(st.sampled_from(SAMPLES))
    inputs = data.draw(inputs_strategy(sample))
    assert tuple(one.dtype.name for one in inputs) == sample.dtypes
    assert [one.shape for one in inputs] == list(sample.shapes.values())


def test_paths() -> None:
    assert isinstance(load_generator("optest.generators:EdgeGenerator"), EdgeGenerator)
    assert isinstance(load_generator("optest.generators.edge.EdgeGenerator"), EdgeGenerator)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("nothing", "does not name a generator"),
        ("optest.nowhere:Thing", "importing optest.nowhere raised ModuleNotFoundError"),
        ("math:pi", "has no method generate"),
    ],
)
def test_paths_that_lead_nowhere(path: str, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        load_generator(path)


def test_a_misspelt_generator_is_recognised() -> None:
    with pytest.raises(UnknownName, match="did you mean EdgeGenerator"):
        load_generator("optest.generators:EdgeGenerater")


def test_loaded_modules_decide_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hypothesis takes constants from the sources of loaded modules; the generator must not."""
    one, seeds = case("add", (9,), (9,)), range(30)
    before = [generate(HypothesisGenerator(), one, seed) for seed in seeds]
    source = tmp_path / "constants_of_a_user.py"
    source.write_text("".join(f"x{i} = {i * 12.5 + 0.375}\n" for i in range(40)))
    monkeypatch.setitem(sys.modules, source.stem, SimpleNamespace(__file__=str(source)))
    after = [generate(HypothesisGenerator(), one, seed) for seed in seeds]
    for left, right in zip(before, after, strict=True):
        assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(left, right, strict=True))
