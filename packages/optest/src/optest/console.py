"""Shared parts of all commands: exit codes, ``--json``, tables, and one clear message per error.

Both ``optest`` and ``torchstone`` build their commands with this module. What a command does
belongs to its own package; this module does not know the error classes of either package.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, Any, Protocol

import click

from .text import clean, redacted

OK = 0
FAILURES = 1
"""The command itself worked, but found failures or other problems."""
USAGE = 2
ENVIRONMENT = 3
INTERRUPTED = 130

Callback = Callable[..., int]
"""The function of a command: it prints, and returns the exit code."""

WIDTH_OF_A_FILE = 10_000
"""The width of a table that is not printed on a terminal, so that no row is broken and grep finds it."""


class Group(click.Group):
    """A group of commands; the process exits with the code that the command returned."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        def run() -> Any:
            return super(Group, self).main(args, prog_name, complete_var, False, **extra)

        if not standalone_mode:
            return run()
        _open_standard_streams()
        try:
            code = run()
            sys.stdout.flush()
        except click.Abort:
            code = INTERRUPTED
            _tell("interrupted")
        except click.ClickException as error:
            code = error.exit_code
            shown = io.StringIO()
            error.show(file=shown)
            _tell(shown.getvalue().rstrip("\n"))
        except BrokenPipeError:  # the reader stopped reading, as with `| head`
            code = FAILURES
        except OSError as error:
            code = ENVIRONMENT
            _tell(f"{prog_name}: {_system_error(error)}")
        _let_go_of_output()
        sys.exit(code or OK)


def _open_standard_streams() -> None:
    """Open ``/dev/null`` for standard streams that are closed; else the next opened file would become stdout.

    Characters that the encoding of an output stream lacks are escaped.
    """
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            stream = open(os.devnull, "r" if name == "stdin" else "w")  # noqa: SIM115  # takes the free number
            os.set_inheritable(stream.fileno(), True)
            setattr(sys, name, stream)
    for output in (sys.stdout, sys.stderr):
        if isinstance(output, io.TextIOWrapper):
            output.reconfigure(errors="backslashreplace")


def _tell(text: str) -> None:
    """Print why the command ends; if stderr cannot be written either, only the exit code tells."""
    with contextlib.suppress(OSError):
        echo(text, err=True)


def _let_go_of_output() -> None:
    """Send output that cannot be written to ``/dev/null``, so that Python's last flush does not fail."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            with contextlib.suppress(OSError), open(os.devnull, "w") as nowhere:
                os.dup2(nowhere.fileno(), stream.fileno())


class CommandMaker(Protocol):
    """A decorator that turns a function into a command; its docstring is the help text.

    It adds ``--json`` as ``as_json``, unless ``with_json`` is False because the command runs code that
    writes to stdout itself.
    """

    def __call__(
        self, name: str, *, with_json: bool = True, context_settings: dict[str, Any] | None = None
    ) -> Callable[[Callback], click.Command]: ...


def commands_of(
    errors: type[Exception], code_of: Callable[[Any], int], optional: Mapping[str, str] | None = None
) -> CommandMaker:
    """Return the decorator that turns functions into commands of one package.

    ``errors`` is the base class of the package's errors, which have a ``message`` and a ``hint``. If a
    command raises one, it becomes a line on stderr (or an object, with ``--json``) and ``code_of(error)``
    the exit code. ``optional`` maps top-level modules that some commands need to the commands that install
    them.
    """

    class Command(click.Command):
        def invoke(self, ctx: click.Context) -> Any:
            data_only = stdout_for_data if ctx.params.get("as_json") else contextlib.nullcontext
            with data_only():
                try:
                    return super().invoke(ctx)
                except errors as error:
                    _show(ctx, error)
                    return code_of(error)
                except SystemExit as error:  # raised by code that the command imported or called
                    _show(ctx, _Ended(_exit_of(error), "take the call out, or put it under __main__"))
                    return USAGE
                except ModuleNotFoundError as error:
                    needed = (error.name or "").partition(".")[0]
                    if optional is None or needed not in optional:
                        raise
                    _show(ctx, _Ended(f"this needs {needed}, which is not installed", optional[needed]))
                    return ENVIRONMENT
                except EOFError as error:  # click would treat it as Ctrl-C
                    _show(ctx, _Ended(f"input ended before it was whole: {error}", "--traceback shows where"))
                    return ENVIRONMENT
                except BrokenPipeError:
                    raise
                except (MemoryError, OSError) as error:
                    _show(ctx, _Ended(_system_error(error)))
                    return ENVIRONMENT

    def command(
        name: str, *, with_json: bool = True, context_settings: dict[str, Any] | None = None
    ) -> Callable[[Callback], click.Command]:
        def decorate(function: Callback) -> click.Command:
            made = click.command(name, cls=Command, context_settings=context_settings)(function)
            if with_json:
                made.params.append(_json_option())
            return made

        return decorate

    return command


def _json_option() -> click.Option:
    """Return the option ``--json``, passed as ``as_json``."""
    return click.Option(["--json", "as_json"], is_flag=True, help="Print one JSON object instead of text.")


class _Ended(Exception):
    """A reason why a command ended for which its package has no error class."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        self.message, self.hint = message, hint
        super().__init__(message if hint is None else f"{message}\n  next: {hint}")


