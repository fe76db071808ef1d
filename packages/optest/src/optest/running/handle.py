"""Brings a driver into a worker process, sets it up, and runs tasks on it.

Not here: what a task is (``task``) and how processes are kept apart (``executor``).
"""

from __future__ import annotations

import atexit
import pickle
import threading
from dataclasses import replace

from ..backends.driver import BackendDriver
from ..core.interrupt import is_ctrl_c
from ..errors import BackendError, told
from .execution import tail
from .task import Task, TaskOutcome
from .worker import captured


class DriverHandle:
    """A driver in a form that can be sent to other processes: pickled, or by name if it cannot be pickled.

    Raises :class:`BackendError` if neither works.
    """

    def __init__(self, driver: BackendDriver) -> None:
        from ..backends import backend_manager

        self.name = driver.name
        self.pickled = b""
        try:
            self.pickled = pickle.dumps(driver)
        except Exception as error:
            if driver not in backend_manager.drivers():
                raise BackendError(
                    f"the driver {driver.name!r} cannot be handed to a worker process: {error}",
                    "define its class at the top of a module, and keep handles of devices out of __init__ "
                    "(make them in setup())",
                ) from error

    def open(self) -> BackendDriver:
        """Return this process's instance of the driver, set up; it is torn down when the process ends."""
        with _opening:
            found = _open.get((self.name, self.pickled))
            if found is None:
                found = self._load()
                set_up(found)
                atexit.register(found.teardown)
                _open[self.name, self.pickled] = found
            return found

    def _load(self) -> BackendDriver:
        from ..backends import backend_manager
        from ..plugins import bootstrap

        bootstrap()
        if not self.pickled:
            return backend_manager.select(self.name)
        driver = pickle.loads(self.pickled)
        assert isinstance(driver, BackendDriver)
        return driver


_open: dict[tuple[str, bytes], BackendDriver] = {}
_opening = threading.Lock()


def set_up(driver: BackendDriver) -> None:
    """Call the driver's ``setup``; raises :class:`BackendError` for whatever it raises."""
    try:
        driver.setup()
    except BackendError:
        raise
    except BaseException as error:
        if is_ctrl_c(error):
            raise
        raise BackendError(f"the driver {driver.name!r} could not be set up: {told(error)}") from error


def start_worker(handle: DriverHandle, replaces_crashed: bool) -> None:
    """Set up the driver when a worker process starts, and ``reset`` it after a crash or hang."""
    driver = handle.open()
    if replaces_crashed:
        try:
            driver.reset()
        except BaseException as error:
            raise BackendError(f"the driver {driver.name!r} could not be reset: {told(error)}") from error


def run_in_worker(handle: DriverHandle, task: Task) -> TaskOutcome:
    """Run ``task`` on this worker process's own driver; the record of a failure includes stderr."""
    outcome = task.run(handle.open())
    said = captured()
    outcome.results = [
        replace(one, stderr_tail=tail("\n".join(part for part in (said, one.stderr_tail) if part)))
        if one.status.failed
        else one
        for one in outcome.results
    ]
    return outcome
