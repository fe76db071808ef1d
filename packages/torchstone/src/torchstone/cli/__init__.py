"""The command ``torchstone``: parses arguments, calls the function that does the work, prints its result.

Importing this package loads neither torch nor JAX, so that ``--help`` is quick.
"""
