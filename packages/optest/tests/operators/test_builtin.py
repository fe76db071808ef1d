"""The built-in table as a whole: how much there is, and that each entry is consistent in itself."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from optest.core.case import BackendTarget, TestCase
from optest.errors import AttributeMismatch, ShapeError
from optest.generators import RandomTensorGenerator
from optest.operators import OperatorDescriptor, operator_registry
from optest.operators.builtin import descriptors

DESCRIPTORS = list(descriptors())
by_operator = pytest.mark.parametrize("descriptor", DESCRIPTORS, ids=lambda one: one.name)


def test_there_are_enough_operators() -> None:
    assert len({one.name for one in DESCRIPTORS}) == len(DESCRIPTORS) >= 120


def test_every_category_is_there() -> None:
    wanted = """elementwise comparison reduction gemm convolution pooling activation normalization softmax
    indexing sorting shape padding scan losses attention embedding fft resize"""
    assert {one.category for one in DESCRIPTORS} == set(wanted.split())


def test_the_registry_has_them() -> None:
    assert {one.name for one in DESCRIPTORS} <= set(operator_registry.names())


@by_operator
def test_descriptor(descriptor: OperatorDescriptor) -> None:
    assert descriptor.doc.endswith(".")
    assert descriptor.reference == f"optest.operators.reference_impls:{descriptor.name}_reference"
    assert sum(tag.startswith("torch:torch.") for tag in descriptor.tags) == 1
    assert len(set(descriptor.dtypes)) == len(descriptor.dtypes) > 0
    assert all(spec.doc for spec in descriptor.attributes.values())
    assert set(descriptor.domain) <= set(descriptor.inputs)


@by_operator
def test_setups(descriptor: OperatorDescriptor) -> None:
    """Each operator has at least eight: all different, JSON-safe, and valid by the operator's own rules."""
    setups = [(one.shapes, descriptor.complete_attributes(one.attributes)) for one in descriptor.setups]
    texts = {json.dumps(one, sort_keys=True, allow_nan=False) for one in setups}
    assert len(texts) == len(setups) >= 8
    for shapes, attributes in setups:
        assert set(shapes) == set(descriptor.inputs)
        assert set(descriptor.check_shapes(shapes, attributes)) == set(descriptor.outputs)


@by_operator
def test_edge_shapes(descriptor: OperatorDescriptor) -> None:
    """Every operator has a setup without elements, or its smallest possible one, and says so."""
    notes = [one.note for one in descriptor.setups]
    assert any(edge in note for note in notes for edge in ("empty", "0-d", "size 1"))
    sizes = [math.prod(shape) for one in descriptor.setups for shape in one.shapes.values()]
    assert min(sizes) <= 1 < max(sizes)


def test_the_size_of_the_suite() -> None:
    """Operators × their dtypes × their setups."""
    counts = {one.name: len(one.dtypes) * len(one.setups) for one in DESCRIPTORS}
    assert len(counts) >= 240
    assert sum(counts.values()) >= 14_000
    assert all(count >= 8 * len(one.dtypes) for one, count in zip(DESCRIPTORS, counts.values(), strict=True))


FIXED = {
    # Only True defines the order of equal elements.
    "sort": ("stable",),
    "argsort": ("stable",),
}


@by_operator
def test_every_attribute_varies(descriptor: OperatorDescriptor) -> None:
    """Each attribute that has a choice takes different values in some setups."""
    for name, spec in descriptor.attributes.items():
        if len(spec.choices) == 1:
            continue
        seen = {repr(descriptor.complete_attributes(one.attributes)[name]) for one in descriptor.setups}
        assert len(seen) > 1 or name in FIXED.get(descriptor.name, ()), name


@pytest.mark.parametrize("note", ["empty", "0-d", "size 1", "broadcast"])
def test_edge_shapes_are_common(note: str) -> None:
    having = [one.name for one in DESCRIPTORS if any(note in setup.note for setup in one.setups)]
    assert len(having) >= 30, having


@by_operator
def test_cases_make_inputs(descriptor: OperatorDescriptor) -> None:
    """The generator makes inputs with the right shapes and dtypes for every setup and dtype tuple."""
    for setup in descriptor.setups:
        attributes = descriptor.complete_attributes(setup.attributes)
        for dtypes in descriptor.dtypes:
            case = TestCase(descriptor, dtypes, setup.shapes, attributes, BackendTarget("stub"), None, 0)
            inputs, expected = RandomTensorGenerator().generate(case, np.random.default_rng(1))
            assert expected is None
            assert [one.shape for one in inputs] == list(setup.shapes.values())
            assert tuple(one.dtype.name for one in inputs) == dtypes


