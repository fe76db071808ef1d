"""Redirecting the child processes of a redirected script, too.

A forked child inherits the scope. A new interpreter (multiprocessing's ``spawn``, ranks of ``torchrun``,
any ``python`` that the script starts) inherits the environment: :func:`~.options.tell_children` describes the
scope in one variable, and ``import torch`` in the child calls :func:`enter_scope_of_parent` through PyTorch's
entry points for backends (``torch.backends``). Without the variable that function does nothing: it imports
torch and the code that enters a scope only after it has found the variable.
"""

from __future__ import annotations

import json
import os

from .options import VARIABLE, Options

_entered = False


def enter_scope_of_parent() -> None:
    """Enter the scope that the environment describes, for the rest of the process; at most once."""
    global _entered
    described = os.environ.get(VARIABLE)
    if described is None or _entered:
        return
    _entered = True
    from .launch import enter

    enter(Options(**json.loads(described)))
