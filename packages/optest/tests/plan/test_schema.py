from __future__ import annotations

import jsonschema
import pytest
import yaml

from optest.core.tolerance import EXACT
from optest.plan.schema import CASE_FIELDS, PLAN_SCHEMA, TOLERANCE_FIELDS

SEED_PLAN = """
cases:
  - op: relu
    shapes:
      input0: [8, 2048]
      output0: [8, 2048]
    backend_config:
      ascend:
        workdir: /path/to/add_custom
        command: ["bash", "run.sh", "-r", "cpu", "-v", "Ascend910B"]
        inputs:
          - tensor: input0
            path: input/input_x.bin
            dtype: float16
        outputs:
          - tensor: output0
            path: output/output_z.bin
            dtype: float16
"""


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(PLAN_SCHEMA)


def test_a_plan_of_the_guide_fits() -> None:
    jsonschema.validate(yaml.safe_load(SEED_PLAN), PLAN_SCHEMA)


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