IMPOSSIBLE = [
    ("add", [(2, 3), (4,)], {}, "broadcast"),
    ("amax", [(0, 3)], {}, "nothing to choose from"),
    ("sum", [(2, 3)], {"dim": 2}, "outside"),
    ("sum", [(2, 3)], {"dim": [0, -2]}, "twice"),
    ("matmul", [(2, 3), (4, 2)], {}, "3 columns, 4 rows"),
    ("mm", [(2,), (2, 3)], {}, "takes 2"),
    ("bmm", [(2, 3, 4), (3, 4, 5)], {}, "one size"),
    ("addmm", [(3, 2), (2, 4), (4, 2)], {}, "broadcast"),
    ("linear", [(2, 3), (4, 3), (5,)], {}, "bias"),
    ("conv2d", [(1, 3, 4, 4), (2, 2, 3, 3), (2,)], {}, "groups"),
    ("conv2d", [(1, 2, 2, 2), (2, 2, 3, 3), (2,)], {}, "larger than"),
    ("conv_transpose1d", [(1, 2, 3), (2, 1, 3), (1,)], {"output_padding": 1}, "output_padding"),
    ("max_pool2d", [(1, 1, 4, 4)], {"kernel_size": 2, "padding": 2}, "half"),
    ("max_pool2d", [(4, 4)], {"kernel_size": 2}, "channels"),
    ("glu", [(3,)], {}, "odd"),
    ("prelu", [(2, 3), (2,)], {}, "weight"),
    ("batch_norm", [(2, 3), (2,), (3,), (3,), (3,)], {}, "per channel"),
    ("layer_norm", [(2, 3), (2,), (2,)], {"normalized_shape": [2]}, "end in"),
    ("group_norm", [(2, 5), (5,), (5,)], {"num_groups": 2}, "groups"),
    ("gather", [(2, 3), (3, 4)], {"dim": 0}, "larger"),
    ("scatter", [(2, 3), (2, 3), (1, 3)], {"dim": 0}, "source"),
    ("index_add", [(2, 3), (2,), (2, 2)], {"dim": 0}, "source"),
    ("topk", [(3,)], {"k": 4}, "k=4"),
    ("searchsorted", [(2, 3), (3, 3)], {}, "batch"),
    ("reshape", [(2, 3)], {"shape": [4, -1]}, "6 elements"),
    ("permute", [(2, 3)], {"dims": [0]}, "once"),
    ("cat", [(2, 3), (2, 4), (2, 3)], {}, "differ"),
    ("narrow", [(3,)], {"dim": 0, "start": 2, "length": 2}, "within"),
    ("unfold", [(3,)], {"dimension": 0, "size": 4, "step": 1}, "do not fit"),
    ("reflection_pad", [(1, 2, 3)], {"pad": [3, 0]}, "cannot add 3"),
    ("constant_pad", [(3,)], {"pad": [-2, -2]}, "more than there is"),
    ("diff", [()], {}, "scalar"),
    ("cross_entropy", [(2, 3), (3,)], {}, "classes"),
    ("mse_loss", [(2, 3), (3,)], {}, "equal"),
    ("scaled_dot_product_attention", [(2, 3), (2, 4), (2, 4)], {}, "features"),
    ("embedding_bag", [(2,), (3, 4)], {}, "matrices"),
    ("fft", [()], {}, "scalar"),
    ("irfft", [(1,)], {}, "at least"),
    ("interpolate_nearest", [(1, 1, 4)], {}, "one of size"),
    ("interpolate_linear", [(1, 1, 4)], {"size": 2, "mode": "bilinear"}, "linear"),
    ("grid_sample", [(1, 1, 2, 2), (1, 2, 2, 3)], {}, "grid"),
    ("pixel_shuffle", [(3, 2, 2)], {"upscale_factor": 2}, "multiple of 4"),
]


@pytest.mark.parametrize(("name", "shapes", "attributes", "text"), IMPOSSIBLE)
def test_impossible_shapes(name: str, shapes: list[tuple[int, ...]], attributes: dict, text: str) -> None:
    descriptor = operator_registry.get(name)
    complete = descriptor.complete_attributes(attributes)
    with pytest.raises(ShapeError, match=text):
        descriptor.check_shapes(dict(zip(descriptor.inputs, shapes, strict=True)), complete)


def test_clamp_needs_a_limit() -> None:
    descriptor = operator_registry.get("clamp")
    with pytest.raises(AttributeMismatch, match="min, max or both"):
        descriptor.check_shapes({"input0": (3,)}, descriptor.complete_attributes({}))
