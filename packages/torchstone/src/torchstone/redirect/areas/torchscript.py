"""``torch.jit``: scripted and traced code stays Python, because TorchScript runs outside every mode.

TorchScript turns calls such as ``x.cuda()`` into C++ calls, which a build without CUDA refuses and which give
no tensor a place. ``PYTORCH_JIT=0`` turns TorchScript off in the same way. ``save`` compiles for the CPU.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

import torch

from ...torch_internals import dispatch
from .. import places
from ..rows import Row
from ..scope import Scope

_compilers: weakref.WeakKeyDictionary[Any, Callable[[], Any]] = weakref.WeakKeyDictionary()
"""For each module or function that was scripted or traced, a function that really compiles it."""


def _left_in_python(name: str, parameter: str) -> Callable[[Any], Any]:
    def around(original: Any) -> Any:
        def implementation(scope: Scope, *args: Any, **kwargs: Any) -> Any:
            given = args[0] if args else kwargs[parameter]
            scope.policy.note(name, "TorchScript is off in redirected code; the same code runs in Python")
            if isinstance(given, torch.nn.Module) or (callable(given) and not isinstance(given, type)):
                reference = weakref.ref(given)
                rest = {**kwargs} if args else {key: one for key, one in kwargs.items() if key != parameter}
                _compilers[given] = lambda: original(reference(), *args[1:], **rest)
                if not hasattr(given, "save"):
                    given.save = functools.partial(torch.jit.save, given)
            return given

        return implementation

    return around


def _around_save(original: Any) -> Any:
    def implementation(scope: Scope, m: Any, f: Any, _extra_files: Any = None) -> None:
        compile = _compilers.get(m)
        with dispatch.without_function_modes():
            original(m if compile is None else compile(), f, _extra_files)

    return implementation


def _unless_in_python(original: Any) -> Any:
    """Return a module that was left in Python unchanged; call ``freeze`` or a similar function on others."""

    def implementation(scope: Scope, mod: Any, *args: Any, **kwargs: Any) -> Any:
        return mod if mod in _compilers else original(mod, *args, **kwargs)

    return implementation


def _around_load(original: Any) -> Any:
    """Load a TorchScript file onto one device: the mapped ``map_location``, or by default the target."""

    def implementation(scope: Scope, f: Any, map_location: Any = None, *rest: Any, **named: Any) -> Any:
        asked = places.parsed(scope.target.type) if map_location is None else scope.place(map_location)
        if not scope.tracks:
            return original(f, asked, *rest, **named)
        place = places.place_of_device(places.parsed(asked))
        if place is None:
            return original(f, asked, *rest, **named)
        with dispatch.without_function_modes():
            loaded = original(f, places.parsed("cpu"), *rest, **named)
        for tensor in (*loaded.parameters(), *loaded.buffers()):
            places.put(tensor, place)
        return loaded

    return implementation


_IN_PYTHON = "stays Python, with a warning, as PYTORCH_JIT=0 does"

ROWS = (
    *(
        Row(
            f"torch.jit.{name}",
            "modified",
            _IN_PYTHON,
            around=_left_in_python(f"torch.jit.{name}", parameter),
            by_caller=True,
        )
        for name, parameter in (("script", "obj"), ("trace", "func"))
    ),
    Row("torch.jit.save", "wraps", "compiles now, for the CPU", around=_around_save),
    *(
        Row(f"torch.jit.{name}", "modified", "code that stays Python is returned", around=_unless_in_python)
        for name in ("freeze", "optimize_for_inference")
    ),
    Row("torch.jit.load", "wraps", "the device is mapped", around=_around_load),
)
