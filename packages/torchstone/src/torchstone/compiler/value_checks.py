"""Values that eager PyTorch refuses: what is asked about them with ``config.check_values``.

Most rules stand beside a lowering. Operators that do nothing but check have theirs here; without
the setting a program drops them (:mod:`.support`).
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.fx import Node

from ..lowering import load
from ..lowering.checks import ValueRule
from ..lowering.linear_algebra.failures import failure_of
from ..torch_internals.operators import OpOverload, namespace
from .graphs import bind, bind_schema, fake_arguments
from .questions import Question

aten = namespace("aten")


def _succeeded(info: torch.Tensor) -> torch.Tensor:
    return info == 0


def _is_true(self: torch.Tensor) -> torch.Tensor:
    return self != 0


ASSERTIONS: dict[OpOverload, ValueRule] = {
    aten._linalg_check_errors.default: ValueRule(lambda given: failure_of(given["api_name"]), _succeeded),
    aten._assert_async.msg: ValueRule(lambda given: given["assert_msg"], _is_true),
}
"""Operators without results that raise in eager PyTorch, and what they require."""


def value_questions(node: Node) -> Iterator[Question]:
    """One question per rule of a call's operator."""
    lowering = load().get(node.target)
    if node.target in ASSERTIONS:
        rules: tuple[ValueRule, ...] = (ASSERTIONS[node.target],)
        given = bind_schema(node.target, node.args, node.kwargs)
    elif lowering is not None and lowering.values:
        rules, given = lowering.values, bind(lowering, node.args, node.kwargs)
    else:
        return
    for rule in rules:
        yield Question(_text(rule, given), rule.holds, _asked(rule, {**given, "result": node}))


def _text(rule: ValueRule, given: Mapping[str, Any]) -> str:
    return rule.says if isinstance(rule.says, str) else rule.says(fake_arguments(given))


def _asked(rule: ValueRule, given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: given[name] for name in inspect.signature(rule.holds).parameters}
