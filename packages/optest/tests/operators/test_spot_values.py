"""Every reference, and every NumPy implementation, at points worked out by hand."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from optest.backends.numpy_impl import compute
from optest.dotted import load_reference
from optest.operators import operator_registry

TABLES = sorted(Path(__file__, "..", "spot_values").resolve().glob("*.toml"))
SPOTS: dict[str, list[dict[str, Any]]] = {}
for _table in TABLES:
    SPOTS |= tomllib.loads(_table.read_text("utf-8"))
POINTS = [
    pytest.param(name, point, id=f"{name}-{i}")
    for name, points in SPOTS.items()
    for i, point in enumerate(points)
]


def array(values: Any, dtype: str | None) -> np.ndarray:
    """Return an array of numbers; texts are read as complex numbers."""
    found = np.array(values)
    if found.dtype.kind == "U":
        found = np.vectorize(complex, otypes=[complex])(found)
    return found if dtype is None else found.astype(dtype)


def read(name: str, point: dict[str, Any]) -> tuple[tuple[np.ndarray, ...], dict[str, Any], tuple[str, ...]]:
    descriptor = operator_registry.get(name)
    dtypes = tuple(point.get("t", ["float64"] * len(descriptor.inputs)))
    inputs = tuple(array(values, dtype) for values, dtype in zip(point["x"], dtypes, strict=True))
    return inputs, descriptor.complete_attributes(point.get("a", {})), dtypes


def test_every_operator_has_a_point() -> None:
    assert set(SPOTS) == set(operator_registry.names())


@pytest.mark.parametrize(("name", "point"), POINTS)
def test_reference(name: str, point: dict[str, Any]) -> None:
    inputs, attributes, dtypes = read(name, point)
    descriptor = operator_registry.get(name)
    found = load_reference(descriptor.reference)(inputs, attributes)
    assert len(found) == len(point["y"])
    for got, want, dtype in zip(found, point["y"], descriptor.output_dtypes(dtypes, attributes), strict=True):
        np.testing.assert_allclose(got.astype(dtype), array(want, None), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(("name", "point"), POINTS)
def test_shape_rule(name: str, point: dict[str, Any]) -> None:
    inputs, attributes, _ = read(name, point)
    descriptor = operator_registry.get(name)
    shapes = {one: values.shape for one, values in zip(descriptor.inputs, inputs, strict=True)}
    found = descriptor.check_shapes(shapes, attributes)
    assert list(found.values()) == [np.shape(want) for want in point["y"]]


@pytest.mark.parametrize(("name", "point"), POINTS)
def test_numpy_implementation(name: str, point: dict[str, Any]) -> None:
    inputs, attributes, dtypes = read(name, point)
    wanted = operator_registry.get(name).output_dtypes(dtypes, attributes)
    for got, want, dtype in zip(compute(name, inputs, attributes, wanted), point["y"], wanted, strict=True):
        assert got.dtype == np.dtype(dtype)
        np.testing.assert_allclose(got, array(want, None), rtol=1e-9, atol=1e-12)
