"""The command ``torchstone``: parse, call, print, exit code. What the commands do is done elsewhere.

Importing this package loads neither torch nor JAX, so that ``--help`` is quick.
"""
