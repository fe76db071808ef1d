"""References against the NumPy implementations: every setup, every dtype, several kinds of input."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from stratified import stratified

import optest
from optest.backends.numpy_impl import IMPLEMENTATIONS, compute
from optest.core.case import BackendTarget, TestCase
from optest.core.reference import reference_outputs, rounded
from optest.core.verdict import judge
from optest.dotted import load_reference
from optest.generators import EdgeGenerator, Generator, HypothesisGenerator, RandomTensorGenerator
from optest.operators import OperatorDescriptor, operator_registry
from optest.operators.builtin import descriptors

DESCRIPTORS = list(descriptors())
SOURCES = Path(optest.__file__).parent


def cases(descriptor: OperatorDescriptor) -> Iterator[TestCase]:
    for setup in descriptor.setups:
        attributes = descriptor.complete_attributes(setup.attributes)
        for dtypes in descriptor.dtypes:
            yield TestCase(descriptor, dtypes, setup.shapes, attributes, BackendTarget("numpy"), None, 0)


@pytest.mark.sampled(9)
@pytest.mark.parametrize("descriptor", DESCRIPTORS, ids=lambda one: one.name)
@pytest.mark.parametrize("generator", [RandomTensorGenerator(), EdgeGenerator()], ids=["random", "edge"])
def test_both_agree(descriptor: OperatorDescriptor, generator: Generator) -> None:
    reference = load_reference(descriptor.reference)
    for case in cases(descriptor):
        inputs, _ = generator.generate(case, np.random.default_rng(int(case.id, 16)))
        wide = reference(inputs, case.attributes)
        found = compute(case.op, inputs, case.attributes, case.output_dtypes)
        assert [one.shape for one in wide] == list(case.output_shapes.values()), case.describe()
        for verdict in judge(case, found, rounded(case, wide), wide, partial(tuple, inputs)):
            assert verdict.passed, f"{case.describe()}: {verdict.summary()}"


SOME = stratified(DESCRIPTORS, 3, name=lambda one: one.name, stratum=lambda one: one.category)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("descriptor", SOME, ids=lambda one: one.name)
def test_both_agree_on_simple_values(descriptor: OperatorDescriptor) -> None:
    """Inputs from Hypothesis have many equal, tiny, huge or special values."""
    generator = HypothesisGenerator()
    some = stratified(
        list(cases(descriptor)), 11, name=lambda case: case.id, stratum=lambda case: case.dtypes
    )
    for case in some:
        inputs, _ = generator.generate(case, np.random.default_rng(int(case.id, 16)))
        wide = reference_outputs(case, inputs)
        found = compute(case.op, inputs, case.attributes, case.output_dtypes)
        for verdict in judge(case, found, rounded(case, wide), wide, partial(tuple, inputs)):
            assert verdict.passed, f"{case.describe()}: {verdict.summary()}"


@pytest.mark.parametrize("name", ["max_pool2d_with_indices", "adaptive_max_pool2d_with_indices"])
def test_windows_of_minus_infinity_have_a_place(name: str) -> None:
    """The index is that of the first element, not of the padding, although both are −inf."""
    attributes = {"output_size": 2} if name.startswith("adaptive") else {"kernel_size": 2, "padding": 1}
    descriptor = operator_registry.get(name)
    values = np.full((1, 1, 2, 2), -np.inf)
    complete = descriptor.complete_attributes(attributes)
    _, places = compute(name, (values,), complete, ("float64", "int64"))
    assert places.tolist() == [[[[0, 1], [2, 3]]]]
    _, wanted = load_reference(descriptor.reference)((values,), complete)
    assert wanted.tolist() == places.tolist()


@pytest.mark.parametrize("descriptor", DESCRIPTORS, ids=lambda one: one.name)
def test_inputs_are_left_alone(descriptor: OperatorDescriptor) -> None:
    """Neither implementation writes into its inputs."""
    case = next(cases(descriptor))
    inputs, _ = RandomTensorGenerator().generate(case, np.random.default_rng(7))
    before = [one.tobytes() for one in inputs]
    load_reference(descriptor.reference)(inputs, case.attributes)
    compute(case.op, inputs, case.attributes, case.output_dtypes)
    assert [one.tobytes() for one in inputs] == before


def test_every_operator_has_a_second_implementation() -> None:
    assert set(IMPLEMENTATIONS) == {one.name for one in DESCRIPTORS}


def imported(path: Path) -> set[str]:
    """Return the absolute names of all modules, and of names in them, that a file imports anywhere."""
    package = ("optest", *path.relative_to(SOURCES).parts[:-1])
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join((*base, *([node.module] if node.module else [])))
            found |= {module, *(f"{module}.{alias.name}" for alias in node.names)}
    return found


SECOND = sorted((SOURCES / "backends" / "numpy_impl").glob("*.py"))
FIRST = [
    *sorted((SOURCES / "operators" / "references").glob("*.py")),
    SOURCES / "operators" / "reference_impls.py",
]


@pytest.mark.parametrize("path", SECOND, ids=lambda path: path.stem)
def test_the_second_implementation_shares_nothing_with_the_references(path: Path) -> None:
    foreign = {"optest.operators", "optest.generators", "optest.dotted", "scipy"}
    assert not {name for name in imported(path) if name.startswith(tuple(foreign))}


@pytest.mark.parametrize("path", FIRST, ids=lambda path: path.stem)
def test_the_references_share_nothing_with_the_second_implementation(path: Path) -> None:
    allowed = ("optest.operators.references",)
    assert not {name for name in imported(path) if name.startswith("optest") and not name.startswith(allowed)}


def test_the_check_sees_imports() -> None:
    """Relative imports of every depth, and those inside functions, are found."""
    assert "optest.operators.references.gathered" in imported(SOURCES / "operators" / "reference_impls.py")
    assert "optest.core.roundoff.Rounding" in imported(SOURCES / "operators" / "builtin" / "build.py")
    assert "optest.backends.numpy_impl.common" in imported(SOURCES / "backends" / "numpy_impl" / "shape.py")
    assert "ml_dtypes.finfo" in imported(SOURCES / "operators" / "references" / "elementwise.py")
    assert "optest.core.dtypes" in imported(SOURCES / "generators" / "base.py")
