"""A static scan for the uses of PyTorch in Python source, which neither imports torch nor runs anything.

Import aliases are resolved to dotted torch names, scope by scope: ``import torch as t``, ``from
torch.cuda.amp import autocast as ac``, ``nn = torch.nn``. For an object of unknown type (``x.cuda()``), only
the method's name is reported. :mod:`.explain` says what happens to these places in a run.
"""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from optest.files import read_whole

from ..errors import ScriptError


class SiteKind(StrEnum):
    """How a call site refers to what it uses."""

    IMPORT = "import"
    """``from torch.cuda import Stream``; ``name`` is the dotted torch name, ``torch.cuda.*`` for a star.
    An import of one of :data:`CUDA_PACKAGES` is of this kind, too."""
    CALL = "call"
    """``torch.cuda.synchronize()``; ``name`` is the dotted torch name."""
    REFERENCE = "reference"
    """A torch name that is read, assigned or subclassed; ``name`` is the dotted torch name."""
    METHOD = "method"
    """``x.cuda()``: a call on an object of unknown type; ``name`` is the method's name."""
    ATTRIBUTE = "attribute"
    """``x.is_cuda``: an attribute of an object of unknown type; ``name`` is the attribute's name."""
    DEVICE_TYPE = "device type"
    """``x.device.type == "cuda"``; ``name`` is the string."""
    STRING = "string"
    """``"cuda:0"``, ``f"cuda:{rank}"`` (``name`` is ``cuda:{}``), ``"nccl"``, ``"CUDA_VISIBLE_DEVICES"``."""


@dataclass(frozen=True, order=True)
class CallSite:
    """One use of PyTorch; ``line`` and ``column`` count from 1, columns in characters.

    ``call_line`` is the line that a traceback gives for the innermost call around the site, or the site's
    own line if there is no such call. For example, a string on the third line of a call has the call's first
    line.
    """

    path: str
    line: int
    column: int
    name: str
    kind: SiteKind
    call_line: int


_CUDA_TEXT = re.compile(
    r"(cuda|nccl)(:.*)?"  # a device or a backend
    r"|(\w+:\w+,)*cuda:nccl(,\w+:\w+)*"  # a backend for each device
    r"|torch\.cuda\.\w+Tensor"  # a legacy type
    r"|(PYTORCH_)?(CUDA|NCCL)_[A-Z0-9_]+",  # an environment variable
    re.DOTALL,
)
CUDA_PACKAGES = ("triton", "cupy", "pycuda", "pynvml", "numba.cuda")
"""Packages other than PyTorch that run only on an NVIDIA GPU."""
_CUDA_ATTRIBUTES = frozenset({"is_cuda"})


def scan_file(path: str | Path) -> list[CallSite]:
    """Return every use of PyTorch in one file, in source order.

    Raises :class:`~torchstone.errors.ScriptError` if the file cannot be read or is not Python.
    """
    try:
        content = read_whole(Path(path))
    except OSError as error:
        raise ScriptError(
            f"{path} cannot be read: {error.strerror or error}", hint="check the path of the script"
        ) from error
    return scan_source(content, str(path))


def scan_source(content: bytes | str, path: str = "<string>") -> list[CallSite]:
    """Return every use of PyTorch in a source text; ``path`` is the path that sites and errors give.

    Raises :class:`~torchstone.errors.ScriptError` if the text is not Python.
    """
    try:
        text = content if isinstance(content, str) else importlib.util.decode_source(content)
        tree = ast.parse(text, path)
    except SyntaxError as error:
        where = path if error.lineno is None else f"{path}, line {error.lineno},"
        raise ScriptError(
            f"{where} is not Python: {error.msg}",
            hint="correct the syntax error; the file was not run",
        ) from None
    except (ValueError, RecursionError) as error:  # undecodable, a null byte; nested too deeply to parse
        raise ScriptError(f"{path} is not Python: {error}", hint="give the path of a Python source") from None
    scanner = _Scanner(path, text)
    try:
        scanner.visit(tree)
    except RecursionError:
        raise ScriptError(
            f"{path} is nested too deeply to be scanned", hint="leave this file out of the scan"
        ) from None
    return sorted(scanner.sites)


