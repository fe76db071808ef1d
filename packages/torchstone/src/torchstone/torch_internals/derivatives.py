"""PyTorch's derivative formulas, as the text from which PyTorch itself is generated.

PyTorch ships this text with its code generator. It is only shown to readers; nothing is computed from it.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

_ENTRY = re.compile(r"^- name: ([\w.]+)\((.*?)(?=^- name|\Z)", re.MULTILINE | re.DOTALL)
_FORMULA = re.compile(r"^ +([\w, ]+): (.+)$", re.MULTILINE)
_NO_FORMULA = ("non_differentiable", "not_implemented", "auto_")


@cache
def formulas() -> Mapping[str, Mapping[str, str]] | None:
    """Return, for each overload (``add.Tensor``, ``sinh``), its arguments and the formula of their gradient.

    Arguments that share a formula share a key. Returns None if this PyTorch does not ship the formulas.
    """
    found = importlib.util.find_spec("torchgen")
    places = [] if found is None else list(found.submodule_search_locations or ())
    files = [Path(place, "packaged", "autograd", "derivatives.yaml") for place in places]
    text = next((path.read_text("utf-8") for path in files if path.is_file()), None)
    return None if text is None else {name: _entry(body) for name, body in _ENTRY.findall(text)}


def _entry(body: str) -> dict[str, str]:
    schema, _, lines = body.partition("\n")
    arguments = set(re.findall(r"(\w+)(?:=[^,)]*)?[,)]", schema.rpartition(" -> ")[0]))
    made: dict[str, str] = {}
    for names, formula in _FORMULA.findall(lines):
        differentiable = [name for name in names.split(", ") if name in arguments]
        written = formula.strip(" \"'")
        if differentiable and not written.startswith(_NO_FORMULA):
            made.setdefault(", ".join(differentiable), written)
    return made
