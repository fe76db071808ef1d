"""Where a case of one of PyTorch's databases comes from, and what its suite knows of it.

optest's own operators need none of this: their cases say everything in shapes and attributes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """What an entry of a database has by its own record: coverage asks for that, not for what was run.

    ``dtypes`` are those of PyTorch's CPU kernels, ``gradients`` those that have gradients.
    ``entries`` is how many entries the suite has for the CPU, so that a run of few is seen to be one.
    """

    dtypes: tuple[str, ...] = ()
    gradients: tuple[str, ...] = ()
    phases: tuple[str, ...] = ()
    entries: int = 0

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Declared:
        """The inverse of :func:`dataclasses.asdict`."""
        return cls(**{name: _frozen(value) for name, value in _known(cls, data).items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The place of a case in its suite.

    ``sample`` is its number there; ``group``, ``samples`` or ``untestable`` where the record stands
    for all samples of an entry. ``form`` says how it ran: native or composite, as the driver says, or
    the form in which the suite asks for it. ``overloads`` are those that eager PyTorch calls.
    ``among`` is how many samples the entry has, ``values`` shows the inputs of a failing case.
    """

    suite: str
    sample: int | str
    note: str = ""
    form: str = ""
    overloads: tuple[str, ...] = ()
    among: int = 0
    values: str = ""
    declared: Declared | None = None

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain dictionaries and lists."""
        return {name: _plain(value) for name, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Origin:
        """The inverse of :meth:`to_dict`; unknown keys are left out."""
        known = {name: _frozen(value) for name, value in _known(cls, data).items()}
        declared = known.get("declared")
        return cls(**{**known, "declared": None if declared is None else Declared.from_dict(declared)})

    def describe(self) -> str:
        """One line: ``sample 3 of opinfo (empty), native; calls aten.add.Tensor``."""
        what = f"sample {self.sample}" if isinstance(self.sample, int) else self.sample
        text = f"{what} of {self.suite}" + (f" ({self.note})" if self.note else "")
        text += f", {self.form}" if self.form else ""
        return text + (f"; calls {', '.join(self.overloads)}" if self.overloads else "")


def _known(cls: type[Any], data: Mapping[str, Any]) -> dict[str, Any]:
    return {one.name: data[one.name] for one in fields(cls) if one.name in data}


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    return list(value) if isinstance(value, tuple) else value