def python_files(root: str | Path) -> list[Path]:
    """Return the Python files below a directory (or the file itself), sorted, without hidden directories."""
    root = Path(root)
    if root.is_file():
        return [root]
    found = (path for path in root.rglob("*.py") if path.is_file())
    return sorted(
        path for path in found if not any(part.startswith(".") for part in path.relative_to(root).parts)
    )


@dataclass
class _Scope:
    """The names that a module, class or function binds, each with its dotted torch name or None."""

    names: dict[str, str | None] = field(default_factory=dict)
    is_class: bool = False


class _Scanner(ast.NodeVisitor):
    """Walks a module and resolves names in the scopes that Python itself would use."""

    def __init__(self, path: str, text: str) -> None:
        self.sites: list[CallSite] = []
        self._path = path
        self._lines = text.split("\n")
        self._scopes: list[_Scope] = []
        self._call_line: int | None = None

    # Scopes

    @contextmanager
    def _scope(self, body: list[ast.stmt], names: set[str], is_class: bool = False) -> Iterator[None]:
        scope = _Scope(dict.fromkeys(names), is_class)
        self._scopes.append(scope)
        for statement in body:
            self._bind(statement, scope)
        try:
            yield
        finally:
            self._scopes.pop()

    def _bind(self, node: ast.AST, scope: _Scope) -> None:
        """Record the names that a statement binds in its scope; a torch name wins over any other binding."""
        match node:
            case ast.Import():
                for alias in node.names:
                    root = alias.name.partition(".")[0]
                    _note(scope, alias.asname or root, _of_torch(alias.name if alias.asname else root))
            case ast.ImportFrom():
                for alias in node.names:
                    name = None if node.level else _of_torch(f"{node.module}.{alias.name}")
                    _note(scope, alias.asname or alias.name, name)
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                _note(scope, name, self._dotted(value))
            case ast.Name(ctx=ast.Store()):
                _note(scope, node.id, None)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                _note(scope, node.name, None)
                return
            case ast.Lambda() | ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                return
            case ast.Global() | ast.Nonlocal():
                for name in node.names:
                    _note(scope, name, self._lookup(name))
        for child in ast.iter_child_nodes(node):
            self._bind(child, scope)

    def _lookup(self, name: str) -> str | None:
        for depth, scope in enumerate(reversed(self._scopes)):
            if name in scope.names and not (scope.is_class and depth):
                return scope.names[name]
        return None

    def _dotted(self, node: ast.AST) -> str | None:
        """Return the dotted torch name that an expression stands for, or None."""
        match node:
            case ast.Name():
                return self._lookup(node.id)
            case ast.Attribute():
                owner = self._dotted(node.value)
                return owner and f"{owner}.{node.attr}"
            case ast.Call(func=ast.Name(id="getattr"), args=[owner_node, ast.Constant(value=str(name)), *_]):
                owner = self._dotted(owner_node)
                return owner and f"{owner}.{name}"
        return None

    # Visits

    def visit_Module(self, node: ast.Module) -> None:
        with self._scope(node.body, set()):
            self._visit_all(node.body)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._visit_all([*node.decorator_list, *node.bases, *node.keywords])
        with self._scope(node.body, set(), is_class=True):
            self._visit_all(node.body)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._visit_all([*node.decorator_list, node.args, *([node.returns] if node.returns else [])])
        with self._outside_calls(), self._scope(node.body, _parameters(node.args)):
            self._visit_all(node.body)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self.visit_FunctionDef(node)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self.visit(node.args)
        with self._scope([], _parameters(node.args)):
            self.visit(node.body)

    def visit_ListComp(self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) -> None:
        with self._scope([], {name for part in node.generators for name in _names(part.target)}):
            self.generic_visit(node)

    visit_SetComp = visit_DictComp = visit_GeneratorExp = visit_ListComp

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._note_import(alias, alias.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if not node.level:
            for alias in node.names:
                self._note_import(alias, f"{node.module}.{alias.name}")

    def visit_Name(self, node: ast.Name) -> None:
        name = self._lookup(node.id) if isinstance(node.ctx, ast.Load) else None
        if name is not None:
            self._note(name, SiteKind.REFERENCE, node.lineno, node.col_offset)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        name = self._dotted(node)
        if name is not None:
            self._note(name, SiteKind.REFERENCE, node.lineno, node.col_offset)
            return
        if node.attr in _CUDA_ATTRIBUTES:
            self._note(node.attr, SiteKind.ATTRIBUTE, *_of_attribute(node))
        self.visit(node.value)

    def visit_Call(self, node: ast.Call) -> None:
        name = self._dotted(node.func)
        line = node.lineno
        if name is not None:
            self._note(name, SiteKind.CALL, node.func.lineno, node.func.col_offset)
        elif isinstance(node.func, ast.Attribute):
            line, column = _of_attribute(node.func)
            self._note(node.func.attr, SiteKind.METHOD, line, column)
            self.visit(node.func.value)
        else:
            self.visit(node.func)
        outer, self._call_line = self._call_line, line
        self._visit_all([*node.args, *node.keywords])
        self._call_line = outer

    def visit_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):  # a docstring is not a use of what it mentions
            self.visit(node.value)

    def visit_Compare(self, node: ast.Compare) -> None:
        operands = [node.left, *node.comparators]
        kind = SiteKind.STRING
        if any(isinstance(one, ast.Attribute) and one.attr == "type" for one in operands):
            kind = SiteKind.DEVICE_TYPE
        for one in operands:
            if isinstance(one, ast.Constant):
                self._note_text(one, kind)
            else:
                self.visit(one)

    def visit_Constant(self, node: ast.Constant) -> None:
        self._note_text(node, SiteKind.STRING)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        parts = [part.value if isinstance(part, ast.Constant) else "{}" for part in node.values]
        text = "".join(map(str, parts))
        if _CUDA_TEXT.fullmatch(text):
            self._note(text, SiteKind.STRING, node.lineno, node.col_offset)
        self._visit_all([part for part in node.values if isinstance(part, ast.FormattedValue)])

    def _visit_all(self, nodes: Sequence[ast.AST]) -> None:
        for node in nodes:
            self.visit(node)

    @contextmanager
    def _outside_calls(self) -> Iterator[None]:
        outer, self._call_line = self._call_line, None
        try:
            yield
        finally:
            self._call_line = outer

    def _note_text(self, node: ast.Constant, kind: SiteKind) -> None:
        if isinstance(node.value, str) and _CUDA_TEXT.fullmatch(node.value):
            self._note(node.value, kind, node.lineno, node.col_offset)

    def _note_import(self, alias: ast.alias, name: str) -> None:
        if _of_torch(name) is not None or name.startswith(CUDA_PACKAGES):
            self._note(name, SiteKind.IMPORT, alias.lineno, alias.col_offset)

    def _note(self, name: str, kind: SiteKind, line: int, offset: int) -> None:
        before = self._lines[line - 1].encode()[:offset]  # ast counts bytes
        call_line = line if self._call_line is None else self._call_line
        column = len(before.decode(errors="replace")) + 1
        self.sites.append(CallSite(self._path, line, column, name, kind, call_line))


def _of_torch(name: str) -> str | None:
    return name if name == "torch" or name.startswith("torch.") else None


def _note(scope: _Scope, name: str, dotted: str | None) -> None:
    if dotted is not None or name not in scope.names:
        scope.names[name] = dotted


def _parameters(arguments: ast.arguments) -> set[str]:
    return {node.arg for node in ast.walk(arguments) if isinstance(node, ast.arg)}


def _names(target: ast.expr) -> set[str]:
    return {node.id for node in ast.walk(target) if isinstance(node, ast.Name)}


def _of_attribute(node: ast.Attribute) -> tuple[int, int]:
    """Return the line and offset of the attribute's own name, as a chain of calls may span several lines."""
    line, offset = node.end_lineno, node.end_col_offset
    assert line is not None
    assert offset is not None
    return line, offset - len(node.attr.encode())
