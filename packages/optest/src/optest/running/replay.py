"""Writes a self-contained script that shows one failure: it needs no plan and no generator."""

from __future__ import annotations

import base64
import os
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .._version import __version__
from ..core.dtypes import kind_of
from ..core.result import CaseResult, Status
from ..errors import ReportError
from ..files import write_whole
from ..plugins import VARIABLE
from ..reporting.diagnostics import title
from ..running.shrink import Shrunk, shrink
from ..text import writable

if TYPE_CHECKING:
    from ..backends.driver import BackendDriver
    from ..core.case import TestCase

_WRITTEN_OUT = 256
"""The largest number of elements of an input that is written out as numbers."""

_ENDINGS = {
    Status.CRASHED: "Crashes this process while it fails, and exits with 0 when it passes.",
    Status.TIMED_OUT: "Hangs while it fails, and exits with 0 when it passes.",
}

_SCRIPT = '''\
"""{headline}

{told}
{ending}
"""

import os
import sys
{first}
{imports}from optest import bootstrap
from optest.backends import backend_manager
from optest.reporting.diagnostics import details

INPUTS = (
{inputs})

os.environ.setdefault({variable!r}, {plugins!r})
bootstrap()
driver = backend_manager.select({driver!r}, {chip!r})
{task}
driver.setup()
result = {run}
print(result.status)
for label, text in details(result):
    print(f"{{label}}: {{text}}")
driver.teardown()
sys.exit(result.status.failed)
'''


_TASK = """\
case = TestCase(
    operator_registry.get({op!r}),
    dtypes={dtypes!r},
    shapes={shapes!r},
    attributes={attributes},
    backend=BackendTarget({kind!r}, {driver!r}, {chip!r}),
    tolerance={tolerance!r},
    seed={seed!r},
    phase={phase!r},
    generator={generator!r},
    reference={reference!r},
    backend_config={config!r},
)"""
_IMPORTS = """\
import ml_dtypes  # gives NumPy the narrow dtypes
import numpy as np

from optest.core.case import BackendTarget, TestCase
from optest.core.tolerance import Tolerance
from optest.operators import operator_registry
from optest.running.execution import run_case
"""


def write_script(case: TestCase, driver: BackendDriver, file: Path) -> TestCase:
    """Shrink ``case``, which must fail on ``driver``, and write a script that runs the shrunk case.

    Returns the shrunk case. Raises :class:`UsageError` if ``case`` does not fail, and
    :class:`ReportError` if ``file`` cannot be written.
    """
    shrunk = shrink(case, driver)
    write(script(shrunk, case, driver), file)
    return shrunk.case


def write(text: str, file: Path) -> None:
    """Write a script; raises :class:`ReportError` if that cannot be done."""
    try:
        write_whole(file, writable(text).encode())
    except OSError as error:
        raise ReportError(f"the script {file} cannot be written: {error.strerror}") from error


def script(shrunk: Shrunk, original: TestCase, driver: BackendDriver) -> str:
    """Return the text of a script that runs ``shrunk`` on the driver with the name of ``driver``."""
    case = shrunk.case
    inputs = dict(zip(case.descriptor.inputs, map(_literal, shrunk.inputs), strict=True))
    attributes = repr(dict(case.attributes))
    task = _TASK.format(
        driver=driver.name,
        kind=driver.kind,
        chip=case.backend.chip,
        op=case.op,
        dtypes=case.dtypes,
        shapes=dict(case.shapes),
        attributes=attributes,
        tolerance=case.tolerance,
        seed=case.seed,
        phase=case.phase,
        generator=case.generator,
        reference=case.reference,
        config=dict(case.backend_config),
    )
    origin = f"{original.describe()} ({original.id})"
    return assembled(
        shrunk.result, driver, origin, imports=_IMPORTS, inputs=inputs, task=task,
        run="run_case(driver, case, INPUTS)",
    )  # fmt: skip


def assembled(
    result: CaseResult,
    driver: BackendDriver,
    origin: str,
    *,
    imports: str,
    inputs: Mapping[str, str],
    task: str,
    run: str,
) -> str:
    """Return a script that shows ``result``, which was shrunk from ``origin``.

    ``inputs`` are expressions by name, ``task`` is a text of statements, and ``run`` is the expression for
    the record.
    """
    told = f"{result.status}: {result.reason}\nShrunk by optest {__version__} from {origin}."
    body = "".join(f"    {one},  # {name}\n" for name, one in inputs.items())
    first = "import base64\n" if "base64" in body else ""
    if any(word in body + task for word in ("nan", "inf")):
        first += "from math import inf, nan\n"
    return _SCRIPT.format(
        headline=_safe(f"{title(result)} on {driver.name}."),
        ending=_ENDINGS.get(result.status, "Exits with 1 while it fails and with 0 when it passes."),
        told=_safe("\n".join(textwrap.fill(line, 100) for line in told.splitlines())),
        first=first,
        imports=imports,
        inputs=body,
        variable=VARIABLE,
        plugins=os.environ.get(VARIABLE, ""),
        driver=driver.name,
        chip=result.backend["chip"],
        task=task,
        run=run,
    )


def _literal(array: NDArray[Any]) -> str:
    """Return an expression for ``array``, exact in every bit except the payloads of NaNs."""
    end = f".reshape({array.shape!r})"
    kind = kind_of(array.dtype)
    if array.size <= _WRITTEN_OUT and kind != "complex":
        wide = {"float": np.float64, "int": object, "bool": bool}[kind]
        return f"np.array({array.astype(wide).ravel().tolist()!r}, {array.dtype.name!r}){end}"
    data = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
    return f"np.frombuffer(base64.b64decode({data!r}), {array.dtype.name!r}){end}.copy()"


def _safe(text: str) -> str:
    """Return ``text`` escaped for use in a docstring."""
    return text.replace("\\", "\\\\").replace('"""', "'''")
