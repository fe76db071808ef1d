"""Views of flat arrays as operations: which ones an engine must have."""

from __future__ import annotations

import pytest

from torchstone.device.layout import Layout, write
from torchstone.dtypes import FLOAT32
from torchstone.hlo.module import Argument, Module


@pytest.mark.parametrize(("elements", "updates"), [(1, 0), (2, 1)])
def test_a_number_that_is_its_whole_storage_replaces_it(elements: int, updates: int) -> None:
    module = Module("write")
    arguments = [Argument((elements,), FLOAT32, "storage"), Argument((), FLOAT32, "number")]
    module.build(arguments, lambda values: [write(values[0], Layout(FLOAT32, (), (), 0), values[1])])
    assert module.text().count("dynamic_update_slice") == updates