def _exit_of(error: SystemExit) -> str:
    """Return a text that says who called ``sys.exit``: the last frame outside Python's library and optest."""
    own = (os.path.dirname(__file__), sysconfig.get_path("stdlib"), "<frozen")
    files = [(one.filename, one.lineno) for one in traceback.extract_tb(error.__traceback__)]
    theirs = [one for one in files if not one[0].startswith(own) or "-packages" in one[0]] or files
    return f"{theirs[-1][0]}:{theirs[-1][1]} called sys.exit({error.code!r}) before the command was done"


def _system_error(error: OSError | MemoryError) -> str:
    if isinstance(error, MemoryError):
        return f"there is not enough memory: {error}".removesuffix(": ")
    place = "the output cannot be written" if error.filename is None else os.fsdecode(error.filename)
    return f"{place}: {error.strerror or error}"


def _show(ctx: click.Context, error: Any) -> None:
    if ctx.find_root().params.get("traceback"):
        echo("".join(traceback.format_exception(error)), err=True)
    if ctx.params.get("as_json"):
        described = {"type": type(error).__name__, "message": error.message, "hint": error.hint}
        print_json({"error": {key: value and redacted(value) for key, value in described.items()}})
    else:
        echo(f"{ctx.command_path}: {error}", err=True)


_data: IO[str] | None = None
"""The stream for data while stdout is reserved for it."""


@contextlib.contextmanager
def stdout_for_data() -> Iterator[None]:
    """Reserve stdout for this module's functions inside the context; other output goes to stderr.

    This includes output of programs and libraries that write directly to the file descriptor.
    """
    global _data
    if _data is not None:
        yield
        return
    own: IO[str] = sys.stdout
    own.flush()
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        data = own
        if _number(own) == 1:
            data = stack.enter_context(open(os.dup(1), "w", encoding="utf-8"))
            os.dup2(2, 1)
            stack.callback(os.dup2, data.fileno(), 1)
        _data = data
        try:
            yield
            data.flush()
        finally:
            _data = None


def _number(stream: IO[str]) -> int | None:
    """Return the file descriptor of a stream, if it has one."""
    try:
        return stream.fileno()
    except (OSError, ValueError):
        return None


def echo(text: object = "", *, err: bool = False) -> None:
    """Print a line on stdout or stderr, without passwords and control characters."""
    click.echo(clean(str(text)), file=sys.stderr if err else _data or sys.stdout)


def write_data(content: bytes) -> None:
    """Write bytes to stdout unchanged."""
    click.echo(content, nl=False, file=_data or sys.stdout)


def print_json(value: Mapping[str, Any]) -> None:
    """Print one JSON object on stdout."""
    click.echo(json.dumps(value, indent=2), file=_data or sys.stdout)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], title: str | None = None) -> None:
    """Print a table on stdout; cells are plain text, so rich's markup has no effect in them.

    In a file, no rules are drawn and no line ends in spaces: one long cell would make all of them long.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    terminal = sys.stdout.isatty()
    lines = box.SIMPLE_HEAD if terminal else box.Box("    \n" * 8)  # a box of blanks
    shown = Table(title=title and clean(title), title_justify="left", box=lines, show_header=any(columns))
    for column in columns:
        shown.add_column(column, overflow="fold")
    for row in rows:
        shown.add_row(*(Text(clean(str(cell))) for cell in row))
    if terminal:
        Console().print(shown)
        return
    console = Console(width=WIDTH_OF_A_FILE)
    with console.capture() as captured:
        console.print(shown)
    echo("\n".join(line.rstrip() for line in captured.get().splitlines()))
