"""The origin of a case that comes from one of PyTorch's databases, with facts that its suite knows.

Cases of optest's own operators have no origin: their shapes and attributes say everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """What an entry of a database declares; coverage is measured against this, not against what was run.

    ``dtypes`` are those of PyTorch's CPU kernels, ``gradients`` the dtypes that have gradients. ``entries``
    is the number of entries that the suite has for the CPU, so that a partial run can be recognized.
    """

    dtypes: tuple[str, ...] = ()
    gradients: tuple[str, ...] = ()
    phases: tuple[str, ...] = ()
    entries: int = 0

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Declared:
        """Make an instance from a dictionary, the inverse of :func:`dataclasses.asdict`."""
        return cls(**{name: _frozen(value) for name, value in _known(cls, data).items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The place of a case in its suite.

    ``sample`` is its number there, or ``group``, ``samples`` or ``untestable`` if the record stands for all
    samples of an entry. ``form`` is the form in which it ran: native or composite, as the driver reports, or
    the form that the suite requests. ``overloads`` are those that eager PyTorch calls. ``among`` is the
    number of samples that the entry has, and ``values`` shows the inputs of a failing case.
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
        """Return the fields as plain dictionaries and lists."""
        return {name: _plain(value) for name, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Origin:
        """Make an instance from a dictionary of :meth:`to_dict`; unknown keys are ignored."""
        known = {name: _frozen(value) for name, value in _known(cls, data).items()}
        declared = known.get("declared")
        return cls(**{**known, "declared": None if declared is None else Declared.from_dict(declared)})

    def describe(self) -> str:
        """Return one line, such as ``sample 3 of opinfo (empty), native; calls aten.add.Tensor``."""
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
