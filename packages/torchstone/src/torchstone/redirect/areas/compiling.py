"""What Dynamo decides without asking the mode: ``Tensor.is_cuda``."""

from __future__ import annotations

from typing import Any

from ...torch_internals import dynamo
from ..rows import Row
from ..scope import Scope


def _is_cuda(scope: Scope, self: Any, tx: Any) -> Any:
    if self.device is None:
        return None
    return dynamo.VariableTracker.get().build(tx, self.device.type == scope.target.type)


ROWS = (
    Row(
        dynamo.TENSOR_IS_CUDA,
        "wraps",
        "inside compiled code as outside it",
        _is_cuda,
        late=True,
    ),
)
