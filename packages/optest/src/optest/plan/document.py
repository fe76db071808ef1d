"""Reads YAML files as plain data, and keeps the line of each value.

Only YAML's safe types are allowed. ``${NAME}`` and ``${NAME:-default}`` stand for environment
variables, ``${PLAN_DIR}`` for the file's own directory, and ``$${`` for a plain ``${``. If a value
consists of one variable, its type is that of the variable's text in YAML.
Not here: what a plan may contain (``schema``) and what it means (``entries``).
"""

from __future__ import annotations

import os
import re
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from ..errors import PlanError
from ..files import read_whole, real_path

Keys = tuple[str | int, ...]
"""The path to a value inside a document, such as ``("cases", 2, "dtypes")``."""

_VARIABLE = re.compile(r"\$(\$\{)|\$\{([^}:]*)(?::-([^}]*))?\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NO_TEXT = re.compile("[\0\ud800-\udfff]")
_MOST_VALUES = 1_000_000
_DEEPEST = 100
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_SAFE_TAG = "tag:yaml.org,2002:"


def dotted(keys: Iterable[str | int]) -> str:
    """Return keys as text, such as ``cases[2].dtypes``."""
    text = ""
    for key in keys:
        text += f"[{key}]" if isinstance(key, int) else f".{key}"
    return text.removeprefix(".")


@dataclass
class Document:
    """One file; ``data`` is plain Python, ``error`` makes a :class:`PlanError` for a place in the file."""

    file: Path
    data: Any
    lines: dict[Keys, int] = field(default_factory=dict)

    def line(self, keys: Keys) -> int | None:
        """Return the line of a value, or of the closest enclosing value whose line is known."""
        for end in range(len(keys), -1, -1):
            if keys[:end] in self.lines:
                return self.lines[keys[:end]]
        return None

    def error(self, keys: Keys, problem: str, **details: Any) -> PlanError:
        return PlanError(problem, file=self.file, line=self.line(keys), key=dotted(keys), **details)


def read_text(file: Path, what: str) -> str:
    """Return the text of ``file``; raises :class:`PlanError` if it cannot be read as UTF-8."""
    try:
        return read_whole(file).decode("utf-8")
    except OSError as error:
        raise PlanError(f"cannot read the {what}: {error.strerror or error}", file=file) from None
    except UnicodeDecodeError as error:
        raise PlanError(f"the {what} is not UTF-8 text (byte {error.start})", file=file) from None


def read_document(file: Path, variables: Mapping[str, str] | None = None) -> Document:
    """Read ``file``; ``variables`` replace the environment if given. Raises :class:`PlanError`."""
    known = {**(os.environ if variables is None else variables), "PLAN_DIR": str(real_path(file).parent)}
    return parse_document(read_text(file, "plan"), file, known)


def parse_document(text: str, file: Path, variables: Mapping[str, str] | None) -> Document:
    """Parse ``text``; ``file`` is for messages. If ``variables`` is None, ``${NAME}`` stays text."""
    try:
        _check_depth(file, text)
        root = yaml.compose(text, Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = " ".join(part for part in (error.problem, error.context) if part)
        line = None if mark is None else mark.line + 1
        raise PlanError(f"this is not YAML: {problem}", file=file, line=line) from None
    except yaml.YAMLError as error:
        raise PlanError(f"this is not YAML: {' '.join(str(error).split())}", file=file) from None
    document = Document(file, None)
    if root is not None:
        document.data = _Builder(document, variables).build(root, ())
    return document


def _check_depth(file: Path, text: str) -> None:
    """Raise :class:`PlanError` for deep nesting, because recursion in the C parser would end the process."""
    depth = 0
    for event in yaml.parse(text, Loader=_LOADER):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST:
            line = event.start_mark.line + 1 if event.start_mark else None
            raise PlanError(f"the plan is nested more than {_DEEPEST} deep", file=file, line=line)


class _Builder:
    """Turns YAML's node graph into plain values; nothing is ever called or imported."""

    def __init__(self, document: Document, variables: Mapping[str, str] | None) -> None:
        self._document = document
        self._variables = variables
        self._resolver = yaml.SafeLoader("")  # finds the types of scalars
        self._open: set[int] = set()
        self._values = 0

    def build(self, node: yaml.Node, keys: Keys) -> Any:
        document = self._document
        self._values += 1
        if self._values > _MOST_VALUES:  # aliases of aliases grow exponentially
            raise document.error(keys, f"the plan has more than {_MOST_VALUES:,} values")
        document.lines.setdefault(keys, node.start_mark.line + 1)
        if not str(node.tag).startswith(_SAFE_TAG) or "python" in str(node.tag):
            raise document.error(
                keys, "a plan is data: YAML tags are not allowed", found=node.tag, allowed="plain values"
            )
        if id(node) in self._open:
            raise document.error(keys, "an alias refers to itself", allowed="aliases of finished values")
        if len(self._open) > _DEEPEST:  # nested by aliases
            raise document.error(keys, f"the plan is nested more than {_DEEPEST} deep")
        self._open.add(id(node))
        try:
            if isinstance(node, yaml.MappingNode):
                return self._mapping(node, keys)
            if isinstance(node, yaml.SequenceNode):
                return [self.build(one, (*keys, index)) for index, one in enumerate(node.value)]
            return self._scalar(node, keys)
        finally:
            self._open.discard(id(node))

    def _mapping(self, node: yaml.MappingNode, keys: Keys) -> dict[str, Any]:
        pairs = [pair for pair in node.value if pair[0].tag != f"{_SAFE_TAG}merge"]
        result: dict[str, Any] = {}
        for key_node, value_node in pairs:
            key = self.build(key_node, keys) if isinstance(key_node, yaml.ScalarNode) else None
            line = key_node.start_mark.line + 1
            if not isinstance(key, str):
                raise PlanError(
                    "a key must be text",
                    file=self._document.file,
                    line=line,
                    key=dotted(keys),
                    found=key if isinstance(key, Hashable) else key_node.tag,
                )
            if key in result:
                before = self._document.lines[(*keys, key)]
                raise PlanError(
                    f"the key stands twice; the other is in line {before}",
                    file=self._document.file,
                    line=line,
                    key=dotted((*keys, key)),
                )
            self._document.lines.setdefault((*keys, key), line)
            result[key] = self.build(value_node, (*keys, key))
        for key_node, value_node in node.value:
            if key_node.tag == f"{_SAFE_TAG}merge":
                self._merge(result, value_node, keys)
        return result

    def _merge(self, result: dict[str, Any], node: yaml.Node, keys: Keys) -> None:
        """Merge YAML's ``<<``; keys that exist already win."""
        for one in node.value if isinstance(node, yaml.SequenceNode) else [node]:
            if not isinstance(one, yaml.MappingNode):
                raise self._document.error(keys, "<< takes mappings", found=one.tag)
            for key, value in self.build(one, keys).items():
                result.setdefault(key, value)

    def _scalar(self, node: yaml.Node, keys: Keys) -> Any:
        text = str(node.value)
        if _NO_TEXT.search(text):
            raise self._document.error(
                keys, "a text has a NUL or half a character, which no file or database takes", found=text
            )
        if "${" in text and self._variables is not None:
            whole = _VARIABLE.fullmatch(text) is not None or getattr(node, "style", None) is None
            text = _VARIABLE.sub(lambda match: self._variable(match, keys), text)
            # "${N}" may become a number, as if its value had been written there; "a ${N}" is text.
            tag = str(self._resolver.resolve(yaml.ScalarNode, text, (True, False)) if whole else node.tag)
            node = yaml.ScalarNode(tag, text, node.start_mark, node.end_mark)
        try:
            value = self._resolver.construct_object(node, deep=True)
        except (yaml.YAMLError, ValueError) as error:
            raise self._document.error(keys, f"cannot be read: {error}", found=text) from None
        if not isinstance(value, str | int | float | bool | None):
            return text  # dates and binaries stay text
        return value

    def _variable(self, match: re.Match[str], keys: Keys) -> str:
        escaped, name, default = match.groups()
        if escaped:
            return "${"
        if not _NAME.fullmatch(name):
            raise self._document.error(
                keys,
                "not a variable",
                found=match[0],
                allowed="${NAME}, ${NAME:-default}; $${ for a plain ${",
            )
        assert self._variables is not None
        value = self._variables.get(name, default)
        if value is None:
            raise self._document.error(
                keys,
                f"the environment variable {name} is not set",
                found=match[0],
                allowed=f"set it, or give a default: ${{{name}:-…}}",
            )
        return str(value)
