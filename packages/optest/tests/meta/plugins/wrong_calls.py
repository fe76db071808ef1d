"""A call driver that is wrong, or dies, if an operand has a value above 1 in magnitude.

It is a plugin, so that worker processes import it by name.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence

from optest.backends import Answer, backend_manager
from optest.torch.device import TorchDevice
from optest.torch.opinfo.calls import Call


class WrongCalls(TorchDevice):
    """Subtracts 1 from the first result; with ``WRONG_CALLS=die`` it ends its process instead."""

    def __init__(self) -> None:
        super().__init__("cpu")
        self.name = "wrong-calls"

    def answer(self, calls: Sequence[Call], repeats: int = 1) -> list[Answer]:
        answers = super().answer(calls, repeats)
        for call, answer in zip(calls, answers, strict=True):
            if answer.outputs and any(bool((one.abs() > 1).any()) for one in call.tensors):
                if os.environ.get("WRONG_CALLS") == "die":
                    os.kill(os.getpid(), signal.SIGKILL)
                answer.outputs[0].sub_(1)
        return answers


backend_manager.register(WrongCalls())
