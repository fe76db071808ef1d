"""The command ``optest``: parse, call, print, exit code. What the commands do is done elsewhere.

Importing this package loads neither NumPy nor SciPy, so that ``--help`` is quick.
"""

__all__ = ["main"]


def main() -> None:
    """What the command ``optest`` calls."""
    from .app import cli

    cli.main(prog_name="optest")
