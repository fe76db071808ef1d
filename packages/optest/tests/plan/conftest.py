from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from optest.errors import ShapeError
from optest.operators import AttributeSpec, OperatorDescriptor, Setup, operator_registry


def _broadcast(
    shapes: Mapping[str, tuple[int, ...]], attributes: Mapping[str, Any]
) -> dict[str, tuple[int, ...]]:
    try:
        return {"output0": np.broadcast_shapes(*shapes.values())}
    except ValueError:
        raise ShapeError(f"{list(shapes.values())} do not broadcast") from None


def _same(dtypes: tuple[str, ...], attributes: Mapping[str, Any]) -> tuple[str, ...]:
    return dtypes[:1]


OPERATORS = (
    OperatorDescriptor(
        "relu",
        "activation",
        ("input0",),
        ("output0",),
        (("float16",), ("float32",), ("int8",)),
        "nowhere:relu",
        _same,
        _broadcast,
        tags=frozenset({"differentiable"}),
        setups=(Setup({"input0": (2, 3)}), Setup({"input0": ()}, note="0-d")),
        aliases={"x": "input0"},
    ),
    OperatorDescriptor(
        "add",
        "elementwise",
        ("input0", "input1"),
        ("output0",),
        (("float16", "float16"), ("float32", "float32"), ("float32", "int32")),
        "nowhere:add",
        _same,
        _broadcast,
        attributes={
            "alpha": AttributeSpec(float, 1.0),
            "pads": AttributeSpec(list, ()),
            "mode": AttributeSpec(str, "up", choices=("up", "down")),
        },
        setups=(Setup({"input0": (2, 3), "input1": (3,)}),),
    ),
)


@pytest.fixture(autouse=True)
def operators(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit the registry to two operators, so that counts do not depend on the built-in ones."""
    monkeypatch.setattr(operator_registry, "_builtins", None)
    monkeypatch.setattr(operator_registry, "_descriptors", {one.name: one for one in OPERATORS})


@pytest.fixture
def plan_file(tmp_path: Path) -> Callable[..., Path]:
    def write(text: str, name: str = "plan.yaml") -> Path:
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(textwrap.dedent(text), encoding="utf-8")
        return file

    return write
