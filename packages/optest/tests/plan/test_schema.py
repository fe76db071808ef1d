from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest
import yaml

from optest.core.tolerance import EXACT
from optest.plan.schema import CASE_FIELDS, PLAN_SCHEMA, TOLERANCE_FIELDS

SHIPPED_PLAN = Path(__file__).parents[1] / "artifacts/ascend_backend/optest_plan.yaml"


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(PLAN_SCHEMA)


def test_a_plan_of_the_guide_fits() -> None:
    jsonschema.validate(yaml.safe_load(SHIPPED_PLAN.read_text("utf-8")), PLAN_SCHEMA)


@pytest.mark.parametrize("shapes", [{"input0": []}, {"input0": [[], [2]]}, [[2], []], [{"input0": [2]}]])
def test_every_way_to_write_shapes_fits(shapes: object) -> None:
    jsonschema.validate({"cases": [{"op": "relu", "shapes": shapes}]}, PLAN_SCHEMA)


def test_every_field_is_described() -> None:
    described = {
        **CASE_FIELDS,
        **PLAN_SCHEMA["properties"],
        **PLAN_SCHEMA["properties"]["options"]["properties"],
    }
    missing = [name for name, one in described.items() if "description" not in one and name != "options"]
    assert missing == []


def test_it_has_the_fields_of_a_tolerance() -> None:
    assert set(TOLERANCE_FIELDS) == set(EXACT.__dataclass_fields__)
