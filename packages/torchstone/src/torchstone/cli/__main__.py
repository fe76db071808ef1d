"""``python -m torchstone.cli``."""

from .main import main

main()
