"""A static scan for the places where PyTorch's own Python sources treat CUDA, MPS or the CPU differently."""

from __future__ import annotations

import ast
import importlib.util
import re
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from .surface import Api

DEVICES = ("cuda", "mps", "cpu")
_MODULES = {
    "torch.cuda": "cuda",
    "torch.backends.cuda": "cuda",
    "torch.backends.cudnn": "cuda",
    "torch.mps": "mps",
    "torch.backends.mps": "mps",
    "torch.cpu": "cpu",
    "torch.backends.cpu": "cpu",
}
_ATTRIBUTES = {f"is_{device}": device for device in DEVICES}
_TEXT = re.compile(rf"({'|'.join(DEVICES)})(:\d+)?")
_WORTH_PARSING = re.compile(rb"cuda|mps|[\"'.]cpu|is_cpu|cudnn")
_LEFT_OUT = ("testing", "utils/benchmark/examples")
"""Folders inside PyTorch's with tests and benchmarks, which are not scanned."""


@dataclass(frozen=True, slots=True, order=True)
class Branch:
    """One place that names a device; ``decides``: it is in a condition, not just a use of the module."""

    module: str
    line: int
    function: str
    """The enclosing function or method, such as ``Adam.step``; empty at module level."""
    device: str
    decides: bool


def scan_torch(modules: Container[str] | None = None, folder: Path | None = None) -> tuple[Branch, ...]:
    """Return every place in the installed PyTorch, or in the ``torch`` package at ``folder``.

    If ``modules`` is given, only those are read; reading all of PyTorch takes half a minute.
    """
    root = _installed() if folder is None else folder
    found: list[Branch] = []
    for path in sorted(root.rglob("*.py")):
        relative = path.relative_to(root)
        module = _module_of(relative)
        if relative.as_posix().startswith(_LEFT_OUT) or (modules is not None and module not in modules):
            continue
        content = path.read_bytes()
        if _WORTH_PARSING.search(content):
            found += scan_source(content, module)
    return tuple(found)


def scan_source(source: str | bytes, module: str) -> list[Branch]:
    """Return the places in one module's source; none if it is not Python (PyTorch ships templates, too)."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return []
    scanner = _Scanner(module)
    scanner.visit(tree)
    return sorted(set(scanner.found))


def counts(branches: Iterable[Branch]) -> dict[str, dict[str, int]]:
    """Return the number of conditions on each device, by module and then device."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for one in branches:
        if one.decides:
            found[one.module][one.device] += 1
    return {module: {device: found[module][device] for device in DEVICES} for module in sorted(found)}


class BranchIndex:
    """Finds the conditions inside an API's own source."""

    def __init__(self, branches: Iterable[Branch]) -> None:
        self._by_home: Mapping[str, list[Branch]] = defaultdict(list)
        for one in branches:
            if not one.decides:
                continue
            parts = one.function.split(".") if one.function else []
            for count in range(1, len(parts) + 1):
                self._by_home[".".join((one.module, *parts[:count]))].append(one)

    def of(self, api: Api, device: str) -> list[Branch]:
        """Return the conditions on ``device`` in the source of ``api``.

        For a class, those in its public methods are left out, because these methods are APIs of their own.
        """
        found = [one for one in self._by_home.get(api.home, ()) if one.device == device]
        if api.kind != "class":
            return found
        start = len(api.home.removeprefix(f"{found[0].module}.")) + 1 if found else 0
        return [one for one in found if one.function[start:].startswith("_")]


def _installed() -> Path:
    specification = importlib.util.find_spec("torch")
    assert specification is not None
    assert specification.origin is not None
    return Path(specification.origin).parent


def _module_of(relative: Path) -> str:
    parts = ["torch", *relative.with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


class _Scanner(ast.NodeVisitor):
    """Collects the uses of devices, with the enclosing function and whether they are in a condition."""

    def __init__(self, module: str) -> None:
        self.found: list[Branch] = []
        self._module = module
        self._names: list[str] = []
        self._deciding = False

    def _note(self, node: ast.expr, device: str) -> None:
        self.found.append(Branch(self._module, node.lineno, ".".join(self._names), device, self._deciding))

    def _named(self, node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._names.append(node.name)
        self.generic_visit(node)
        self._names.pop()

    visit_ClassDef = visit_FunctionDef = visit_AsyncFunctionDef = _named

    def _condition(self, *tests: ast.AST) -> None:
        before, self._deciding = self._deciding, True
        for test in tests:
            self.visit(test)
        self._deciding = before

    def _branching(self, node: ast.If | ast.IfExp | ast.While | ast.Assert) -> None:
        self._condition(node.test)
        for name, value in ast.iter_fields(node):
            if name != "test":
                for child in value if isinstance(value, list) else [value]:
                    if isinstance(child, ast.AST):
                        self.visit(child)

    visit_If = visit_IfExp = visit_While = visit_Assert = _branching

    def visit_comprehension(self, node: ast.comprehension) -> None:
        self.visit(node.iter)
        self._condition(*node.ifs)

    def visit_Compare(self, node: ast.Compare) -> None:
        before, self._deciding = self._deciding, True
        self.generic_visit(node)
        self._deciding = before

    def visit_match_case(self, node: ast.match_case) -> None:
        self._condition(node.pattern)
        for statement in node.body:
            self.visit(statement)

    def visit_Constant(self, node: ast.Constant) -> None:
        if self._deciding and isinstance(node.value, str) and (found := _TEXT.fullmatch(node.value)):
            self._note(node, found[1])

    def visit_Attribute(self, node: ast.Attribute) -> None:
        device = _ATTRIBUTES.get(node.attr) or _MODULES.get(_dotted(node))
        if device is not None:
            self._note(node, device)
        self.generic_visit(node)


def _dotted(node: ast.expr) -> str:
    """Return the text of a dotted name such as ``a.b.c``; empty for any other expression."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""
