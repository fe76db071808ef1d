"""Only ``optest.torch.internals`` uses PyTorch's private names in optest."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from optest.errors import BackendError
from optest.torch.internals import internal

SOURCES = Path(__file__).parents[2] / "packages/optest/src/optest"
ROOM = SOURCES / "torch/internals.py"
_PATH = re.compile(r"torch(\.\w+)*[.:]_[a-zA-Z]\w*[\w.:]*")


def private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def names_of(tree: ast.AST) -> Iterator[str]:
    """Yield the private names that a module defines: functions, classes, attributes that it sets."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value  # __slots__, object.__setattr__


def uses(tree: ast.AST, own: set[str]) -> Iterator[tuple[int, str]]:
    """Yield each use of PyTorch's private names in a module: imported, looked up, or in a dotted path."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").startswith("torch"):
            for one in node.names:
                if any(map(private, [*(node.module or "").split("."), one.name])):
                    yield node.lineno, f"{node.module}.{one.name}"
        elif isinstance(node, ast.Import):
            for one in node.names:
                if one.name.startswith("torch") and any(map(private, one.name.split("."))):
                    yield node.lineno, one.name
        elif isinstance(node, ast.Attribute) and private(node.attr) and node.attr not in own:
            yield node.lineno, ast.unparse(node)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _PATH.fullmatch(node.value):
            yield node.lineno, node.value


def torch_modules() -> list[Path]:
    return [file for file in sorted((SOURCES / "torch").rglob("*.py")) if file != ROOM]


def test_private_names_of_torch_are_in_one_module() -> None:
    trees = {file: ast.parse(file.read_text("utf-8")) for file in torch_modules()}
    own = {name for tree in trees.values() for name in names_of(tree)}
    found = [
        f"{file.relative_to(SOURCES)}:{line}: {name}"
        for file, tree in trees.items()
        for line, name in uses(tree, own)
    ]
    assert not found, "reach them through optest.torch.internals"


WAYS = """
from torch._dynamo.exc import Unsupported
from torch.utils import _pytree as pytree
import torch.testing._internal.hop_db
x = torch._C.name
x = tensor._is_zerotensor()
x = internal('torch._dynamo.utils:counters', '')
"""


@pytest.mark.parametrize("line", WAYS.strip().splitlines())
def test_the_scan_sees_every_way_to_reach_one(line: str) -> None:
    assert list(uses(ast.parse(line), set()))


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("torch._no_such_module:name", "torch._no_such_module.name"),
        ("torch.utils._pytree:no_such", "torch.utils._pytree.no_such"),
    ],
)
def test_a_name_that_is_missing_is_told(path: str, named: str) -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(BackendError) as caught:
        internal(path, "the thing that was asked for")
    assert caught.value.message.startswith(
        f"PyTorch {torch.__version__} has no {named}, which the thing that was asked for needs: "
    )
