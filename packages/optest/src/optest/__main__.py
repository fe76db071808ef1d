"""``python -m optest``."""

from .cli import main

if __name__ == "__main__":
    main()
