"""Running a script or a module as ``__main__`` inside a redirection.

The script finds what it would find without Torchstone: ``sys.argv``, ``sys.path[0]``, ``__main__``, its own
exit code, and a traceback without Torchstone's frames. :mod:`.children` redirects its child processes.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import runpy
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from ..errors import ScriptError
from .options import LOG_LEVELS, Options, tell_children

if TYPE_CHECKING:
    from .context import redirected
    from .recorder import Log

INTERRUPTED = 130
_HERE = str(Path(__file__).parent)


@dataclass(frozen=True)
class Program:
    """A program to run as ``__main__``: the path of a script, or the name of a module (``-m``)."""

    name: str
    is_module: bool = False

    def check(self) -> None:
        """Raise :class:`~torchstone.errors.ScriptError` if the script cannot be read.

        A module is not checked here: looking for it imports its packages, so this must wait for the scope.
        """
        if self.is_module:
            return
        path = Path(self.name)
        found = path / "__main__.py" if path.is_dir() else path
        try:
            found.open("rb").close()
        except OSError as error:
            raise ScriptError(
                f"the script {self.name} cannot be read: {error.strerror}",
                hint="check its path; a module is run with -m",
            ) from None

    @property
    def directory(self) -> str:
        """The value of ``sys.path[0]`` while the program runs."""
        path = Path(self.name).resolve()
        if self.is_module:
            return os.getcwd()
        return str(path if path.is_dir() else path.parent)

    def run(self) -> None:
        """Run the program; its exceptions pass through."""
        if not self.is_module:
            runpy.run_path(os.path.abspath(self.name), run_name="__main__")  # __file__ is absolute
            return
        _check_module(self.name)
        runpy.run_module(self.name, run_name="__main__", alter_sys=True)


def enter(options: Options) -> None:
    """Enter a redirection for the rest of the process, and let child processes enter it, too."""
    scope = _scope(options)
    scope.__enter__()
    tell_children(options)


def main(program: Program, arguments: Sequence[str], options: Options) -> int:
    """Run ``program`` with a redirection for the rest of the process, and return its exit code.

    Threads and exit handlers that outlive the program's last line are redirected until they end.
    Raises :class:`~torchstone.errors.ScriptError` if there is no such program, and what
    :class:`~.context.redirected` raises.
    """
    program.check()
    enter(options)
    _arrange(program, arguments)
    return exit_code(program.run)


def run(
    program: Program, arguments: Sequence[str] = (), options: Options | None = None, log: Log | None = None
) -> int:
    """Run ``program`` in this process, in a redirection that ends with it, and return its exit code.

    ``log`` replaces the log that ``options.log_level`` selects. Raises the same errors as :func:`main`.
    """
    program.check()
    with _scope(options or Options(), log), _preserved():
        _arrange(program, arguments)
        return exit_code(program.run)


def exit_code(function: Callable[[], object]) -> int:
    """Call ``function`` and return the exit code of a process with this program; print errors as Python does.

    A :class:`~torchstone.errors.ScriptError` (there is no such program) is not caught.
    """
    try:
        function()
    except ScriptError:
        raise
    except SystemExit as error:
        if error.code is None or isinstance(error.code, int):
            return error.code or 0
        print(error.code, file=sys.stderr)  # noqa: T201  (what sys.exit("text") does)
        return 1
    except BaseException as error:  # noqa: BLE001  (the script's own, to be printed as Python prints it)
        _without_our_frames(error)
        sys.excepthook(type(error), error, error.__traceback__)
        return INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _scope(options: Options, log: Log | None = None) -> redirected:
    import torch  # noqa: F401  (in a child it enters the parent's scope, which must not find this half done)

    from .context import redirected

    return redirected(
        target=options.target,
        policy=options.policy,
        devices=options.devices,
        trust=("__main__",),  # even if it is in site-packages, as torchrun is
        log=log or _logger(options.log_level),
    )


def _logger(level: str) -> Log | None:
    """Return a log to stderr at the given level; None if redirected calls are not logged."""
    from .recorder import LOGGER, Event, to_logger

    if level == LOG_LEVELS[0]:
        return None
    LOGGER.handlers = [logging.StreamHandler()]
    LOGGER.propagate = False  # else the script's own logging would print each line again
    LOGGER.setLevel(level.upper())
    if level == "info":
        return to_logger()

    def write(event: Event) -> None:
        LOGGER.debug("%s:%d: %s: %s", event.file, event.line, event.name, event.outcome)

    return write


def _arrange(program: Program, arguments: Sequence[str]) -> None:
    sys.argv = [program.name, *arguments]
    if not sys.flags.safe_path:
        sys.path[0] = program.directory


@contextmanager
def _preserved() -> Iterator[None]:
    """Restore ``sys.argv``, ``sys.path``, ``__main__`` and ``sys.excepthook`` after the block."""
    argv, path, main_module, hook = sys.argv, list(sys.path), sys.modules["__main__"], sys.excepthook
    try:
        yield
    finally:
        sys.argv, sys.path[:], sys.modules["__main__"], sys.excepthook = argv, path, main_module, hook


def _check_module(name: str) -> None:
    if name.startswith("."):
        raise ScriptError(
            f"{name!r} is not a module that can be run", hint="give its name from the top package on"
        )
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{name}.__main__")
    except (ModuleNotFoundError, ValueError) as error:
        missing = getattr(error, "name", None)
        if missing is not None and not f"{name}.".startswith(f"{missing}."):
            raise  # one of its packages fails to import a module
        spec = None
    if spec is None:
        raise ScriptError(
            f"there is no module {name!r} that can be run",
            hint="check its name; it is looked for in the current directory, then where Python imports from",
        )


def _without_our_frames(error: BaseException) -> None:
    """Remove Torchstone's frames, and runpy's, from the tracebacks of an error and its causes."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        one.__traceback__ = _filtered(one.__traceback__)
        waiting += [one.__cause__, one.__context__]


def _filtered(trace: TracebackType | None) -> TracebackType | None:
    kept = []
    while trace is not None:
        if not _is_ours(trace):
            kept.append(trace)
        trace = trace.tb_next
    following = None
    for one in reversed(kept):
        one.tb_next = following
        following = one
    return following


def _is_ours(trace: TracebackType) -> bool:
    file = trace.tb_frame.f_code.co_filename
    return file.startswith((_HERE, "<redirected ")) or file in ("<frozen runpy>", runpy.__file__)
