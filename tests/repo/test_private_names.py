"""Only ``torchstone.torch_internals`` uses PyTorch's private names."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "packages/torchstone/src/torchstone"
ROOM = "torch_internals"

PRIVATE_MODULES = ("torch.fx.experimental", "torch.ao.quantization.fx")
"""Parts of PyTorch that are private although their names have no underscore."""
OPERATORS = ("aten.", "prims.", "higher_order.", "torch.ops.")
"""Prefixes of operators' names, which are public even if they begin with an underscore."""
PRIVATE_ATTRIBUTES = frozenset({"py_kernels", "op_implementations_dict", "fake_impls"})

PYTHONS = frozenset({"_exit", "_fields", "_getframe", "_ParameterKind"})
"""Names of Python itself."""
ALLOWED = {
    "gaps/readers.py": "names of classes in PyTorch's stub files, which are read as text",
    "gaps/stubs.py": "names of PyTorch's stub files, which are read as text",
    "compiler/operators/chunked_loss.py": "custom operators, which PyTorch registers under private names",
    "parity/inventory/calls/call.py": "methods of the modules that are called",
    "redirect/areas/graphs.py": "an attribute that a graph of PyTorch's has and ours must have",
    "runtime/imports.py": "the module in which PyTorch defines Tensor",
    "backend/compile.py": "an attribute by which AOTAutograd knows a function that takes a list",
}
"""Files that contain a private name for another reason than to use it, with that reason."""


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def own_names(trees: dict[Path, ast.Module]) -> set[str]:
    """Return the names that Torchstone's sources define: functions, classes, variables, attributes."""
    own: set[str] = set()
    for node in (node for tree in trees.values() for node in ast.walk(tree)):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                own.add(name)
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                own.add(name)
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name, ctx=ast.Store()):
                own.add(name)
    return own


def private_uses(tree: ast.Module, own: set[str]) -> Iterator[tuple[int, str]]:
    """Yield the line and the name of each use of PyTorch's private names in a file."""
    texts = {id(one.value) for one in ast.walk(tree) if isinstance(one, ast.Expr)}
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str(module), names=names, level=0):
                found = [f"{module}.{one.name}" for one in names]
            case ast.Import(names=names):
                found = [one.name for one in names]
            case ast.Attribute() if (name := dotted(node)).startswith(OPERATORS):
                continue
            case ast.Attribute() if (name := dotted(node)).startswith("torch."):
                found = [name]
            case ast.Attribute(attr=name) if is_private(name) and not (name in own or name in PYTHONS):
                found = [f"torch.?.{name}"]
            case ast.Attribute(attr=name) if name in PRIVATE_ATTRIBUTES:
                found = [f"torch.?._{name}"]
            case ast.Constant(value=str(text)) if id(node) not in texts and " " not in text:
                found = [text]
            case _:
                continue
        for name in found:
            parts = name.split(".")
            hidden = any(map(is_private, parts))
            if parts[0] == "torch" and (hidden or name.startswith(PRIVATE_MODULES)):
                yield node.lineno, name


def dotted(node: ast.expr) -> str:
    """Return a dotted name such as ``a.b.c`` as written, or an empty string for any other expression."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=name):
            return f"{owner}.{name}" if (owner := dotted(value)) else ""
    return ""


def parsed() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text("utf-8")) for path in sorted(SOURCES.rglob("*.py"))}


def test_private_names_are_used_in_one_room() -> None:
    trees = parsed()
    own = own_names(trees)
    outside = {
        path.relative_to(SOURCES).as_posix(): tree
        for path, tree in trees.items()
        if ROOM not in path.relative_to(SOURCES).parts
    }
    uses = {name: list(private_uses(tree, own)) for name, tree in outside.items()}
    found = [f"{name}:{line}: {used}" for name in uses if name not in ALLOWED for line, used in uses[name]]
    assert found == [], "reach for these through torchstone.torch_internals:\n" + "\n".join(found)
    stale = [name for name in ALLOWED if not uses.get(name)]
    assert stale == [], f"these need no exception any more: {stale}"


@pytest.mark.parametrize(
    "source",
    [
        "from torch._ops import OpOverload",
        "from torch.utils import _pytree",
        "import torch._dynamo",
        "from torch.fx.experimental.proxy_tensor import make_fx",
        "import torch\ntorch._C._any_requires_grad(x)",
        "overload._schema",
        "overload.py_kernels",
        "getattr(torch, 'x'); look_up('torch._dynamo.config')",
    ],
)
def test_a_private_name_is_found(source: str) -> None:
    assert list(private_uses(ast.parse(source), set()))


@pytest.mark.parametrize(
    "source",
    [
        "from torch.export import export",
        "import torch\ntorch.ops.aten._softmax.default",
        "self._own",
        '"""Talks of torch._dynamo."""',
        "sys._getframe()",
        "x.__class__",
    ],
)
def test_other_names_are_not(source: str) -> None:
    assert not list(private_uses(ast.parse(source), {"_own"}))
