"""The questions about values that ``config.check_values`` asks: whether eager PyTorch would refuse them.

The rules are in the operators' records. Without the setting, operators that do nothing but check are
dropped (:mod:`.support`).
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

from torch.fx import Node

from ..lowering import load
from ..lowering.checks import ValueRule
from .graphs import bind, bind_schema, fake_arguments
from .questions import Question


def value_questions(node: Node) -> Iterator[Question]:
    """Yield one question for each rule of the operator that ``node`` calls."""
    target: Any = node.target
    record = load().record(target)
    rules: tuple[ValueRule, ...]
    if record.assertion is not None:
        rules, given = (record.assertion,), bind_schema(target, node.args, node.kwargs)
    elif record.lowering is not None and record.lowering.values:
        rules, given = record.lowering.values, bind(record.lowering, node.args, node.kwargs)
    else:
        return
    for rule in rules:
        yield Question(_text(rule, given), rule.holds, _asked(rule, {**given, "result": node}))


def _text(rule: ValueRule, given: Mapping[str, Any]) -> str:
    return rule.says if isinstance(rule.says, str) else rule.says(fake_arguments(given))


def _asked(rule: ValueRule, given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: given[name] for name in inspect.signature(rule.holds).parameters}
