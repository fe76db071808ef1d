"""Write a finding as a script that shows it by itself: few operators on few numbers, written out."""

from __future__ import annotations

import copy
import operator
import re
import textwrap
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.fx import GraphModule
from torch.fx.node import map_arg

from optest.torch.opinfo.shrinking import literal, smallest

from ..._version import __version__
from ...compiler.operators.tracing import mended_operators
from ...errors import TorchstoneError
from ...torch_internals.fake import FakeTensorMode
from ...torch_internals.operators import OpOverload
from .arbiter import Judge, Kind, asked, departs
from .findings import Finding, Report
from .values import Piece

Tensor = torch.Tensor

_SECONDS = 60.0
"""How long a search for smaller tensors may take."""

_OPERATORS = '''\
"""{told}

Exits with 1 while the values depart, and with 0 when they do not.
"""

import sys
{imports}
import torch
from optest.core.comparator import compare

from torchstone.compiler.graphs import to_numpy

INPUTS = (
{inputs})


{program}


def run(engine):
    torch._dynamo.reset()
    options = {{"engine": engine, "fallback": False}}
    compiled = torch.compile(program, backend="torchstone", fullgraph=True, dynamic=False, options=options)
    return compiled(*INPUTS)


departs = False
with torch.no_grad():
    expected = program(*INPUTS)
    for engine in {engines!r}:
        for place, (found, want) in enumerate(zip(run(engine), expected, strict=True)):
            result = compare(to_numpy(found), to_numpy(want){tolerance})
            print(f"{{engine}}, result {{place}} against eager PyTorch: {{result.describe()}}")
            departs |= engine == {engine!r} and not result.passed
sys.exit(departs)
'''

_MODEL = '''\
"""{told}

Starts itself twice, with the same seed and another order of sets. Exits with 1 while the module's results
differ between the two, and with 0 when they do not.
"""

import os
import subprocess
import sys

import torch

from torchstone.parity.bisect.repeats import module_results

if sys.argv[1:] == ["once"]:
    torch.set_printoptions(precision=17, threshold=sys.maxsize)
    print(module_results({model!r}, {module!r}, {seed}))
    sys.exit()
said = [
    subprocess.run(
        [sys.executable, __file__, "once"],
        env={{**os.environ, "PYTHONHASHSEED": order}},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for order in ("0", "1")
]
print(*said, sep="\\n")
sys.exit(said[0] != said[1])
'''


_WHOLE = '''\
"""{told}

Exits with 1 while a value of the model departs, and with 0 when none does.
"""

import sys

from torchstone.config import override
from torchstone.parity.bisect import bisect
from torchstone.parity.model import load_model

with override(engine={engine!r}):
    finding = bisect(load_model({model!r}), seed={seed}, fresh_process=False).finding
print(finding)
sys.exit(finding is not None)
'''


def script_of(report: Report, judge: Judge, seed: int) -> str:
    """Return a script for the report's finding, with the smallest tensors that still show it."""
    finding = report.finding
    assert finding is not None, "there is something to show"
    told = _told(finding, report)
    if finding.kind is Kind.NONDETERMINISM:
        return _of_module(told, finding, report.model, seed)
    if finding.piece is None or not _writable(finding.piece):
        return _WHOLE.format(told=told, engine=report.engine, model=report.model, seed=seed)
    return _of_piece(told, shrunk(finding, report.engine, judge), report.engine, finding, judge)


