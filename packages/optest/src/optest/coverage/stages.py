"""Maturity stages and readiness checklists as data: reads their file and checks it.

Not here: judging them (``progress``).
"""

from __future__ import annotations

import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from ..errors import PlanError
from ..plan.document import read_text
from .criteria import Rules
from .operators import Exclusion

FORMAT = 1
"""The version of the file format that this optest reads."""

Share = Annotated[float, Field(gt=0, le=1)]
Count = Annotated[int, Field(ge=1)]
EVIDENCE_ID = r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$"
"""The pattern of evidence ids; pages print them, so URLs with passwords must not match."""


class _Data(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Item(_Data):
    text: str = Field(min_length=1)
    device: bool = False


class Operators(_Item):
    """Requires operators that are right in each of ``phases`` × ``dtypes``."""

    needs: Literal["operators"]
    phases: tuple[str, ...] = Field(min_length=1)
    dtypes: tuple[str, ...] = ()
    at_least: Count | None = None
    share: Share | None = None
    names: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _one_measure(self) -> Operators:
        if [self.at_least is None, self.share is None, not self.names].count(False) != 1:
            raise ValueError("give one of at_least, share and names")
        return self


class Covered(_Item):
    """Requires operators that meet all five criteria."""

    needs: Literal["covered"]
    at_least: Count


class PassRate(_Item):
    """Requires a share of all cases to pass."""

    needs: Literal["pass_rate"]
    share: Share


class Recorded(_Item):
    """Requires operators that have results in each of ``phases``."""

    needs: Literal["recorded"]
    phases: tuple[str, ...] = Field(min_length=1)
    at_least: Count


class Reliable(_Item):
    """Requires that nothing crashes or hangs, and that repeated runs agree."""

    needs: Literal["reliable"]


class Attested(_Item):
    """Requires evidence with ``id`` in an evidence file."""

    needs: Literal["attested"]
    id: str = Field(pattern=EVIDENCE_ID)
    valid_days: Count


Item = Annotated[
    Operators | Covered | PassRate | Recorded | Reliable | Attested, Field(discriminator="needs")
]


class Stage(_Data):
    """A maturity stage; it is reached when its items and those of all stages before it are."""

    number: Count
    name: str
    summary: str
    item: tuple[Item, ...] = Field(min_length=1)


class Checklist(_Data):
    """A readiness checklist; checklists do not depend on each other."""

    name: str
    summary: str
    item: tuple[Item, ...] = Field(min_length=1)


class _Rules(_Data):
    major_dtypes: tuple[str, ...] = Rules.major_dtypes
    gradient_phases: tuple[str, ...] = Rules.gradient_phases
    edge_phases: tuple[str, ...] = Rules.edge_phases
    repeated_runs: Count = Rules.repeated_runs


class _Backend(_Data):
    device_kinds: tuple[str, ...] = ()


class Target(_Data):
    """The goal of the team: a stage, and operators by category."""

    stage: int = 1
    planned: dict[str, tuple[str, ...]] = Field(default_factory=dict)


class _Unsupported(_Data):
    operator: str
    reason: str = Field(min_length=1)


class StagePlan(_Data):
    """The content of a stages file."""

    format: Literal[1]
    rules: _Rules = _Rules()
    backend: _Backend = _Backend()
    target: Target = Target()
    unsupported: tuple[_Unsupported, ...] = ()
    stage: tuple[Stage, ...] = Field(min_length=1)
    checklist: tuple[Checklist, ...] = ()

    @model_validator(mode="after")
    def _in_order(self) -> StagePlan:
        numbers = [one.number for one in self.stage]
        if numbers != list(range(1, len(numbers) + 1)):
            raise ValueError(f"stages are numbered 1, 2, 3 and so on, in order; found {numbers}")
        if not 1 <= self.target.stage <= len(numbers):
            raise ValueError(f"target.stage is {self.target.stage}; there are stages 1 to {len(numbers)}")
        return self

    @property
    def criteria(self) -> Rules:
        """The rules in the form that the criteria take."""
        return Rules(**self.rules.model_dump())

    @property
    def exclusions(self) -> tuple[Exclusion, ...]:
        return tuple(Exclusion(one.operator, one.reason) for one in self.unsupported)


def load_stages(path: Path | None = None) -> StagePlan:
    """Return the stages in ``path``, or optest's own; raises :class:`PlanError` with the place of a mistake.

    A file without stages and checklists keeps optest's own and changes only rules, target and exclusions.
    """
    usual = tomllib.loads(files("optest.coverage").joinpath("data/stages.toml").read_text("utf-8"))
    if path is None:
        return StagePlan.model_validate(usual)
    data = read_toml(path)
    if isinstance(data.get("format"), int) and data["format"] > FORMAT:
        raise PlanError(
            "this file is for a newer optest", file=path, key="format", found=data["format"],
            allowed=f"up to {FORMAT}", hint="install the optest that it was written for",
        )  # fmt: skip
    if not data.keys() & {"stage", "checklist"}:
        data = {**usual, **data}
    try:
        return StagePlan.model_validate(data)
    except ValidationError as error:
        raise told(error, path) from error


def read_toml(path: Path) -> dict[str, Any]:
    """Return the TOML document in ``path``; raises :class:`PlanError`."""
    try:
        return tomllib.loads(read_text(path, "stages or evidence file"))
    except tomllib.TOMLDecodeError as error:
        raise PlanError(f"this is not TOML: {error}", file=path) from error


def told(error: ValidationError, path: Path) -> PlanError:
    """Return the first mistake that pydantic found as a :class:`PlanError`."""
    first = error.errors()[0]
    key = "".join(f"[{one}]" if isinstance(one, int) else f".{one}" for one in first["loc"])
    found = first["input"] if isinstance(first["input"], str | int | float | bool) else None
    return PlanError(first["msg"].removeprefix("Value error, "), file=path, key=key.lstrip("."), found=found)
