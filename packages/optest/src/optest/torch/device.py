"""The drivers ``torch:DEVICE``: operators called eagerly on any device of PyTorch."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from numpy.typing import NDArray

from ..backends.driver import Answer, CallDriver, Unsupported
from ..core.inputs import require_unwritten
from ..core.interrupt import is_ctrl_c
from ..errors import BackendError
from .internals import need_torch

if TYPE_CHECKING:
    from ..core.case import TestCase
    from .opinfo.calls import Call

GAPS = Path(__file__).with_name("gaps")


def gaps_of(name: str) -> Path | None:
    """Return the file with the declared gaps of a device or compiler, if there is one."""
    file = GAPS / f"{name}.toml"
    return file if file.exists() else None


class TorchDriver(CallDriver):
    """The base of both kinds of drivers: makes tensors, calls a function, and returns its outputs."""

    kind = "torch"
    settings: ClassVar[Mapping[str, Any]] = {}
    packages: tuple[str, ...] = ("torch",)
    device = "cpu"

    def run(self, case: TestCase, inputs: Sequence[NDArray[Any]]) -> tuple[NDArray[Any], ...]:
        """Return the call's outputs in their own dtypes; raise :class:`Unsupported` without a kernel."""
        import torch

        from .calls import call_of
        from .tensors import to_array, to_tensor

        device = self.device_of(case)
        try:
            tensors = [to_tensor(one, device) for one in inputs]
        except (NotImplementedError, TypeError) as error:  # MPS raises TypeError for float64
            raise Unsupported(_first_line(error)) from None
        try:
            with torch.no_grad():
                outputs = tuple(to_array(one) for one in self.prepare(call_of(case))(*tensors))
        except NotImplementedError as error:
            raise Unsupported(_first_line(error)) from None
        after = [to_array(one) for one in tensors]
        require_unwritten(f"{case.op} of the driver {self.name}", case, after, inputs, case.written)
        return outputs

    def answer(self, calls: Sequence[Call], repeats: int = 1) -> list[Answer]:
        """Return one answer per call of a suite (see ``optest.torch.opinfo``)."""
        from .opinfo.calls import evaluate, placed, require_unwritten
        from .placing import made_on

        answers = []
        for call in calls:
            started = time.perf_counter()
            try:
                outputs, home = [], {self.device.partition(":")[0]}
                for _ in range(repeats):
                    given = call.map(partial(placed, device=self.device))
                    with made_on(self.device) as moved_away:
                        outputs += evaluate(given.run)
                    home |= {"cpu"} if moved_away() else set()
                    require_unwritten(f"the call on {self.device}", given, call)
            except NotImplementedError as error:
                answers.append(Answer(unsupported=_first_line(error), error=error))
            except BaseException as error:  # whatever the device raises is its answer
                if is_ctrl_c(error):
                    raise
                answers.append(Answer(error=error))
            else:
                elsewhere = {str(one.device) for one in outputs if one.device.type not in home}
                seconds = {"running": time.perf_counter() - started}
                answers.append(
                    Answer(outputs, fallback=tuple(sorted(elsewhere)), form="native", seconds=seconds)
                )
        return answers

    def prepare(self, call: Any) -> Any:
        """Return the function to call in place of ``call``."""
        return call

    def device_of(self, case: TestCase) -> str:
        """Return the device for the case's tensors."""
        return self.device


class TorchDevice(TorchDriver):
    """Calls operators eagerly on ``device``: ``cpu``, ``cuda:1``, ``mps``, ``xpu``, a PrivateUse1 name."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.name = f"torch:{device}"
        self.expectations = gaps_of(device.partition(":")[0])

    def setup(self) -> None:
        """Import PyTorch and use the device once; raises :class:`BackendError` if that fails."""
        need_torch(f"the driver {self.name!r}")
        import torch

        try:
            torch.empty(1, device=self.device).cpu()
        except (RuntimeError, AssertionError, NotImplementedError) as error:
            raise BackendError(
                f"PyTorch {torch.__version__} has no device {self.device!r} here: {_first_line(error)}"
            ) from None
        torch.manual_seed(0)

    def answer_in_turn(
        self, function: Callable[..., Any], turns: Sequence[tuple[Sequence[Any], Mapping[str, Any]]]
    ) -> Answer:
        """Make the calls eagerly on the CPU, where sizes need no special handling."""
        if self.device != "cpu":
            return super().answer_in_turn(function, turns)
        return Answer([function(*args, **kwargs) for args, kwargs in turns], form="native")

    def reset(self) -> None:
        """Wait until the device is idle, and release its cached memory."""
        import torch

        module = getattr(torch, self.device.partition(":")[0], None)
        for name in ("synchronize", "empty_cache"):
            function = getattr(module, name, None)
            if callable(function):
                function()


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
