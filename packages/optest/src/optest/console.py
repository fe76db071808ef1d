"""What all commands have in common: exit codes, ``--json``, tables, one clear message per error.

Both ``optest`` and ``torchstone`` build their commands here; what a command does belongs
to its own package, and this module knows of neither's errors.
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
"""The command ran, and what it looked at is not in order."""
USAGE = 2
ENVIRONMENT = 3
INTERRUPTED = 130

Callback = Callable[..., int]
"""A command's function: it prints, and returns the exit code."""

WIDTH_OF_A_FILE = 10_000
"""Columns for a table that is not printed on a terminal: no row is broken, so that grep finds it whole."""


class Group(click.Group):
    """The commands; the process exits with what the command returned."""

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
        except BrokenPipeError:  # the reader has seen enough, as with `| head`
            code = FAILURES
        except OSError as error:
            code = ENVIRONMENT
            _tell(f"{prog_name}: {_system_error(error)}")
        _let_go_of_output()
        sys.exit(code or OK)


def _open_standard_streams() -> None:
    """Give streams that were closed to us ``/dev/null``: the next file must not become our stdout.

    What another encoding than UTF-8 has no character for is escaped.
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
    """Say why the command ends. Where stderr takes nothing either, the exit code says it."""
    with contextlib.suppress(OSError):
        echo(text, err=True)


def _let_go_of_output() -> None:
    """Python flushes stdout and stderr when it ends; what they did not take goes to ``/dev/null`` then."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            with contextlib.suppress(OSError), open(os.devnull, "w") as nowhere:
                os.dup2(nowhere.fileno(), stream.fileno())


class CommandMaker(Protocol):
    """A decorator that makes a function a command; its docstring is the help text.

    It adds ``--json`` as ``as_json``, unless what the command runs writes to stdout itself.
    """

    def __call__(
        self, name: str, *, with_json: bool = True, context_settings: dict[str, Any] | None = None
    ) -> Callable[[Callback], click.Command]: ...


def commands_of(
    errors: type[Exception], code_of: Callable[[Any], int], optional: Mapping[str, str] | None = None
) -> CommandMaker:
    """The decorator that makes functions commands of one package.

    ``optional``: top-level module that some commands need → the command that installs it.
    ``errors`` is the base of the package's errors, which have a ``message`` and a ``hint``: raised inside
    a command, one becomes a line on stderr (or, with ``--json``, an object) and the exit code ``code_of`` it.
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
                except SystemExit as error:  # of code that the command imported or called; never our own
                    _show(ctx, _Ended(_exit_of(error), "take the call out, or put it under __main__"))
                    return USAGE
                except ModuleNotFoundError as error:
                    needed = (error.name or "").partition(".")[0]
                    if optional is None or needed not in optional:
                        raise
                    _show(ctx, _Ended(f"this needs {needed}, which is not installed", optional[needed]))
                    return ENVIRONMENT
                except EOFError as error:  # click takes one for Ctrl-C
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
    """``--json``, as ``as_json``."""
    return click.Option(["--json", "as_json"], is_flag=True, help="Print one JSON object instead of text.")


class _Ended(Exception):
    """What ended a command that no error of its package stands for."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        self.message, self.hint = message, hint
        super().__init__(message if hint is None else f"{message}\n  next: {hint}")


def _exit_of(error: SystemExit) -> str:
    """Who called ``sys.exit``: the last line that is neither Python's library nor ours."""
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
"""Where data goes while stdout is reserved for it."""


@contextlib.contextmanager
def stdout_for_data() -> Iterator[None]:
    """Inside, stdout takes what this module's functions print; what other code prints goes to stderr.

    That holds for programs and libraries that write to the file descriptor, too.
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
    """The file descriptor of a stream, if it has one."""
    try:
        return stream.fileno()
    except (OSError, ValueError):
        return None


def echo(text: object = "", *, err: bool = False) -> None:
    """A text with a newline on stdout or stderr, without passwords and without what terminals obey."""
    click.echo(clean(str(text)), file=sys.stderr if err else _data or sys.stdout)


def write_data(content: bytes) -> None:
    """Bytes on stdout, as they are."""
    click.echo(content, nl=False, file=_data or sys.stdout)


def print_json(value: Mapping[str, Any]) -> None:
    """One JSON object on stdout."""
    click.echo(json.dumps(value, indent=2), file=_data or sys.stdout)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], title: str | None = None) -> None:
    """A table on stdout; cells are plain text, in which rich's markup means nothing.

    Where the output is a file, no rule is drawn and no line ends in spaces: one long cell would make
    them as long as itself.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    terminal = sys.stdout.isatty()
    lines = box.SIMPLE_HEAD if terminal else box.Box("    \n" * 8)  # the same places, all of them blank
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
