"""Asks a driver for answers, and makes sure that there is exactly one answer per call.

Not here: judging the answers (``execution``, ``distribution``).
"""

from __future__ import annotations

from collections.abc import Sequence

from ...backends.driver import Answer, CallDriver
from ...core.interrupt import is_ctrl_c
from ...errors import BackendError, InputWritten
from .calls import Call, copied, written


def asked(driver: CallDriver, calls: Sequence[Call], repeats: int = 1) -> list[Answer]:
    """Return the driver's answers; an exception or broken rule becomes the answer of each call concerned."""
    if not calls:
        return []
    kept = [call.map(copied) for call in calls]
    try:
        answers = driver.answer(calls, repeats)
    except BaseException as error:  # a driver that raises has answered nothing
        if is_ctrl_c(error):
            raise
        return [Answer(error=error) for _ in calls]
    if len(answers) != len(calls) or not all(isinstance(one, Answer) for one in answers):
        wrong = BackendError(
            f"the driver {driver.name} gave {len(answers)} answers to {len(calls)} calls, "
            "or something that is not an Answer"
        )
        return [Answer(error=wrong) for _ in calls]
    return [
        _unless_written(driver, answer, call, original)
        for answer, call, original in zip(answers, calls, kept, strict=True)
    ]


def _unless_written(driver: CallDriver, answer: Answer, call: Call, original: Call) -> Answer:
    places = written(call, original)
    if not places:
        return answer
    error = InputWritten(
        f"the driver {driver.name} wrote into tensors of the call ({_listed(places)})",
        "let it run on copies: optest.torch.opinfo.calls.copied",
    )
    return Answer(error=error)


def _listed(places: Sequence[int]) -> str:
    return " and ".join(f"operand {place}" for place in places)
