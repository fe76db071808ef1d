"""What Dynamo decides without asking the mode: ``Tensor.is_cuda``."""

from __future__ import annotations

from typing import Any

from ..rows import Row
from ..scope import Scope


def _is_cuda(scope: Scope, self: Any, tx: Any) -> Any:
    from torch._dynamo.variables.base import VariableTracker

    return None if self.device is None else VariableTracker.build(tx, self.device.type == scope.target.type)


ROWS = (
    Row(
        "torch._dynamo.variables.tensor.TensorVariable.method_attr_is_cuda",
        "wraps",
        "inside compiled code as outside it",
        _is_cuda,
        late=True,
    ),
)
