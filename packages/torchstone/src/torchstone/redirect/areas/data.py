"""``DataLoader``: host memory is pinned for the target, if the target supports that."""

from __future__ import annotations

from typing import Any

from ..mirror import adapting
from ..rows import Row
from ..scope import Scope


def _map_loader(scope: Scope, arguments: dict[str, Any]) -> None:
    if arguments["pin_memory"] and not scope.target.can_pin:
        scope.record(
            "torch.utils.data.DataLoader(pin_memory=True)", f"{scope.target.type} has no pinned memory"
        )
        arguments["pin_memory"], arguments["pin_memory_device"] = False, ""
    elif arguments["pin_memory_device"]:
        arguments["pin_memory_device"] = str(scope.place(arguments["pin_memory_device"]))


ROWS = (
    Row(
        "torch.utils.data.DataLoader.__init__",
        "wraps",
        "pins where the target can",
        around=adapting(_map_loader),
    ),
)
