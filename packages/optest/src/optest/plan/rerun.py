"""Makes the command that runs exactly one case again."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..core.case import TestCase


def rerun_command(case: TestCase, plan: Path | None = None) -> str:
    """Return a command line, quoted for a shell, that runs a case with the same id.

    Flags can express everything except full tolerances. A case with a tolerance or driver
    settings is named by its id and its ``plan``, if it has one.
    """
    backend = ["--backend", case.backend.name or case.backend.kind]
    if case.backend.chip:
        backend += ["--chip", case.backend.chip]
    if plan is not None and (case.backend_config or case.tolerance):
        return shlex.join(["optest", "replay", case.id, "--plan", str(plan), *backend])
    descriptor = case.descriptor
    words = ["optest", "run", "--op", case.op, "--dtype", ",".join(case.dtypes)]
    for name in descriptor.inputs:
        words += ["--shape", f"{name}={','.join(map(str, case.shapes[name]))}"]
    for name, value in case.attributes.items():
        spec = descriptor.attributes.get(name)
        if spec is None or spec.default != value:
            words += ["--attr", f"{name}={yaml_text(value)}"]
    for driver, settings in case.backend_config.items():
        words += ["--attr", f"backend_config.{driver}={yaml_text(settings)}"]
    if case.tolerance:
        words += ["--rtol", repr(case.tolerance.rtol), "--atol", repr(case.tolerance.atol)]
    for name, own in (("generator", descriptor.generator), ("reference", descriptor.reference)):
        if getattr(case, name) != own:
            words += [f"--{name}", getattr(case, name)]
    if case.phase != "forward":
        words += ["--phase", case.phase]
    return shlex.join([*words, "--seed", str(case.seed), *backend])


def yaml_text(value: Any) -> str:
    """Return ``value`` as one line of YAML that reads back as the same value."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{json.dumps(key)}: {yaml_text(one)}' for key, one in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(yaml_text, value))}]"
    if isinstance(value, float):
        if not math.isfinite(value):
            return ".nan" if math.isnan(value) else ".inf" if value > 0 else "-.inf"
        text = repr(value)
        return text if "." in text else text.replace("e", ".0e")  # YAML 1.1 requires the point
    return json.dumps(value, ensure_ascii=False)