def shrunk(finding: Finding, engine: str, judge: Judge) -> Piece:
    """Return the finding's piece with the smallest tensors and simplest values that still show it."""
    assert finding.piece is not None
    piece, limit = finding.piece, time.monotonic() + _SECONDS
    places = [place for place, one in enumerate(piece.inputs) if isinstance(one, Tensor)]

    def with_tensors(tensors: Sequence[Tensor]) -> Piece:
        inputs = list(piece.inputs)
        for place, one in zip(places, tensors, strict=True):
            inputs[place] = one
        return replace(piece, module=_faked(piece.module, inputs), inputs=inputs)

    def still_shows(tensors: Sequence[Tensor]) -> bool:
        if time.monotonic() > limit:
            return False
        try:
            candidate = with_tensors(tensors)
        except (RuntimeError, ValueError, IndexError, TypeError, TorchstoneError):
            return False  # the operators do not accept operands of these sizes
        if not departs(candidate, engine, judge):
            return False
        said = {name: one for name, one in finding.engines.items() if one in ("right", "wrong")}
        return all(asked(candidate, name, judge) == one for name, one in said.items())

    return with_tensors(smallest([piece.inputs[place] for place in places], still_shows))


def _faked(module: GraphModule, inputs: Sequence[Any]) -> GraphModule:
    """Return ``module`` with PyTorch's metadata for new inputs; PyTorch raises if they do not fit."""
    made, feed = copy.deepcopy(module), iter(inputs)
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    for node in made.graph.nodes:
        if node.op == "placeholder":
            given = next(feed)
            node.meta["val"] = mode.from_tensor(given) if isinstance(given, Tensor) else given
        elif node.op == "call_function":
            args, kwargs = map_arg((node.args, dict(node.kwargs)), lambda one: one.meta["val"])
            with mended_operators(), mode:
                node.meta["val"] = node.target(*args, **kwargs)
    return made


def _writable(piece: Piece) -> bool:
    """Whether the piece consists only of operators on tensors, so that it can be written as a script."""
    return all(
        isinstance(node.target, OpOverload) or node.target is operator.getitem
        for node in piece.module.graph.nodes
        if node.op in ("call_function", "get_attr")
    )


def _told(finding: Finding, report: Report) -> str:
    where = ", ".join(
        f"{label} {text}"
        for label, text in (("line", finding.line), ("module", finding.module), ("graph", finding.road))
        if text
    )
    lines = [
        f"{finding.operator or finding.value}: {finding.kind} (the {finding.phase} phase of {report.model}).",
        "",
        f"Found by torchstone {__version__} on the engine {report.engine}: {where}.",
        f"Why: {finding.reason}.",
    ]
    text = "\n".join(textwrap.fill(line, 100) for line in lines)
    return text.replace("\\", "\\\\").replace('"""', "'''")


def _of_piece(told: str, piece: Piece, engine: str, finding: Finding, judge: Judge) -> str:
    code = piece.module.graph.python_code("self")
    program = re.sub(r";  [^\n]*", "", code.src).strip()
    program = re.sub(r"def forward\(self, ?", "def program(", program)
    known = {
        "device": "from torch import device",
        "inf": "from math import inf",
        "nan": "from math import nan",
    }
    imports = [line for name, line in known.items() if re.search(rf"\b{name}\b", program)]
    inputs = _inputs(piece.inputs)
    tolerance = "" if judge.tolerance is None else f", {judge.tolerance!r}"
    if tolerance:
        imports.append("from optest.core.tolerance import Tolerance")
    others = [name for name, said in finding.engines.items() if said in ("right", "wrong") and name != engine]
    return _OPERATORS.format(
        told=told,
        imports=_imported(inputs, imports),
        inputs=inputs,
        program=program,
        engine=engine,
        engines=(engine, *others),
        tolerance=tolerance,
    )


def _of_module(told: str, finding: Finding, model: str, seed: int) -> str:
    path = (finding.module or "").rpartition(" (")[0]
    return _MODEL.format(told=told, model=model, module=path, seed=seed)


def _inputs(inputs: Sequence[Any]) -> str:
    return "".join(
        f"    {literal(one) if isinstance(one, Tensor) else repr(one)},  # input{place}\n"
        for place, one in enumerate(inputs)
    )


def _imported(inputs: str, imports: Sequence[str]) -> str:
    extra = ["import base64"] if "base64" in inputs else []
    if re.search(r"\b(nan|inf)\b", inputs):
        extra.append("from math import inf, nan")
    return "".join(f"{line}\n" for line in dict.fromkeys([*extra, *imports]))
