"""The command ``optest``: parses flags, calls other packages, prints, and sets the exit code.

Importing this package loads neither NumPy nor SciPy, so that ``--help`` is quick.
"""

__all__ = ["main"]


def main() -> None:
    """Run the command ``optest``."""
    from .app import cli

    cli.main(prog_name="optest")
